"""Accuracy, confidence and ECE of labelled rows, with intervals, from their sums.

Wilson's interval of the accuracy; the centred bootstrap and the null band of ECE, as in `summary`.
"""

import math
from typing import NamedTuple

import numpy as np

from maccal.metrics import Bins, Interval
from maccal.metrics.resampling import (
    Z,
    band,
    bootstrap_draws,
    centred,
    equal_width,
    groups_of,
    null_draws,
)

RESAMPLES = 300
SEED = 0


class Measured(NamedTuple):
    """The numbers of labelled rows."""

    rows: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    confidence: float
    ece: float
    ece_low: float
    ece_high: float
    ece_null_low: float  # where a calibrated model with these confidences would be
    ece_null_high: float


def measured(fine: Bins, bins: int) -> Measured:
    """The numbers of the rows in these fine bins."""
    groups = groups_of(fine)
    n = fine.n
    rng = np.random.default_rng(SEED)

    def errors(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
        count = right + wrong
        residual = count * groups.confidence - right
        return equal_width(groups.confidence, count, residual, bins, n)["ece"]

    boot = [errors(*draw) for draw in bootstrap_draws(groups, RESAMPLES, rng, bins)]
    null = [errors(*draw) for draw in null_draws(groups, RESAMPLES, rng, bins)]
    coarse = fine.coarsen(bins)
    ece = coarse.ece()
    right = float(coarse.correct.sum())
    return Measured(
        n,
        right / n,
        *wilson(right, n),
        float(coarse.confidence.sum()) / n,
        ece,
        *centred(ece, np.concatenate(boot)),
        *band(np.concatenate(null)),
    )


def wilson(right: float, n: int) -> Interval:
    """The 95 % interval of a share.

    >>> low, high = wilson(9, 10)
    >>> round(low, 4), round(high, 4)
    (0.5958, 0.9821)
    """
    share = right / n
    centre = (right + Z**2 / 2) / (n + Z**2)
    half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return Interval(max(0.0, centre - half), min(1.0, centre + half))
