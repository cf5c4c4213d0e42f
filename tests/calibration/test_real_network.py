"""The whole path on a real network: the public ResNet-20 on the 10,000 CIFAR-10 test images."""

import pytest
from resnet20 import predictions

from maccal.metrics import Bins, nll_split, softmax, summary, top_label


@pytest.fixture(scope="module")
def network(shared):
    return predictions(shared)


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
