"""The lines of the leaderboard: what each column sorts by and shows, and what opening one shows."""

import math
from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

from maccal.bench.contrasts import Contrast, contrast
from maccal.bench.lines import Book, Line, Setting
from maccal.bench.paper import TITLES
from maccal.bench.titles import chance, points, set_title
from maccal.report.tables import printed_ece


class Cell(NamedTuple):
    """What a column sorts by, None last, and what it shows; after a line break in small print."""

    sort: float | str | None
    text: str


class Heading(NamedTuple):
    label: str
    meaning: str


HEADINGS = (
    Heading("method", "and what is not as it has it by itself"),
    Heading("data set", "and how many of its training images, if not all"),
    Heading("network", ""),
    Heading("ECE", "mean over seeds, in per cent"),
    Heading("± seeds", "standard deviation over seeds"),
    Heading(
        "95 % interval",
        "of the ECE on other test images, mean of the bootstrap intervals of the seeds; "
        "sorts by its upper end",
    ),
    Heading(
        "calibrated",
        "where the ECE of a calibrated model with these confidences would fall; "
        "sorts by its upper end",
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


def board(book: Book) -> list[dict[str, Any]]:
    """The lines of the leaderboard, lowest ECE first.

    What each column sorts by and shows, and the details.
    """
    measured = [line for line in book.lines if line.values("ece")]
    ordered = sorted(measured, key=lambda line: (line.mean("ece"), line.setting, line.variant))
    best: dict[Setting, Line] = {}
    for line in ordered:
        best.setdefault(line.setting, line)
    made = []
    for line in ordered:
        columns = cells(line, book, best[line.setting])
        made.append(
            {
                "sort": [column.sort for column in columns],
                "text": [column.text for column in columns],
                "more": details(line),
            }
        )
    return made


def cells(line: Line, book: Book, best: Line) -> list[Cell]:
    """In the order of HEADINGS."""
    deviation = line.spread("ece")
    return [
        word(line.made.title),
        word(data_words(line.setting)),
        word(line.setting.model),
        share(line, "ece"),
        Cell(clean(deviation), points(deviation)),
        reach(line, "ece"),
        reach(line, "ece_null"),
        published(line),
        against(line, book.get(line.setting, "vanilla"), "vanilla itself"),
        against(line, best, "the best"),
        share(line, "accuracy"),
        share(line, "aece"),
        share(line, "mce"),
        likelihood(line),
        Cell(len(line.runs), str(len(line.runs))),
        seconds(line, book),
    ]


def word(text: str) -> Cell:
    return Cell(text.lower(), text)


def data_words(setting: Setting) -> str:
    """The data set, and below it how many of its images."""
    name = set_title(setting.data)
    return f"{name}\n{setting.limit:,} images" if setting.limit else name


def clean(value: float) -> float | None:
    """What JSON can say, and in few digits."""
    return round(value, 8) if math.isfinite(value) else None


def share(line: Line, key: str) -> Cell:
    mean = line.mean(key)
    return Cell(clean(mean), points(mean))


def likelihood(line: Line) -> Cell:
    mean = line.mean("nll")
    return Cell(clean(mean), f"{mean:.3f}" if math.isfinite(mean) else "–")


def seconds(line: Line, book: Book) -> Cell:
    times = book.seconds(line).values()
    return Cell(median(times), f"{median(times):,.0f}") if times else Cell(None, "–")


def reach(line: Line, key: str) -> Cell:
    """From the mean lower to the mean upper end."""
    low, high = line.mean(f"{key}_low"), line.mean(f"{key}_high")
    text = f"{points(low)} to {points(high)}" if math.isfinite(low + high) else "–"
    return Cell(clean(high), text)


def published(line: Line) -> Cell:
    """The paper's ECE, marked where it is of other networks."""
    known = line.is_plain and line.method in TITLES
    printed = printed_ece(line.method, line.setting) if known else None
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
    if found.alike:
        note = "both calibrated"
    else:
        note = f"{chance(found.p_value)}, {found.how.replace(' of one seed', '')}"
    return f"{points(found.difference, sign=True)}\n{note}"


def details(line: Line) -> dict[str, Any]:
    """What opening a line shows: its choices, and one diagram per seed."""
    ran = line.ran
    about: dict[str, str] = {"method": line.method}
    for label, chosen in (
        ("settings", ran.settings),
        ("stage II", ran.calibration),
        ("feedback", ran.feedback),
    ):
        if chosen:
            about[label] = worded(chosen)
    epochs = next(iter(line.runs.values())).number("trained.epochs")
    if epochs > 0:
        about["epochs"] = f"{epochs:.0f}"
    runs = []
    for seed, row in line.runs.items():
        runs.append(
            {
                "seed": seed,
                "ece": points(row.number("ece")),
                "verdict": row.verdict or "",
                "bins": row.diagram,
            }
        )
    return {"about": about, "runs": runs}


def worded(value: Any) -> str:
    """
    >>> worded({"gamma": 0.97, "hidden": None}), worded("held-out")
    ('gamma 0.97, hidden none', 'held-out')
    """
    if not isinstance(value, Mapping):
        return str(value)
    return ", ".join(f"{key} {'none' if v is None else v}" for key, v in value.items())
