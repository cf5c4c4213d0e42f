"""What a method of stage I minimises.

An Objective is four functions, and plain cross-entropy by default.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Inputs = tuple[Tensor, ...]


def as_they_are(x: Tensor, y: Tensor, generator: torch.Generator) -> Inputs:
    return x, y


def cross_entropy(network: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    logits = network(x).float()
    return F.cross_entropy(logits, y), logits


def nothing(network: nn.Module, epoch: int, epochs: int) -> None:
    pass


@dataclass(frozen=True)
class Objective:
    """What a method minimises, and on what.

    inputs   a batch of images and labels as tensors with a row an image, the second the labels; drawn for the whole batch
    loss    of the network and those tensors: the mean loss, and the logits whose accuracy is shown
    begin   called with the network, the epoch and the number of epochs when an epoch begins or goes on
    end     the same when it ends
    """

    inputs: Callable[[Tensor, Tensor, torch.Generator], Inputs] = as_they_are
    loss: Callable[..., tuple[Tensor, Tensor]] = cross_entropy
    begin: Callable[[nn.Module, int, int], None] = nothing
    end: Callable[[nn.Module, int, int], None] = nothing


class Problem(nn.Module):
    """Network and loss as one module, so that DistributedDataParallel sees whatever way the loss
    runs the network.
    """

    def __init__(self, network: nn.Module, loss: Callable[..., tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.network, self.loss = network, loss

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.loss(self.network, *inputs)
