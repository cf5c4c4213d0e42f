"""Exact binomial intervals and tests against scipy, and Holm's correction by hand."""

import numpy as np
import pytest
from binomial import at_least
from scipy.stats import binom, binomtest

from maccal.metrics.counts import chance_of_fewer, clopper_pearson, holm, rate_bound


@pytest.mark.parametrize(("count", "trials"), [(0, 1), (1, 1), (0, 30), (7, 30), (30, 30)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_interval_is_scipys(count, trials, level):
    exact = binomtest(count, trials).proportion_ci(level, "exact")
    assert clopper_pearson(count, trials, level) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize(("count", "trials"), [(0, 5), (3, 5), (5, 5), (41, 4000)])
def test_the_tail_is_scipys(count, trials):
    assert chance_of_fewer(count, trials, 0.02) == pytest.approx(binom.cdf(count, trials, 0.02))


@pytest.mark.parametrize(("count", "trials"), [(0, 299), (3, 50), (49, 50)])
def test_bound_and_tail_are_inverse(count, trials):
    bound = rate_bound(count, trials, 0.05)
    assert chance_of_fewer(count, trials, bound) == pytest.approx(0.05)


def test_without_trials_nothing_is_known():
    assert clopper_pearson(0, 0) == (0.0, 1.0)
    assert rate_bound(0, 0, 0.05) == 1
    assert chance_of_fewer(0, 0, 0.5) == 1


def test_the_interval_covers():
    rng = np.random.default_rng(0)
    counts = rng.binomial(40, 0.07, 3000)
    covered = 0
    for count in counts.tolist():
        low, high = clopper_pearson(count, 40)
        covered += low <= 0.07 <= high
    assert covered >= at_least(0.95, 3000)


def test_holm_by_hand():
    """Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, never falling."""
    assert holm([0.03, 0.005, 0.04, 0.01]).tolist() == pytest.approx([0.06, 0.02, 0.06, 0.03])
    assert holm([0.6, 0.9]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []
