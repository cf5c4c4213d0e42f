"""Ensemble temperature: weights that no other solver beats, also where some of them are 0."""

import numpy as np
import pytest
from made_up_predictions import made_up
from scipy.optimize import minimize

from maccal import EnsembleTemperatureScaling
from maccal.calibration.posthoc.ensemble import best_weights


@pytest.mark.parametrize("seed", range(6))
def test_the_best_weights(seed):
    rng = np.random.default_rng(seed)
    own = rng.beta(0.5 + seed % 3, 1, (3, 500)) + 1e-9

    def value(weights):
        return -np.log(np.maximum(weights @ own, 1e-300)).mean()

    found = best_weights(own)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-14)
    total = {"type": "eq", "fun": lambda w: w.sum() - 1}
    searched = minimize(
        value, np.full(3, 1 / 3), method="SLSQP", bounds=[(0, 1)] * 3, constraints=total, tol=1e-14
    )
    assert value(found) <= searched.fun + 1e-10


@pytest.mark.parametrize("seed", range(12))
def test_no_weight_wants_to_change(seed):
    """Slopes are -1 where there is a weight and not below it elsewhere, also for near twins."""
    rng = np.random.default_rng(seed)
    own = rng.beta([0.3, 1, 3][seed % 3], 1, (3, 400)) + 1e-12
    if seed % 2:
        own[1] = own[0] * (1 + 1e-6 * rng.normal(size=400))
    weights = best_weights(own)
    slope = -(own / (weights @ own)).mean(1)
    assert slope.min() > -1 - 1e-9
    assert np.abs(slope[weights > 0] + 1).max() < 1e-9


def test_one_is_enough():
    best = np.stack([np.full(50, 0.9), np.full(50, 0.5), np.full(50, 0.1)])
    assert best_weights(best).tolist() == [1.0, 0.0, 0.0]


def test_never_worse_than_the_temperature():
    logits, labels = made_up(800, 5)
    model = EnsembleTemperatureScaling().fit(logits, labels)
    rows = np.arange(len(labels))
    scaled = np.exp(logits / model.temperature_)
    scaled /= scaled.sum(1, keepdims=True)
    mixed = model.predict_proba(logits)
    assert -np.log(mixed[rows, labels]).mean() <= -np.log(scaled[rows, labels]).mean() + 1e-14
