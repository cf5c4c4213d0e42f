"""The verb `maccal report`: rows of the benchmark in, one page out, and the paper's figures as
files if asked for.

Cost: 1,000 rows take about two seconds of one core, more than half of them matplotlib's; torch,
which takes two to import, is not needed (benchmarks/report.py)."""

import gc
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import tyro

from maccal.bench.claims import claims
from maccal.bench.lines import Book
from maccal.bench.origins import origins
from maccal.cli.output import answer, note, tell
from maccal.evaluation.row import Row, distinct, read_row, read_rows
from maccal.evaluation.row import upgrade as upgraded
from maccal.io import FileError, readable, write_all
from maccal.report.figures import FIGURES, draw_all, rendered
from maccal.report.leaderboard import leaderboard_page
from maccal.runs.origin import collected


def report(
    rows: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="ROWS ...")],
    out: Path = Path("report.html"),
    title: str = "Calibration methods, compared",
    figures: Path | None = None,
    upgrade: bool = False,
) -> None:
    """Write the page of the benchmark: leaderboard, the paper's tables and figures with ours, and
    which of its claims hold here.

    Args:
        rows: .jsonl files of rows, such as results/bench-cpu.jsonl; or folders of runs, such as
            runs/, or the folder of one run. Files of several scales share the page, with a switch
            between them that shows the first first; files of one name are one scale.
        out: file for the page.
        title: words above the page.
        figures: folder for the figures, each as <name>.svg and <name>.png; of several scales in a
            folder for each.
        upgrade: first make .jsonl files of older formats files of this one.
    """
    gc.disable()  # rows and drawings live until the end: looking for garbage among them finds none
    try:
        make_report(rows, out, title, figures, upgrade)
    finally:
        gc.enable()


def make_report(
    rows: tuple[Path, ...], out: Path, title: str, figures: Path | None, upgrade: bool
) -> None:
    if not rows:
        raise ValueError("no file of rows; pass one or more, such as results/bench-cpu.jsonl")
    if out.resolve() in [file.resolve() for file in rows]:
        raise ValueError(f"--out {out} is one of the files of rows; pass another name for the page")
    lines = []
    for file in rows if upgrade else ():
        if not file.is_dir():
            from maccal.runs.naming import rename_rows  # here: it imports torch

            lines.append(f"{file}: {upgraded(file)} rows of an older format are of this one now")
            lines.append(f"{file}: {rename_rows(file)} rows have other names by today's defaults")
    books = books_of(rows)
    shown = books if len(books) > 1 else next(iter(books.values()))
    files: dict[Path, str | bytes] = {out: leaderboard_page(shown, title=title)}
    judged = []
    for name, book in books.items():
        if len(books) > 1:
            lines += ["", name]
        judged += claims(book)
        lines += [f"{claim.verdict:15} {claim.words}" for claim in claims(book)]
        if origins(book).elsewhere:
            lines.append(origins(book).words)
        if figures:
            drawn, words = figure_files(book, figures / name if len(books) > 1 else figures)
            files |= drawn
            lines += words
    write_all(files)
    tell(*lines)
    found = [{"verdict": claim.verdict, "words": claim.words} for claim in judged]
    answer({"claims": found, "files": list(files)})
    note(f"report: {out}")


def books_of(sources: Sequence[Path]) -> dict[str, Book]:
    """The rows of each scale, in the order given; sources of one name belong together."""
    named: dict[str, list[Path]] = {}
    for source in sources:
        named.setdefault(scale_of(source), []).append(source)
    books = {}
    for name, own in named.items():
        books[name] = Book.of(distinct(chain.from_iterable(placed_rows(file) for file in own)))
    return books


def scale_of(source: Path) -> str:
    """
    >>> scale_of(Path("results/bench-cpu.jsonl")), scale_of(Path("mine.jsonl"))
    ('cpu', 'mine')
    """
    name = source.resolve().name if source.is_dir() else source.stem
    return readable(name.removeprefix("bench-") or name)


def placed_rows(source: Path) -> Iterator[tuple[str, Row]]:
    """The rows of a file or of folders of runs, each with its place; FileError where there is none,
    or one that is not of a run.
    """
    if source.is_dir():
        yield from rows_of_runs(source)
        return
    rows = read_rows(source)
    if not rows:
        raise FileError(
            source, "no rows; expected one JSON object per line, as `maccal bench` writes them"
        )
    for number, row in enumerate(rows, 2):  # below the header line
        if row.ran is None and row.error is None:
            raise FileError(source, f"line {number}: no 'ran'; it is not the row of a run")
        yield f"{source} line {number}", row


def rows_of_runs(folder: Path) -> Iterator[tuple[str, Row]]:
    """The rows of the finished runs in a folder, or of the one run that it is."""
    files = sorted(folder.glob("*/row.json"))
    if (folder / "row.json").exists():
        files.append(folder / "row.json")
    if not files:
        raise FileError(folder, "no finished run; pass a folder of runs, or a .jsonl file of rows")
    for file in files:
        row = read_row(file)
        if row.ran is None:
            raise FileError(file, "no 'ran'; it is not the row of a run")
        yield str(file), collected(file.parent, row)


def figure_files(book: Book, folder: Path) -> tuple[dict[Path, bytes], list[str]]:
    """Each figure as .svg and .png by its path; and which are left out and why, in words."""
    drawn, absent = draw_all(book)
    files = {}
    for name, figure in drawn.items():
        for kind in ("svg", "png"):
            files[folder / f"{name}.{kind}"] = rendered(figure, kind)
    words = [f"left out: {FIGURES[name].title}: {reason}" for name, reason in absent.items()]
    return files, [*words, f"figures: {len(drawn)} of {len(FIGURES)} in {folder}"]
