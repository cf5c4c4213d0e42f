"""The rows of starts.py: read, added, chosen, averaged."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from starts_arrays import ORDER

Row = dict[str, Any]
NONE = 0  # labels


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def add(file: Path, row: Row) -> None:
    with file.open("a") as opened:  # one write: several processes may add
        opened.write(json.dumps(row) + "\n")


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("network", "method", "labels", "half", "seed"))


def value(row: Row, key: str) -> float:
    """A number of a row; "shift.ece" is one under corruption."""
    found: Any = row
    for part in key.split("."):
        found = found[part]
    return float(found)


def average(rows: Iterable[Row], key: str) -> float:
    """The mean over rows of one kind; NaN where there are none."""
    values = [value(row, key) for row in rows]
    return mean(values) if values else float("nan")


class Rows:
    """All rows, by network, method and labels."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.all = rows
        self.groups: dict[tuple[str, str, int], list[Row]] = {}
        for row in rows:
            key = (row["network"], row["method"], row["labels"])
            self.groups.setdefault(key, []).append(row)

    def of(self, network: str, method: str, labels: int) -> list[Row]:
        """The rows of all halves and seeds; as trained and as printed use no labels."""
        if method in ("as trained", "as printed"):
            labels = NONE
        return self.groups.get((network, method, labels), [])

    def mean(self, network: str, method: str, labels: int, key: str) -> float:
        return average(self.of(network, method, labels), key)

    def has(self, network: str, method: str, labels: int) -> bool:
        return bool(self.of(network, method, labels))

    @property
    def networks(self) -> list[str]:
        """Those that are there, in the order of the page."""
        there = {row["network"] for row in self.all}
        return [name for name in ORDER if name in there]
