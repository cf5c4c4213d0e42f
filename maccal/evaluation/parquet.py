"""Predictions in a .parquet file: the columns of a .csv, or lists named logits or probs.

The columns are looked at before any is read: their names, types and numbers of rows. Nothing is
read but scores and labels, in batches, straight into one array of float64. A file whose rows would
need far more memory than it has bytes is refused (`arrays.check_size`). Pyarrow does the parsing:
of a file from a stranger we check what it says of itself, and each batch, but not pyarrow.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from maccal.evaluation.arrays import check_size, reading
from maccal.evaluation.tables import DIGITS, LABELS, ClassIndex, Columns, parse_header, shortened
from maccal.io import FileError, open_regular

ROWS = 1 << 16  # of a batch
MOST = 10.0**DIGITS  # a label is smaller
LISTS = ("logits", "probs")


def read_parquet(path: Path) -> Columns:
    """The scores, labels and class names of a .parquet file."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        remedy = "pip install 'maccal[parquet]'"
        raise FileError(path, f"reading parquet needs pyarrow: {remedy}") from error
    with reading(path, "a readable .parquet file"), open_regular(path) as file:
        opened = pyarrow.parquet.ParquetFile(file)
        names = list(opened.schema_arrow.names)
        if len(set(names)) < len(names):
            raise FileError(path, "two columns have the same name")
        source = Source(path, file, opened)
        if source.rows < 1:
            raise FileError(path, "no rows")
        if any(name in LISTS for name in names):
            return from_lists(source)
        return from_columns(source)


class Source:
    """An open file: how many rows it says it has, its schema, and batches of chosen columns."""

    def __init__(self, path: Path, file: Any, opened: Any) -> None:
        self.path = path
        self.file = file
        self.metadata = opened.metadata
        self.schema = opened.schema_arrow
        self.rows = self.metadata.num_rows
        self.stored = path.stat().st_size

    def kind(self, name: str) -> Any:
        """The type of a column."""
        return self.schema.field(name).type

    def need(self, columns: int) -> None:
        """FileError where so small a file cannot hold so many numbers per row."""
        what = f"a table of {self.rows:,} rows and {columns:,} columns"
        check_size(self.path, what, 8 * self.rows * columns, self.stored)

    def need_lists(self, name: str) -> None:
        """The same for a column of lists, by the numbers of values that the file announces."""
        values = 0
        for group in map(self.metadata.row_group, range(self.metadata.num_row_groups)):
            for leaf in map(group.column, range(group.num_columns)):
                if leaf.path_in_schema.startswith(f"{name}."):
                    values += leaf.num_values
        check_size(self.path, f"column {name}", 8 * values, self.stored)

    def batches(self, names: list[str], label: str) -> Iterator[tuple[slice, Any]]:
        """Rows and their columns; labels of text stay a dictionary, however often they occur."""
        import pyarrow.parquet

        texts = [label] if is_text(self.kind(label)) else []
        opened = pyarrow.parquet.ParquetFile(self.file, read_dictionary=texts)
        start = 0
        for batch in opened.iter_batches(ROWS, columns=[*names, label]):
            rows = slice(start, start + len(batch))
            if rows.stop > self.rows:
                raise FileError(self.path, "more rows than it says it has; it is damaged")
            for name in (*names, label):
                if batch.column(name).null_count:
                    problem = f"column {shortened(name)} has empty cells"
                    raise FileError(self.path, f"{problem}; remove those rows")
            yield rows, batch
            start = rows.stop
        if start != self.rows:
            raise FileError(self.path, f"{start:,} of {self.rows:,} rows; it is damaged")


def from_columns(source: Source) -> Columns:
    """One column for each class, as in a .csv."""
    names = list(source.schema.names)
    header = parse_header(source.path, names)
    chosen = [names[number] for number in header.columns]
    for name in chosen:
        check_numbers(source, name, source.kind(name))
    source.need(len(chosen) + 1)
    scores = np.empty((source.rows, len(chosen)))
    labels = Labels(source, names[header.label], header.classes)
    for rows, batch in source.batches(chosen, labels.name):
        for index, name in enumerate(chosen):
            scores[rows, index] = batch.column(name).to_numpy(zero_copy_only=False)
        labels.take(rows, batch)
    return Columns({header.kind: scores, "labels": labels.values}, header.classes)


