"""docs/reliability.md from results/reliability.json.

What is promised, what is not, and what was counted.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from faults.tally import DEFECTS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "reliability.json"
PAGE = ROOT / "docs" / "reliability.md"

TOP = """# Reliability

<!-- Made by `python -m faults` from results/reliability.json. -->

A wrong answer without a word is the worst thing that a tool for trustworthy confidence can do. This page says what is
promised when processes die, files are damaged, disks are full and input is odd; what is not; and how often it was tried.

## What is promised

- **A command that was killed goes on.** SIGKILL or a power cut at any moment of `train`, `calibrate`, `evaluate` or
  `bench`, also under torchrun and Ray: the same command, run again, ends with the same bits as if nothing had happened
  (times aside), and leaves no half-written file.
- **Damage is noticed.** Everything that maccal writes carries its format and a checksum, which are verified on reading:
  checkpoints, networks, heads, configs, rows, histories, cached features. A damaged file is an error of one line that names
  it; a damaged entry of a cache is a warning, and the features are extracted again.
- **Files from strangers are data.** No reader runs code from a file, follows its sizes without a limit, or hangs on a pipe:
  see [SECURITY.md](../SECURITY.md).
- **Odd input is refused, sound input is answered.** Every public function either gives numbers within their range or raises
  ValueError or TypeError with a reason. NaN is returned only where the documentation says so.
- **Several processes may share** one cache, one run folder and one grid.
- **A full disk** ends a command with one line and exit code 2. Files that were there stay whole, no part is left, and
  when there is room the same command succeeds.
- **Memory of a stream is constant**, however many rows it has seen.

## What is not promised

- **Formats without a checksum.** A flipped bit in a .csv, a bare .npy, a .parquet page or a JPEG can be another valid file.
  It is then read as what it says. The table counts such cases as "not promised"; none of them may crash or hang.
- **Data sets that have no published checksum**, or that are not the published files, are read as they are.
- **A malicious owner.** Checksums find accidents. Whoever can write to your run folder can write a matching checksum.
- **Code that you name yourself** (`calibrate file.py:function`, a plugin) runs with your rights.
- **File systems without locks or without a working fsync** (some network drives): there two processes on one folder can
  disturb each other, and a power cut can lose the last write.
- **Other systems than Linux**: the harness kills, limits and mounts as Linux does, and was run there only.

## What was counted

`make faults` tries it all; `make test` tries a sample of each part every time. Each defect that a run finds stands in
[results/reliability.json](../results/reliability.json) with what is needed to see it again.

"""
TITLES = {
    "kills": "Processes killed",
    "damage": "Files damaged",
    "fuzz": "Odd input",
    "crowd": "Processes together",
    "disk": "Disks filled",
    "load": "Rows streamed",
}


def page(results: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = [(name, results["parts"][name]) for name in TITLES if name in results["parts"]]
    lines = [
        "| part | number | silently wrong | crashes | other defects | seed | minutes |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, part in parts:
        silent, crash, wrong = (counted(part, word) for word in DEFECTS)
        minutes = f"{part['seconds'] / 60:.1f}"
        counts = f"{size(part):,} | {silent} | {crash} | {wrong}"
        lines.append(f"| {TITLES[name]} | {counts} | {part['seed']} | {minutes} |")
    sections = [section(name, part) for name, part in parts]
    return TOP + "\n".join(lines) + "\n\n" + "\n".join(sections)


def size(part: Mapping[str, Any]) -> int:
    """Kills, rows, or else trials."""
    figures = part["figures"]
    return (
        sum(figures["kills"].values()) if "kills" in figures else figures.get("rows", part["count"])
    )


def counted(part: Mapping[str, Any], word: str) -> int:
    return sum(words.get(word, 0) for words in part["outcomes"].values())


def section(name: str, part: Mapping[str, Any]) -> str:
    """The outcomes of one part, a line per group."""
    words = sorted(
        {word for group in part["outcomes"].values() for word in group},
        key=lambda word: (word in DEFECTS, word),
    )
    lines = [f"### {TITLES[name]}", ""]
    lines += [f"- {key}: {value(found)}" for key, found in part["figures"].items()]
    lines += [""] if part["figures"] else []
    lines += [f"| | {' | '.join(words)} |", "|---|" + "--:|" * len(words)]
    for group, found in part["outcomes"].items():
        lines.append(f"| {group} | {' | '.join(f'{found.get(word, 0):,}' for word in words)} |")
    versions = ", ".join(f"{package} {number}" for package, number in part["versions"].items())
    return "\n".join([*lines, "", f"With {versions}.", ""])


def value(found: Any) -> str:
    if isinstance(found, Mapping):
        return ", ".join(f"{key} {number:,}" for key, number in found.items())
    return f"{found:,}"
