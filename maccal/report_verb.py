"""The verb `maccal report`: rows of the benchmark in, one page out, and the paper's figures as files if asked for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from maccal.figures import FIGURES, draw_all, rendered
from maccal.io import write
from maccal.report.claims import claims
from maccal.report.leaderboard import leaderboard_page
from maccal.results import read_rows
from maccal.results import upgrade as upgraded


def report(
    rows: tyro.conf.Positional[tuple[Path, ...]],
    out: Path = Path("report.html"),
    title: str = "Calibration methods, compared",
    figures: Path | None = None,
    upgrade: bool = False,
) -> None:
    """Write the page of the benchmark: leaderboard, the paper's tables and figures with ours, and which of its claims hold here.

    Args:
        rows: .jsonl files of rows, such as results/bench-cpu.jsonl.
        out: the page.
        title: of the page.
        figures: folder for the figures, each as <name>.svg and <name>.png.
        upgrade: first give the rows of files of version 0, which have none, their checksums.
    """
    console = Console()
    for file in rows if upgrade else ():
        console.print(Text(f"{file}: {upgraded(file)} rows of version 0 have checksums now"), soft_wrap=True)
    found: list[Mapping[str, Any]] = [row for file in rows for row in read_rows(file)]
    page = write(out, leaderboard_page(found, title=title))
    for claim in claims(found):
        console.print(Text(f"{claim.verdict:15} {claim.words}"), soft_wrap=True)
    if figures:
        write_figures(found, figures, console)
    console.print(Text(f"report: {page}"))


def write_figures(rows: list[Mapping[str, Any]], folder: Path, console: Console) -> None:
    """Each figure as .svg and .png; says which are left out and why."""
    drawn, absent = draw_all(rows)
    for name, figure in drawn.items():
        for kind in ("svg", "png"):
            write(folder / f"{name}.{kind}", rendered(figure, kind))
    for name, reason in absent.items():
        console.print(Text(f"left out: {FIGURES[name].title}: {reason}"), soft_wrap=True)
    console.print(Text(f"figures: {len(drawn)} of {len(FIGURES)} in {folder}"))
