"""The masked layer: what it drops, what it expects, and its plain form."""

import pytest
import torch
import torch.nn.functional as F

from maccal.heads import MaskedLinear, plain


def test_masks_drop_weights_at_the_rate():
    layer = MaskedLinear(200, 100, keep=0.3, generator=torch.Generator().manual_seed(0))
    first, second = layer.mask(), layer.mask()
    assert set(first.unique().tolist()) == {0.0, 1.0}
    assert float(first.mean()) == pytest.approx(0.3, abs=0.01)
    assert not torch.equal(first, second)


def test_the_training_pass_is_right_on_average():
    """Eval mode is the expectation over the masks."""
    generator = torch.Generator().manual_seed(0)
    layer = MaskedLinear(20, 3, keep=0.4, generator=generator)
    x = torch.randn(1, 20, generator=generator)
    mean = torch.stack([layer(x) for _ in range(20_000)]).mean(0)
    assert torch.allclose(mean, layer.eval()(x), atol=0.02)


def test_gradients_reach_kept_weights_only():
    """Eq. 11 is what the chain rule gives."""
    layer = MaskedLinear(50, 4, keep=0.5)
    mask = (torch.rand(4, 50) < 0.5).float()
    layer.mask = lambda: mask
    layer(torch.randn(8, 50)).square().sum().backward()
    assert torch.equal(layer.weight.grad != 0, mask > 0)
    assert (layer.bias.grad != 0).all()


def test_keep_one_is_no_mask():
    layer = MaskedLinear(6, 5, keep=1.0)
    x = torch.randn(3, 6)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))


def test_plain_layers():
    weights, biases = [torch.randn(5, 4), torch.randn(3, 5)], [torch.randn(5), torch.randn(3)]
    head = plain(weights, biases)
    x = torch.randn(7, 4)
    assert torch.allclose(head(x), F.linear(F.linear(x, weights[0], biases[0]).relu(), weights[1], biases[1]))
    assert [type(layer).__name__ for layer in head] == ["Linear", "ReLU", "Linear"]
    assert not head.training
    assert not any(p.requires_grad for p in head.parameters())
    weights[0].zero_()
    assert bool((head[0].weight != 0).all())  # its own copy
