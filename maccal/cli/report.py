"""The verb `maccal report`: rows of the benchmark in, one page out, and the paper's figures as
files if asked for.

Cost: 1,000 rows take about four seconds on one thread, more than half of them matplotlib's; torch,
which takes two to import, is not needed (benchmarks/report.py)."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from maccal.bench.claims import claims
from maccal.cli.failures import answered
from maccal.evaluation.checks import Row, check_names, check_row
from maccal.evaluation.row import read_rows
from maccal.evaluation.row import upgrade as upgraded
from maccal.io import FileError, write_all
from maccal.report.figures import FIGURES, draw_all, rendered
from maccal.report.leaderboard import leaderboard_page


def report(
    rows: tyro.conf.Positional[tuple[Path, ...]],
    out: Path = Path("report.html"),
    title: str = "Calibration methods, compared",
    figures: Path | None = None,
    upgrade: bool = False,
) -> None:
    """Write the page of the benchmark: leaderboard, the paper's tables and figures with ours, and
    which of its claims hold here.

    Args:
        rows: .jsonl files of rows, such as results/bench-cpu.jsonl.
        out: the page.
        title: of the page.
        figures: folder for the figures, each as <name>.svg and <name>.png.
        upgrade: first give the rows of files of version 0, which have none, their checksums.
    """
    if not rows:
        raise ValueError("no file of rows; pass one or more, such as results/bench-cpu.jsonl")
    if out.resolve() in [file.resolve() for file in rows]:
        raise ValueError(f"--out {out} is one of the files of rows; pass another name for the page")
    lines = []
    for file in rows if upgrade else ():
        lines.append(f"{file}: {upgraded(file)} rows of version 0 have checksums now")
    found = check_names(pair for file in rows for pair in placed_rows(file))
    files: dict[Path, str | bytes] = {out: leaderboard_page(found, title=title)}
    lines += [f"{claim.verdict:15} {claim.words}" for claim in claims(found)]
    if figures:
        drawn, words = figure_files(found, figures)
        files |= drawn
        lines += words
    write_all(files)
    console = Console()
    for line in lines:
        console.print(Text(line), soft_wrap=True)
    console.print(Text(f"report: {out}"))


def placed_rows(file: Path) -> Iterator[tuple[str, Row]]:
    """The rows of a file, checked, each with its place; FileError where there is none."""
    rows = read_rows(file)
    if not rows:
        raise FileError(
            file, "no rows; expected one JSON object per line, as `maccal bench` writes them"
        )
    for number, row in enumerate(rows, 2):  # below the header line
        check_row(row, file, f"line {number}: ")
        yield f"{file} line {number}", row


def figure_files(
    rows: Sequence[Mapping[str, Any]], folder: Path
) -> tuple[dict[Path, bytes], list[str]]:
    """Each figure as .svg and .png by its path; and which are left out and why, in words."""
    drawn, absent = draw_all(rows)
    files = {}
    for name, figure in drawn.items():
        for kind in ("svg", "png"):
            files[folder / f"{name}.{kind}"] = rendered(figure, kind)
    words = [f"left out: {FIGURES[name].title}: {reason}" for name, reason in absent.items()]
    return files, [*words, f"figures: {len(drawn)} of {len(FIGURES)} in {folder}"]


def main() -> None:
    """`maccal report ...` by itself, without the imports of the other verbs."""
    answered(lambda: tyro.cli(report, prog="maccal report", args=sys.argv[2:]))
