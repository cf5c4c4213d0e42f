"""Everything on a GPU that is not there: no step mixes devices, the numbers are the processor's.

tests/pretended.py is the device. Each test does the same work there and on the processor.
"""

import pytest
import torch
from pretended import pretended
from short_training import PLAIN, SEEN, network, weights
from torch import nn

import maccal as mc
from maccal.calibration.tst import TwoStage
from maccal.calibration.two_stage import two_stage_head, two_stage_live
from maccal.data.split import Split
from maccal.features import extract
from maccal.metrics import softmax, summary
from maccal.training import fit, predict

K = 4
RANDOM = torch.Generator().manual_seed(0)
Z = torch.randn(120, 6, generator=RANDOM)
W = torch.randn(K, 6, generator=RANDOM)
B = torch.randn(K, generator=RANDOM)
Y = (Z @ W.T + B + torch.randn(120, K, generator=RANDOM)).argmax(1)
IMAGES = torch.randint(0, 256, (64, 1, 8, 8), dtype=torch.uint8, generator=RANDOM)
LABELS = torch.arange(64) % 10


def numbers(tensor):
    """In main memory."""
    return tensor.detach().cpu()


def same(first, second):
    """Whether two modules have the same weights, to the bit."""
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(numbers(a), numbers(b)) for a, b in pairs)


def on(module, device):
    return all(parameter.device == device for parameter in module.parameters())


@pytest.mark.parametrize(
    "mixing",
    [
        lambda x: x + torch.ones(3),
        lambda x: x @ torch.ones(3),
        lambda x: torch.stack([x, torch.ones(3)]),
        lambda x: torch.index_select(x, 0, torch.tensor([1])),
        lambda x: torch.equal(x, torch.ones(3)),
        lambda x: nn.Linear(3, 2)(x),
        lambda x: torch.ones(3)[torch.tensor([0, 1]).to(x.device)],
        lambda x: x.numpy(),
    ],
)
def test_mixing_raises(mixing):
    with pretended() as device, pytest.raises((RuntimeError, TypeError)):
        mixing(torch.ones(3).to(device))


def test_the_device_has_numbers_and_is_gone_afterwards():
    with pretended() as device:
        x = torch.arange(3.0).to(device) + 1
        assert x.device == device
        assert x.tolist() == [1, 2, 3]
        assert float(x[x > 1].sum()) == 5
        assert numbers(x * 2).tolist() == [2, 4, 6]
    with pytest.raises((RuntimeError, AssertionError)):
        torch.ones(3, device="cuda")


@pytest.mark.slow
def test_stage_one_and_evaluation():
    """Two epochs with held-out images, then the logits and their numbers."""
    train, val = Split(IMAGES[:48], LABELS[:48]), Split(IMAGES[48:], LABELS[48:])
    here = network()
    history = fit(here, train, PLAIN, pixels=SEEN, val=val)
    with pretended() as device:
        there = network()
        found = fit(there, train, PLAIN, pixels=SEEN, val=val, device=device)
        assert on(there, device)
        logits = predict(there, val.images, SEEN)
        probabilities = softmax(logits.to(device))
        judged = summary(probabilities, val.labels.to(device), resamples=20)
        theirs = numbers(weights(there))
    assert torch.allclose(theirs, weights(here), atol=1e-6)
    for one, other in zip(history, found, strict=True):
        for name in one.keys() - {"seconds"}:
            assert other[name] == pytest.approx(one[name], abs=1e-5)
    expected = summary(softmax(predict(here, val.images, SEEN)), val.labels, resamples=20)
    assert judged["ece"] == pytest.approx(expected["ece"], abs=1e-5)


HEADS = {
    "fresh": {"config": mc.Stage2(epochs=2, hidden=8)},
    "trained": {"start": (W, B)},
    "no bias": {"start": (W, None)},
    "paper": {"config": mc.Stage2.paper(epochs=1)},
}


