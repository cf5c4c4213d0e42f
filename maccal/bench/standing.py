"""Where MaC-Cal stands among the methods: mean ECE and mean rank, and the paper's.

standing(rows)     of every method that is measured wherever MaC-Cal is
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from maccal.bench import paper
from maccal.bench.lines import Book, Line, Rows, Setting, average
from maccal.bench.paper import TITLES

OURS = "maccal"


@dataclass(frozen=True)
class Standing:
    """Mean ECE as a fraction, and mean rank; None where there is none.

    `temperature` is the mean ECE of the yardstick, which has no rank. The paper's are of the same
    networks where it has them, else of its own networks on these data sets.
    """

    ece: float | None = None
    rank: float | None = None
    paper_ece: float | None = None
    paper_rank: float | None = None
    temperature: float | None = None
    settings: Sequence[Setting] = ()
    eces: Mapping[str, float] = field(default_factory=dict)  # by method
    ranks: Mapping[str, float] = field(default_factory=dict)


def standing(rows: Rows) -> Standing:
    """Of every method measured wherever MaC-Cal is."""
    book = Book.of(rows)
    there = measured_everywhere(book, "ece")
    if not there:
        return Standing()
    settings = [line.setting for line in there[OURS]]
    eces = {name: average(lines, "ece") for name, lines in there.items()}
    placed = ranks(there, lambda line: line.mean("ece"))
    scaled = temperatures(book, there[OURS], "ece")
    yardstick = average(scaled, "ece") if scaled else None
    printed = published(settings)
    return Standing(eces[OURS], placed[OURS], *printed, yardstick, settings, eces, placed)


def measured_everywhere(book: Book, key: str) -> dict[str, list[Line]]:
    """The methods of Table 1 that are measured wherever MaC-Cal is, each with its lines there."""
    settings = [own.setting for own in lines_of(book, OURS, book.settings, key)]
    found = {}
    for name in TITLES:
        lines = lines_of(book, name, settings, key)
        if lines and len(lines) == len(settings):
            found[name] = lines
    return found


def lines_of(book: Book, name: str, settings: Sequence[Setting], key: str) -> list[Line]:
    """The lines of a variant in those of the settings where it has this number."""
    found = []
    for setting in settings:
        line = book.get(setting, name)
        if line is not None and line.values(key):
            found.append(line)
    return found


def temperatures(book: Book, ours: Sequence[Line], key: str) -> list[Line]:
    """The lines of the temperature in the same settings, if it is measured in all."""
    lines = lines_of(book, "temperature", [own.setting for own in ours], key)
    return lines if len(lines) == len(ours) else []


def ranks(there: Mapping[str, Sequence[Line]], value: Callable[[Line], float]) -> dict[str, float]:
    """Mean over settings of each method's rank there; ties share theirs."""
    by_setting = []
    for lines in zip(*there.values(), strict=True):
        by_setting.append(rankdata([value(line) for line in lines]))
    return {
        name: fmean(own) for name, own in zip(there, zip(*by_setting, strict=True), strict=True)
    }


def rankdata(values: Sequence[float]) -> list[float]:
    """The rank of each, from 1; equal values share the mean of theirs.

    >>> rankdata([0.3, 0.1, 0.3])
    [2.5, 1.0, 2.5]
    """
    numbers = np.asarray(values)
    return [float((numbers < one).sum() + ((numbers == one).sum() + 1) / 2) for one in numbers]


def published(settings: Sequence[Setting]) -> tuple[float | None, float | None]:
    """The paper's mean ECE and mean rank of MaC-Cal in these settings."""
    table = paper.table("table1")
    networks = {(setting.data, setting.model) for setting in settings}
    sets = {data for data, _ in networks}
    cells = [row for row in table if (row["data"], row["model"]) in networks]
    cells = cells or [row for row in table if row["data"] in sets]
    columns: dict[tuple[str, str], dict[str, float]] = {}
    for row in cells:
        columns.setdefault((row["data"], row["model"]), {})[row["method"]] = row["ece"] / 100
    if not columns:
        return None, None
    eces = [column[OURS] for column in columns.values()]
    places = []
    for column in columns.values():
        places.append(rankdata(list(column.values()))[list(column).index(OURS)])
    return fmean(eces), fmean(places)
