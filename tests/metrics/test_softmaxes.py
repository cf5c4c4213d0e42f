"""NLL, Brier and their slopes: compiled loops against torch, derivatives against differences."""

import numpy as np
import pytest
import torch

from maccal.metrics import inputs, softmaxes
from maccal.metrics.softmaxes import (
    Rows,
    score_compiled,
    score_rows,
    score_torch,
    slopes,
    slopes_compiled,
    slopes_torch,
)


def sample(rows, classes, dtype=torch.float64, spread=3.0):
    generator = torch.Generator().manual_seed(classes)
    scores = spread * torch.randn(rows, classes, generator=generator, dtype=torch.float64) + 50
    return Rows.of(scores.to(dtype), torch.randint(classes, (rows,), generator=generator))


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 300])
@pytest.mark.parametrize("classes", [2, 10, 63, 64, 65, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_and_torch_agree(rows, classes, dtype):
    assert inputs.kernels is not None, "the compiled kernels were not built"
    data = sample(rows, classes, dtype)
    for scale in (1e-3, 0.7, 40.0):
        assert torch.allclose(
            score_compiled(data, scale), score_torch(data, scale), rtol=1e-12, atol=1e-13
        )
        fast, slow = slopes_compiled(data, scale, 2 * scale), slopes_torch(data, scale, 2 * scale)
        size = np.abs(slow).max()  # terms of either sign cancel
        assert np.allclose(fast, slow, rtol=1e-12, atol=1e-12 * size)


@pytest.mark.parametrize("classes", [3, 100])
def test_float32_is_near(classes):
    data = sample(500, classes)
    rough, exact = slopes(data, 0.5, 0.8, fine=False), slopes(data, 0.5, 0.8)
    assert np.allclose(rough, exact, rtol=1e-4, atol=1e-5 * np.abs(exact).max())


def test_one_score_alone():
    data = sample(50, 7)
    both = slopes(data, 0.5, 0.8)
    assert np.array_equal(slopes(data, 0.5, 0.0), [both[0], np.zeros(4)])
    assert np.array_equal(slopes(data, 0.0, 0.8), [np.zeros(4), both[1]])


@pytest.mark.parametrize("measure", [slopes_compiled, slopes_torch])
def test_derivatives_by_differences(measure):
    """Of x, where the scale is multiplied by 1 + x."""
    data, step = sample(200, 6), 1e-3
    around = np.array(
        [measure(data, 0.6 * (1 + x), 0.9 * (1 + x))[:, 0] for x in step * np.arange(-3, 4)]
    )
    value, first, second, third = measure(data, 0.6, 0.9).T
    centre = np.array([-1, 9, -45, 0, 45, -9, 1]) @ around / (60 * step)
    twice = np.array([2, -27, 270, -490, 270, -27, 2]) @ around / (180 * step**2)
    thrice = np.array([1, -8, 13, 0, -13, 8, -1]) @ around / (8 * step**3)
    assert np.allclose(value, around[3])
    assert np.allclose(first, centre, rtol=1e-8)
    assert np.allclose(second, twice, rtol=1e-6)
    assert np.allclose(third, thrice, rtol=1e-4)


@pytest.mark.parametrize("score", [score_compiled, score_torch])
def test_infinite_scores(score):
    """Log 0 is probability 0 at every scale: the class might as well not be there.

    As the label, it costs the earth.
    """
    inf = torch.inf
    scores = torch.tensor([[0.0, -inf, -1.0], [0.0, -inf, -1.0]], dtype=torch.float64)
    nll, brier = score(Rows.of(scores, torch.tensor([0, 1])), 2.0)
    alone = score(Rows.of(scores[:1, ::2].contiguous(), torch.tensor([0])), 2.0)
    assert torch.allclose(torch.stack([nll[:1], brier[:1]]), alone, rtol=1e-15)
    assert nll[1] == inf
    p = scores[1, ::2].mul(2.0).softmax(0)
    assert float(brier[1]) == pytest.approx(1 + float(p.square().sum()), rel=1e-14)


@pytest.mark.parametrize("measure", [slopes_compiled, slopes_torch])
def test_slopes_with_infinite_scores(measure):
    scores = torch.tensor([[0.0, -torch.inf, -1.0], [-2.0, -torch.inf, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0])
    whole, without = Rows.of(scores, labels), Rows.of(scores[:, ::2].contiguous(), labels)
    assert np.allclose(measure(whole, 0.5, 0.5), measure(without, 0.5, 0.5), rtol=1e-13)
    lost = Rows.of(scores, torch.tensor([1, 0]))
    assert np.isfinite(measure(lost, 0.0, 0.5)).all()


def test_threads_give_the_same_bits(monkeypatch):
    data = sample(211, 9)
    monkeypatch.setattr(inputs, "BLOCK", 90)
    expected = score_rows(data), slopes(data, 0.5, 0.5)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(score_rows(data), expected[0])
    assert np.array_equal(slopes(data, 0.5, 0.5), expected[1])


def test_without_a_compiler(monkeypatch):
    data = sample(100, 5)
    expected = score_rows(data)
    monkeypatch.setattr(inputs, "kernels", None)
    assert not softmaxes.compiled(data)
    assert torch.allclose(score_rows(data), expected, rtol=1e-13)
