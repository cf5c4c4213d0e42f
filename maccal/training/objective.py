"""What a method of stage I minimises: an Objective is four functions, cross-entropy by default."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Inputs = tuple[Tensor, ...]  # what a loss is given of a batch
Loss = Callable[..., tuple[Tensor, Tensor]]


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

    inputs   takes the images and labels of a batch and a generator; returns the tensors that the
             loss is given, each with one row per image, the second of them the labels. It is called
             for the whole batch, before the processes share out its rows.
    loss     takes the network and those tensors; returns the mean loss, and the logits whose
             accuracy is shown.
    begin    is called with the network, the epoch (from 0) and the number of epochs: when an epoch
             begins, and when it is resumed in the middle.
    end      is called with the same when the epoch ends.
    """

    inputs: Callable[[Tensor, Tensor, torch.Generator], Inputs] = as_they_are
    loss: Loss = cross_entropy
    begin: Callable[[nn.Module, int, int], None] = nothing
    end: Callable[[nn.Module, int, int], None] = nothing


class Problem(nn.Module):
    """Network and loss as one module.

    So DistributedDataParallel, which wraps it, sees every way in which a loss runs the network.
    """

    def __init__(self, network: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.loss(self.network, *inputs)
