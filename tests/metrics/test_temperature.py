"""The best temperature: exact wherever it lies, whatever the sample, with or without a compiler."""

import math

import numpy as np
import pytest
import torch

from maccal.metrics import brier_split, inputs, nll_split, softmax, summary, temperature
from maccal.metrics.softmaxes import Rows, slopes
from maccal.metrics.temperature import Best, best, runs_away


def sample(n=3000, classes=6, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 2
    labels = (softmax(logits).cumsum(1) > rng.random((n, 1))).argmax(1)
    return Rows.of(torch.tensor((1.7 * logits).astype(dtype)), torch.tensor(labels))


def assert_exact(rows, found):
    """The slope is zero as far as float64 can tell, and the value is the score there."""
    for which, one in enumerate(found):
        scales = [0.0, 0.0]
        scales[which] = math.exp(one.log_scale)
        value, first, second, _ = slopes(rows, *scales)[which]
        assert abs(first / second) < (1e-12 if which == 0 else 1e-8)
        assert one.value == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize("classes", [2, 10, 300])
def test_the_slope_is_zero(classes):
    rows = sample(classes=classes)
    assert_exact(rows, best(rows, nll=True, brier=True))


def test_the_sample_leaves_no_trace(monkeypatch):
    rows = sample()
    expected = best(rows, nll=True, brier=True)
    for size in (1, 20, 500):
        monkeypatch.setattr(temperature, "SAMPLE", size)
        for found, before in zip(best(rows, nll=True, brier=True), expected, strict=True):
            assert found.value == pytest.approx(before.value, rel=1e-14)
            assert found.log_scale == pytest.approx(before.log_scale, abs=1e-8)
        assert best(rows, nll=True, brier=False)[0].log_scale == pytest.approx(
            expected[0].log_scale, abs=1e-13
        )


def test_a_pass_in_float32_leaves_no_trace(monkeypatch):
    rows = sample()
    expected = best(rows, nll=True, brier=True)
    monkeypatch.setattr(temperature, "LARGE", 1)
    found = best(rows, nll=True, brier=True)
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    assert found[1] == pytest.approx(expected[1], rel=1e-8)
    assert found[1].value == pytest.approx(expected[1].value, rel=1e-14)


def test_without_a_compiler(monkeypatch):
    rows = sample()
    expected = best(rows, nll=True, brier=True)
    monkeypatch.setattr(inputs, "kernels", None)
    found = best(rows, nll=True, brier=True)
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    assert found[1].value == pytest.approx(expected[1].value, rel=1e-13)


def test_few_passes_over_all_rows(monkeypatch):
    """One in float32 and one in float64, as a rule: it is what the speed rests on."""
    rows = sample(60_000, 10)
    passes = []

    def counted(part, nll_scale, brier_scale, fine=True):
        if len(part.scores) == 60_000:
            passes.append(fine)
        return slopes(part, nll_scale, brier_scale, fine)

    monkeypatch.setattr(temperature, "slopes", counted)
    best(rows, nll=True, brier=True)
    assert passes.count(False) == 1
    assert passes.count(True) <= 2


def test_nothing_best():
    scores = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    right, wrong = Rows.of(scores, torch.tensor([0, 1])), Rows.of(scores, torch.tensor([1, 0]))
    assert best(right, nll=True, brier=False) == (None, None)
    assert best(wrong, nll=True, brier=False) == (None, None)
    assert (runs_away(right), runs_away(wrong), runs_away(sample())) == (
        "T to 0",
        "T to infinity",
        "",
    )


def test_a_hair_from_nothing_best():
    """One row of many is wrong, by a hair.

    Or the labels' scores are better than the mean, by a hair.
    """
    nearly_right = torch.tensor([[1.0, 0.0]] * 999 + [[1e-9, 0.0]], dtype=torch.float64)
    rows = Rows.of(nearly_right, torch.tensor([0] * 999 + [1]))
    assert_exact(rows, best(rows, nll=True, brier=False)[:1])
    even = torch.tensor([[1.0, 0.0]] * 2 + [[0.0, 1.0 - 1e-6]] * 2, dtype=torch.float64)
    rows = Rows.of(even, torch.tensor([0, 1, 0, 1])[[0, 0, 2, 2]])
    found = best(rows, nll=True, brier=False)[0]
    assert isinstance(found, Best)
    assert_exact(rows, [found])


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e-6, 1e6, 1e30, 1e300])
def test_splits_at_any_size(size):
    """Logits times s have the same refinement, at s times the temperature.

    The range of the search moves with them.
    """
    rows = sample(500)
    logits, labels = rows.scores.numpy(), rows.labels.numpy()
    for split in (nll_split, brier_split):
        expected, found = (
            split(logits=logits, labels=labels),
            split(logits=size * logits, labels=labels),
        )
        assert found.refinement == pytest.approx(expected.refinement, rel=1e-12)
        assert found.temperature == pytest.approx(size * expected.temperature, rel=1e-7)


def test_rows_of_another_size():
    """A few rows of a size far beyond the others do not lead the search astray."""
    rows = sample(600)
    logits, labels = rows.scores.clone(), rows.labels
    logits[::50] *= 1e20
    logits[::50] *= (logits[::50].argmax(1) == labels[::50])[:, None]
    loud = Rows.of(logits, labels)
    assert_exact(loud, best(loud, nll=True, brier=True))


def test_the_summary_knows_large_temperatures():
    rows = sample(500)
    s = summary(logits=1e6 * rows.scores.numpy(), labels=rows.labels.numpy())
    assert s["temperature"] == pytest.approx(1.7e6, rel=0.2)
    assert s["nll_refinement"] < 2
