"""Predictions as a table: what its header must say, what its labels may be, and its .csv form,
which may be packed as .csv.gz.

    label,prob_0,prob_1         class indices, or
    label,prob_cat,prob_dog     class names, in the header and as labels
    label,logit_0,logit_1       logits instead of probabilities, in both ways

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
from maccal.evaluation.packed import opened
from maccal.io import FileError

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
    """What the header of a table says."""

    kind: Kind  # of the scores
    columns: list[int]  # the numbers of the columns with scores, in class order
    classes: tuple[str, ...]  # the class names, in the same order
    label: int  # the number of the column with labels


class Columns(NamedTuple):
    """What a file of predictions holds."""

    arrays: dict[str, np.ndarray]  # by name: logits, probs, labels; "" for a bare array
    classes: tuple[str, ...] = ()  # class names, where there are any


class Score(NamedTuple):
    """A column of scores: their kind, the class that they are of, and the column's number."""

    kind: Kind
    name: str
    column: int


def parse_header(path: Path, header: list[str]) -> Header:
    """Which columns are the scores, which is the label; FileError where that is not clear."""
    labels = [number for number, word in enumerate(header) if word in LABELS]
    scores = score_columns(header)
    kinds = {score.kind for score in scores}
    if len(labels) != 1 or len(kinds) != 1:
        seen = ", ".join(shortened(word) for word in header[:6])
        expected = "one 'label' and prob_0, prob_1, ... or logit_0, logit_1, ..."
        raise FileError(path, f"columns {seen} ...; expected {expected}{other_task(header)}")
    names = [score.name for score in scores]
    if len(set(names)) != len(names):
        raise FileError(path, "two score columns have the same name")
    if all(name.isdecimal() for name in names):
        scores = [scores[number] for number in numbered(path, names)]
    columns = [score.column for score in scores]
    classes = tuple(score.name for score in scores)
    return Header(kinds.pop(), columns, classes, labels[0])


def other_task(header: list[str]) -> str:
    """What to say of a header that is not one of classes, but may be that of another task.

    >>> other_task(["label", "prob"])
    '; for one score of class 1 per row say --task binary'
    """
    if {"prob", "probs", "logit", "logits"} & set(header):
        return "; for one score of class 1 per row say --task binary"
    labels = sum(word.partition("_")[0] in LABELS for word in header)
    return "; for several labels per row say --task multilabel" if labels > 1 else ""


def score_columns(header: list[str]) -> list[Score]:
    """The columns whose names begin as those of scores do, in the order of the header."""
    scores = []
    for number, word in enumerate(header):
        prefix = next((prefix for prefix in PREFIXES if word.startswith(prefix)), None)
        if prefix is not None:
            scores.append(Score(PREFIXES[prefix], word.removeprefix(prefix), number))
    return scores


def numbered(path: Path, names: list[str]) -> list[int]:
    """Where among the names 0, 1, ... stand; FileError where one is missing."""
    numbers = [int(name[:DIGITS]) for name in names]
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    too_long = any(len(name) > DIGITS for name in names)
    if too_long or sorted(numbers) != list(range(len(numbers))):
        seen = ", ".join(shortened(names[i]) for i in order[:20])
        problem = f"the score columns are numbered {seen}"
        raise FileError(path, f"{problem}; expected 0 to {len(numbers) - 1}")
    return order


def shortened(word: str) -> str:
    return word if len(word) <= 60 else f"{word[:60]}..."


class ClassIndex:
    """Labels, given as class names or as indices, as indices.

    It counts the rows, to say which one is wrong.
    """

    def __init__(self, path: Path, classes: tuple[str, ...]) -> None:
        self.path = path
        self.classes = classes
        self.row = -1
        self.known = {name: index for index, name in enumerate(classes)}

    def __call__(self, word: str) -> int:
        self.row += 1
        index = self.known.get(word)
        return self.slowly(word) if index is None else index

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
        problem = f"{label} is neither a class index nor one of the classes {some}"
        raise FileError(self.path, problem)


def read_csv(path: Path) -> Columns:
    """The scores, labels and class names of a .csv file, or of a .csv.gz."""
    with reading(path, "a table of numbers"), opened(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig")
        names = [column.strip() for column in next(csv.reader(text), [])]
        if not names:
            raise FileError(path, "no rows below the header")
        header = parse_header(path, names)
        table = numbers(path, text, len(names), header)
        if not len(table):
            raise FileError(path, "no rows below the header")
        if table.shape[1] != len(names):
            problem = f"{table.shape[1]} columns below a header of {len(names)}"
            raise FileError(path, f"{problem}; is a comma the decimal sign?")
        labels = table[:, header.label].astype(np.int64)
        return Columns({header.kind: table[:, header.columns], "labels": labels}, header.classes)


def numbers(path: Path, text: io.TextIOWrapper, width: int, header: Header) -> np.ndarray:
    """All rows as floats: labels by their index, and 0 for the columns that are not looked at."""
    used = {header.label, *header.columns}
    unused = [column for column in range(width) if column not in used]
    converters: dict[int | str, Callable[[str], Any]] = dict.fromkeys(unused, ignored)
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
