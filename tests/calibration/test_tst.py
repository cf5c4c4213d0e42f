"""TST and V-TST.

The published numbers, the epoch that is kept, evaluation that repeats, and what each variant leaves
alone.
"""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from maccal.calibration import tst, two_stage
from maccal.calibration.tst import TSTHead, TwoStage, VTSTHead, build_head
from maccal.calibration.two_stage import two_stage_head, two_stage_live
from maccal.data import Split, load
from maccal.data.pixels import PIXELS
from maccal.features.table import FeatureTable
from maccal.methods.losses import standard_normal_kl
from maccal.models import build
from maccal.training import Diverged

FAST = TwoStage.as_in_maccal(epochs=6, width=8, batch_size=32, lr=0.05)
BOTH = pytest.mark.parametrize(
    "config", [FAST, replace(FAST, variational=True)], ids=["tst", "vtst"]
)


def task(n=600, noise=0.0, seed=0):
    """Four classes around four centres; a share of the labels is wrong."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    z = 2 * np.random.default_rng(9).normal(size=(4, 12))[y] + rng.normal(size=(n, 12))
    return torch.tensor(z).float(), torch.tensor(
        np.where(rng.random(n) < noise, rng.integers(0, 4, n), y)
    )


def same(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# Numbers of the published code
# --------------------------------------------------------------------------------------------------


def waves(head):
    """Every weight a sine, every bias a ramp, in float64."""
    head.double()
    for layer in head.modules():
        if isinstance(layer, nn.Linear):
            out, fan_in = (torch.arange(size, dtype=torch.float64) for size in layer.weight.shape)
            layer.weight.data = torch.sin(0.1 * out[:, None] + 0.01 * fan_in) / len(fan_in) ** 0.5
            layer.bias.data = 0.01 * out
    return head


N = torch.arange(8, dtype=torch.float64)[:, None]
J = torch.arange(640, dtype=torch.float64)
X = torch.cos(0.01 * N * J + 0.5 * N)
Y = 3 * torch.arange(8) % 10


def near(values):
    return pytest.approx(values, abs=1e-6)


def test_tst_golden():
    head = waves(TSTHead(640, 10, width=8))
    loss, logits = head.loss(X, Y)
    assert head.encoder(X)[0, :3].tolist() == near([0.308892, 0.534726, 0.755317])
    assert logits[0, :3].tolist() == near([0.133201, 0.437192, 0.736914])
    assert loss.item() == near(4.908096)


def test_vtst_golden(monkeypatch):
    monkeypatch.setattr(tst, "noise", lambda like, generator: torch.zeros_like(like))
    head = waves(VTSTHead(640, 10, width=8))
    mean, log_variance = head.latent(X)
    assert mean[0, :3].tolist() == near([0.308892, 0.534726, 0.755317])
    assert log_variance[0, :3].tolist() == near([-0.550581, -0.461108, -0.385168])
    assert standard_normal_kl(mean, log_variance).item() == near(19.799708)
    assert head.loss(X, Y)[0].item() == near(24.707804)
    assert head(X)[0, :3].tolist() == near([0.133201, 0.437192, 0.736914])


def test_default_sizes():
    shapes = [tuple(p.shape) for p in build_head(TwoStage(), 64, 10).parameters()]
    assert shapes == [(384, 64), (384,), (128, 384), (128,), (10, 128), (10,)]
    head = build_head(TwoStage(variational=True), 64, 10)
    assert sum(p.numel() for p in head.parameters()) == 2 * (24960 + 49280) + 1290


# Training
# --------------------------------------------------------------------------------------------------


@BOTH
def test_learns_what_can_be_learnt(config):
    head = two_stage_head(*task(), config=config)
    z, y = task(seed=1)
    assert (head(z).argmax(1) == y).double().mean() > 0.98
    assert not head.training
    assert not any(p.requires_grad for p in head.parameters())
    assert [numbers["epoch"] for numbers in head.history] == [1, 2, 3, 4, 5, 6]
    assert set(head.history[0]) == {"epoch", "loss", "accuracy"}


@BOTH
def test_it_is_sgd(config):
    """A slow, obvious twin: torch's own optimiser, all draws from one generator."""
    z, y = task(100)
    config = replace(config, epochs=2, clip=0.5, weight_decay=0.1)
    head = two_stage_head(z, y, config=config, seed=5)
    twin = build_head(config, 12, 4, seed=5)
    generator = torch.Generator().manual_seed(5)
    optimiser = torch.optim.SGD(twin.parameters(), 0.05, momentum=0.9, weight_decay=0.1)
    for _ in range(2):
        for rows in torch.randperm(100, generator=generator).split(32):
            optimiser.zero_grad()
            if config.variational:
                mu = twin.mean(z[rows])
                s = torch.sigmoid(twin.variance(z[rows]))
                logits = twin.decoder(mu + s.sqrt() * torch.randn(mu.shape, generator=generator))
                extra = (-0.5 * (1 + s.log() - mu**2 - s)).sum(1).mean() / 8
            else:
                logits, extra = twin(z[rows]), 0
            (F.cross_entropy(logits, y[rows]) + extra).backward()
            nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
            optimiser.step()
    for a, b in zip(head.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-4, atol=1e-6)


