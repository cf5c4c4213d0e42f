"""What a table of the page is made of: cells, columns and notes; the best of a column is marked."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from maccal.bench import paper
from maccal.bench.lines import Line, Spread, spread
from maccal.bench.titles import points

ERRATA = {erratum["id"]: erratum for erratum in paper.errata()}


@dataclass(frozen=True)
class Entry:
    """A cell.

    Our number and its spread over seeds as text, the paper's as printed, and the erratum about it.
    """

    value: float = math.nan
    text: str = "–"
    spread: str = ""
    paper: str = ""
    erratum: str = ""
    best: bool = False


@dataclass(frozen=True)
class Column:
    """A column below its group; `better` is +1 or -1 where the best cell is to be marked."""

    group: str
    label: str
    better: int = 0


@dataclass(frozen=True)
class Sheet:
    """A table; `general` are notes about all of it, `notes` those of its cells, by erratum."""

    name: str
    title: str
    about: str
    columns: Sequence[Column]
    rows: Sequence[tuple[str, Sequence[Entry]]]
    notes: Mapping[str, str]
    general: Sequence[str]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The labels above the columns and how many each spans."""
        spans: dict[str, int] = {}
        for column in self.columns:
            spans[column.group] = spans.get(column.group, 0) + 1
        return list(spans.items())


Rows = Sequence[tuple[str, list[Entry]]]


def sheet(name: str, title: str, about: str, columns: Sequence[Column], rows: Rows) -> Sheet:
    """With the best of each column marked, and the notes on the paper's numbers."""
    of_cells: set[str] = set()
    for _, entries in rows:
        of_cells |= {entry.erratum for entry in entries if entry.erratum}
    printed = paper.table(name) if name in paper.TABLES else []
    of_all = {row["erratum"] for row in printed if "erratum" in row} - of_cells
    notes = {key: note(key) for key in ERRATA if key in of_cells}
    general = [note(key) for key in ERRATA if key in of_all]
    return Sheet(name, title, about, columns, marked(columns, rows), notes, general)


def note(erratum: str) -> str:
    return f"{ERRATA[erratum]['where']}: {ERRATA[erratum]['problem']}."


def marked(columns: Sequence[Column], rows: Rows) -> Rows:
    """With the best cell of each column that wants one."""
    best = []
    for number, column in enumerate(columns):
        best.append(best_of([entries[number].value for _, entries in rows], column.better))
    found = []
    for label, entries in rows:
        with_best = []
        for entry, top in zip(entries, best, strict=True):
            with_best.append(replace(entry, best=top is not None and entry.value == top))
        found.append((label, with_best))
    return found


def best_of(values: Sequence[float], better: int) -> float | None:
    """None where nothing is to be marked, or nothing can be compared."""
    there = [value for value in values if math.isfinite(value)]
    if not better or len(there) < 2:
        return None
    return max(there) if better > 0 else min(there)


def percent(
    lines: Sequence[Line | None],
    key: str,
    printed: Mapping[str, Any] | None = None,
    theirs: str = "",
) -> Entry:
    """The mean of the lines there are, with its spread, beside a number of the paper's row."""
    there = [line for line in lines if line and line.values(key)]
    found = spread(there, key)
    number = (printed or {}).get(theirs or key)
    wrong = (printed or {}).get("erratum", "")
    about = "≈ " if printed and printed.get("mean") else ""
    return Entry(
        found.mean,
        points(found.mean),
        spread_words(found),
        "" if number is None else f"{about}{number:.2f}",
        wrong if wrong and ERRATA[wrong]["printed"] == number else "",
    )


def spread_words(found: Spread) -> str:
    """The standard deviation over seeds; of one seed the ends of its interval."""
    if found.seeds > 1:
        return f"± {points(found.deviation)}"
    if math.isfinite(found.low + found.high):
        return f"{points(found.low)} to {points(found.high)}"
    return ""
