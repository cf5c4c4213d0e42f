"""Predictions as JSON, one object per row or one of columns.

    .jsonl  {"label": 0, "probs": [0.9, 0.1]}                     one object per line
            {"label": "cat", "probs": {"cat": 0.9, "dog": 0.1}}   the classes by name
            {"label": "cat", "prob_cat": 0.9, "prob_dog": 0.1}    the columns of a .csv
    .json   a list of such objects, or one of columns:
            {"labels": ["cat"], "probs": [[0.9, 0.1]], "classes": ["cat", "dog"]}

with `logits` instead of `probs` for logits. Lines are read one by one into numbers of eight bytes.
A .json file is read whole, which takes about ten times its size: a gigabyte is granted, and more by
$MACCAL_LARGEST. Every row has the fields of the first; other fields are not looked at.
"""

import json
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from maccal.evaluation.arrays import VARIABLE, granted, reading
from maccal.evaluation.packed import opened
from maccal.evaluation.tables import (
    LABELS,
    ClassIndex,
    Columns,
    Kind,
    parse_header,
    score_columns,
    shortened,
)
from maccal.io import FileError

LONGEST = 1 << 26  # bytes of a line
GROWTH = 10  # bytes of memory for each byte of a .json file, about
SCORES: tuple[Kind, ...] = ("logits", "probs")


def read_jsonl(path: Path) -> Columns:
    """The predictions of a file with one JSON object per line."""
    with reading(path, "a file of JSON lines"), opened(path) as file:
        return from_records(path, records(path, file))


def records(path: Path, file: Any) -> Iterator[Any]:
    while True:
        line = file.readline(LONGEST + 1)
        if len(line) > LONGEST:
            raise FileError(path, f"a line of more than {LONGEST:,} bytes; expected one row")
        if not line:
            return
        if line.strip():
            yield parsed(line)


def read_json(path: Path) -> Columns:
    """The predictions of one JSON document: a list of rows, or an object of columns."""
    with reading(path, "a readable JSON file"), opened(path) as file:
        text = file.read(granted() // GROWTH + 1)
        if len(text) > granted() // GROWTH:
            problem = f"more than {granted() // GROWTH:,} bytes of JSON, which is read whole"
            remedy = f"save one object per line as .jsonl, or set {VARIABLE}"
            raise FileError(path, f"{problem}; {remedy}")
        values = parsed(text)
    with reading(path, "predictions"):
        if isinstance(values, list):
            return from_records(path, values)
        if isinstance(values, dict):
            return from_columns(path, values)
    raise FileError(path, "neither a list of rows nor an object of columns")


def parsed(text: bytes) -> Any:
    return json.loads(text.decode("utf-8-sig"), object_pairs_hook=each_once)


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object; of a name that comes twice Python would keep the last without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice in one object")
    return found


def from_columns(path: Path, values: dict[str, Any]) -> Columns:
    """Arrays by name, as an .npz file has them."""
    classes = values.get("classes", [])
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise FileError(path, "classes is not a list of names")
    arrays: dict[str, np.ndarray] = {}
    for kind in SCORES:
        if kind in values:
            arrays[kind] = np.array([numbers(path, row, i) for i, row in rows_of(values[kind])])
    for name in LABELS:
        if name in values:
            arrays["labels"] = labels_of(path, values[name], tuple(classes))
    return Columns(arrays, tuple(classes))


def rows_of(values: Any) -> Iterable[tuple[int, Any]]:
    return enumerate(values if isinstance(values, list) else [values])


def from_records(path: Path, rows: Iterable[Any]) -> Columns:
    """One object per row, all with the fields of the first."""
    table: Table | None = None
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise FileError(path, f"row {number} is {shortened(str(row))}; expected an object")
        table = table or Table(path, row)
        table.add(row, number)
    if table is None:
        raise FileError(path, "no rows")
    return table.columns()


class Table:
    """The rows so far, as flat numbers; the first says where scores and labels are."""

    def __init__(self, path: Path, row: dict[str, Any]) -> None:
        self.path = path
        present = [name for name in LABELS if name in row]
        self.kinds = [kind for kind in SCORES if kind in row]
        self.keys: list[str] = []  # of the scores, where each has a field of its own
        self.classes: tuple[str, ...] = ()
        if not self.kinds and score_columns(list(row)):
            header = parse_header(path, list(row))
            self.kinds = [header.kind]
            self.keys = [list(row)[column] for column in header.columns]
            self.classes = header.classes
        if len(present) != 1 or not self.kinds:
            seen = ", ".join(shortened(name) for name in list(row)[:6]) or "nothing"
            raise FileError(path, f"fields {seen}; expected 'label' and 'probs' or 'logits'")
        self.label = present[0]
        if isinstance(row.get(self.kinds[0]), dict):
            self.classes = tuple(row[self.kinds[0]])
        self.values = {kind: array("d") for kind in self.kinds}
        self.labels: list[Any] = []
        self.width: dict[Kind, int] = {}

    def add(self, row: dict[str, Any], number: int) -> None:
        for kind in self.kinds:
            found = numbers(self.path, self.scores(row, kind, number), number)
            if len(found) != self.width.setdefault(kind, len(found)):
                problem = f"row {number} has {len(found)} {kind}, and the first {self.width[kind]}"
                raise FileError(self.path, problem)
            self.values[kind].extend(found)
        if self.label not in row:
            raise FileError(self.path, f"row {number} has no {self.label!r}, as the first has")
        self.labels.append(row[self.label])

    def scores(self, row: dict[str, Any], kind: Kind, number: int) -> list[Any]:
        """The scores of a row in the order of the classes."""
        given = row if self.keys else row.get(kind)
        names = self.keys or list(self.classes)
        if not names and isinstance(given, list):
            return given
        if isinstance(given, dict) and names:
            absent = [name for name in names if name not in given]
            if not absent and (self.keys or len(given) == len(names)):
                return [given[name] for name in names]
        raise FileError(self.path, f"row {number} does not have the {kind} that the first has")

    def columns(self) -> Columns:
        arrays = {"labels": labels_of(self.path, self.labels, self.classes)}
        for kind, flat in self.values.items():
            arrays[kind] = np.frombuffer(flat).reshape(len(self.labels), -1)
        return Columns(arrays, self.classes)


def numbers(path: Path, values: Any, row: int) -> list[float]:
    """The scores of a row; FileError for what is no number."""
    if not isinstance(values, list) or not values:
        raise FileError(path, f"row {row}: {shortened(str(values))} is no list of scores")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise FileError(path, f"row {row} holds {shortened(repr(value))}, which is no number")
    return [float(value) for value in values]


def labels_of(path: Path, values: Any, classes: tuple[str, ...]) -> np.ndarray:
    """Indices, or names; names become indices where the file says the order of the classes."""
    if not isinstance(values, list):
        raise FileError(path, "the labels are not a list")
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | str):
            problem = f"label {shortened(repr(value))} in row {row}"
            raise FileError(path, f"{problem} is neither a class index nor a name")
    if not classes:
        return np.array(values)
    index = ClassIndex(path, classes)
    return np.array([index(str(value)) for value in values], dtype=np.int64)
