"""The same numbers as other packages, on the real predictions of a public ResNet-20 for CIFAR-10.

Peers are given float64 probabilities, and their own calls; ours is never worse by more than they
round. Skipped where a peer is not installed.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from maccal.calibration import FAMILY
from maccal.data import load
from maccal.data.pixels import IMAGENET
from maccal.metrics import nll, softmax
from maccal.models import build, load_public
from maccal.training import predict

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from posthoc_peers import PEERS

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
MODULES = {"scikit-learn": "sklearn", "venn-abers": "venn_abers"}
# of the probabilities: how far a peer's tolerance lets them be apart from the optimum's
CLOSE = {
    "isotonic": 1e-10,
    "histogram": 1e-6,
    "Venn-Abers": 1e-6,
    "temperature": 2e-3,
    "ensemble temperature": 2e-3,
    "beta": 5e-3,
    "vector": 2e-2,
    "structured vector": 2e-3,
    "structured matrix": 1e-2,
}
PAIRS = [(name, peer) for name in CLOSE for peer in PEERS[name]]


@pytest.fixture(scope="module")
def halves(shared, real):
    """Probabilities and labels: 2,000 images to fit on, 1,000 to measure."""
    test = load("cifar10", real).test
    weights = next((shared / "data" / "nets").glob("resnet20-*.th"))
    net = load_public(build("resnet20", 10), weights).to(memory_format=torch.channels_last)
    p = softmax(predict(net, test.images[:3000], IMAGENET).double().numpy())
    y = test.labels[:3000].numpy()
    return p[:2000], y[:2000], p[2000:], y[2000:]


def value(p, y):
    """NLL, where 0 is taken as a millionth."""
    p = np.maximum(p, 1e-6)
    return nll(p / p.sum(1, keepdims=True), y)


@pytest.mark.parametrize(("name", "peer"), PAIRS)
def test_the_same_as_the_peer(name, peer, halves):
    pytest.importorskip(MODULES.get(peer, peer))
    old, old_y, new, new_y = halves
    theirs = PEERS[name][peer](old, old_y)
    ours = FAMILY[name](inputs="probs").fit(old, old_y).predict_proba
    expected = theirs(new)
    expected = expected / expected.sum(1, keepdims=True)
    assert np.abs(ours(new) - expected).max() < CLOSE[name]
    assert value(ours(new), new_y) == pytest.approx(value(expected, new_y), abs=1e-3)
    if name in ("temperature", "vector"):  # what is fitted is the NLL itself
        assert value(ours(old), old_y) <= value(theirs(old), old_y) + 1e-7


@pytest.mark.parametrize("name", ["structured vector", "structured matrix"])
def test_structured_scaling_reaches_its_published_level(name, halves):
    """The log-loss of the authors' package on unseen rows, to 0.0002; never more by 0.00005."""
    pytest.importorskip("probmetrics")
    old, old_y, new, new_y = halves
    theirs = PEERS[name]["probmetrics"](old, old_y)
    ours = FAMILY[name](inputs="probs").fit(old, old_y).predict_proba
    apart = nll(ours(new), new_y) - nll(theirs(new), new_y)
    assert -2e-4 < apart < 5e-5
