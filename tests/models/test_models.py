"""The architectures.

Parameter counts of their sources, the contract of every one, public weights with their published
errors.
"""

import os

import pytest
import torch
from torch import nn

from maccal.calibration.model import calibrate
from maccal.calibration.stage2 import Stage2
from maccal.data import load
from maccal.data.pixels import IMAGENET
from maccal.features.extraction import find_head
from maccal.io import FileError
from maccal.models import MODELS, build, load_public
from maccal.training import predict

# name, classes, parameters, features, convolutions, BatchNorms, parameter tensors
GOLDENS = [
    ("resnet50", 10, 23_520_842, 2048, 53, 53, 161),
    ("resnet110", 10, 45_864_522, 2048, 113, 113, 341),
    ("wrn26_10", 10, 36_481_434, 640, 28, 28, 86),
    ("densenet121", 10, 6_956_298, 1024, 120, 120, 362),
    ("resnet50_tiny", 200, 25_138_952, 8192, 53, 53, 161),
]


def of(name, classes=10):
    with torch.device("meta"):
        return build(name, classes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "classes", "parameters", "features", "convs", "norms", "tensors"), GOLDENS
)
def test_counts_of_the_sources(name, classes, parameters, features, convs, norms, tensors):
    net = of(name, classes)
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert net.num_features == features
    kinds = [nn.Conv2d if isinstance(m, nn.Conv2d) else type(m) for m in net.modules()]
    assert (kinds.count(nn.Conv2d), kinds.count(nn.BatchNorm2d), len(list(net.parameters()))) == (
        convs,
        norms,
        tensors,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_contract(name):
    """Shapes for images of its size, forward is head of features, and the head is found by itself.

    Nothing is computed.
    """
    net = of(name)
    size = 64 if name.endswith("tiny") else 32
    z = net.features(torch.empty(2, 3, size, size, device="meta"))
    assert z.shape == (2, net.num_features)
    assert net.head(z).shape == net(torch.empty(2, 3, size, size, device="meta")).shape == (2, 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet8", "resnet10", "wrn16_2", "densenet40"])
def test_small_ones_run(name):
    """channels_last gives the same numbers; one seed, one network.

    The gradient reaches every parameter; calibrate takes it.
    """
    nets = []
    for _ in range(2):
        torch.manual_seed(0)
        nets.append(build(name, 10))
    assert all(
        torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True)
    )
    net, x, y = nets[0], torch.randn(20, 3, 32, 32), torch.arange(20) % 10
    nn.functional.cross_entropy(net(x), y).backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in net.parameters())
    net.eval()
    with torch.no_grad():
        logits = net(x)
        assert torch.equal(net.head(net.features(x)), logits)
        last = net.to(memory_format=torch.channels_last)(
            x.contiguous(memory_format=torch.channels_last)
        )
    assert torch.allclose(last, logits, atol=1e-4)
    assert find_head(net, (x, y)) == "head"
    new = calibrate(net, [(x, y)], accuracy=0.5, config=Stage2(epochs=1, hidden=None))
    assert new.state_dict().keys() == net.state_dict().keys()


# The published errors on all 10,000 test images of CIFAR-10 are 8.27 % (see test_real_network.py),
# 7.37, 6.90 and 6.61 %; the last three are shown on the first 2,000, where as many are wrong when
# all of them give the published error.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("depth", "images", "wrong"), [(32, 2000, 146), (44, 2000, 134), (56, 2000, 141)]
)
def test_public_weights(shared, real, depth, images, wrong):
    test = load("cifar10", real).test
    net = load_public(
        build(f"resnet{depth}", 10), next((shared / "data" / "nets").glob(f"resnet{depth}-*.th"))
    )
    logits = predict(net.to(memory_format=torch.channels_last), test.images[:images], IMAGENET)
    assert int((logits.argmax(1) != test.labels[:images]).sum()) == wrong


def test_unknown():
    with pytest.raises(ValueError, match="no model 'resnet51'; the models are resnet50"):
        build("resnet51", 10)
    with pytest.raises(ValueError, match="classes is 1"):
        build("resnet8", 1)


def foreign(folder):
    """Checkpoints that are not of that network, or no checkpoints, each with what is said of it."""
    net = build("resnet8", 10)
    body = {
        f"module.{name.removeprefix('body.')}": value for name, value in net.state_dict().items()
    }
    right = {name.replace("module.head.", "module.linear."): value for name, value in body.items()}
    shape = {**right, "module.linear.bias": torch.zeros(7)}
    for place, (content, words) in enumerate(
        [
            (right, "not a checkpoint with a state_dict"),
            ({"state_dict": right}, ""),
            ({"state_dict": shape}, "weights of another network"),
            ({"state_dict": body}, "weights of another network"),
            ({"state_dict": {}}, "weights of another network"),
            ({"state_dict": {3: 4}}, "weights of another network"),
            ({"state_dict": [1]}, "not a checkpoint with a state_dict"),
            (torch.zeros(3), "not a checkpoint with a state_dict"),
        ]
    ):
        torch.save(content, folder / str(place))
        yield folder / str(place), words
    (folder / "text").write_text("hello")
    yield folder / "text", "not a checkpoint with a state_dict"
    (folder / "half").write_bytes((folder / "1").read_bytes()[:5000])
    yield folder / "half", "not a checkpoint with a state_dict"
    os.mkfifo(folder / "fifo")
    yield folder / "fifo", "not a regular file"
    yield folder / "absent", "no such file"


def test_foreign_checkpoints_are_refused_by_name(tmp_path):
    for path, words in foreign(tmp_path):
        if not words:
            load_public(build("resnet8", 10), str(path))
            continue
        with pytest.raises(FileError, match=words) as caught:
            load_public(build("resnet8", 10), path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
