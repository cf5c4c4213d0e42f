"""Predictions as a table: what its header must say, what its labels may be, and the .csv form of
it.

    label,prob_0,prob_1      class indices, or
    label,prob_cat,prob_dog  class names, in the header and as labels; logit_ instead of prob_ likewise

Columns of other names are not looked at. Every row has as many fields as the header: one that has
more or fewer is a FileError with its number, and so is a label that is neither an index nor a name.
"""

import csv
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from maccal.evaluation.arrays import reading
from maccal.io import FileError, open_regular

Kind = Literal["logits", "probs"]
PREFIXES: dict[str, Kind] = {
    "logits_": "logits",
    "logit_": "logits",
    "probs_": "probs",
    "prob_": "probs",
}
LABELS = ("label", "labels")
DIGITS = 15  # of a label: more than any class has, and exact as a float


class Header(NamedTuple):
    """Kind of scores, the places of their columns in class order, the class names, and the place of
    the label.
    """

    kind: Kind
    places: list[int]
    classes: tuple[str, ...]
    label: int


class Columns(NamedTuple):
    """Arrays by their names (logits, probs, labels.

    "" for a bare array), and class names, where there are any.
    """

    arrays: dict[str, np.ndarray]
    classes: tuple[str, ...] = ()


def parse_header(path: Path, header: list[str]) -> Header:
    labels = [place for place, column in enumerate(header) if column in LABELS]
    scores = [found for found in map(score_column, range(len(header)), header) if found]
    kinds = {kind for kind, _, _ in scores}
    if len(labels) != 1 or len(kinds) != 1:
        seen = ", ".join(shortened(column) for column in header[:6])
        raise FileError(
            path,
            f"columns {seen} ...; expected one 'label' and prob_0, prob_1, ... or logit_0, logit_1, ...",
        )
    names = [name for _, name, _ in scores]
    places = [place for _, _, place in scores]
    if len(set(names)) != len(names):
        raise FileError(path, "two score columns have the same name")
    if all(name.isdecimal() for name in names):
        order = numbered(path, names)
        names, places = [names[i] for i in order], [places[i] for i in order]
    return Header(kinds.pop(), places, tuple(names), labels[0])


def score_column(place: int, column: str) -> tuple[Kind, str, int] | None:
    """What the column holds, of which class, and where; None for one that is no score."""
    for prefix, kind in PREFIXES.items():
        if column.startswith(prefix):
            return kind, column.removeprefix(prefix), place
    return None


def numbered(path: Path, names: list[str]) -> list[int]:
    """The places of the columns 0, 1, ...; FileError where one is missing."""
    numbers = [int(name[:DIGITS]) for name in names]
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    if [numbers[i] for i in order] != list(range(len(numbers))) or any(
        len(name) > DIGITS for name in names
    ):
        seen = ", ".join(shortened(names[i]) for i in order[:20])
        raise FileError(
            path, f"the score columns are numbered {seen}; expected 0 to {len(numbers) - 1}"
        )
    return order


def shortened(word: str) -> str:
    return word if len(word) <= 60 else f"{word[:60]}..."


class ClassIndex:
    """Labels, given as class names or as indices, as indices.

    It counts the rows, to say which one is wrong.
    """

    def __init__(self, path: Path, classes: tuple[str, ...]) -> None:
        self.path, self.classes, self.row = path, classes, -1
        self.known: dict[str, int] = {name: place for place, name in enumerate(classes)}

    def __call__(self, word: str) -> int:
        self.row += 1
        place = self.known.get(word)
        return self.slowly(word) if place is None else place

    def slowly(self, word: str) -> int:
        """For a word that is no class name as it stands."""
        plain = word.strip()
        if plain in self.known:
            return self.known[plain]
        digits = plain.removeprefix("-")
        if digits.isdecimal() and len(digits) <= DIGITS:
            return int(plain)
        some = ", ".join(shortened(name) for name in self.classes[:8])
        label = f"label {shortened(plain)!r} in row {self.row}"
        raise FileError(
            self.path, f"{label} is neither a class index nor one of the classes {some}"
        )


def read_csv(path: Path) -> Columns:
    with reading(path, "a table of numbers"), open_regular(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig")
        names = [column.strip() for column in next(csv.reader(text), [])]
        header = parse_header(path, names) if names else None
        table = numbers(path, text, len(names), header) if header else np.empty((0, 0))
        if header is None or not len(table):
            raise FileError(path, "no rows below the header")
        if table.shape[1] != len(names):
            raise FileError(
                path,
                f"{table.shape[1]} columns below a header of {len(names)}; is a comma the decimal sign?",
            )
        labels = table[:, header.label].astype(np.int64)
        return Columns({header.kind: table[:, header.places], "labels": labels}, header.classes)


def numbers(path: Path, text: io.TextIOWrapper, width: int, header: Header) -> np.ndarray:
    """All rows as floats: labels by their index, and 0 for the columns that are not looked at."""
    used = {header.label, *header.places}
    converters: dict[int | str, Callable[[str], Any]] = {
        place: ignored for place in range(width) if place not in used
    }
    converters[header.label] = ClassIndex(path, header.classes)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="loadtxt: input contained no data")
        return np.loadtxt(
            text,
            dtype=np.float64,
            delimiter=",",
            quotechar='"',
            comments=None,
            ndmin=2,
            converters=converters,
        )


def ignored(_: str) -> float:
    return 0.0