def test_adam_is_the_authors():
    config = TwoStage(width=8, epochs=2)
    assert (config.optimiser, config.lr, config.batch_size, config.weight_decay, config.clip) == (
        "adam",
        1e-4,
        256,
        0,
        0,
    )
    head = two_stage_head(*task(), config=config)
    start = build_head(config, 12, 4)
    moved = [
        (a - b).abs().max() for a, b in zip(head.parameters(), start.parameters(), strict=True)
    ]
    # Adam's steps are at most about lr: 2 epochs of 3
    assert all(0 < m <= 1.01 * 2 * 3 * 1e-4 for m in moved)


@BOTH
def test_same_seed_same_bits(config):
    z, y = task(noise=0.2)
    first, again, other = (
        two_stage_head(z, y, val=task(100), config=config, seed=seed) for seed in (3, 3, 4)
    )
    assert same(first, again)
    assert first.history == again.history
    assert not torch.equal(first.decoder.weight, other.decoder.weight)


def test_any_array_will_do():
    z, y = task()
    heads = [
        two_stage_head(a, b, config=FAST)
        for a, b in ((z, y), (z.numpy(), y.numpy().astype(np.int16)), (z.double(), y))
    ]
    assert same(heads[0], heads[1])
    assert same(heads[0], heads[2])


def test_rows_that_do_not_fit_in_memory(monkeypatch):
    monkeypatch.setattr(
        two_stage,
        "FeatureTable",
        lambda z, y, name: FeatureTable(z, y, name, in_memory=0, pool=4 * 12 * 128),
    )
    head = two_stage_head(*task(), val=task(200, seed=1), config=FAST)
    assert head.history[-1]["val_accuracy"] > 0.98


@BOTH
def test_keeps_the_epoch_with_the_lowest_held_out_nll(config):
    """Few rows with wrong labels: the lowest NLL comes early, the last is far above it."""
    config = replace(config, epochs=25, width=32, weight_decay=0.0)
    z, y = task(80, noise=0.3)
    val = task(300, noise=0.3, seed=1)
    heads = {
        select: two_stage_head(z, y, val=val, config=replace(config, select=select))
        for select in ("val-nll", "last")
    }
    history = heads["last"].history
    assert heads["val-nll"].history == history
    assert set(history[0]) == {"epoch", "loss", "accuracy", "val_nll", "val_accuracy"}
    found = {
        select: float(F.cross_entropy(head(val[0]).double(), val[1]))
        for select, head in heads.items()
    }
    nlls = [numbers["val_nll"] for numbers in history]
    assert found == {
        "val-nll": pytest.approx(min(nlls), abs=1e-6),
        "last": pytest.approx(nlls[-1], abs=1e-6),
    }
    assert min(nlls) < 0.95 * nlls[-1]


def test_the_last_epoch_where_nothing_is_held_out():
    z, y = task(noise=0.3)
    last = replace(FAST, select="last")
    assert same(two_stage_head(z, y, config=FAST), two_stage_head(z, y, config=last))
    assert same(two_stage_head(z, y, config=FAST), two_stage_head(z, y, val=task(100), config=last))


