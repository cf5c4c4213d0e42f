"""A model measured from its predictions, and two models compared on the same rows.

measure(predictions, path, ...)     Evaluated: numbers with intervals and null bands, sums by bin, and the row
paired(first, second)               the second's numbers minus the first's, each with its paired test
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from maccal.evaluation.predictions import Predictions, row
from maccal.io import readable
from maccal.metrics import Bins, Difference, Summary, compare


@dataclass(frozen=True)
class Evaluated:
    """One model: its numbers, its sums by bin, and its row of results."""

    name: str
    numbers: Summary
    bins: Bins
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Compared:
    """Two models on the same rows: the second's numbers minus the first's."""

    first: Evaluated
    second: Evaluated
    differences: Mapping[str, Difference]


def measure(
    predictions: Predictions, path: Path, *, bins: int, resamples: int, seed: int
) -> Evaluated:
    """A model measured, from its predictions; the row names the file they came from."""
    predictions = replace(predictions, name=readable(predictions.name))
    numbers = predictions.summary(bins=bins, resamples=resamples, seed=seed)
    settings = {"file": readable(path.name), "resamples": resamples, "seed": seed}
    return Evaluated(
        predictions.name, numbers, predictions.bins(bins), row(predictions, numbers, **settings)
    )


def paired(first: Predictions, second: Predictions, **settings: int) -> dict[str, Difference]:
    """Second minus first on the same rows; ValueError where the labels show that they are not."""
    if not np.array_equal(first.labels, second.labels):
        raise ValueError(
            f"{first.name} and {second.name} do not have the same labels; a paired test needs the same rows in the same order"
        )
    return compare(first.probs, second.probs, first.labels, **settings)
