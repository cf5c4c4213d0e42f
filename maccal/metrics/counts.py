"""Counts: exact binomial intervals and tests, and Holm's correction for many tests.

    clopper_pearson   where the true rate lies; covers it at least as often as it says
    rate_bound        an upper bound of the true rate
    chance_of_fewer   how likely so few are, if the rate is as large as stated
    holm              p-values of many tests, corrected so that all hold together (Holm 1979)

No normal approximation: they hold for any number of trials. Cost: one incomplete beta function.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import betainc, betaincinv

from maccal.metrics.resampling import LEVEL, Interval


def clopper_pearson(count: int, trials: int, level: float = LEVEL) -> Interval:
    """The exact interval of a rate, from how often it happened; all of [0, 1] without trials.

    >>> low, high = clopper_pearson(8, 10)
    >>> round(low, 4), round(high, 4)
    (0.4439, 0.9748)
    """
    tail = (1 - level) / 2
    return Interval(1 - rate_bound(trials - count, trials, tail), rate_bound(count, trials, tail))


def rate_bound(count: int, trials: int, delta: float) -> float:
    """The largest rate that so small a count does not refute, but for a chance of delta.

    >>> round(rate_bound(0, 299, 0.05), 4)  # 299 rows without an error: an error rate below 1 %
    0.01
    """
    if count >= trials:
        return 1.0
    return float(betaincinv(count + 1, trials - count, 1 - delta))


def chance_of_fewer(count: int, trials: int, rate: float) -> float:
    """The chance that at most `count` of the trials happen, each with this rate.

    >>> chance_of_fewer(0, 2, 0.5)
    0.25
    """
    if count >= trials:
        return 1.0
    return float(betainc(trials - count, count + 1, 1 - rate))


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """The p-values times how many are not smaller, never falling from one to the next, at most 1.

    Whatever is below 5 % is so for all tests together: the chance of one false finding is 5 %.

    >>> holm([0.01, 0.04, 0.03]).round(3).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values, kind="stable")
    times = np.arange(len(values), 0, -1)
    found = np.empty(len(values))
    found[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * times))
    return found