@BOTH
def test_leaves_its_arguments_and_the_global_generator_alone(config):
    (z, y), before = task(100), torch.get_rng_state()
    two_stage_head(z, y, val=task(50), config=config)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(z, task(100)[0])
    assert torch.equal(y, task(100)[1])


@BOTH
def test_weights_and_config_are_the_head(config):
    z, y = task()
    head = two_stage_head(z, y, config=config)
    again = build_head(config, 12, 4, seed=99)
    again.load_state_dict(head.state_dict())
    assert torch.equal(again.eval()(z), head(z))


# Evaluation of V-TST
# --------------------------------------------------------------------------------------------------


def variational(samples=10):
    config = replace(FAST, variational=True, samples=samples, epochs=1)
    return two_stage_head(*task(noise=0.3), config=config).double()


def test_evaluation_is_the_mean_of_the_probabilities():
    head, z = variational(), task(50)[0].double()
    mu = head.mean(z)
    sigma = torch.sigmoid(head.variance(z)).sqrt()
    mean = torch.stack([head.decoder(mu + sigma * eps).softmax(1) for eps in head.eps]).mean(0)
    assert head.eps.shape == (10, 8)
    torch.testing.assert_close(head(z).softmax(1), mean)
    torch.testing.assert_close(head(z).exp(), mean)
    assert head(z).exp().sum(1).tolist() == pytest.approx([1] * 50)


def test_evaluation_repeats_whatever_the_batches():
    head, z = variational(), task(50)[0].double()
    whole, order = head(z), torch.randperm(50)
    assert torch.equal(head(z), whole)
    torch.testing.assert_close(torch.cat([head(part) for part in z.split(7)]), whole)
    torch.testing.assert_close(head(z[order]), whole[order])


def test_samples():
    """More of them come nearer to the expectation; training is the same, whatever their number."""
    z = task(50)[0].double()
    one, ten, many, limit = (variational(samples) for samples in (1, 10, 1000, 5000))
    assert torch.equal(one.decoder.weight, many.decoder.weight)
    errors = [float((head(z).exp() - limit(z).exp()).abs().mean()) for head in (one, ten, many)]
    assert errors[0] > 1.5 * errors[1] > 1.5 * 3 * errors[2] > 0


def test_training_passes_are_random():
    head, z = variational().train(), task(50)[0].double()
    generator = torch.Generator().manual_seed(0)
    first, second = head(z, generator), head(z, generator)
    assert not torch.equal(first, second)
    assert torch.equal(head(z, generator.manual_seed(0)), first)
    row = head(z[:1].expand(5, -1), generator)  # eps is a row's own
    assert len(row.unique(dim=0)) == 5


# The body in train mode
# --------------------------------------------------------------------------------------------------

SEEN = {"pixels": PIXELS["digits"], "padding": 1, "flip": False}
LIVE = replace(FAST, epochs=2)


@pytest.fixture(scope="module")
def digits():
    return load("digits", limit=150)


def network():
    torch.manual_seed(0)
    return build("resnet8", 10).eval()


def test_live_moves_batchnorm_and_no_weight(digits):
    net, old = network(), network()
    state = torch.get_rng_state()
    head = two_stage_live(net, digits.train, digits.val, config=LIVE, **SEEN)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), old.parameters(), strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(net.buffers(), old.buffers(), strict=True))
    assert all(p.requires_grad and p.grad is None for p in net.parameters())
    assert not any(module.training for module in (*net.modules(), *head.modules()))
    assert head(net.features(SEEN["pixels"](digits.test.images[:5]))).shape == (5, 10)


def test_live_keeps_the_mode(digits):
    net = network().train()
    two_stage_live(net, digits.train, digits.val, config=replace(FAST, epochs=1), **SEEN)
    assert all(module.training for module in net.modules())


@BOTH
def test_live_same_seed_same_bits(config, digits):
    heads = [
        two_stage_live(network(), digits.train, config=replace(config, epochs=1), seed=seed, **SEEN)
        for seed in (1, 1, 2)
    ]
    assert same(heads[0], heads[1])
    assert not torch.equal(heads[0].decoder.weight, heads[2].decoder.weight)


