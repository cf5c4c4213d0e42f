"""Predictions that are not one class of many: a binary score, or several labels at once.

    binary       N scores of class 1, N labels 0 or 1
    multilabel   N x K scores, N x K labels 0 or 1

Files as for other predictions: .npz with `probs` or `logits`, and `labels`; bare .npy arrays. And
.csv with a header:

    label,prob              binary; or prob_1, logit, logit_1
    label_a,prob_a,...      multilabel: two columns for each label; or logit_a

The task is said, never guessed: a file of one column could be either. Whatever is wrong with a file
is a FileError.
"""

import csv
import io
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from maccal.evaluation.arrays import reading
from maccal.evaluation.packed import opened
from maccal.evaluation.predictions import read, stem_of
from maccal.evaluation.tables import LABELS, PREFIXES, ClassIndex, Kind, score_columns
from maccal.io import FileError, readable
from maccal.metrics import BinarySummary, MultilabelSummary, binary_summary, multilabel_summary
from maccal.metrics.given import class_indices

Task = Literal["binary", "multilabel"]
SUFFIXES = (".npz", ".npy", ".csv", ".csv.gz")
ONE = {"prob": "probs", "probs": "probs", "logit": "logits", "logits": "logits"}


@dataclass(frozen=True)
class TaskPredictions:
    """Scores and labels of a task; names of its labels, where there are several."""

    task: Task
    scores: np.ndarray
    kind: Kind
    labels: np.ndarray
    name: str
    names: tuple[str, ...] = ()  # of several labels

    def summary(
        self, *, bins: int = 15, resamples: int = 1000, seed: int = 0
    ) -> BinarySummary | MultilabelSummary:
        """Every number with its interval."""
        given = {self.kind: self.scores}
        probs, logits = given.get("probs"), given.get("logits")
        if self.task == "binary":
            return binary_summary(
                probs,
                self.labels,
                logits=logits,
                bins=bins,
                interval=True,
                resamples=resamples,
                seed=seed,
            )
        return multilabel_summary(
            probs,
            self.labels,
            logits=logits,
            names=self.names,
            bins=bins,
            interval=True,
            resamples=resamples,
            seed=seed,
        )


def read_task(
    path: Path | str,
    task: Task,
    *,
    labels: Path | str | None = None,
    kind: Kind | None = None,
    classes: tuple[str, ...] = (),
) -> TaskPredictions:
    """Predictions of a task from a file, its format told by the suffix.

    `classes` are two names, for binary labels that are names; class 1 last.
    """
    path = Path(path)
    if not path.name.lower().endswith(SUFFIXES):
        raise FileError(path, f"{task} predictions are read from {', '.join(SUFFIXES)}")
    if path.suffix.lower() in (".csv", ".gz"):
        if labels is not None or kind is not None:
            raise FileError(path, "a .csv file names its columns; leave --labels and --kind out")
        return read_task_csv(path, task, classes)
    check_two(path, task, classes)
    said = read(path, labels=labels, kind=kind)
    truth = np.asarray(class_indices(said.labels, classes)) if classes else said.labels
    return TaskPredictions(task, said.scores, said.kind, truth, said.name)


def check_two(path: Path, task: Task, classes: tuple[str, ...]) -> None:
    if classes and (task != "binary" or len(set(classes)) != 2):
        raise FileError(path, "--classes has two names here, class 1 last, and goes with binary")


def read_task_csv(path: Path, task: Task, classes: tuple[str, ...] = ()) -> TaskPredictions:
    check_two(path, task, classes)
    with reading(path, "a table of numbers"), opened(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig")
        header = [word.strip() for word in next(csv.reader(text), [])]
        find = binary_columns if task == "binary" else label_columns
        kind, scores, labels, names = find(path, header)
        wanted = [*scores, *labels]
        outcome = ClassIndex(path, classes) if classes else Outcome(path)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="loadtxt: input contained no data")
            table = np.loadtxt(
                text,
                delimiter=",",
                quotechar='"',
                usecols=wanted,
                ndmin=2,
                comments=None,
                converters=dict.fromkeys(labels, outcome),
            )
        if not len(table):
            raise FileError(path, "no rows below the header")
    values, truth = table[:, : len(scores)], table[:, len(scores) :]
    if task == "binary":
        values, truth = values[:, 0], truth[:, 0]
    return TaskPredictions(task, values, kind, truth, readable(stem_of(path)), names)


class Outcome:
    """A label that is a number; what else it may be is said where it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, word: str) -> float:
        try:
            return float(word)
        except ValueError:
            problem = f"label {word.strip()[:60]!r} is not 0 or 1"
            remedy = "for two names say --classes NEGATIVE POSITIVE"
            raise FileError(self.path, f"{problem}; {remedy}") from None


Found = tuple[Kind, list[int], list[int], tuple[str, ...]]


def binary_columns(path: Path, header: list[str]) -> Found:
    """The one column of scores, and that of the labels."""
    labels = [number for number, word in enumerate(header) if word in LABELS]
    scores = []
    for number, word in enumerate(header):
        kind = ONE.get(word.removesuffix("_1"))
        if kind is not None:
            scores.append((kind, number))
    if len(labels) != 1 or len(scores) != 1:
        raise FileError(path, f"columns {listed(header)}; expected label,prob or label,logit")
    use: Kind = "probs" if scores[0][0] == "probs" else "logits"
    return use, [scores[0][1]], labels, ()


def label_columns(path: Path, header: list[str]) -> Found:
    """A column of scores and one of zeros and ones for each label, by its name."""
    scores = score_columns(header)
    places = {}
    for number, word in enumerate(header):
        prefix, _, name = word.partition("_")
        if prefix in LABELS and name and not word.startswith(tuple(PREFIXES)):
            places[name] = number
    kinds = {score.kind for score in scores}
    names = tuple(score.name for score in scores)
    if len(kinds) != 1 or set(names) != set(places) or len(set(names)) != len(names):
        expected = "expected label_a and prob_a (or logit_a) for each label a"
        raise FileError(path, f"columns {listed(header)}; {expected}")
    columns = [score.column for score in scores]
    return kinds.pop(), columns, [places[name] for name in names], names


def listed(header: list[str]) -> str:
    return ", ".join(word[:60] for word in header[:6]) or "none"


def plain_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers, texts and tables as JSON has them; infinity and NaN are None."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, float):
            found[key] = value if math.isfinite(value) else None
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            found[key] = [plain_numbers(line) for line in value]
        else:
            found[key] = value
    return found
