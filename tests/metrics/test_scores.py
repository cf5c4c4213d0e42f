"""Proper scores against scikit-learn, twins and theory."""

import math

import numpy as np
import pytest
import torch
from goldens import model
from hypothesis import given
from hypothesis import strategies as st
from reference import brier as slow_brier
from reference import nll as slow_nll
from scipy.optimize import minimize_scalar
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from strategies import predictions

from maccal.metrics import accuracy, brier, brier_split, nll, nll_split, softmax
from maccal.metrics.scores import as_scores, null_scores, row_scores


@given(predictions())
def test_twins(case):
    probs, labels = case
    assert nll(probs, labels) == pytest.approx(slow_nll(probs.tolist(), labels.tolist()), rel=1e-12)
    assert brier(probs, labels) == pytest.approx(
        slow_brier(probs.tolist(), labels.tolist()), rel=1e-12, abs=1e-12
    )


def test_scikit_learn_agrees():
    rng = np.random.default_rng(0)
    probs = softmax(rng.normal(size=(500, 7)) * 2)
    labels = rng.integers(0, 7, 500)
    assert nll(probs, labels) == pytest.approx(log_loss(labels, probs, labels=range(7)), rel=1e-12)
    assert brier(probs, labels) == pytest.approx(
        brier_score_loss(labels, probs, labels=range(7), scale_by_half=False), rel=1e-12
    )
    assert accuracy(probs, labels) == accuracy_score(labels, probs.argmax(1))


def test_golden_of_temperature_scaling():
    """NLL at T = 1 as recorded.

    The best temperature beats what two published grids and 200 steps of L-BFGS found.
    """
    logits, labels = model()
    assert nll(logits=logits, labels=labels) == pytest.approx(1.245542, abs=5e-7)
    split = nll_split(logits=logits, labels=labels)
    assert split.refinement < 1.234624 + 5e-7
    assert split.temperature == pytest.approx(1.16, abs=0.005)


@pytest.mark.parametrize("sharpness", [0.2, 1.0, 3.0, 30.0])
def test_the_temperature_is_the_optimum(sharpness):
    """Against scipy's bounded search, for logits that are right, too sharp and too flat."""
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(400, 5)) * 2
    labels = (softmax(logits).cumsum(1) > rng.random((400, 1))).argmax(1)
    for split, which in ((nll_split, 0), (brier_split, 1)):
        found = split(logits=sharpness * logits, labels=labels)
        tensors = torch.tensor(sharpness * logits), torch.tensor(labels)

        def at(log_scale, tensors=tensors, which=which):
            return float(row_scores(tensors[0] * math.exp(log_scale), tensors[1])[which].mean())

        best = min(
            (
                minimize_scalar(at, bounds=b, method="bounded", options={"xatol": 1e-9})
                for b in ((-5, -1), (-2, 2))
            ),
            key=lambda r: r.fun,
        )
        assert found.refinement == pytest.approx(best.fun, abs=1e-9)
        assert math.log(found.temperature) == pytest.approx(-best.x, abs=1e-4)
        assert found.refinement + found.calibration == pytest.approx(at(0.0), abs=1e-12)


@given(predictions(), st.floats(0.1, 10))
def test_splits_add_up_and_are_not_negative(case, sharpness):
    probs, labels = case
    logits = sharpness * np.log(probs)
    for split, score in ((nll_split, nll), (brier_split, brier)):
        parts = split(logits=logits, labels=labels)
        assert parts.calibration >= 0
        assert parts.refinement + parts.calibration == pytest.approx(
            score(logits=logits, labels=labels), rel=1e-12
        )


def test_sharpening_changes_calibration_only():
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(800, 4))
    labels = (softmax(logits).cumsum(1) > rng.random((800, 1))).argmax(1)
    before, after = (
        nll_split(logits=logits, labels=labels),
        nll_split(logits=3 * logits, labels=labels),
    )
    assert after.refinement == pytest.approx(before.refinement, abs=1e-9)
    assert after.calibration > before.calibration + 0.1
    assert after.temperature == pytest.approx(3 * before.temperature, rel=1e-4)