@pytest.mark.parametrize("kind", HEADS)
def test_heads_on_features(kind):
    """Features, labels and the trained classifier on the device; the head is there too."""
    options = HEADS[kind]
    half = (Z[60:], Y[60:])
    here = mc.calibrate_head(Z[:60], Y[:60], val=half, **options)
    with pretended() as device:
        own = dict(options)
        if "start" in own:
            own["start"] = tuple(x if x is None else x.to(device) for x in own["start"])
        z, y = Z.to(device), Y.to(device)
        there = mc.calibrate_head(z[:60], y[:60], val=(z[60:], y[60:]), **own)
        assert on(there, device)
        moved = mc.calibrate_head(Z[:60], Y[:60], val=half, device=device, **options)
        assert on(moved, device)
        assert there.history == moved.history == here.history
        assert same(there, here)
        assert same(moved, here)


@pytest.mark.parametrize("variational", [False, True])
def test_two_stage_heads(variational):
    config = TwoStage(epochs=2, width=4, variational=variational)
    here = two_stage_head(Z[:60], Y[:60], val=(Z[60:], Y[60:]), config=config)
    with pretended() as device:
        z, y = Z.to(device), Y.to(device)
        there = two_stage_head(z[:60], y[:60], val=(z[60:], y[60:]), config=config)
        assert on(there, device)
        assert [epoch["epoch"] for epoch in there.history] == [1, 2]
        pairs = zip(there.state_dict().values(), here.state_dict().values(), strict=True)
        for one, other in pairs:
            assert torch.allclose(numbers(one).float(), other.float(), atol=1e-5)


@pytest.mark.slow
def test_two_stage_on_images():
    """The body runs in every step, on the device."""
    train, val = Split(IMAGES[:48], LABELS[:48]), Split(IMAGES[48:], LABELS[48:])
    config = TwoStage(epochs=1, width=4, batchnorm="train")
    with pretended() as device:
        body = network().to(device)
        head = two_stage_live(body, train, val, pixels=SEEN, config=config, device=device)
        assert on(head, device)


def small():
    torch.manual_seed(0)
    body = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(4, K)).eval()


CALIBRATORS = {
    "maccal with labels": ({}, "val"),
    "maccal fresh": ({"config": mc.Stage2(epochs=1, start="fresh", hidden=8)}, "val"),
    "maccal with a known accuracy": ({"accuracy": 0.5}, None),
    "maccal with views": ({"views": "mirror"}, None),
    "temperature with labels": ({"calibrator": "temperature"}, "val"),
    "temperature with views": ({"calibrator": "temperature", "views": "shift"}, None),
    "temperature": ({"calibrator": "temperature", "accuracy": 0.5}, None),
    "tst": ({"calibrator": "tst", "config": TwoStage(epochs=1, width=4)}, "val"),
    "vtst": (
        {"calibrator": "vtst", "config": TwoStage(epochs=1, width=4, variational=True)},
        "val",
    ),
}


@pytest.mark.parametrize("loaded", ["cpu", "device"])
@pytest.mark.parametrize("kind", CALIBRATORS)
@pytest.mark.filterwarnings("ignore:.*views of")
def test_calibrated_models(kind, loaded):
    """Of a model on the device, whether its loader gives batches there or in main memory."""
    options, held_out = CALIBRATORS[kind]
    x = IMAGES.float() / 255
    y = LABELS % K
    model = small()
    y = torch.where(torch.arange(64) % 3 > 0, model(x).argmax(1), y)
    here = mc.calibrate(model, [(x[:32], y[:32])], **options, **held(held_out, x, y))
    with pretended() as device:
        place = device if loaded == "device" else torch.device("cpu")
        x, y = x.to(place), y.to(place)
        network = small().to(device)
        z, _ = extract(network, [(x, y)])
        assert z.device.type == "cpu"
        there = mc.calibrate(network, [(x[:32], y[:32])], **options, **held(held_out, x, y))
        assert on(there, device)
        assert there(x.to(device)).device == device
        pairs = zip(there.state_dict().values(), here.state_dict().values(), strict=True)
        for one, other in pairs:
            assert torch.allclose(numbers(one).float(), other.float(), atol=1e-5)


def held(held_out, x, y):
    return {} if held_out is None else {"val": [(x[32:], y[32:])]}
