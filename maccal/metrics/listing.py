"""Listing: a table of measured groups, classes, labels or thresholds.

A plain list of dicts that prints, and shows in a notebook, as a table, and becomes a pandas frame.
Which columns are shown, and how, is said once, for the terminal and the page alike.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from maccal.metrics.notebooks import needs_pandas, rows_table
from maccal.metrics.summaries import probability, show

Kind = Literal["text", "count", "percent", "number", "size", "range", "p"]


class Column(NamedTuple):
    """A column that is shown: its key in the dicts, its heading, and how its values read.

    A "range" is of two keys, `<key>_low` and `<key>_high`.
    """

    key: str
    heading: str
    kind: Kind = "percent"

    def text(self, row: Mapping[str, Any]) -> str:
        """The cell of one line."""
        if self.kind == "range":
            low, high = row[f"{self.key}_low"], row[f"{self.key}_high"]
            return f"{show(low, True).removesuffix(' %')}–{show(high, True)}"
        value = row[self.key]
        if self.kind == "text":
            return str(value)
        if self.kind == "count":
            return f"{value:,}"
        if self.kind == "size":
            return f"{value:.2f}"
        if self.kind == "p":
            return probability(value).removeprefix("p ").removeprefix("= ")
        return show(value, self.kind == "percent")


class Listing(list[dict[str, Any]]):
    """Lines of a table, each a plain dict.

    >>> print(Listing([{"name": "a", "n": 1200, "ece": 0.05}], SHORT))
    name      n     ECE
    a     1,200  5.00 %
    """

    def __init__(self, lines: Iterable[dict[str, Any]], columns: tuple[Column, ...]) -> None:
        super().__init__(lines)
        self.columns = columns

    @property
    def headings(self) -> list[str]:
        return [column.heading for column in self.columns]

    def cells(self) -> list[list[str]]:
        """What the table shows: one list of texts per line."""
        found = []
        for line in self:
            found.append([column.text(line) for column in self.columns])
        return found

    def to_frame(self) -> Any:
        """All numbers, also those that are not shown, as a pandas DataFrame."""
        return needs_pandas().DataFrame(list(self))

    def _repr_html_(self) -> str:
        return rows_table(self.headings, self.cells())

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [self.headings, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = []
        for line in lines:
            first = line[0].ljust(widths[0])
            rest = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
            texts.append("  ".join([first, *rest]).rstrip())
        return "\n".join(texts)


SHORT = (Column("name", "name", "text"), Column("n", "n", "count"), Column("ece", "ECE"))
