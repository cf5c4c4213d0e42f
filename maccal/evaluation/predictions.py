"""Predictions: what a model said about N rows, and what was true. Read from a file, turned into one
row of results.

Formats of `read`, all with `labels` (class indices) and either `logits` or `probs` (N x K):

    .npz      arrays of those names
    .npy      an N x K array, with kind="logits" or "probs" and a second file for the labels;
              or a structured array of those fields
    .csv      a header, then one row per line: label, prob_0, prob_1, ... (or logit_0, ...);
              the suffix, and the label, may be class names
    .jsonl    one JSON object per line with `label` and `probs` or `logits`; .json is a list of
              them; or the samples of lm-evaluation-harness (harness.py)
    .parquet  the columns of a .csv, or list columns of the names above
              (needs pyarrow: pip install maccal[parquet])
    .jsonl    multiple-choice samples of lm-evaluation-harness; labels and all (harness.py)

Labels may be class names: in an .npz with an array `classes`, in tables with names in the columns,
elsewhere with classes=[...]. Text may be packed: .csv.gz, .jsonl.gz, .json.gz. The readers are in
arrays.py, tables.py, records.py and parquet.py. Whatever is wrong with a file is a FileError.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from maccal.evaluation.arrays import VARIABLE, granted, load_npy, load_npz, reading
from maccal.evaluation.harness import read_harness
from maccal.evaluation.packed import opened
from maccal.evaluation.parquet import read_parquet
from maccal.evaluation.provenance import provenance
from maccal.evaluation.records import read_json, read_jsonl, records
from maccal.evaluation.row import Measured, Row
from maccal.evaluation.tables import Columns, read_csv
from maccal.evaluation.tables import Kind as Kind
from maccal.io import FileError, readable
from maccal.metrics import Bins, Summary, softmax, summary, top_label
from maccal.metrics.arguments import shortened
from maccal.metrics.given import Classes, class_indices, class_names, normalised

Format = Literal["npz", "npy", "csv", "csv.gz", "jsonl", "jsonl.gz", "json", "json.gz", "parquet"]
STDIN = Path("-")
BLOCK = 1 << 20  # bytes of standard input at a time


@dataclass(frozen=True)
class Predictions:
    """Logits or probabilities of N rows over K classes, and the labels.

    Labels may be names where `classes` has them in the order of the columns; they become indices.
    The values are checked when they are measured.
    """

    scores: np.ndarray
    kind: Kind
    labels: np.ndarray
    name: str = "model"
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.classes and np.asarray(self.labels).dtype.kind not in "iu":
            indices = class_indices(self.labels, self.classes)
            object.__setattr__(self, "labels", np.asarray(indices))

    @property
    def probs(self) -> np.ndarray:
        """Probabilities.

        From logits in float64, where even a hopeless class keeps a probability above zero.
        """
        return self.scores if self.kind == "probs" else softmax(self.scores.astype(np.float64))

    def summary(self, *, bins: int = 15, resamples: int = 1000, seed: int = 0) -> Summary:
        """Every metric with its interval and null band."""
        return summary(
            self.scores if self.kind == "probs" else None,
            self.labels,
            logits=self.scores if self.kind == "logits" else None,
            bins=bins,
            interval=True,
            resamples=resamples,
            seed=seed,
        )

    def bins(self, bins: int = 15) -> Bins:
        return Bins.of(*top_label(self.probs, self.labels), bins)


def read(
    path: Path | str,
    *,
    labels: Path | str | None = None,
    kind: Kind | None = None,
    name: str | None = None,
    classes: Classes | None = None,
    normalise: bool = False,
    format: Format | None = None,
) -> Predictions:
    """Predictions from a file, its format told by the suffix or said; "-" is standard input.

    `classes` are the names of the columns, for labels that are names. With `normalise` each row of
    probabilities is divided by its sum.
    """
    path = Path(path)
    if path == STDIN:
        return from_stdin(format, labels, kind, name, classes, normalise)
    with naming(path):
        columns, own = READERS[format or format_of(path)](path)
    if "" in columns:  # a bare array says neither what it is nor what was true
        if kind is None or labels is None:
            raise FileError(
                path,
                "a bare array; say what it holds (--kind logits or --kind probs) "
                "and where the labels are (--labels FILE)",
            )
        columns = {kind: columns[""]}
    if labels is not None:
        columns["labels"] = load_npy(Path(labels))
    with naming(path):
        names = own if classes is None else tuple(class_names(classes))
        if own and names != own:
            raise FileError(path, f"its classes are {shortened(list(own))}; leave --classes out")
        if classes is not None and "labels" in columns:
            columns["labels"] = np.asarray(class_indices(columns["labels"], names))
        said = assemble(path, columns, kind, name, names)
        if names and said.scores.ndim == 2:
            class_names(names, said.scores.shape[1])
        if normalise and said.kind == "logits":
            raise ValueError("normalise is for probabilities, and these are logits")
        return replace(said, scores=normalised(said.scores)) if normalise else said


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What is wrong with the values is a FileError, which names the file."""
    try:
        yield
    except FileError:
        raise
    except ValueError as error:
        raise FileError(path, str(error)) from error


