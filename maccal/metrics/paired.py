"""compare: are two models on the same rows really different?

The rows are shared, so what is hard for one is hard for the other, and only the differences count.
Means over rows (accuracy, NLL, Brier) get the paired normal test; ECE the paired bootstrap: both
models are resampled by the same rows, and the spread of the difference about its mean is what
chance does to it."""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from maccal.metrics.arguments import check_bins, generator
from maccal.metrics.bins import assign, equal_width_edges
from maccal.metrics.inputs import Array, check_confidence, top_label
from maccal.metrics.miscalibration import ece
from maccal.metrics.resampling import LEVEL, Z, batches, centred
from maccal.metrics.scores import as_scores, row_scores

BLOCKS = 1 << 13  # beyond this many rows, random blocks of rows are resampled


class Difference(NamedTuple):
    """Second model minus first: below zero, the second's number is lower."""

    difference: float
    low: float
    high: float
    p_value: float

    @property
    def real(self) -> bool:
        """Whether chance alone is an unlikely explanation, at the 5 % level."""
        return self.p_value < 1 - LEVEL


def compare(
    first: Array,
    second: Array,
    labels: Array,
    *,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Accuracy, ECE, NLL and Brier of the second model's probabilities minus the first's, each with
    interval and p-value.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.6, 1, 4000)
    >>> labels = (rng.random(4000) > p).astype(int)
    >>> sharp = p**3 / (p**3 + (1 - p) ** 3)
    >>> result = compare(np.stack([p, 1 - p], 1), np.stack([sharp, 1 - sharp], 1), labels)
    >>> result["ece"].difference > 0.1, result["ece"].real, result["accuracy"].difference
    (True, True, 0.0)
    """
    bins = check_bins(bins)
    models = [
        (top_label(p, labels), row_scores(*as_scores(p, labels, None))) for p in (first, second)
    ]
    checked = [check_confidence(*top) for top, _ in models]
    (_, hit_a), (_, hit_b) = checked
    (_, score_a), (_, score_b) = models
    return {
        "accuracy": paired_means(hit_b.double() - hit_a.double()),
        "ece": paired_ece(checked, bins, resamples, seed),
        "nll": paired_means(score_b[0] - score_a[0]),
        "brier": paired_means(score_b[1] - score_a[1]),
    }


def paired_means(difference: Tensor) -> Difference:
    """The normal test that the mean of row differences is zero."""
    n, mean = len(difference), float(difference.mean())
    error = float(difference.std(correction=min(1, n - 1))) / math.sqrt(n)
    if not math.isfinite(mean + error):
        return Difference(math.nan, math.nan, math.nan, math.nan)
    half = Z * error
    p_value = 2 * float(norm.sf(abs(mean) / error)) if error > 0 else float(mean == 0)
    return Difference(mean, mean - half, mean + half, p_value)


def paired_ece(
    models: list[tuple[Tensor, Tensor]], bins: int, resamples: int, seed: int
) -> Difference:
    """The paired bootstrap of ECE, on per-bin sums of residuals a row, or of a random block of rows
    where there are many.
    """
    rng = generator(seed)
    n = len(models[0][0])
    units = min(n, BLOCKS)
    block = torch.from_numpy(rng.permutation(n) * units // n)
    sums = [
        unit_sums(confidence.cpu(), correct.cpu(), block, units, bins)
        for confidence, correct in models
    ]
    draws = []
    for many in batches(resamples, units):
        weight = rng.multinomial(units, np.full(units, 1 / units), many).astype(np.float64)
        drawn = [np.abs(weight @ s).sum(1) / n for s in sums]
        draws.append(drawn[1] - drawn[0])
    all_draws = np.concatenate(draws)
    point = ece(*models[1], bins) - ece(*models[0], bins)
    extreme = np.abs(all_draws - all_draws.mean()) >= abs(point)
    return Difference(
        point,
        *centred(point, all_draws, within=(-1.0, 1.0)),
        (1 + int(extreme.sum())) / (1 + resamples),
    )


def unit_sums(
    confidence: Tensor, correct: Tensor, block: Tensor, units: int, bins: int
) -> np.ndarray:
    """Sum of confidence - correct of every block in every bin, units x bins."""
    index = block * bins + assign(confidence, equal_width_edges(bins), "maccal")
    return (
        torch.bincount(index, confidence - correct.double(), minlength=units * bins)
        .view(units, bins)
        .numpy()
    )
