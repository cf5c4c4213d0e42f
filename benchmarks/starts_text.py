"""A real text classification task from Debian's package index: the section of a package, from the
one line that describes it.

    apt-cache dumpavail > available.txt
    python benchmarks/starts_text.py lines available.txt FOLDER     FOLDER/lines.txt and labels.txt
    node benchmarks/starts_text.js FOLDER/lines.txt FOLDER/vectors.bin
    python benchmarks/starts_text.py table FOLDER                   FOLDER/text.npz: x, y

One line per source package, so that no package has a sister on the other side; sections with fewer
than 80 such packages are left out, and of the rest 20,000 are drawn. The vectors are those of a
public sentence encoder (starts_text.js), 512 numbers per line, about 100 lines per second.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np

from maccal.io import write, write_with

LINES = 20_000
LEAST = 80  # packages of a section


def field(package: str, name: str) -> str:
    """The value of a one-line field of a package's paragraph; empty if it has none."""
    for line in package.splitlines():
        if line.startswith(f"{name}: "):
            return line.split(": ", 1)[1].strip()
    return ""


def described(index: str) -> dict[str, str]:
    """Section by description, the first of each source package; each description once."""
    sources = set()
    sections: dict[str, str] = {}
    for package in index.split("\n\n"):
        text, section = field(package, "Description"), field(package, "Section")
        source = (field(package, "Source") or field(package, "Package")).split(" ")[0]
        if text and section and source not in sources:
            sources.add(source)
            sections.setdefault(text, section)
    return sections


def write_lines(index: Path, folder: Path) -> None:
    sections = described(index.read_text(encoding="utf-8"))
    counts = Counter(sections.values())
    kept = [text for text, section in sections.items() if counts[section] >= LEAST]
    order = np.random.default_rng(1).permutation(len(kept))[:LINES]
    chosen = [kept[row] for row in order]
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "lines.txt", "\n".join(chosen) + "\n")
    write(folder / "labels.txt", "\n".join(sections[text] for text in chosen) + "\n")


def write_table(folder: Path) -> None:
    labels = (folder / "labels.txt").read_text(encoding="utf-8").split()
    names = sorted(set(labels))
    y = np.array([names.index(label) for label in labels])
    x = np.fromfile(folder / "vectors.bin", "<f4").reshape(len(y), -1)
    write_with(folder / "text.npz", lambda part: save(part, x, y))


def save(file: Path, x: np.ndarray, y: np.ndarray) -> None:
    with file.open("wb") as opened:
        np.savez(opened, x=x, y=y)


if __name__ == "__main__":
    if sys.argv[1] == "lines":
        write_lines(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        write_table(Path(sys.argv[2]))
