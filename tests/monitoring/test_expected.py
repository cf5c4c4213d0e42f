"""The accuracy to expect without labels: hand arithmetic, limits and coverage."""

import math

import numpy as np
import pytest
from binomial import at_least

from maccal.metrics import Bins
from maccal.metrics.resampling import Z
from maccal.metrics.sketch import fine_grid
from maccal.monitoring.expected import expected_accuracy

EDGES = fine_grid(15).edges


def fine(confidence, correct=None):
    none = np.zeros(len(confidence), bool)
    return Bins.of(np.asarray(confidence), none if correct is None else correct, EDGES)


def test_by_hand():
    """Reference: 9 rows of 0.8, 5 of them right; asked about: 4 rows of 0.82 in the same bin."""
    found = expected_accuracy(fine([0.82] * 4), 15, fine([0.8] * 9, np.arange(9) < 5))
    gap = (9 * 0.8 - 5) / 10
    doubted = (5 + 2) / (9 + 4)
    variance = (0.82 - gap) * (1 - 0.82 + gap) / 4 + doubted * (1 - doubted) / 10
    assert found.rows == 4
    assert found.confidence == pytest.approx(0.82)
    assert found.accuracy == pytest.approx(0.82 - gap)
    # 0.04 of 4 rows is less than one row: down to none, and up to all, not above
    assert 0 < 4 * (0.82 - gap - Z * math.sqrt(variance)) < 1
    assert (found.low, found.high) == (0.0, 1.0)
    many = expected_accuracy(fine([0.82] * 4000), 15, fine([0.8] * 9, np.arange(9) < 5))
    low = 0.82 - gap - Z * math.sqrt(variance - 0.999 * (0.82 - gap) * (1 - 0.82 + gap) / 4)
    assert many.low == math.floor(4000 * low) / 4000


def test_a_bin_without_reference_is_taken_at_its_word():
    """And is as unsure as a single row would leave it."""
    known = fine([0.95] * 1000, np.arange(1000) < 950)
    found = expected_accuracy(fine([0.5] * 10_000), 15, known)
    assert found.accuracy == pytest.approx(0.5)
    assert (found.low, found.high) == (0.0, 1.0)


def test_much_reference_and_many_rows_leave_no_doubt():
    known = fine([0.9] * 1_000_000, np.arange(1_000_000) < 800_000)
    found = expected_accuracy(fine([0.9] * 1_000_000), 15, known)
    assert found.accuracy == pytest.approx(0.8, abs=1e-5)
    assert found.high - found.low < 0.0025


@pytest.mark.slow
def test_the_interval_holds_what_it_says():
    """Of 300 sets of 400 rows, less sure than the reference, whose confidence is too high."""
    held = 0
    for trial in range(300):
        rng = np.random.default_rng(trial)
        known, asked = rng.uniform(0.6, 1, 1500), rng.uniform(0.5, 0.9, 400)
        right = rng.random(1500) < known - 0.1
        accuracy = (rng.random(400) < asked - 0.1).mean()
        found = expected_accuracy(fine(asked), 15, fine(known, right))
        held += found.low <= accuracy <= found.high
    assert held >= at_least(0.95, 300) - 5  # bins below 0.6 have no reference: wider, not narrower
    assert held <= 300


@pytest.mark.slow
def test_the_interval_holds_where_hardly_any_row_is_wrong():
    """Two rows of a thousand are: many references of 500 rows have none and look faultless."""
    held = 0
    for trial in range(200):
        rng = np.random.default_rng(trial)
        known, asked = (1 - 10 ** rng.uniform(-5, -3, rows) for rows in (500, 5000))
        right = rng.random(500) < known - 0.002
        accuracy = (rng.random(5000) < asked - 0.002).mean()
        found = expected_accuracy(fine(asked), 15, fine(known, right))
        held += found.low <= accuracy <= found.high
    assert held >= at_least(0.95, 200)


def test_the_ends_are_whole_rows():
    """Of 200 rows at 99.9 % one is wrong in 16 % of all days, and the interval must hold 99.5 %."""
    found = expected_accuracy(fine([0.999] * 200), 15)
    assert (found.low, found.high) == (0.99, 1.0)
