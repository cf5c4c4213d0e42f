"""Calibration errors.

Published goldens, slow twins, invariances, and the traps other packages fall into.
"""

import numpy as np
import pytest
import relplot
import torch
from goldens import model
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import classwise, debiased, equal_mass, equal_width, error, smooth
from reference import ks as slow_ks
from strategies import outcomes, predictions

from maccal.metrics import (
    Bins,
    aece,
    classwise_ece,
    debiased_squared_ce,
    ece,
    ks,
    mce,
    smece,
    softmax,
    top_label,
)
from maccal.metrics.miscalibration import by_confidence, smooth_error, to_grid
from maccal.metrics.miscalibration import equal_mass as equal_mass_bins

TOP_LABEL = [ece, mce, aece, debiased_squared_ce, smece, ks]


def test_goldens_of_the_published_code():
    """Numbers from the code bases of the paper, to the six digits they were recorded with."""
    logits, labels = model()
    probs = softmax(logits)
    confidence, correct = top_label(probs, labels)
    six = {"abs": 5.1e-7}
    assert float(correct.double().mean()) == 0.665
    assert float(confidence.double().mean()) == pytest.approx(0.583382, **six)
    for convention in ("maccal", "focal"):
        assert ece(confidence, correct, convention=convention) == pytest.approx(0.161422, **six)
        assert ece(confidence, correct, 10, convention=convention) == pytest.approx(0.165808, **six)
        assert mce(confidence, correct, convention=convention) == pytest.approx(0.418259, **six)
        assert mce(confidence, correct, 10, convention=convention) == pytest.approx(0.324667, **six)
        assert classwise_ece(probs, labels, convention=convention) == pytest.approx(0.048564, **six)
    assert aece(confidence, correct, convention="focal") == pytest.approx(0.156784, **six)


@pytest.mark.parametrize(
    ("confidence", "correct", "convention", "error", "worst"),
    [
        ([0.2, 0.3], [1, 0], "focal", 0.55, 0.80),
        ([0.2, 0.3], [1, 0], "maccal", 0.25, 0.25),
        ([0.95, 1.0], [1, 0], "focal", 0.475, 0.475),
        ([0.95, 1.0], [1, 0], "maccal", 0.475, 0.475),
    ],
)
def test_goldens_of_the_conventions(confidence, correct, convention, error, worst):
    arrays = np.array(confidence), np.array(correct)
    assert ece(*arrays, 5, convention=convention) == pytest.approx(error)
    assert mce(*arrays, 5, convention=convention) == pytest.approx(worst)


def test_confidence_one_has_no_hidden_bin():
    """With an extra bin for exactly 1.0 the answer would be 0.525."""
    assert ece(np.array([0.95, 1.0]), np.array([1, 0]), 10) == pytest.approx(0.475)


def test_tied_confidences_in_any_order():
    """Equal-mass bins that split ties give 0.109, 0.281 or 0.268 for such rows, depending on their
    order.
    """
    rng = np.random.default_rng(0)
    confidence = rng.choice([0.6, 0.7, 0.8, 0.9, 1.0], 50)
    correct = rng.random(50) < 0.7
    values = {
        aece(confidence[order], correct[order])
        for order in (rng.permutation(50) for _ in range(20))
    }
    assert len(values) == 1


@pytest.mark.slow
@given(outcomes(), st.integers(1, 25))
def test_twins(case, bins):
    confidence, correct = case
    c, hit = confidence.tolist(), correct.tolist()
    assert ece(confidence, correct, bins) == pytest.approx(
        error(c, hit, equal_width(bins)), abs=1e-12
    )
    assert aece(confidence, correct, bins) == pytest.approx(
        error(c, hit, equal_mass(c, bins)), abs=1e-12
    )
    assert debiased_squared_ce(confidence, correct, bins) == pytest.approx(
        debiased(c, hit, equal_mass(c, bins)), abs=1e-12
    )
    assert ks(confidence, correct) == pytest.approx(slow_ks(c, hit), abs=1e-12)


