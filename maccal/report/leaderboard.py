"""The benchmark as one self-contained page: standing, claims, leaderboard, the paper's tables and
figures, and runs that failed.

    leaderboard_page(rows)    rows as in results/bench-cpu.jsonl; the same rows give the same bytes

The leaderboard is drawn in the browser from data in the page, as many lines at a time as one reads,
so that ten thousand sort at once; the script is the one beside this file, and the page's policy
lets no other run. The figures are drawn here, each once: their colours are the page's, so that they
follow it from light to dark and to paper."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup

from maccal.bench import paper
from maccal.bench.claims import claims, standing
from maccal.bench.lines import Book, Contrast, Line, Row, chance, contrast, number, points, titled
from maccal.bench.paper import TITLES
from maccal.io import readable
from maccal.report.figures import FIGURES, draw_all
from maccal.report.figures.drawing import SERIES
from maccal.report.page import PLACEHOLDERS, TEMPLATES, coloured, in_tags, svg
from maccal.report.tables import printed_ece, tables, word

HERE = Path(__file__).parent / "templates"
DPI = 200  # of what is a picture within a drawing
IDS = re.compile(r'(\sid="|href="#|url\(#)')  # what begins an id, or a mention of one
# the same on white, brighter on black
PAGE_COLOURS = {SERIES[0]: "var(--under)", SERIES[1]: "var(--over)"}


class Cell(NamedTuple):
    """What a column sorts by, None last, and what it shows; after a line break in small print."""

    sort: float | str | None
    text: str


class Heading(NamedTuple):
    label: str
    meaning: str


class Drawing(NamedTuple):
    """A figure on the page; all its ids there begin with `name`."""

    name: str
    title: str
    caption: str
    svg: Markup


HEADINGS = (
    Heading("method", "and what is not as it has it by itself"),
    Heading("data set", "and how many of its training images, if not all"),
    Heading("network", ""),
    Heading("ECE", "mean over seeds, in per cent"),
    Heading("± seeds", "standard deviation over seeds"),
    Heading(
        "95 % interval",
        "of the ECE on other test images, mean of the bootstrap intervals of the seeds; sorts by its upper end",
    ),
    Heading(
        "calibrated",
        "where the ECE of a calibrated model with these confidences would fall; sorts by its upper end",
    ),
    Heading(
        "paper",
        "the paper's ECE: of the same network, else (≈) the mean of its networks on that data set",
    ),
    Heading("− vanilla", "ECE less vanilla's, and whether chance explains it"),
    Heading(
        "− best", "ECE less the lowest on that data set and network, and whether chance explains it"
    ),
    Heading("accuracy", "in per cent"),
    Heading("AECE", "in per cent"),
    Heading("MCE", "in per cent"),
    Heading("NLL", "negative log likelihood"),
    Heading("seeds", "how many runs the means are of"),
    Heading("seconds", "of training, both stages where there are two; median over seeds"),
)


def leaderboard_page(
    rows: Sequence[Row],
    *,
    figures: Mapping[str, str] | None = None,
    title: str = "Calibration methods, compared",
) -> str:
    """The page of these rows and all figures that can be drawn of them.

    `figures`, SVG texts by name, are shown instead.
    """
    book, script = Book.of(rows), (HERE / "leaderboard.js").read_text()
    lines = board(book)
    drawn, absent = drawings(rows) if figures is None else (given(figures), [])
    return TEMPLATES.get_template("leaderboard.html").render(
        title=readable(title),
        book=book,
        titled=titled,
        points=points,
        words=[word(s) + ", " + s.model for s in book.settings],
        standing=standing(rows),
        differs=differs(book),
        claims=claims(rows),
        headings=HEADINGS,
        sets=sorted({word(line.setting) for line in book.lines}),
        networks=sorted({line.setting.model for line in book.lines}),
        tables=tables(rows),
        figures=drawn,
        absent=absent,
        failures=sorted((str(row["name"]), str(row["error"])) for row in rows if "error" in row),
        css=Markup((HERE / "report.css").read_text() + (HERE / "leaderboard.css").read_text()),
        script=Markup(script),
        policy="sha256-"
        + base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode(),
        board=Markup(
            json.dumps(lines, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        ),
    )


def drawings(rows: Sequence[Row]) -> tuple[list[Drawing], list[tuple[str, str]]]:
    """The figures in the order of the paper, and the titles of those that lack rows with what to
    run.
    """
    drawn, absent = draw_all(rows, PLACEHOLDERS)
    made = [
        Drawing(name, FIGURES[name].title, FIGURES[name].caption, inlined(svg(f, DPI), name))
        for name, f in drawn.items()
    ]
    return made, [(FIGURES[name].title, reason) for name, reason in absent.items()]


def given(figures: Mapping[str, str]) -> list[Drawing]:
    return [
        Drawing(f"given-{place}", name, "", inlined(text[text.index("<svg") :], f"given-{place}"))
        for place, (name, text) in enumerate(sorted(figures.items()), start=1)
    ]


def inlined(text: str, name: str) -> Markup:
    """An SVG among others on a page: the page's colours, and ids that begin with its name.

    >>> drawing = '<path id="a" style="fill: #0072b2"/><use xlink:href="#a" clip-path="url(#b)"/>'
    >>> print(inlined(drawing, "gamma"))
    <path id="gamma-a" style="fill: var(--under)"/><use xlink:href="#gamma-a" clip-path="url(#gamma-b)"/>
    """

    def own(tag: str) -> str:
        return coloured(IDS.sub(rf"\g<1>{name}-", tag), PAGE_COLOURS)

    return Markup(in_tags(str(text), own))


def differs(book: Book) -> list[str]:
    """Our settings that are not the paper's."""
    theirs = {(row["data"], row["model"]) for row in paper.table("table1")}
    return [
        f"{word(s)}, {s.model}" for s in book.settings if s.limit or (s.data, s.model) not in theirs
    ]


