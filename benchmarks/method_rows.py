"""Fill in the results at the end of each page of docs/methods from the rows of the benchmark.

python benchmarks/method_rows.py [results/bench-cpu.jsonl]
"""

import re
import sys
from pathlib import Path

from maccal.bench.lines import Book, Line
from maccal.bench.titles import points
from maccal.evaluation.row import read_rows
from maccal.io import write
from maccal.methods.registry import METHODS

HOME = Path(__file__).parents[1]
HEAD = ["| | accuracy, % | ECE, % | a calibrated model, % | NLL |", "|---|---:|---:|---:|---:|"]


def words(line: Line) -> str:
    low, high = (points(line.mean(f"ece_null_{end}")) for end in ("low", "high"))
    ece = f"{points(line.mean('ece'))} ± {points(line.spread('ece'))}"
    return f"{points(line.mean('accuracy'))} | {ece} | {low} to {high} | {line.mean('nll'):.3f}"


def page(name: str, book: Book) -> str:
    """The tables at the end of a method's page.

    Vanilla, the method, and MaC-Cal on top of it, on each data set.
    """
    parts = ["", "## Results", ""]
    for setting in book.settings:
        shown = dict.fromkeys(
            ["vanilla", name, "maccal" if name == "vanilla" else f"{name}+maccal"]
        )
        lines = []
        for key in shown:
            line = book.get(setting, key)
            if line:
                said = f" ({', '.join(line.made.said)})" if line.made.said else ""
                lines.append(f"| {key}{said} | {words(line)} |")
        parts += [f"{setting.title}, {setting.model}:", "", *HEAD, *lines, ""]
    seeds = sorted(set().union(*(line.runs for line in book.lines)))
    note = (
        f"Means over seeds {', '.join(map(str, seeds))}, and the standard deviation of ECE over"
        " them. Small networks that know their images by heart: [The benchmark](../benchmark.md)."
    )
    return "\n".join([*parts, note, ""])


def fill(name: str, book: Book) -> None:
    path = HOME / "docs" / "methods" / f"{name}.md"
    marks = rf"(<!-- results: {name} -->\n).*?(<!-- /results -->)"
    text, count = re.subn(
        marks, lambda m: m[1] + page(name, book) + m[2], path.read_text(), flags=re.DOTALL
    )
    assert count == 1, path
    write(path, text)


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else HOME / "results" / "bench-cpu.jsonl"
    book = Book.of(read_rows(file))
    for name in METHODS:
        fill(name, book)


if __name__ == "__main__":
    main()
