"""PLP: progressively less of the network learns, from the classifier downwards (Wang & Zhang 2024).

The loss is plain cross-entropy. The cuts c_1 < ... < c_n are numbers of parameter tensors, counted
in the order of named_parameters(). Of E epochs,

    epochs e_j to e_(j+1) - 1 train the first c_(n-j) tensors        e_j = floor((j / n)^power E)

The other tensors get no step at all, neither weight decay nor momentum, and no gradient is computed
for them; but their BatchNorms go on following the data in running mean and variance. A gradient
that is clipped is clipped by the norm of what still learns. Cost of a step: at most vanilla's, and
less from cut to cut.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from math import floor

from torch import nn

from maccal.methods.mixing import stages
from maccal.models.densenet import Dense
from maccal.models.resnet import Basic, Bottleneck
from maccal.training.objective import Objective

RESNET50 = [33, 54, 72, 84, 93, 102, 120, 129, 141, 150, 161]  # the authors' list
RESNET50_BLOCKS = [3, 4, 6, 3]  # bottlenecks in each stage
BLOCKS = Basic, Bottleneck, Dense


def plp_objective(cuts: Sequence[int], power: float = 1.0) -> Objective:
    """Cross-entropy that trains ever fewer tensors.

    Cuts are rising numbers of tensors, the last one all of the network's; cuts_of() gives them.
    """
    if not cuts or cuts[0] < 1 or any(low >= high for low, high in pairwise(cuts)):
        raise ValueError(
            f"cuts is {list(cuts)}; "
            "pass rising numbers of parameter tensors, such as cuts_of(network)"
        )
    if not power > 0:
        raise ValueError(f"power is {power}; pass a number above 0")
    return Objective(begin=partial(freeze, tuple(cuts), power), end=release)


def published_boundaries(epochs: int, count: int, power: float = 1.0) -> list[int]:
    """e_0 to e_n: the epochs, counted from 0, from which the next cut applies, and E itself.

    >>> published_boundaries(100, 11)
    [0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 100]
    """
    # 1e-9: in floating point 3 / 11 x 110 is a little below 30
    return [floor((j / count) ** power * epochs + 1e-9) for j in range(count + 1)]


def learning(cuts: Sequence[int], power: float, epoch: int, epochs: int) -> int:
    """How many tensors learn in an epoch. With fewer epochs than cuts, some cuts are left out."""
    passed = bisect_right(published_boundaries(epochs, len(cuts), power), epoch)
    return cuts[-passed]


def freeze(cuts: Sequence[int], power: float, network: nn.Module, epoch: int, epochs: int) -> None:
    """Let the epoch's tensors learn and no others, whatever learnt before."""
    parameters = list(network.parameters())
    if len(parameters) != cuts[-1]:
        raise ValueError(
            f"the cuts end at {cuts[-1]}, the network has {len(parameters)} parameter tensors; "
            "pass cuts_of(network)"
        )
    count = learning(cuts, power, epoch, epochs)
    for i, parameter in enumerate(parameters):
        parameter.requires_grad_(i < count)


def release(network: nn.Module, epoch: int, epochs: int) -> None:
    """After the last epoch, the network is as trainable as any other."""
    if epoch + 1 == epochs:
        network.requires_grad_()


def cuts_of(network: nn.Module) -> list[int]:
    """Where to cut: the authors' list for a ResNet-50, whatever the size of its images.

    For other networks our own invention: at most 11 ends of blocks, equally spaced from all tensors
    down to the stem and the first stage. The first cut takes away the last block together with the
    head, as the authors' does.
    """
    pieces = stages(network)
    if [bottlenecks(stage) for stage in pieces[1:-1]] == RESNET50_BLOCKS:
        return list(RESNET50)
    least = sum(len(list(piece.parameters())) for piece in pieces[:2])
    *ends, _ = [end for end in block_ends(network) if end >= least]
    ends.append(len(list(network.parameters())))
    count = min(11, len(ends))
    return [ends[round(i * (len(ends) - 1) / max(count - 1, 1))] for i in range(count)]


def block_ends(network: nn.Module) -> list[int]:
    """For each block, how many tensors there are up to its end."""
    names = [name for name, _ in network.named_parameters()]
    ends = []
    for block, module in network.named_modules():
        if isinstance(module, BLOCKS):
            ends.append(max(i for i, name in enumerate(names, 1) if name.startswith(f"{block}.")))
    return ends


def bottlenecks(stage: nn.Module) -> int:
    return sum(isinstance(module, Bottleneck) for module in stage.modules())
