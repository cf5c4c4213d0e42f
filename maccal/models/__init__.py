"""The paper's architectures and small relatives of them, as a body and a head.

    build(name, classes)    a Net: .features(x) -> z (N x num_features), .head(z) -> logits,
                            and forward does both

resnet50, resnet110, wrn26_10, densenet121 and resnet50_tiny are those of the focal-calibration code
base that the paper trains on: 3 x 3 stem without max-pooling, bottleneck blocks in resnet110 too.
resnet110_basic and resnet8 to resnet56 are He's networks of 6n + 2 layers for CIFAR; public weights
for 20, 32, 44 and 56 load into them (`load_public`). resnet10 is ours, for the benchmark on CPUs.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from maccal.io import FileError, open_regular
from maccal.models.densenet import densenet
from maccal.models.net import Net
from maccal.models.resnet import basic_resnet, bottleneck_resnet, quick_resnet, wide_resnet
from maccal.plugins import check_name

__all__ = ["MODELS", "Net", "build", "load_public", "register"]

MODELS: dict[str, Callable[[int], Net]] = {
    "resnet50": partial(bottleneck_resnet, (3, 4, 6, 3)),
    "resnet110": partial(bottleneck_resnet, (3, 4, 26, 3)),
    # For 64 x 64 images
    "resnet50_tiny": partial(bottleneck_resnet, (3, 4, 6, 3), pool=2, scaled=True),
    "wrn26_10": partial(wide_resnet, 4, 10),
    "densenet121": partial(densenet, (6, 12, 24, 16), 32),
    "resnet110_basic": partial(basic_resnet, 110),
    "resnet56": partial(basic_resnet, 56),
    "resnet44": partial(basic_resnet, 44),
    "resnet32": partial(basic_resnet, 32),
    "resnet20": partial(basic_resnet, 20),
    "resnet8": partial(basic_resnet, 8),
    "resnet10": quick_resnet,
    "wrn16_2": partial(wide_resnet, 2, 2),
    "densenet40": partial(densenet, (6, 6, 6), 12),
}


def build(name: str, classes: int) -> Net:
    """A fresh network, its weights drawn from torch's global generator."""
    if name not in MODELS:
        raise ValueError(f"no model {name!r}; the models are {', '.join(MODELS)}")
    if classes < 2:
        raise ValueError(f"classes is {classes}; a classifier needs at least two")
    return MODELS[name](classes)


def register(name: str, builder: Callable[[int], Net]) -> None:
    """Add a network of one's own: a function from the number of classes to a Net."""
    check_name(name, MODELS, "model")
    MODELS[name] = builder


def load_public(network: Net, file: Path | str) -> Net:
    """Load the weights of a public network of 6n + 2 layers for CIFAR-10.

    The file is a checkpoint whose state_dict calls the head `linear`. FileError for a file that is
    no such checkpoint, or that belongs to another network.
    """
    path = Path(file)
    try:
        network.load_state_dict(public_weights(path))
    except RuntimeError as error:  # names or shapes; torch lists all of them, on many lines
        raise FileError(path, f"weights of another network ({short(error)})") from None
    return network.eval()


def public_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a public checkpoint, by our names."""
    weights = {}
    with open_regular(path) as opened:
        try:
            state = torch.load(opened, map_location="cpu", weights_only=True)["state_dict"]
            for key, value in state.items():
                if isinstance(value, Tensor):
                    weights[our_name(str(key))] = value
        except Exception as error:  # unpickling may raise anything
            reason = f"{type(error).__name__}: {short(error)}"
            raise FileError(path, f"not a checkpoint with a state_dict ({reason})") from None
    return weights


def our_name(key: str) -> str:
    """The name of a public tensor in our networks.

    >>> our_name("module.linear.weight"), our_name("module.layer1.0.conv1.weight")
    ('head.weight', 'body.layer1.0.conv1.weight')
    """
    name = key.removeprefix("module.")
    if name.startswith("linear."):
        return name.replace("linear.", "head.")
    return f"body.{name}"


def short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
