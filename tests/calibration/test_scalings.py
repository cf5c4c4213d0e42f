"""Vector and matrix scaling folded into a classifier, beside the estimators for logits."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from maccal.calibration import (
    CALIBRATORS,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    Task,
    TemperatureScaling,
    VectorScaling,
    calibrate,
)
from maccal.calibration.feedback import feedback_of
from maccal.calibration.scalings import Scaling
from maccal.features.table import FeatureTable

CLASSES = 4


def rows(count, seed):
    """Classes that a too sure classifier mixes up: the second is taken for the third."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (count,), generator=generator)
    z = 1.5 * torch.eye(CLASSES, 6)[y] + torch.randn(count, 6, generator=generator)
    return z, y


def mixed_up(bias=True):
    head = nn.Linear(6, CLASSES, bias=bias)
    with torch.no_grad():
        head.weight.copy_(3.0 * torch.eye(CLASSES, 6))
        head.weight[2] += 2.0 * torch.eye(CLASSES, 6)[1]
        if bias:
            head.bias.copy_(torch.tensor([0.0, 1.0, -1.0, 0.5]))
    return head.requires_grad_(False)


def fitted(name, head=None, **choices):
    train = FeatureTable(*rows(300, 0), "z")
    work = Task(train, feedback_of(train, val=rows(2000, 1)), CLASSES, head or mixed_up())
    return CALIBRATORS[name].fit(replace(CALIBRATORS[name].choices, **choices), work)


def nll(probs, y):
    return float(-np.log(np.asarray(probs)[np.arange(len(y)), np.asarray(y)]).mean())


@pytest.mark.parametrize(
    ("name", "twin"), [("vector", StructuredVectorScaling), ("matrix", StructuredMatrixScaling)]
)
def test_as_good_as_the_estimator_that_maps_logs_of_probabilities(name, twin):
    z, y = rows(2000, 1)
    logits = mixed_up()(z)
    inside = nll(fitted(name)(z).double().softmax(1), y)
    assert inside == pytest.approx(nll(twin().fit(logits, y).predict_proba(logits), y), rel=0.01)
    assert inside < nll(TemperatureScaling().fit(logits, y).predict_proba(logits), y) - 0.005


def test_a_matrix_undoes_the_mixing_and_a_vector_cannot():
    z, y = rows(4000, 2)
    vector, matrix = (nll(fitted(name)(z).double().softmax(1), y) for name in ("vector", "matrix"))
    assert matrix < vector - 0.02


def test_held_hard_it_is_a_temperature():
    z, y = rows(2000, 1)
    logits = mixed_up()(z).double()
    expected = TemperatureScaling().fit(logits, y).predict_proba(logits)
    for name in ("vector", "matrix"):
        found = fitted(name, strength=1e9)(z).double().softmax(1)
        torch.testing.assert_close(found, torch.as_tensor(expected), atol=1e-5, rtol=0)


def test_held_softly_a_vector_is_vector_scaling_of_centred_logits():
    z, y = rows(2000, 1)
    logits = mixed_up()(z).double()
    centred = logits - logits.mean(1, keepdim=True)
    expected = VectorScaling().fit(centred, y).predict_proba(centred)
    found = fitted("vector", strength=1e-9)(z).double().softmax(1)
    torch.testing.assert_close(found, torch.as_tensor(expected), atol=1e-5, rtol=0)


def test_a_whole_model_keeps_its_keys():
    model = nn.Sequential(nn.Identity(), mixed_up())
    z, y = rows(2000, 1)
    new = calibrate(model, [rows(300, 0)], val=[(z, y)], calibrator="matrix")
    assert list(new.state_dict()) == list(model.state_dict())
    torch.testing.assert_close(new(z), fitted("matrix")(z))
    assert new[1].feedback["source"] == "held-out"


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="the classifier has none; pass calibrator='temperature'"):
        fitted("vector", mixed_up(bias=False))
    for strength in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="strength is"):
            Scaling(strength=strength)


@pytest.mark.parametrize("name", ["vector", "matrix"])
def test_no_temperature_betters_it(name):
    """Nor where the classifier needs so much mending that its own best temperature is far off."""
    z, y = rows(2000, 1)
    head = mixed_up()
    with torch.no_grad():
        head.bias.copy_(torch.tensor([20.0, 0.0, 0.0, 0.0]))
    found = fitted(name, head)
    logits = found(z).double()
    assert found.history[0]["scale"] > 1.05
    assert TemperatureScaling().fit(logits, y).temperature_ == pytest.approx(1, abs=1e-4)
    assert float((logits.argmax(1) == y).double().mean()) > 0.65


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["temperature", "vector", "matrix"])
def test_a_network_in_any_precision(name, dtype):
    """float64 says what float32 says, and the network keeps its type."""
    z, y = rows(300, 0)
    model = nn.Sequential(nn.Identity(), mixed_up())
    plain = calibrate(model, [(z, y)], val=[rows(300, 1)], calibrator=name)(z)
    held_out = rows(300, 1)
    val = [(held_out[0].to(dtype), held_out[1])]
    other = calibrate(model.to(dtype), [(z.to(dtype), y)], val=val, calibrator=name)(z.to(dtype))
    assert other.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float64 else 0.2
    torch.testing.assert_close(other.float(), plain, rtol=0, atol=tolerance)