def board(book: Book) -> list[dict[str, Any]]:
    """The lines of the leaderboard, lowest ECE first.

    What each column sorts by and shows, and the details.
    """
    measured = [line for line in book.lines if line.values("ece")]
    ordered = sorted(measured, key=lambda line: (line.mean("ece"), line.setting, line.variant))
    best: dict[Any, Line] = {}
    for line in ordered:
        best.setdefault(line.setting, line)
    made = []
    for line in ordered:
        columns = cells(line, book, best[line.setting])
        made.append(
            {
                "sort": [c.sort for c in columns],
                "text": [c.text for c in columns],
                "more": details(line),
            }
        )
    return made


def cells(line: Line, book: Book, best: Line) -> list[Cell]:
    """In the order of HEADINGS."""
    vanilla, printed, spread = (
        book.get(line.setting, "vanilla"),
        published(line),
        line.spread("ece"),
    )
    times = book.seconds(line).values()
    return [
        *(
            Cell(text.lower(), text)
            for text in (titled(line.variant), placed(line), line.setting.model)
        ),
        share(line, "ece"),
        Cell(clean(spread), points(spread)),
        reach(line, "ece"),
        reach(line, "ece_null"),
        printed,
        against(line, vanilla, "vanilla itself"),
        against(line, best, "the best"),
        *(share(line, key) for key in ("accuracy", "aece", "mce")),
        Cell(clean(line.mean("nll")), f"{line.mean('nll'):.3f}" if line.values("nll") else "–"),
        Cell(len(line.runs), str(len(line.runs))),
        Cell(median(times), f"{median(times):,.0f}") if times else Cell(None, "–"),
    ]


def placed(line: Line) -> str:
    """The data set, and below it how many of its images."""
    return word(line.setting).replace(", ", "\n", 1) if line.setting.limit else word(line.setting)


def clean(value: float) -> float | None:
    """What JSON can say, and in few digits."""
    return round(value, 8) if math.isfinite(value) else None


def share(line: Line, key: str) -> Cell:
    return Cell(clean(line.mean(key)), points(line.mean(key)))


def reach(line: Line, key: str) -> Cell:
    low, high = line.mean(f"{key}_low"), line.mean(f"{key}_high")
    return Cell(
        clean(high), f"{points(low)} to {points(high)}" if math.isfinite(low + high) else "–"
    )


def published(line: Line) -> Cell:
    """The paper's ECE, marked where it is of other networks."""
    plain = line.variant == line.method and line.method in TITLES
    printed = printed_ece(line.method, line.setting) if plain else None
    if printed is None:
        return Cell(None, "–")
    return Cell(printed["ece"], f"{'≈ ' if printed['mean'] else ''}{printed['ece']:.2f}")


def against(line: Line, other: Line | None, itself: str) -> Cell:
    if other is line:
        return Cell(0.0, itself)
    found = contrast([line], [other]) if other else None
    return Cell(None, "–") if found is None else Cell(clean(found.difference), tested_words(found))


def tested_words(found: Contrast) -> str:
    """The difference, and below it the test: p-value and what it is of."""
    note = (
        "both calibrated"
        if found.alike
        else f"{chance(found.p_value)}, {found.how.replace(' of one seed', '')}"
    )
    return f"{points(found.difference, sign=True)}\n{note}"


def details(line: Line) -> dict[str, Any]:
    """What opening a line shows: its choices, and a diagram a seed."""
    first = next(iter(line.runs.values()))
    run = first["run"]
    about = {
        "settings": run.get("settings"),
        "stage II": run.get("stage2"),
        "feedback": run.get("feedback"),
    }
    chosen = {key: worded(value) for key, value in about.items() if value}
    epochs = first.get("trained", {}).get("epochs")
    return {
        "about": {"method": line.method, **chosen, **({"epochs": str(epochs)} if epochs else {})},
        "runs": [
            {
                "seed": seed,
                "ece": points(number(row, "ece")),
                "verdict": row.get("verdict", ""),
                "bins": row.get("diagram", []),
            }
            for seed, row in line.runs.items()
        ],
    }


def worded(value: Any) -> str:
    """
    >>> worded({"gamma": 0.97, "hidden": None}), worded("held-out")
    ('gamma 0.97, hidden none', 'held-out')
    """
    if not isinstance(value, Mapping):
        return str(value)
    return ", ".join(f"{key} {'none' if v is None else v}" for key, v in value.items())
