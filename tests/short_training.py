"""What the tests of training share: a recipe of plain SGD, a small network, and its weights."""

import torch

from maccal.data.pixels import PIXELS
from maccal.models import build
from maccal.training.recipe import Recipe

PLAIN = Recipe(
    epochs=2,
    batch_size=32,
    lr=0.05,
    reduction="mean",
    clip=0,
    padding=0,
    flip=False,
    precision="fp32",
)
SEEN = PIXELS["digits"]


def network(seed=0, model="resnet8"):
    torch.manual_seed(seed)
    return build(model, 10)


def weights(net):
    return torch.cat([value.flatten().float() for value in net.state_dict().values()])