def test_probability_zero_for_the_label():
    """Infinite, and said so: not clipped to some large number."""
    probs, labels = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 0])
    assert nll(probs, labels) == math.inf
    split = nll_split(probs, labels)
    assert split.refinement == math.inf
    assert math.isnan(split.calibration)
    assert brier(probs, labels) == pytest.approx((2 + 0.5) / 2)


def test_probability_zero_elsewhere():
    probs, labels = np.array([[0.9, 0.1, 0.0]] * 10), np.array([0] * 8 + [1] * 2)
    assert nll_split(probs, labels).calibration == pytest.approx(0.044403, abs=1e-6)


def test_logits_keep_what_probabilities_lose():
    """A margin of 200 underflows as a float32 probability; the logits still know the loss."""
    logits = np.array([[200.0, 0.0]], dtype=np.float32)
    assert nll(logits=logits, labels=np.array([1])) == pytest.approx(200)
    assert nll(softmax(logits), np.array([1])) == math.inf


def test_all_right_runs_to_the_end_of_the_range():
    split = nll_split(logits=np.array([[1.0, 0.0]] * 5), labels=np.zeros(5, int))
    assert split.temperature < 0.05
    assert split.refinement < 1e-6


def test_null_scores_by_simulation():
    """Mean, spread and the chance gain of a fitted temperature, against labels really drawn from
    the probabilities.
    """
    rng = np.random.default_rng(3)
    logits = torch.tensor(rng.normal(size=(300, 4)) * 1.5)
    cumulative = logits.softmax(1).numpy().cumsum(1)
    drawn = {0: [], 1: []}
    gains = {0: [], 1: []}
    for _ in range(400):
        labels = torch.from_numpy((cumulative > rng.random((300, 1))).argmax(1))
        for which, split in enumerate((nll_split, brier_split)):
            drawn[which].append(float(row_scores(logits, labels)[which].mean()))
            gains[which].append(split(logits=logits, labels=labels).calibration)
    for which, null in enumerate(null_scores(logits)):
        assert np.mean(drawn[which]) == pytest.approx(null.mean, abs=4 * null.deviation / 20)
        assert np.std(drawn[which]) == pytest.approx(null.deviation, rel=0.12)
        assert np.mean(gains[which]) == pytest.approx(null.gain, rel=0.2)


def test_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(4)
    logits, labels = rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
    whole = row_scores(*as_scores(None, labels, logits))
    monkeypatch.setattr("maccal.metrics.inputs.BLOCK", 7)
    assert torch.equal(row_scores(*as_scores(None, labels, logits)), whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0.0, 2e4, -2e4, 1e30])
def test_splits_of_huge_logits(dtype, shift):
    """A constant added to a row changes nothing.

    A gap of 20,000 is one, whatever it is counted from.
    """
    gap = np.array([[0.0, 2e4], [2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    labels = np.array([1, 0, 0, 0])
    moved = gap.copy()
    moved[0] += shift
    moved[0, 1] = moved[0, 0] + 2e4 if abs(shift) < 1e9 else 2 * shift
    for split in (nll_split, brier_split):
        expected, made = (
            split(logits=gap, labels=labels),
            split(logits=moved.astype(dtype), labels=labels),
        )
        assert made == pytest.approx(expected, rel=1e-4)


def test_the_split_of_a_label_far_down():
    """NLL of 50,000 at T = 1.

    The higher the temperature the better, so what is left is that of a coin, or hardly more.
    """
    logits, labels = np.array([[0.0, 5e4]]), np.array([0])
    split = nll_split(logits=logits, labels=labels)
    assert split.refinement + split.calibration == pytest.approx(5e4)
    assert math.log(2) < split.refinement < math.log(2) + 0.01
