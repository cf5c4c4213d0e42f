"""Stage II of MaC-Cal on images: the body runs in every step, and BatchNorm goes on."""

from dataclasses import replace

import pytest
import torch

import maccal as mc
from maccal.calibration import CALIBRATORS
from maccal.calibration.live import Images, live_tables
from maccal.calibration.mac_cal import live_classifier
from maccal.data import Split, load
from maccal.data.pixels import PIXELS
from maccal.models import build

LIVE = mc.Stage2(batchnorm="train", epochs=2, lr=0.01)


@pytest.fixture(scope="module")
def digits():
    return load("digits", limit=150)


def images(digits, val=True, padding=1, seed=1):
    torch.manual_seed(0)
    network = build("resnet8", 10).eval()
    held_out = digits.val if val else None
    return Images(network, digits.train, held_out, PIXELS["digits"], padding, False, seed)


@pytest.mark.parametrize("config", [LIVE, replace(LIVE, start="fresh", hidden=16)], ids=str)
def test_it_moves_batchnorm_and_no_weight(config, digits):
    given, old = images(digits), images(digits).network
    head = live_classifier(config, given)
    net = given.network
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), old.parameters(), strict=True))
    assert all(not torch.equal(a, b) for a, b in zip(net.buffers(), old.buffers(), strict=True))
    assert not any(module.training for module in (*net.modules(), *head.modules()))
    assert [numbers["epoch"] for numbers in head.history] == [1, 2]
    z = net.features(PIXELS["digits"](digits.val.images))
    confidence = head(z).detach().double().softmax(1).amax(1).mean()
    # the head belongs to the body's last statistics: there it has the confidence that it reports
    assert float(confidence) == pytest.approx(head.history[-1]["confidence"], abs=1e-5)


def test_same_seed_same_bits(digits):
    heads = [live_classifier(LIVE, images(digits, seed=seed)) for seed in (1, 1, 2)]
    assert torch.equal(heads[0].weight, heads[1].weight)
    assert not torch.equal(heads[0].weight, heads[2].weight)


def test_without_batchnorm_or_augmentation_it_is_the_cached_one(digits):
    """A body in eval mode for good, and one batch per epoch: the masks are all that is drawn."""
    config = replace(LIVE, batch_size=150, masking="none", lr=0.1)
    given = images(digits, padding=0)
    net = given.network
    net.body.train = lambda mode=True: net.body
    live = live_classifier(config, given)
    with torch.no_grad():
        z, val = [net.features(PIXELS["digits"](s.images)) for s in (digits.train, digits.val)]
    cached = mc.calibrate_head(
        z,
        digits.train.labels,
        start=(net.head.weight, net.head.bias),
        val=(val, digits.val.labels),
        config=replace(config, batchnorm="eval"),
    )
    torch.testing.assert_close(live.weight, cached[0].weight, rtol=1e-3, atol=1e-5)


def test_the_training_rows_as_feedback(digits):
    head = live_classifier(replace(LIVE, start="fresh", gamma=0.5), images(digits, val=False))
    last = head.history[-1]
    assert last["target"] == pytest.approx(0.5 * last["accuracy"])


def test_tst_and_maccal_share_the_mechanism(digits):
    for name in ("maccal", "tst", "vtst"):
        row = CALIBRATORS[name]
        assert row.needs_images(replace(row.choices, batchnorm="train"))
        assert not row.needs_images(row.choices)
    train, val = live_tables(images(digits))
    assert (train.count, train.width, train.classes) == (150, 64, 10)
    assert val is not None
    empty = Split(digits.train.images[:0], digits.train.labels[:0])
    with pytest.raises(ValueError, match="train has no images"):
        live_tables(replace(images(digits), train=empty))


def test_it_needs_images():
    z, y = torch.randn(20, 4), torch.arange(20) % 2
    model = torch.nn.Sequential(torch.nn.Linear(4, 2))
    with pytest.raises(ValueError, match=r"batchnorm='train'\) needs the images of a run"):
        mc.calibrate(model, [(z, y)], val=[(z, y)], config=LIVE)
