"""Predictions: what a model said about N rows, and what was true. Read from a file, turned into one
row of results.

Formats of `read`, all with `labels` (class indices) and either `logits` or `probs` (N x K):

    .npz      arrays of those names
    .npy      an N x K array, with kind="logits" or "probs" and a second file for the labels;
              or a structured array of those fields
    .csv      a header, then one row per line: label, prob_0, prob_1, ... (or logit_0, ...);
              the suffix, and the label, may be class names
    .parquet  the same columns, or list columns of the names above
              (needs pyarrow: pip install maccal[parquet])
    .jsonl    multiple-choice samples of lm-evaluation-harness; labels and all (harness.py)

The readers are in arrays.py, tables.py and parquet.py. Whatever is wrong with a file is a
FileError.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from maccal.evaluation.arrays import load_npy, load_npz
from maccal.evaluation.harness import read_harness
from maccal.evaluation.parquet import read_parquet
from maccal.evaluation.provenance import provenance
from maccal.evaluation.row import Measured, Row
from maccal.evaluation.tables import Columns, read_csv
from maccal.evaluation.tables import Kind as Kind
from maccal.io import FileError, readable
from maccal.metrics import Bins, Summary, softmax, summary, top_label


@dataclass(frozen=True)
class Predictions:
    """Logits or probabilities of N rows over K classes, and the labels.

    The values are checked when they are measured.
    """

    scores: np.ndarray
    kind: Kind
    labels: np.ndarray
    name: str = "model"
    classes: tuple[str, ...] = ()

    @property
    def probs(self) -> np.ndarray:
        """Probabilities.

        From logits in float64, where even a hopeless class keeps a probability above zero.
        """
        return self.scores if self.kind == "probs" else softmax(self.scores.astype(np.float64))

    def summary(self, *, bins: int = 15, resamples: int = 1000, seed: int = 0) -> Summary:
        """Every metric with its interval and null band."""
        return summary(
            **{self.kind: self.scores},
            labels=self.labels,
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
) -> Predictions:
    """Predictions from a file, its format told by the suffix."""
    path = Path(path)
    readers = {
        ".npz": read_npz,
        ".npy": read_npy,
        ".csv": read_csv,
        ".parquet": read_parquet,
        ".jsonl": read_harness,
    }
    if path.suffix.lower() not in readers:
        raise FileError(
            path, f"unknown suffix {path.suffix!r}; expected one of {', '.join(readers)}"
        )
    columns, classes = readers[path.suffix.lower()](path)
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
    return assemble(path, columns, kind, name, classes)


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
    return Predictions(columns[use], use, columns["labels"], name or readable(path.stem), classes)


def read_npz(path: Path) -> Columns:
    return Columns(load_npz(path, ("logits", "probs", "labels")))


def read_npy(path: Path) -> Columns:
    array = load_npy(path)
    if array.dtype.names:
        return Columns({field: array[field] for field in array.dtype.names})
    return Columns({"": array})


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