def format_of(path: Path) -> Format:
    """What the suffix says; FileError where it says nothing.

    >>> format_of(Path("said.CSV.gz"))
    'csv.gz'
    """
    for known in READERS:
        if path.name.lower().endswith(f".{known}"):
            return known
    expected = ", ".join(f".{known}" for known in READERS)
    problem = f"unknown suffix {path.suffix!r}; expected one of {expected}"
    raise FileError(path, f"{problem}; or say --format")


def stem_of(path: Path) -> str:
    """The file's name without the suffix of its format.

    >>> stem_of(Path("x/said.csv.gz")), stem_of(Path("x/run.v2.npz")), stem_of(Path("odd.txt"))
    ('said', 'run.v2', 'odd')
    """
    for known in READERS:
        if path.name.lower().endswith(f".{known}"):
            return path.name[: -len(known) - 1]
    return path.stem


def from_stdin(
    format: Format | None,
    labels: Path | str | None,
    kind: Kind | None,
    name: str | None,
    classes: Classes | None,
    normalise: bool,
) -> Predictions:
    """What is piped in, by way of a file, since some formats are read from their end."""
    where = "standard input"
    if format is None:
        raise FileError(where, f"say what it holds: --format {', '.join(READERS)}")
    with TemporaryDirectory(prefix="maccal-") as folder:
        file = Path(folder) / f"stdin.{format}"
        copy_stdin(file)
        try:
            return read(
                file,
                labels=labels,
                kind=kind,
                name=name or "stdin",
                classes=classes,
                normalise=normalise,
            )
        except FileError as error:
            raise FileError(where, error.problem) from None


def copy_stdin(file: Path) -> None:
    """Write what is piped in to a file; FileError beyond what any file may take."""
    where = "standard input"
    if sys.stdin is None or sys.stdin.isatty():
        raise FileError(where, "nothing is piped in")
    seen = 0
    with file.open("wb") as target:
        while True:
            block = sys.stdin.buffer.read(BLOCK)
            if not block:
                return
            seen += len(block)
            if seen > granted():
                remedy = f"pass a file, or set {VARIABLE} to more bytes"
                raise FileError(where, f"more than {granted():,} bytes; {remedy}")
            target.write(block)


def assemble(
    path: Path,
    columns: dict[str, np.ndarray],
    kind: Kind | None,
    name: str | None,
    classes: tuple[str, ...],
) -> Predictions:
    """Exactly one kind of scores, and labels.

    Anything else is an error that lists what the file holds.
    """
    found = f"found {', '.join(columns) or 'nothing'}"
    if "labels" not in columns:
        raise FileError(path, f"no labels; {found}; expected 'labels' beside 'logits' or 'probs'")
    present = [k for k in ("logits", "probs") if k in columns and (kind is None or k == kind)]
    if len(present) == 2:
        raise FileError(path, "both logits and probs; choose with --kind")
    if not present:
        raise FileError(path, f"no {kind or 'logits or probs'}; {found}")
    use: Kind = "logits" if present[0] == "logits" else "probs"
    return Predictions(
        columns[use], use, columns["labels"], name or readable(stem_of(path)), classes
    )


def read_npz(path: Path) -> Columns:
    found = load_npz(path, ("logits", "probs", "labels", "classes"))
    names = found.pop("classes", np.empty(0))
    if names.size and (names.ndim != 1 or names.dtype.kind != "U"):
        problem = f"classes is {names.dtype} of shape {names.shape}"
        raise FileError(path, f"{problem}; expected one name for each column")
    if names.size and "labels" in found:
        found["labels"] = np.asarray(class_indices(found["labels"], names.tolist()))
    return Columns(found, tuple(names.tolist()))


def read_npy(path: Path) -> Columns:
    array = load_npy(path)
    if array.dtype.names:
        return Columns({field: array[field] for field in array.dtype.names})
    return Columns({"": array})


def read_lines(path: Path) -> Columns:
    """JSON lines: rows of predictions, or samples of lm-evaluation-harness, which say so."""
    with reading(path, "a file of JSON lines"), opened(path) as file:
        first = next(records(path, file), None)
    samples = isinstance(first, dict) and "filtered_resps" in first
    return read_harness(path) if samples else read_jsonl(path)


READERS: dict[Format, Callable[[Path], Columns]] = {
    "npz": read_npz,
    "npy": read_npy,
    "csv": read_csv,
    "csv.gz": read_csv,
    "jsonl": read_lines,
    "jsonl.gz": read_jsonl,
    "json": read_json,
    "json.gz": read_json,
    "parquet": read_parquet,
}


def row(predictions: Predictions, numbers: Summary, measured: Measured) -> Row:
    """One row of results: what was measured, how, and with what.

    Numbers JSON cannot say (infinity, NaN) become None.
    """
    counts = ("n", "classes", "bins")
    found: dict[str, float | None] = {}
    for key, value in numbers.items():
        if key not in (*counts, "verdict"):
            found[key] = value if math.isfinite(value) else None
    of = replace(measured, kind=predictions.kind, **{key: numbers[key] for key in counts})
    verdict = numbers.get("verdict")
    return Row(predictions.name, None, provenance(), of, found, verdict)
