"""Batches of predictions and late labels from files.

    read_batch    .npz: logits or probs, and labels and ids if there are some; -1: not known yet
                  .csv: prob_0, prob_1, ... or logit_0, ..., and columns label and id if there are
                  some; an empty cell: not known yet
    read_late     .npz: ids and labels; .csv: the columns id and label

A .csv may be packed, as .csv.gz, and its classes may have names, as for `maccal evaluate`. Whatever
is wrong with a file is a FileError.
"""

import csv
import io
from pathlib import Path
from typing import NamedTuple

import numpy as np

from maccal.evaluation.arrays import load_npz, reading
from maccal.evaluation.packed import opened
from maccal.evaluation.tables import LABELS, ClassIndex, Kind, numbered, score_columns
from maccal.io import FileError
from maccal.monitoring.told import UNKNOWN

IDS = ("id", "ids")
SUFFIXES = (".npz", ".csv", ".csv.gz")


class FromFile(NamedTuple):
    """A batch as its file has it."""

    scores: np.ndarray
    kind: Kind
    labels: np.ndarray | None
    ids: np.ndarray | None
    names: tuple[str, ...] = ()


class Table(NamedTuple):
    """The cells of a .csv file, as text."""

    path: Path
    header: list[str]
    rows: list[list[str]]

    def column(self, number: int) -> list[str]:
        return [row[number].strip() for row in self.rows]

    def named(self, names: tuple[str, ...]) -> list[str] | None:
        """The column of one of these names; FileError if there are two."""
        found = [number for number, word in enumerate(self.header) if word in names]
        if len(found) > 1:
            raise FileError(self.path, f"two columns are called {names[0]}")
        return self.column(found[0]) if found else None


def read_batch(path: Path, kind: Kind | None = None) -> FromFile:
    """The batch in a file; `kind` chooses where an .npz has both logits and probs."""
    if suffix_of(path) == ".npz":
        return batch_npz(path, kind)
    return batch_csv(path, kind)


def read_late(path: Path, names: tuple[str, ...] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Ids and labels; `names` are those of the classes."""
    if suffix_of(path) == ".npz":
        arrays = load_npz(path, ("ids", "labels"))
        if len(arrays) < 2:
            raise FileError(
                path, f"found {', '.join(arrays) or 'nothing'}; expected ids and labels"
            )
        return arrays["ids"], arrays["labels"]
    table = read_table(path)
    ids, labels = table.named(IDS), table.named(LABELS)
    if ids is None or labels is None:
        raise FileError(path, f"columns {', '.join(table.header[:6])}; expected id and label")
    index = ClassIndex(path, names)
    return np.array(ids, np.str_), np.array([index(word) for word in labels], np.int64)


def suffix_of(path: Path) -> str:
    """How the name of the file ends; FileError unless it is one that is read here."""
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix):
            return suffix
    expected = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
    raise FileError(path, f"unknown suffix {path.suffix!r}; expected {expected}")


def batch_npz(path: Path, kind: Kind | None) -> FromFile:
    arrays = load_npz(path, ("logits", "probs", "labels", "ids"))
    kinds: tuple[Kind, ...] = ("logits", "probs")
    present = [one for one in kinds if one in arrays and kind in (None, one)]
    if len(present) == 2:
        raise FileError(path, "both logits and probs; choose with --kind")
    if not present:
        found = ", ".join(arrays) or "nothing"
        raise FileError(path, f"no {kind or 'logits or probs'}; found {found}")
    return FromFile(arrays[present[0]], present[0], arrays.get("labels"), arrays.get("ids"))


def batch_csv(path: Path, kind: Kind | None) -> FromFile:
    table = read_table(path)
    scores = [one for one in score_columns(table.header) if kind in (None, one.kind)]
    if len({score.kind for score in scores}) != 1:
        seen = ", ".join(table.header[:6])
        raise FileError(path, f"columns {seen} ...; expected prob_0, prob_1, ... or logit_0, ...")
    names = [score.name for score in scores]
    if all(name.isdecimal() for name in names):
        scores = [scores[number] for number in numbered(path, names)]
    with reading(path, "a table of numbers"):
        columns = [np.array(table.column(score.column), np.float64) for score in scores]
    classes = tuple(score.name for score in scores)
    ids = table.named(IDS)
    return FromFile(
        np.stack(columns, 1),
        scores[0].kind,
        known(path, table.named(LABELS), classes),
        None if ids is None else np.array(ids, np.str_),
        classes,
    )


def known(path: Path, words: list[str] | None, classes: tuple[str, ...]) -> np.ndarray | None:
    """Class indices; UNKNOWN where the cell is empty."""
    if words is None:
        return None
    index = ClassIndex(path, classes)
    labels = np.full(len(words), UNKNOWN, np.int64)
    for row, word in enumerate(words):
        index.row = row - 1  # it counts those that it sees
        if word:
            labels[row] = index(word)
    return labels


def read_table(path: Path) -> Table:
    """All cells; FileError for a row that has more or fewer than the header."""
    with (
        reading(path, "a table"),
        opened(path) as file,
        io.TextIOWrapper(file, encoding="utf-8-sig") as text,
    ):
        header, *rows = list(csv.reader(text)) or [[]]
        rows = [row for row in rows if row]
        if not rows:
            raise FileError(path, "no rows below the header")
        for number, row in enumerate(rows):
            if len(row) != len(header):
                problem = f"row {number} has {len(row)} fields, the header {len(header)}"
                raise FileError(path, problem)
        return Table(path, [word.strip() for word in header], rows)
