"""A model measured from its predictions, and two models compared on the same rows.

measure(predictions, path, ...)     Evaluated: numbers with intervals and null bands, sums, the row
paired(first, second)               the second's numbers minus the first's, with paired tests
diagram_numbers(probs, labels)      what a reliability diagram shows
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from maccal.evaluation.predictions import Predictions, row
from maccal.evaluation.row import Measured, Row
from maccal.io import readable
from maccal.metrics import Bins, Difference, Summary, compare, resample, top_label
from maccal.metrics.inputs import Array
from maccal.metrics.resampling import band, centred


@dataclass(frozen=True)
class Evaluated:
    """One model: its numbers, its sums by bin, and its row of results."""

    name: str
    numbers: Summary
    bins: Bins
    row: Row


@dataclass(frozen=True)
class Compared:
    """Two models on the same rows: the second's numbers minus the first's."""

    first: Evaluated
    second: Evaluated
    differences: Mapping[str, Difference]


def measure(
    predictions: Predictions, path: Path | str, *, bins: int, resamples: int, seed: int
) -> Evaluated:
    """A model measured, from its predictions; the row names the file they came from."""
    predictions = replace(predictions, name=readable(predictions.name))
    numbers = predictions.summary(bins=bins, resamples=resamples, seed=seed)
    how = Measured(file=readable(Path(path).name), resamples=resamples, seed=seed)
    return Evaluated(
        predictions.name, numbers, predictions.bins(bins), row(predictions, numbers, how)
    )


def paired(
    first: Predictions, second: Predictions, *, bins: int = 15, resamples: int = 1000, seed: int = 0
) -> dict[str, Difference]:
    """Second minus first on the same rows; ValueError where the labels show that they are not."""
    if not np.array_equal(first.labels, second.labels):
        raise ValueError(
            f"{first.name} and {second.name} do not have the same labels; "
            "a paired test needs the same rows in the same order"
        )
    probs = (first.probs, second.probs)
    return compare(*probs, first.labels, bins=bins, resamples=resamples, seed=seed)


def diagram_numbers(
    probs: Array, labels: Array, bins: int, seed: int
) -> tuple[Bins, dict[str, float]]:
    """What a reliability diagram shows: sums by bin, accuracy, confidence, and ECE with its ends.

    Cheaper than a whole summary, which resamples every metric.
    """
    confidence, correct = top_label(probs, labels)
    sums = Bins.of(confidence, correct, bins)
    boot, null = resample(confidence, correct, bins=bins, seed=seed)
    low, high = centred(sums.ece(), boot["ece"])
    null_low, null_high = band(null["ece"])
    numbers = {
        "accuracy": float(sums.correct.sum() / sums.n),
        "confidence": float(sums.confidence.sum() / sums.n),
        "ece": sums.ece(),
        "ece_low": low,
        "ece_high": high,
        "ece_null_low": null_low,
        "ece_null_high": null_high,
    }
    return sums, numbers