def test_live_keeps_the_statistics_of_the_kept_epoch(digits):
    """At a rate this high the last epoch is not the best; head and body go back together."""
    net, val = network(), digits.val
    head = two_stage_live(net, digits.train, val, config=replace(FAST, epochs=5, lr=0.7), **SEEN)
    nlls = [numbers["val_nll"] for numbers in head.history]
    assert min(nlls) < nlls[-1]
    with torch.no_grad():
        logits = head(net.features(SEEN["pixels"](val.images)))
    assert float(F.cross_entropy(logits.double(), val.labels)) == pytest.approx(min(nlls), abs=1e-5)
    steps = {
        int(value) for name, value in net.named_buffers() if name.endswith("num_batches_tracked")
    }
    assert steps == {5 * (1 + nlls.index(min(nlls)))}


def test_live_without_batchnorm_or_augmentation_is_the_cached_one(digits):
    """A body in eval mode for good.

    The two differ in the order of their draws only, so one batch an epoch makes them equal.
    """
    net, config = network(), replace(FAST, batch_size=150)
    net.body.train = lambda mode=True: net.body
    before = {name: value.clone() for name, value in net.state_dict().items()}
    live = two_stage_live(net, digits.train, config=config, **SEEN | {"padding": 0})
    with torch.no_grad():
        z = net.features(SEEN["pixels"](digits.train.images))
    cached = two_stage_head(z, digits.train.labels, config=config)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    for a, b in zip(live.parameters(), cached.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


# What is refused
# --------------------------------------------------------------------------------------------------


COUNTS = ("epochs", "batch_size", "width", "samples")
AMOUNTS = ("lr", "momentum", "weight_decay", "clip")


@pytest.mark.parametrize(
    "changes",
    [
        *({name: value} for name, value in product(COUNTS, (0, -1, 1.5))),
        *({name: value} for name, value in product(AMOUNTS, (-0.1, math.nan, math.inf))),
        {"optimiser": "rmsprop"},
        {"select": "best"},
    ],
    ids=str,
)
def test_bad_config(changes):
    with pytest.raises(
        ValueError, match=f"TwoStage: {next(iter(changes))} is {next(iter(changes.values()))!r}"
    ):
        TwoStage(**changes)


def test_bad_input():
    z, y = task(50)
    with pytest.raises(ValueError, match=r"z has shape \(50,\)"):
        two_stage_head(z[:, 0], y)
    with pytest.raises(ValueError, match="50"):
        two_stage_head(z, y[:-1])
    with pytest.raises(ValueError, match="z row 3 holds a value that is not finite"):
        two_stage_head(z.index_fill(0, torch.tensor([3]), torch.nan), y)
    with pytest.raises(ValueError, match=r"label 3 is outside 0 .. 2"):
        two_stage_head(z, y, classes=3)
    with pytest.raises(ValueError, match="z has 12 features and val 5"):
        two_stage_head(z, y, val=(z[:, :5], y))
    with pytest.warns(UserWarning, match="count from 1") as caught:
        two_stage_head(z, y + 1, config=replace(FAST, epochs=1))
    assert caught[0].filename == __file__


def test_more_classes_than_labels_show():
    z, y = task(50)
    assert two_stage_head(z, y, classes=7, config=FAST)(z).shape == (50, 7)


@BOTH
@pytest.mark.parametrize("size", [10, 100])
def test_divergence_is_said(config, size):
    """Also where the only step is the one that diverges, whose loss is from before it."""
    z, y = task(100)
    with pytest.raises(Diverged, match="in epoch 1; pass a lower lr"):
        two_stage_head(
            1e3 * z, y, config=replace(config, lr=1e38, clip=0.0, batch_size=size, epochs=1)
        )


def test_bad_live_input(digits):
    net = network()
    none = Split(digits.train.images[:0], digits.train.labels[:0])
    with pytest.raises(ValueError, match="train has no images"):
        two_stage_live(net, none, config=LIVE, **SEEN)
    with pytest.raises(ValueError, match="val has no images"):
        two_stage_live(net, digits.train, none, config=LIVE, **SEEN)
    with pytest.raises(ValueError, match=r"outside 0 .. 9"):
        two_stage_live(
            net, Split(digits.train.images, digits.train.labels + 1), config=LIVE, **SEEN
        )
