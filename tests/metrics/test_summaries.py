"""The summary: every key there, every interval around its number, the verdict right."""

import json
import math

import numpy as np
import pytest
import torch
from binomial import at_most

from maccal.metrics import (
    METRICS,
    Bins,
    classwise_ece,
    ece,
    nll,
    smece,
    softmax,
    summary,
    top_label,
)
from maccal.metrics.summaries import classwise_interval, classwise_null, show


def sample(n=1500, classes=5, sharpness=1.0, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 2
    labels = (softmax(logits).cumsum(1) > rng.random((n, 1))).argmax(1)
    return sharpness * logits, labels


def test_the_numbers_are_the_functions():
    logits, labels = sample()
    probs = softmax(logits)
    confidence, correct = top_label(probs, labels)
    s = summary(probs, labels, bins=12)
    assert s["ece"] == ece(confidence, correct, 12)
    assert s["smece"] == smece(confidence, correct)
    assert s["classwise_ece"] == classwise_ece(probs, labels, 12)
    assert s["nll"] == nll(probs, labels)
    assert s["mce_count"] == Bins.of(confidence, correct, 12).mce().count
    assert (s["n"], s["classes"], s["bins"]) == (1500, 5, 12)
    assert set(METRICS) < set(s)
    assert all(isinstance(v, (float, int)) for v in s.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_block_by_block(dtype, monkeypatch):
    """The bins of logits are those of their softmax, to the bit, though it is never held whole."""
    logits, labels = sample()
    probs = softmax(logits.astype(dtype))
    whole = ece(*top_label(probs, labels)), classwise_ece(probs, labels)
    monkeypatch.setattr("maccal.metrics.inputs.BLOCK", 1000)
    s = summary(logits=logits.astype(dtype), labels=labels)
    assert (s["ece"], s["classwise_ece"]) == whole
    assert s["nll"] == nll(logits=logits.astype(dtype), labels=labels)


def test_logits_and_probabilities_and_tensors_agree():
    logits, labels = sample()
    expected = summary(softmax(logits), labels)
    for other in (
        summary(logits=logits, labels=labels),
        summary(torch.tensor(softmax(logits)), torch.tensor(labels)),
    ):
        assert all(other[key] == pytest.approx(expected[key], abs=1e-9) for key in expected)


@pytest.mark.parametrize("sharpness", [0.4, 1.0, 3.0])
def test_intervals_hold_their_numbers(sharpness):
    logits, labels = sample(sharpness=sharpness)
    s = summary(logits=logits, labels=labels, interval=True, resamples=300)
    for name in METRICS:
        assert s[f"{name}_low"] <= s[name] <= s[f"{name}_high"], name
        if name != "confidence":
            assert s[f"{name}_null_low"] <= s[f"{name}_null_high"], name
    assert json.loads(json.dumps(s)) == s


@pytest.mark.parametrize(
    ("sharpness", "word"),
    [(3.0, "Overconfident: it says"), (0.4, "Underconfident: it says"), (1.0, "Cannot be told")],
)
def test_verdict(sharpness, word):
    logits, labels = sample(sharpness=sharpness)
    s = summary(logits=logits, labels=labels, interval=True, resamples=300)
    assert s["verdict"].startswith(word)
    assert (
        f"ECE is {100 * s['ece']:.2f} %" in s["verdict"]
        or f"KS error is {100 * s['ks']:.2f} %" in s["verdict"]
    )
    assert (s["p_value"] > 0.05) == (sharpness == 1.0)


def test_wrong_both_ways():
    """Too sure where it says 90 %, not sure enough where it says 60 %; right on average."""
    probs = np.array([[0.9, 0.1]] * 1000 + [[0.6, 0.4]] * 1000)
    labels = np.array([0] * 750 + [1] * 250 + [0] * 750 + [1] * 250)
    s = summary(probs, labels, interval=True)
    assert s["verdict"].startswith("Miscalibrated, too sure here and not sure enough there")
    assert s["confidence"] == pytest.approx(s["accuracy"])


@pytest.mark.slow
def test_the_verdict_is_rarely_wrong_about_calibrated_models():
    """The p-value of calibrated models is below 5 % at most about 5 times in 100."""
    trials = 40
    accused = 0
    for seed in range(trials):
        logits, labels = sample(400, 3, seed=seed)
        found = summary(logits=logits, labels=labels, interval=True, resamples=200)
        accused += found["p_value"] <= 0.05
    assert accused <= at_most(0.05, trials)


@pytest.mark.parametrize("classes", [2, 6])
def test_classwise_null_by_simulation(classes):
    """The band from binomial counts against labels drawn from the probabilities."""
    logits, labels = sample(800, classes)
    probs = softmax(logits)
    rng = np.random.default_rng(1)
    cumulative = probs.cumsum(1)
    drawn = [
        classwise_ece(probs, (cumulative > rng.random((800, 1))).argmax(1)) for _ in range(300)
    ]
    low, high = classwise_null(Bins.of_classes(probs, labels), 1000, 0)
    assert low == pytest.approx(np.quantile(drawn, 0.025), rel=0.08)
    assert high == pytest.approx(np.quantile(drawn, 0.975), rel=0.08)


def test_classwise_interval_by_bootstrap():
    logits, labels = sample(1500, 4, sharpness=3.0)
    probs = softmax(logits)
    low, high = classwise_interval(
        Bins.of_classes(probs, labels), torch.tensor(probs), torch.tensor(labels)
    )
    rng = np.random.default_rng(1)
    draws = [
        classwise_ece(probs[rows], labels[rows])
        for rows in (rng.integers(1500, size=1500) for _ in range(200))
    ]
    assert high - low == pytest.approx(2 * 1.96 * np.std(draws), rel=0.15)
    assert (low + high) / 2 == pytest.approx(classwise_ece(probs, labels), abs=1e-9)


def test_infinite_nll_is_said():
    probs, labels = np.array([[1.0, 0.0], [0.6, 0.4]] * 20), np.array([1, 0] * 20)
    s = summary(probs, labels, interval=True, resamples=50)
    assert s["nll"] == math.inf
    assert math.isnan(s["nll_low"])
    assert "∞" in str(s)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("spread", [0.0, 1e-7, 1e-3])
def test_uniform_predictions(dtype, spread):
    """The variance of a constant is zero, not a little below it.

    Of nearly constant values it is their spread.
    """
    rng = np.random.default_rng(0)
    for classes in (2, 3, 7, 10, 100):
        logits = spread * rng.normal(size=(50, classes))
        probs, labels = softmax(logits).astype(dtype), rng.integers(classes, size=50)
        s = summary(probs, labels, interval=True, resamples=20)
        assert s["nll"] == pytest.approx(math.log(classes), rel=1e-2)
        assert s["nll_null_low"] <= s["nll_null_high"]
        if dtype == np.float64:
            deviation = math.sqrt(logits.var(1).mean() / 50)  # of -log p_y, to first order
            assert s["nll_null_high"] - s["nll_null_low"] == pytest.approx(
                2 * 1.96 * deviation, rel=0.05, abs=1e-14
            )


def test_one_row():
    s = summary(np.array([[0.7, 0.3]]), np.array([0]), interval=True, resamples=50)
    assert s["ece"] == pytest.approx(0.3)
    assert s["verdict"].startswith("Cannot be told")


def test_prints_as_a_table():
    text = str(summary(logits=sample()[0], labels=sample()[1], interval=True, resamples=50))
    lines = text.splitlines()
    assert lines[0] == "1,500 rows, 5 classes, 15 bins"
    assert sum("calibrated: " in line for line in lines) == len(METRICS) - 1
    assert lines[-1].startswith("Cannot be told")


@pytest.mark.parametrize(
    ("value", "percent", "text"),
    [
        (0.0532, True, "5.32 %"),
        (1.5, False, "1.5000"),
        (3e-5, False, "3.0e-05"),
        (math.nan, True, "–"),
    ],
)
def test_show(value, percent, text):
    assert show(value, percent) == text