def from_lists(source: Source) -> Columns:
    """Each row of probs or logits is a list, of one length throughout."""
    found = [name for name in source.schema.names if name in LABELS]
    if len(found) != 1:
        problem = f"{len(found)} columns of labels; expected one, 'label' or 'labels'"
        raise FileError(source.path, problem)
    chosen = [name for name in LISTS if name in source.schema.names]
    for name in chosen:
        check_lists(source, name)
        source.need_lists(name)
    source.need(1)
    labels = Labels(source, found[0], ())
    scores: dict[str, np.ndarray] = {}
    for rows, batch in source.batches(chosen, labels.name):
        for name in chosen:
            block = matrix(source.path, name, batch.column(name))
            if name not in scores:
                source.need(block.shape[1])
                scores[name] = np.empty((source.rows, block.shape[1]))
            if block.shape[1] != scores[name].shape[1]:
                raise FileError(source.path, f"the lists in {name} differ in length")
            scores[name][rows] = block
        labels.take(rows, batch)
    return Columns({**scores, "labels": labels.values})


def matrix(path: Path, name: str, column: Any) -> np.ndarray:
    """A column of lists of one length as an array of rows."""
    from pyarrow import compute

    values = column.flatten()
    if values.null_count:
        raise FileError(path, f"a list in {name} has empty cells; remove those rows")
    lengths = compute.list_value_length(column).to_numpy(zero_copy_only=False)
    if lengths.min() != lengths.max() or not lengths.min():
        raise FileError(path, f"the lists in {name} differ in length, or are empty")
    return values.to_numpy(zero_copy_only=False).reshape(len(column), -1)


def check_numbers(source: Source, name: str, kind: Any) -> None:
    """Floats and whole numbers are scores; text, dates, decimals, structures and lists are not."""
    if not is_number(kind):
        held = f"column {shortened(name)} holds {shortened(str(source.kind(name)))}"
        expected = "lists of float64" if name in LISTS else "float64"
        raise FileError(source.path, f"{held}; expected numbers: {expected}")


def check_lists(source: Source, name: str) -> None:
    """Lists of such numbers are scores; lists of lists are not."""
    kind = source.kind(name)
    check_numbers(source, name, kind.value_type if is_list(kind) else None)


def is_number(kind: Any) -> bool:
    from pyarrow import types

    return kind is not None and bool(types.is_floating(kind) or types.is_integer(kind))


def is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


class Labels:
    """The labels of all rows, filled batch by batch.

    Whole numbers, or text that names a class or its index.
    """

    def __init__(self, source: Source, name: str, classes: tuple[str, ...]) -> None:
        from pyarrow import types

        self.path = source.path
        self.name = name
        self.index = ClassIndex(source.path, classes)
        kind = source.kind(name)
        inner = kind.value_type if types.is_dictionary(kind) else kind
        if not (types.is_integer(inner) or is_text(inner)):
            held = f"column {name} holds {shortened(str(kind))}"
            raise FileError(source.path, f"{held}; expected class indices (int64) or names")
        self.text = is_text(inner)
        self.plain = all(word.isdecimal() for word in classes)  # an index is the name of its class
        self.values = np.empty(source.rows, np.int64)

    def take(self, rows: slice, batch: Any) -> None:
        """The labels of these rows, from a batch."""
        column = batch.column(self.name)
        if self.text:
            codes = column.indices.to_numpy(zero_copy_only=False)
            different, first, which = distinct(codes)
            words = column.dictionary.take(different).to_pylist()
            self.fill(rows, words, first, which)
            return
        whole = column.dictionary_decode() if hasattr(column, "dictionary") else column
        numbers = whole.to_numpy(zero_copy_only=False)
        if self.plain and abs(float(numbers.min())) < MOST and float(numbers.max()) < MOST:
            self.values[rows] = numbers
            return
        different, first, which = distinct(numbers)
        words = [str(number) for number in different.tolist()]
        self.fill(rows, words, first, which)

    def fill(self, rows: slice, words: list[str], first: np.ndarray, which: np.ndarray) -> None:
        """The labels of these rows by the words that differ, so that each is looked up once.

        `first` is where each word occurs first, `which` is the word of each row.
        """
        indices = []
        for word, row in zip(words, first, strict=True):
            self.index.row = rows.start + int(row) - 1  # it counts on from here, to name the row
            indices.append(self.index(word))
        self.values[rows] = np.array(indices, np.int64)[which]


def distinct(found: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The values that differ, where each occurs first, and which of them each row has."""
    return np.unique(found, return_index=True, return_inverse=True)
