"""Temperature scaling.

The exact optimum, wherever it lies and in whatever precision the logits come.
"""

import math

import numpy as np
import pytest
import torch
from goldens import model
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from maccal import TemperatureScaling
from maccal.metrics import nll, softmax


def sample(sharpness=1.0, n=500, classes=6, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 2
    labels = (softmax(logits).cumsum(1) > rng.random((n, 1))).argmax(1)
    return sharpness * logits, labels


def searched(logits, labels):
    """The least NLL of any temperature, by scipy."""
    start = math.log(np.abs(logits).std())
    found = minimize_scalar(
        lambda t: nll(logits=logits * math.exp(-t), labels=labels),
        bounds=(start - 3, start + 3),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return math.exp(found.x), found.fun


@pytest.mark.parametrize("sharpness", [1e-3, 0.1, 1.0, 7.0, 1e3])
def test_the_optimum(sharpness):
    logits, labels = sample(sharpness)
    scaling = TemperatureScaling().fit(logits, labels)
    temperature, least = searched(logits, labels)
    # as fine as a search can see
    assert scaling.temperature_ == pytest.approx(temperature, rel=1e-6)
    assert nll(scaling.predict_proba(logits), labels) <= least + 1e-12
    assert scaling.temperature_ == pytest.approx(
        sharpness * TemperatureScaling().fit(*sample()).temperature_, rel=1e-9
    )


def test_golden():
    """Published fits of these logits: a grid's 1.16 and 1.234624.

    L-BFGS stopped at 1.3199 (50 steps) and 1.1897 (200).
    """
    logits, labels = model()
    scaling = TemperatureScaling().fit(logits, labels)
    assert scaling.temperature_ == pytest.approx(1.16106, abs=5e-6)
    assert nll(logits=scaling.transform(logits), labels=labels) == pytest.approx(1.234624, abs=5e-7)


def test_float32_is_as_good():
    logits, labels = sample(3.0)
    wide, narrow = (
        TemperatureScaling().fit(z, labels).temperature_
        for z in (logits.astype(np.float32).astype(np.float64), logits.astype(np.float32))
    )
    assert narrow == pytest.approx(wide, rel=1e-12)


@given(st.integers(0, 10_000), st.floats(-4, 4))
def test_the_slope_vanishes(seed, log_sharpness):
    logits, labels = sample(math.exp(log_sharpness), n=40, classes=3, seed=seed)
    own = logits[np.arange(40), labels]
    assume((logits.argmax(1) != labels).any() and (logits.mean(1) < own).sum() > 25)
    scaling = TemperatureScaling().fit(logits, labels)
    for nudge in (0.999, 1.001):
        assert (
            nll(logits=logits / scaling.temperature_, labels=labels)
            <= nll(logits=logits / (nudge * scaling.temperature_), labels=labels) + 1e-12
        )


def test_accuracy_and_kind_of_array_stay():
    logits, labels = sample(5.0)
    scaling = TemperatureScaling().fit(torch.tensor(logits), torch.tensor(labels))
    assert np.array_equal(scaling.predict_proba(logits).argmax(1), logits.argmax(1))
    assert np.array_equal(scaling.predict(logits), logits.argmax(1))
    assert isinstance(scaling.transform(torch.tensor(logits)), torch.Tensor)
    assert np.allclose(scaling.transform(logits) * scaling.temperature_, logits)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 3e5, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_temperature_is_too_far(size, dtype):
    """The search once stopped at 162,755 = exp(12), without a word."""
    logits, labels = sample()
    logits = (size * logits).astype(dtype)
    expected = TemperatureScaling().fit(logits.astype(np.float64) / size, labels).temperature_
    found = TemperatureScaling().fit(logits, labels).temperature_
    assert found == pytest.approx(size * expected, rel=1e-12)


def test_a_temperature_beyond_the_old_bound():
    logits, labels = sample(696_221 / TemperatureScaling().fit(*sample()).temperature_)
    assert TemperatureScaling().fit(logits, labels).temperature_ == pytest.approx(
        696_221, rel=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    """The numbers given are what is fitted: as exactly as if they had come in float64."""
    logits, labels = sample(2.0)
    half = torch.tensor(logits).to(dtype)
    wide = TemperatureScaling().fit(half.double(), labels).temperature_
    assert TemperatureScaling().fit(half, labels).temperature_ == pytest.approx(wide, rel=1e-12)


def test_no_best_temperature():
    logits = np.array([[2.0, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="every label has the largest logit"):
        TemperatureScaling().fit(logits, np.array([0, 1]))
    with pytest.raises(ValueError, match="the logits do not tell the labels"):
        TemperatureScaling().fit(logits, np.array([1, 0]))


def test_bad_use():
    with pytest.raises(ValueError, match="not fitted yet"):
        TemperatureScaling().predict_proba(np.ones((2, 2)))
    with pytest.raises(ValueError, match="logits row 0 holds nan"):
        TemperatureScaling().fit(np.array([[np.nan, 1.0]]), np.array([0]))
    with pytest.raises(ValueError, match="2 rows of predictions but 1 labels"):
        TemperatureScaling().fit(np.ones((2, 2)), np.array([0]))
