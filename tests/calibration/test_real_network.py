"""The whole path on a real network: the public ResNet-20 on the 10,000 CIFAR-10 test images."""

import pytest
import torch

from maccal.data import load
from maccal.data.pixels import IMAGENET
from maccal.metrics import Bins, nll_split, softmax, summary, top_label
from maccal.models import build, load_public
from maccal.training import predict


@pytest.fixture(scope="module")
def network(shared, real):
    """Logits and labels of the test images."""
    test = load("cifar10", real).test
    weights = next((shared / "data" / "nets").glob("resnet20-*.th"))
    net = load_public(build("resnet20", 10), weights).to(memory_format=torch.channels_last)
    return predict(net, test.images, IMAGENET), test.labels


def test_published_error_and_known_calibration(network):
    """The weights' published error; ECE and NLL as measured with other code.

    The temperature brings ECE to 0.66 %.
    """
    logits, labels = network
    s = summary(logits=logits, labels=labels, interval=True, resamples=200)
    assert 1 - s["accuracy"] == pytest.approx(0.0827, abs=1e-9)
    assert s["ece"] == pytest.approx(0.0532, abs=5e-5)
    assert s["nll"] == pytest.approx(0.3727, abs=5e-5)
    assert s["verdict"].startswith("Overconfident: it says 97.")
    best = nll_split(logits=logits, labels=labels).temperature
    cooled = summary(logits=logits / best, labels=labels, interval=True, resamples=200)
    assert cooled["accuracy"] == s["accuracy"]
    assert cooled["ece"] == pytest.approx(0.0066, abs=5e-4)
    assert cooled["verdict"].startswith("Cannot be told from a calibrated model")
    assert cooled["nll"] == pytest.approx(s["nll_refinement"], abs=1e-6)


def test_streaming_in_batches_gives_the_same_bits(network):
    logits, labels = network
    whole = Bins.of(*top_label(softmax(logits), labels))
    stream = Bins.empty()
    for z, y in zip(logits.split(77), labels.split(77), strict=True):
        stream += Bins.of(*top_label(softmax(z), y))
    assert stream == whole
