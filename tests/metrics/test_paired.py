"""The paired test: finds what is there, and not what is not."""

import numpy as np
import pytest
import torch

from maccal.metrics import compare, ece, softmax, top_label
from maccal.metrics.paired import BLOCKS, paired_means


def sample(n, seed, sharpness=(1.0, 1.0), noise=0.3):
    """Two models that see the same rows through different noise."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 4)) * 2
    labels = (softmax(logits).cumsum(1) > rng.random((n, 1))).argmax(1)
    return [
        softmax(s * (logits + noise * rng.normal(size=logits.shape))) for s in sharpness
    ], labels


def test_finds_a_real_difference():
    (a, b), labels = sample(2000, 0, (1.0, 2.5))
    result = compare(a, b, labels)
    assert result["ece"].difference == pytest.approx(
        ece(*top_label(b, labels)) - ece(*top_label(a, labels))
    )
    for name in ("ece", "nll", "brier"):
        d = result[name]
        assert d.real
        assert 0 < d.low < d.difference < d.high
    assert not result["accuracy"].real


def test_finds_no_difference_between_equals():
    """Two models of one kind: called different at most about 5 times in 100."""
    found = {"ece": 0, "nll": 0, "brier": 0, "accuracy": 0}
    for seed in range(100):
        (a, b), labels = sample(400, seed)
        for name, d in compare(a, b, labels, resamples=200).items():
            found[name] += d.real
    assert max(found.values()) <= 11, found


def test_the_same_model_twice():
    (a, _), labels = sample(300, 0)
    assert all(d == (0, 0, 0, 1) for d in compare(a, a, labels, resamples=50).values())


def test_order_of_the_models():
    (a, b), labels = sample(500, 1, (1.0, 1.5))
    forth, back = compare(a, b, labels), compare(b, a, labels)
    for name in forth:
        assert forth[name].difference == pytest.approx(-back[name].difference, abs=1e-12)
        assert forth[name].p_value == pytest.approx(back[name].p_value, abs=1e-9)


def test_blocks_stand_for_rows(monkeypatch):
    """The interval from blocks of rows is as wide as from the rows."""
    (a, b), labels = sample(3000, 2, (1.0, 1.3))
    by_row = compare(a, b, labels)["ece"]
    assert BLOCKS >= 3000
    monkeypatch.setattr("maccal.metrics.paired.BLOCKS", 500)
    by_block = compare(a, b, labels)["ece"]
    assert by_block.difference == by_row.difference
    assert by_block.high - by_block.low == pytest.approx(by_row.high - by_row.low, rel=0.15)


def test_means_by_hand():
    d = paired_means(torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0], dtype=torch.float64))
    assert d.difference == 0.5
    assert d.high - d.difference == pytest.approx(
        1.959964 * np.std([1, -1, 1, -1, 1, 1, 1, 1], ddof=1) / np.sqrt(8)
    )


def test_infinite_scores_have_no_test():
    sure, labels = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([1, 0])
    even = np.array([[0.5, 0.5]] * 2)
    for pair, difference in (((sure, even), -np.inf), ((even, sure), np.inf)):
        found = compare(*pair, labels, resamples=20)["nll"]
        assert found.difference == difference
        assert np.isnan(found.p_value)
    assert np.isnan(compare(sure, sure, labels, resamples=20)["nll"].difference)


def test_bad_input_is_named():
    (a, b), labels = sample(10, 0)
    with pytest.raises(ValueError, match="10 rows of predictions but 9 labels"):
        compare(a, b, labels[:9])
    with pytest.raises(ValueError, match="first has 4 classes and second 3"):
        compare(a, np.full((10, 3), 1 / 3), labels)


def test_differences_are_a_dict_that_reads_as_a_table():
    (a, b), labels = sample(500, 3, (1.0, 2.5))
    found = compare(a, b, labels)
    assert list(found) == ["accuracy", "ece", "nll", "brier"]
    line = str(found).splitlines()[2]
    assert line.startswith("ECE")
    assert f"+{100 * found['ece'].difference:.2f} %" in line
    assert "second minus first" in found._repr_html_()
    frame = found.to_frame()
    assert frame.loc["nll", "p_value"] == found["nll"].p_value
