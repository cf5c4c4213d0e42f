"""Predictions: what a model said about N rows, and what was true. Read from a file, turned into one row of results.

Formats of `read`, all with `labels` (class indices) and either `logits` or `probs` (N x K):

    .npz      arrays of those names
    .npy      an N x K array, with kind="logits" or "probs" and a second file for the labels; or a structured array of those fields
    .csv      a header and a row a line: label, prob_0, prob_1, ... (or logit_0, ...); the suffix, and the label, may be class names
    .parquet  the same columns, or list columns of the names above (needs pyarrow: pip install maccal[parquet])
"""

import csv
import math
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from maccal.io import FileError
from maccal.metrics import Bins, Summary, softmax, summary, top_label

Kind = Literal["logits", "probs"]
PREFIXES: dict[str, Kind] = {"logits_": "logits", "logit_": "logits", "probs_": "probs", "prob_": "probs"}


@dataclass(frozen=True)
class Predictions:
    """Logits or probabilities of N rows over K classes, and the labels; the values are checked when they are measured."""

    scores: np.ndarray
    kind: Kind
    labels: np.ndarray
    name: str = "model"
    classes: tuple[str, ...] = ()

    @property
    def probs(self) -> np.ndarray:
        """Probabilities; from logits in float64, where even a hopeless class keeps a probability above zero."""
        return self.scores if self.kind == "probs" else softmax(self.scores.astype(np.float64))

    def summary(self, *, bins: int = 15, resamples: int = 1000, seed: int = 0) -> Summary:
        """Every metric with its interval and null band."""
        return summary(**{self.kind: self.scores}, labels=self.labels, bins=bins, interval=True, resamples=resamples, seed=seed)

    def bins(self, bins: int = 15) -> Bins:
        return Bins.of(*top_label(self.probs, self.labels), bins)


def read(path: Path | str, *, labels: Path | str | None = None, kind: Kind | None = None, name: str | None = None) -> Predictions:
    """Predictions from a file, its format told by the suffix."""
    path = Path(path)
    readers = {".npz": read_npz, ".npy": read_npy, ".csv": read_csv, ".parquet": read_parquet}
    if path.suffix.lower() not in readers:
        raise FileError(path, f"unknown suffix {path.suffix!r}; expected one of {', '.join(readers)}")
    for file in (path, labels):
        if file is not None and not Path(file).is_file():
            raise FileError(Path(file), "no such file")
    columns, classes = readers[path.suffix.lower()](path)
    if "" in columns:  # a bare array says neither what it is nor what was true
        if kind is None or labels is None:
            raise FileError(
                path, "a bare array; say what it holds (--kind logits or --kind probs) and where the labels are (--labels FILE)"
            )
        columns = {kind: columns[""]}
    if labels is not None:
        columns["labels"] = load_npy(Path(labels))
    return assemble(path, columns, kind, name, classes)


def assemble(
    path: Path, columns: dict[str, np.ndarray], kind: Kind | None, name: str | None, classes: tuple[str, ...]
) -> Predictions:
    """Exactly one kind of scores, and labels; anything else is an error that lists what the file holds."""
    found = f"found {', '.join(columns) or 'nothing'}"
    if "labels" not in columns:
        raise FileError(path, f"no labels; {found}; expected 'labels' beside 'logits' or 'probs'")
    present = [k for k in ("logits", "probs") if k in columns and (kind is None or k == kind)]
    if len(present) == 2:
        raise FileError(path, "both logits and probs; choose with --kind")
    if not present:
        raise FileError(path, f"no {kind or 'logits or probs'}; {found}")
    use: Kind = "logits" if present[0] == "logits" else "probs"
    return Predictions(columns[use], use, columns["labels"], name or path.stem, classes)


Columns = tuple[dict[str, np.ndarray], tuple[str, ...]]


