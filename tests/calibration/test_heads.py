"""The masked layer, the hand-written step against autograd, and the plain form of a head."""

import pytest
import torch
import torch.nn.functional as F
from reference_heads import AutogradHead, MaskedLinear

from maccal import io
from maccal.calibration.heads import Heads, load_head, logits, plain, save_head
from maccal.calibration.stage2 import Stage2
from maccal.io import FileError


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
    weights = [torch.randn(5, 4), torch.randn(3, 5)]
    biases = [torch.randn(5), torch.randn(3)]
    head = plain(weights, biases)
    x = torch.randn(7, 4)
    hidden = F.linear(x, weights[0], biases[0]).relu()
    assert torch.allclose(head(x), F.linear(hidden, weights[1], biases[1]))
    assert [type(layer).__name__ for layer in head] == ["Linear", "ReLU", "Linear"]
    assert not head.training
    assert not any(p.requires_grad for p in head.parameters())
    weights[0].zero_()
    assert bool((head[0].weight != 0).all())  # its own copy
    assert torch.allclose(logits(x, [layer.weight for layer in head[::2]], biases), head(x))


@pytest.mark.slow
@pytest.mark.parametrize("masking", ["forward", "reset", "straight-through"])
@pytest.mark.parametrize("restrict", ["none", "gradient", "frozen"])
@pytest.mark.parametrize(
    "widths", [[[6, 4]], [[6, 9, 4], [6, 5, 4]]], ids=["linear", "two bottlenecks"]
)
def test_the_step_is_autograd_s(masking, restrict, widths):
    """Each of the heads, of unequal widths, takes the steps that it would take alone.

    What pads it stays zero.
    """
    config = Stage2(masking=masking, restrict=restrict)
    generators = [torch.Generator().manual_seed(seed) for seed in range(len(widths))]
    heads = Heads(widths, generators)
    twins = []
    for head in range(len(widths)):
        weights = cut(heads.weights, heads, head)
        twins.append(AutogradHead(weights, cut(heads.biases, heads, head), config, lr=0.1))
    for _ in range(4):
        heads.draw([0.6, 0.3][: len(widths)], generators, config)
        x = torch.randn(len(widths), 16, 6, generator=generators[0])
        y = torch.randint(4, (len(widths), 16), generator=generators[0])
        heads.step(x, y, 0.1, config)
        for head, twin in enumerate(twins):
            twin.step(cut(heads.masks, heads, head), x[head], y[head])
            assert_close(cut(heads.weights, heads, head), twin.weights)
            assert_close(cut(heads.biases, heads, head), twin.biases)
    if len(widths) == 2:
        assert not heads.weights[0][1, 5:].any()
        assert not heads.weights[1][1, :, 5:].any()
        assert not heads.biases[0][1, 0, 5:].any()


def cut(tensors, heads, head):
    """The part of each layer's weights, masks or biases that belongs to a head, without padding."""
    parts = []
    for tensor, (out, fan_in) in zip(tensors, heads.shapes[head], strict=True):
        is_bias = tensor.shape[1] == 1
        parts.append(tensor[head, 0, :out] if is_bias else tensor[head, :out, :fan_in])
    return parts


def assert_close(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("keep", [0.01, 0.2, 0.5, 0.999, 1.0])
def test_masks_of_many_heads(keep):
    """Binary, at the rate, fresh at every draw, unlike between heads; keep 1 drops nothing."""
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    heads = Heads([[100, 301, 7]] * 2, generators)
    drawn = []
    for _ in range(2):
        heads.draw([keep, keep], generators, Stage2())
        drawn.append([m.clone() for m in heads.masks])
    flat = torch.cat([m.flatten() for m in drawn[0] + drawn[1]])
    assert set(flat.unique().tolist()) <= {0.0, 1.0}
    mean = float(flat.mean())
    assert mean == pytest.approx(keep, abs=4 * (keep * (1 - keep) / 128_828) ** 0.5 + 1e-5)
    if keep < 1:
        assert not torch.equal(drawn[0][0], drawn[1][0])
        assert not torch.equal(drawn[0][0][0], drawn[0][0][1])


def test_the_initial_weights_are_linear_s():
    """Uniform within 1 / sqrt(fan in), as nn.Linear draws them."""
    heads = Heads([[64, 512, 10]], [torch.Generator().manual_seed(0)])
    for weight, bias, fan_in in zip(heads.weights, heads.biases, (64, 512), strict=True):
        bound = fan_in**-0.5
        assert float(weight.abs().max()) <= bound
        assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.05)
        assert float(bias.abs().max()) <= bound


@pytest.mark.parametrize(
    ("inference", "factor"), [("expected", 0.3), ("dense", 1.0), ("last", None)]
)
def test_weights_at_inference(inference, factor):
    generator = torch.Generator().manual_seed(0)
    heads = Heads([[6, 4]], [generator])
    config = Stage2(inference=inference)
    heads.draw([0.3], [generator], config)
    weights, biases = heads.deployed(0, 0.3, config)
    expected = heads.masks[0][0] if factor is None else factor
    assert torch.equal(weights[0], heads.weights[0][0] * expected)
    assert torch.equal(biases[0], heads.biases[0][0, 0])


def saved(path):
    generator = torch.Generator().manual_seed(1)
    shapes = [(7, 5), (3, 7)]
    head = plain(
        [torch.randn(shape, generator=generator) for shape in shapes],
        [torch.zeros(out) for out, _ in shapes],
    )
    return head, save_head(head, path, seed=1)


def test_a_saved_head_comes_back_by_path_or_by_name(tmp_path):
    head, path = saved(str(tmp_path / "x.safetensors"))
    for name in (path, str(path)):
        again = load_head(name)
        for a, b in zip(head.parameters(), again.parameters(), strict=True):
            assert torch.equal(a, b)


def test_a_damaged_head_is_refused_wherever_the_damage_is(tmp_path):
    _, path = saved(tmp_path / "x.safetensors")
    data = path.read_bytes()
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        with pytest.raises(FileError, match=r"x\.safetensors: not a head written by maccal"):
            load_head(path)


@pytest.mark.parametrize(
    "shapes",
    [
        {},
        {"0.bias": (3,)},
        {"0.weight": (3, 2), "0.bias": (2,)},
        {"0.weight": (3, 2), "0.bias": (3,), "2.weight": (4, 5), "2.bias": (4,)},
        {"0.weight": (3,), "0.bias": (3,)},
        {"0.weight": (3, 2), "0.bias": (3,), "1.weight": (3, 3), "1.bias": (3,)},
    ],
)
def test_layers_that_are_no_head_are_refused(tmp_path, shapes):
    tensors = {name: torch.zeros(shape) for name, shape in shapes.items()}
    io.write_tensors(tmp_path / "x", "head 1", tensors)
    with pytest.raises(FileError, match="not a head written by maccal"):
        load_head(tmp_path / "x")
