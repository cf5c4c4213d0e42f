"""Conv: torch's convolution; only where it gains, another way to its weights' gradient."""

import pytest
import torch
from torch import nn

from maccal.models.convolution import SMALL, Conv

SHAPES = [
    (256, 256, 2, 3, 1),
    (16, 32, 8, 3, 2),
    (16, 32, 7, 3, 2),
    (32, 16, 4, 1, 2),
    (3, 4, 1, 3, 1),
]
BF16 = torch.bfloat16


def both(width_in, width, size, stride):
    """Ours and torch's, with the same weights."""
    ours = Conv(width_in, width, size, stride)
    theirs = nn.Conv2d(width_in, width, size, stride, size // 2, bias=False)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize(("width_in", "width", "side", "size", "stride"), SHAPES)
def test_outputs_and_gradients_are_those_of_torch(width_in, width, side, size, stride):
    torch.manual_seed(1)
    layers = both(width_in, width, size, stride)
    images = torch.randn(32, width_in, side, side).to(memory_format=torch.channels_last)
    inputs = [images.clone().requires_grad_() for _ in layers]
    with torch.autocast("cpu", BF16):
        assert layers[0].gains(inputs[0])
        ours, theirs = (layer(x) for layer, x in zip(layers, inputs, strict=True))
    assert ours.dtype == BF16
    assert torch.equal(ours, theirs)
    direction = torch.randn_like(theirs)
    ours.backward(direction)
    theirs.backward(direction)
    found, wanted = (image.grad for image in inputs)
    assert (found - wanted).norm() <= 1e-3 * wanted.norm()  # the same bits on most processors
    found, wanted = (layer.weight.grad for layer in layers)
    assert found.dtype == torch.float32
    # both are rounded to bf16 once: a few may fall on the other side
    assert (found - wanted).norm() <= 1e-3 * wanted.norm()


def test_images_without_a_gradient_get_none():
    layer = Conv(8, 8, 3)
    with torch.autocast("cpu", BF16):
        layer(torch.randn(4, 8, 2, 2)).sum().backward()
    assert layer.weight.grad.isfinite().all()


def test_it_is_left_to_torch_where_nothing_is_gained():
    layer = Conv(4, 4, 3)
    small = torch.randn(2, 4, 4, 4)
    assert SMALL == 16
    assert not layer.gains(small)  # float32
    with torch.autocast("cpu", BF16):
        assert layer.gains(small)
        assert not layer.gains(torch.randn(2, 4, 5, 4))
        assert not layer.gains(small.to("meta"))
        with torch.no_grad():
            assert not layer.gains(small)
        layer.weight.requires_grad_(False)
        assert not layer.gains(small)
    with torch.autocast("cpu", torch.float16):
        assert not Conv(4, 4, 3).gains(small)