def read_npz(path: Path) -> Columns:
    return {key: value for key, value in load_npz(path).items() if key in ("logits", "probs", "labels")}, ()


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """All arrays of the file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile, EOFError) as error:
        raise FileError(path, f"not a readable .npz file ({error})") from error


def load_npy(path: Path) -> np.ndarray:
    try:
        with path.open("rb") as file:
            return np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise FileError(path, f"not a readable .npy file ({error})") from error


def read_npy(path: Path) -> Columns:
    array = load_npy(path)
    if array.dtype.names:
        return {field: array[field] for field in array.dtype.names}, ()
    return {"": array}, ()


def read_csv(path: Path) -> Columns:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = [column.strip() for column in next(csv.reader(file), [])]
            if not file.readline().strip():
                raise FileError(path, "no rows below the header")
        kind, places, classes, label = parse_header(path, header)
        options: dict[str, Any] = {"delimiter": ",", "skiprows": 1, "quotechar": '"', "comments": None, "encoding": "utf-8-sig"}
        scores = np.loadtxt(path, dtype=np.float64, usecols=places, ndmin=2, **options)
        labels = np.loadtxt(path, dtype=str, usecols=label, ndmin=1, **options)
    except FileError:
        raise
    except (ValueError, UnicodeDecodeError) as error:
        raise FileError(path, f"not a table of numbers ({error})") from error
    return {kind: scores, "labels": class_indices(path, labels, classes)}, classes


def parse_header(path: Path, header: list[str]) -> tuple[Kind, list[int], tuple[str, ...], int]:
    """Kind of scores, the places of their columns in class order, the class names, and the place of the label."""
    labels = [place for place, column in enumerate(header) if column in ("label", "labels")]
    scores = [
        (PREFIXES[prefix], column.removeprefix(prefix), place)
        for place, column in enumerate(header)
        for prefix in PREFIXES
        if column.startswith(prefix)
    ]
    kinds = {kind for kind, _, _ in scores}
    if len(labels) != 1 or len(kinds) != 1:
        raise FileError(
            path, f"columns {', '.join(header[:6])} ...; expected one 'label' and prob_0, prob_1, ... or logit_0, logit_1, ..."
        )
    names = [name for _, name, _ in scores]
    places = [place for _, _, place in scores]
    if all(name.isdecimal() for name in names):
        order = np.argsort([int(name) for name in names])
        if [int(names[i]) for i in order] != list(range(len(names))):
            raise FileError(
                path, f"the score columns are numbered {', '.join(sorted(names, key=int))}; expected 0 to {len(names) - 1}"
            )
        names, places = [names[i] for i in order], [places[i] for i in order]
    if len(set(names)) != len(names):
        raise FileError(path, "two score columns have the same name")
    return kinds.pop(), places, tuple(names), labels[0]


def class_indices(path: Path, labels: np.ndarray, classes: tuple[str, ...]) -> np.ndarray:
    """Labels given as class names or as indices, as indices."""
    index = {name: place for place, name in enumerate(classes)}
    words = [str(label).strip() for label in labels]
    for row, word in enumerate(words):
        if word not in index and not word.lstrip("-").isdecimal():
            raise FileError(
                path, f"label {word!r} in row {row} is neither a class index nor one of the classes {', '.join(classes[:8])}"
            )
    return np.array([index[word] if word in index else int(word) for word in words], dtype=np.int64)


def read_parquet(path: Path) -> Columns:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise FileError(path, "reading parquet needs pyarrow: pip install 'maccal[parquet]'") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise FileError(path, f"not a readable .parquet file ({error})") from error
    header = table.column_names
    lists = {name: table[name].to_pylist() for name in ("logits", "probs") if name in header}
    if lists:
        for name, rows in lists.items():
            if len({len(row or ()) for row in rows}) > 1:
                raise FileError(path, f"the lists in {name} differ in length")
        columns = {name: np.array(rows, dtype=np.float64) for name, rows in lists.items()}
        return columns | {"labels": table[name].to_numpy() for name in header if name in ("label", "labels")}, ()  # noqa: B035
    kind, places, classes, label = parse_header(path, header)
    scores = np.stack([table.column(place).to_numpy() for place in places], axis=1).astype(np.float64)
    return {kind: scores, "labels": class_indices(path, table.column(label).to_numpy(), classes)}, classes


def row(predictions: Predictions, numbers: Summary, **settings: Any) -> dict[str, Any]:
    """One row of results: what was measured, how, and with what. Numbers JSON cannot say (infinity, NaN) become null."""
    made_with = {package: version(package) for package in ("maccal", "torch", "numpy")}
    plain = {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in numbers.items()}
    return {"name": predictions.name, "kind": predictions.kind, **settings, **plain, "versions": made_with}