@given(predictions(), st.integers(1, 25))
def test_classwise_twin(case, bins):
    probs, labels = case
    assert classwise_ece(probs, labels, bins) == pytest.approx(
        classwise(probs.tolist(), labels.tolist(), bins), abs=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("metric", TOP_LABEL)
@given(case=outcomes(), random=st.randoms())
def test_order_of_the_rows(metric, case, random):
    confidence, correct = case
    order = random.sample(range(len(confidence)), len(confidence))
    assert metric(confidence[order], correct[order]) == metric(confidence, correct)


@pytest.mark.slow
@pytest.mark.parametrize("metric", [ece, mce, aece, smece, ks])
@given(case=outcomes())
def test_every_row_twice(metric, case):
    confidence, correct = case
    assert metric(np.tile(confidence, 2), np.tile(correct, 2)) == pytest.approx(
        metric(confidence, correct), abs=1e-7
    )


@pytest.mark.slow
@pytest.mark.parametrize("metric", TOP_LABEL)
@given(case=outcomes())
def test_torch_and_numpy(metric, case):
    confidence, correct = case
    assert metric(torch.tensor(confidence), torch.tensor(correct)) == metric(confidence, correct)


@given(outcomes())
def test_bounds(case):
    """|mean gap| <= KS and ECE; ECE of a partition is at most the mean |residual|.

    One bin is the mean gap.
    """
    confidence, correct = case
    mean_gap = abs(float((confidence - correct).mean()))
    assert ece(confidence, correct, 1) == pytest.approx(mean_gap, abs=1e-12)
    for value in (ece(confidence, correct), aece(confidence, correct), ks(confidence, correct)):
        assert mean_gap - 1e-12 <= value <= float(np.abs(confidence - correct).mean()) + 1e-12
    assert ece(confidence, correct) <= mce(confidence, correct) + 1e-12


def test_equal_mass_bins_are_equally_filled():
    confidence = np.random.default_rng(0).permutation(np.linspace(0.3, 0.99, 3000))
    assert set(equal_mass_bins(confidence, confidence > 0.5, 15).count) == {200.0}


@pytest.mark.slow
@given(outcomes(most=12))
def test_smece_is_the_fixed_point(case):
    """At the width smECE names, smoothing by direct summation leaves that same number."""
    confidence, correct = case
    s = smece(confidence, correct)
    assume(s > 0.02)  # the direct sum needs a width well above its step
    assert smooth(confidence.tolist(), correct.tolist(), s, points=800) == pytest.approx(
        s, rel=5e-3, abs=5e-4
    )


@pytest.mark.parametrize("n", [30, 300, 3000, 30000])
@pytest.mark.parametrize("power", [1.0, 1.5, 3.0])
def test_smece_against_relplot(n, power):
    """relplot stops its search for the width at 1/1024, so that far apart the two may be."""
    rng = np.random.default_rng(n)
    confidence = rng.beta(5, 1, n)
    correct = rng.random(n) < confidence**power
    assert smece(confidence, correct) == pytest.approx(
        relplot.smECE(confidence, correct.astype(float)), abs=1e-3
    )


@given(outcomes())
def test_one_sort_of_bits_is_a_sort_by_confidence_and_outcome(case):
    confidence, correct = torch.tensor(case[0], dtype=torch.float64), torch.tensor(case[1]) != 0
    order = np.lexsort((correct.numpy(), confidence.numpy()))
    made = by_confidence(confidence, correct)
    assert np.array_equal(made.confidence, confidence.numpy()[order])
    assert np.array_equal(made.correct, correct.numpy()[order])
    assert made.confidence[made.start].tolist() == np.unique(confidence.numpy()).tolist()


def test_minus_zero_is_zero():
    made = by_confidence(
        torch.tensor([0.5, -0.0, 0.0, 5e-324], dtype=torch.float64),
        torch.tensor([True, True, False, True]),
    )
    assert made.confidence.tolist() == [0.0, 0.0, 5e-324, 0.5]
    assert made.correct.tolist() == [False, True, True, True]
    assert made.start.tolist() == [0, 2, 3]


def test_smece_of_one_constant_confidence_is_the_gap():
    assert smece(np.full(1000, 0.8), np.arange(1000) < 500) == pytest.approx(0.3, abs=1e-6)


def test_grid_keeps_mass_and_mean():
    position = np.sort(np.random.default_rng(0).uniform(0.02, 0.98, 50))
    mass = np.random.default_rng(1).normal(size=(3, 50))
    grid = to_grid(position, mass, 64)
    centres = (np.arange(64) + 0.5) / 64
    assert np.allclose(grid.sum(1), mass.sum(1))
    assert np.allclose(grid @ centres, mass @ position)


def test_smooth_error_of_nothing_is_zero():
    assert smooth_error(np.zeros((1, 16)))[0] == pytest.approx(0, abs=1e-6)


def test_debiased_is_zero_on_average_for_a_calibrated_model():
    """Its plain counterpart is not: that is the noise it removes."""
    rng = np.random.default_rng(0)
    values, plain = [], []
    for _ in range(400):
        confidence = rng.uniform(0.5, 1, 500)
        correct = rng.random(500) < confidence
        values.append(debiased_squared_ce(confidence, correct))
        plain.append(ece(confidence, correct) ** 2)
    assert abs(np.mean(values)) < 3 * np.std(values) / np.sqrt(400)
    assert np.mean(plain) > 10 * abs(np.mean(values))


def test_classwise_counts_absent_classes():
    """A class that never occurs still has its probability measured."""
    probs = np.array([[0.5, 0.3, 0.2]] * 10)
    labels = np.array([0] * 5 + [1] * 5)
    assert classwise_ece(probs, labels) == pytest.approx((0.0 + 0.2 + 0.2) / 3)
    assert Bins.of_classes(probs, labels).count.sum(1).tolist() == [10, 10, 10]
