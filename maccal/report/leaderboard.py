"""The benchmark as one self-contained page: standing, claims, leaderboard, the paper's tables and
figures, and runs that failed.

    leaderboard_page(rows)                         rows as in results/bench-cpu.jsonl
    leaderboard_page({"full": ..., "cpu": ...})    several, of which a switch shows one at a time

The same rows give the same bytes.
The leaderboard is drawn in the browser from data in the page, as many lines at a time as one reads,
so that ten thousand sort at once; the script is the one beside this file, and the page's policy
lets no other run. The figures are drawn here, each once: their colours are the page's, so that they
follow it from light to dark and to paper.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from maccal.bench import paper
from maccal.bench.claims import claims
from maccal.bench.judging import Claim
from maccal.bench.lines import Book, Rows, Setting
from maccal.bench.origins import origins
from maccal.bench.standing import Standing, standing
from maccal.bench.titles import points
from maccal.bench.titles import title as title_of
from maccal.io import readable
from maccal.report.board import HEADINGS, board
from maccal.report.cells import Sheet
from maccal.report.figures import FIGURES, draw_all
from maccal.report.figures.drawing import SERIES
from maccal.report.page import PLACEHOLDERS, TEMPLATES, coloured, in_json, in_tags, svg
from maccal.report.tables import tables

HERE = Path(__file__).parent / "templates"
DPI = 200  # of what is a picture within a drawing
IDS = re.compile(r'(\sid="|href="#|url\(#)')  # what begins an id, or a mention of one
EPOCHS = {"cifar10": 350, "cifar100": 350, "tiny-imagenet": 100}  # of the paper's stage I
# the same on white, brighter on black
PAGE_COLOURS = {SERIES[0]: "var(--under)", SERIES[1]: "var(--over)"}


class Drawing(NamedTuple):
    """A figure on the page; all its ids there begin with `name`."""

    name: str
    title: str
    caption: str
    svg: Markup


@dataclass(frozen=True)
class Part:
    """What the page shows of the rows of one scale; all ids of its elements begin with `prefix`."""

    name: str
    prefix: str
    book: Book
    words: Sequence[str]
    standing: Standing
    differs: Sequence[str]
    origins: str
    claims: Sequence[Claim]
    sets: Sequence[str]
    networks: Sequence[str]
    tables: Sequence[Sheet]
    figures: Sequence[Drawing]
    absent: Sequence[tuple[str, str]]
    failures: Sequence[tuple[str, str | None]]
    board: Markup


def leaderboard_page(
    rows: Rows | Mapping[str, Rows],
    *,
    figures: Mapping[str, str] | None = None,
    title: str = "Calibration methods, compared",
) -> str:
    """The page of these rows, or of their book, and all figures that can be drawn of them.

    Of several by name, such as those of two scales, a switch shows one at a time, the first first.
    `figures`, SVG texts by name, are shown instead.
    """
    several = rows if isinstance(rows, Mapping) else {"": rows}
    parts = []
    for number, (name, own) in enumerate(several.items(), start=1):
        prefix = "" if number == 1 else f"part{number}-"
        parts.append(part_of(readable(name), prefix, Book.of(own), figures))
    script = (HERE / "leaderboard.js").read_text()
    return TEMPLATES.get_template("leaderboard.html").render(
        title=readable(title),
        parts=parts,
        titled=title_of,
        points=points,
        headings=HEADINGS,
        css=Markup((HERE / "report.css").read_text() + (HERE / "leaderboard.css").read_text()),
        script=Markup(script),
        policy=policy(script),
    )


def part_of(name: str, prefix: str, book: Book, figures: Mapping[str, str] | None) -> Part:
    drawn, absent = drawings(book, prefix) if figures is None else (given(figures, prefix), [])
    return Part(
        name=name,
        prefix=prefix,
        book=book,
        words=[where(setting) for setting in book.settings],
        standing=standing(book),
        differs=differs(book),
        origins=origins(book).words,
        claims=claims(book),
        sets=sorted({setting.title for setting in book.settings}),
        networks=sorted({setting.model for setting in book.settings}),
        tables=tables(book),
        figures=drawn,
        absent=absent,
        failures=[(row.name, row.error) for row in book.failures],
        board=in_json(board(book)),
    )


def where(setting: Setting) -> str:
    return f"{setting.title}, {setting.model}"


TEMPLATES.filters["where"] = where
TEMPLATES.filters["titled"] = title_of


def policy(script: str) -> str:
    """By which the page lets this script run, and no other."""
    digest = hashlib.sha256(f"\n{script}\n".encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def drawings(book: Book, prefix: str) -> tuple[list[Drawing], list[tuple[str, str]]]:
    """The figures in the order of the paper, and the titles of those that lack rows with what to
    run.
    """
    drawn, absent = draw_all(book, PLACEHOLDERS)
    made = []
    for name, figure in drawn.items():
        entry = FIGURES[name]
        drawn_here = inlined(svg(figure, DPI), f"{prefix}{name}")
        made.append(Drawing(name, entry.title, entry.caption, drawn_here))
    return made, [(FIGURES[name].title, reason) for name, reason in absent.items()]


def given(figures: Mapping[str, str], prefix: str) -> list[Drawing]:
    """SVG texts as they are, each from where its drawing begins."""
    made = []
    for number, (name, text) in enumerate(sorted(figures.items()), start=1):
        drawn = inlined(text[text.index("<svg") :], f"{prefix}given-{number}")
        made.append(Drawing(f"given-{number}", name, "", drawn))
    return made


def inlined(text: str, name: str) -> Markup:
    """An SVG among others on a page: the page's colours, and ids that begin with its name.

    >>> print(inlined('<path id="a" style="fill: #0072b2"/>', "gamma"))
    <path id="gamma-a" style="fill: var(--under)"/>
    >>> print(inlined('<use xlink:href="#a" clip-path="url(#b)"/>', "gamma"))
    <use xlink:href="#gamma-a" clip-path="url(#gamma-b)"/>
    """

    def own(tag: str) -> str:
        return coloured(IDS.sub(rf"\g<1>{name}-", tag), PAGE_COLOURS)

    return Markup(in_tags(str(text), own))


def differs(book: Book) -> list[str]:
    """Our settings that are not the paper's, and its networks that were trained for less."""
    theirs = {(row["data"], row["model"]) for row in paper.table("table1")}
    found = []
    for setting in book.settings:
        if setting.limit or (setting.data, setting.model) not in theirs:
            found.append(where(setting))
        elif 0 < epochs_of(book, setting) < EPOCHS[setting.data]:
            found.append(f"{where(setting)}, {epochs_of(book, setting):.0f} epochs")
    return found


def epochs_of(book: Book, setting: Setting) -> float:
    """Of stage I; 0 where vanilla's row does not say."""
    line = book.get(setting, "vanilla")
    return float(line.ran.recipe.get("epochs", 0)) if line else 0.0
