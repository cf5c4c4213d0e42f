"""Training on mixed images: mixup, and MIT, which takes two mixes of a pair apart again inside the
network.

    mixup    x~ = s x + (1 - s) x', loss s CE(y) + (1 - s) CE(y'), s ~ Beta(alpha, alpha), one share a batch (Zhang et al. 2018)
    MIT      two mixes of the same pair, shares l1 = max(b, 1 - b) and l2 = min(b', 1 - b'), b and b' ~ Beta(alpha, alpha), one pair
             of shares a batch; both run through the network, and what they say of x and x' is
             solved for (Wang et al. 2023)

MIT-L solves at the logits. MIT-A solves after the stem and after every stage, mixes again with new
shares, and solves at the logits too; whatever follows the last stage (pooling, DenseNet's last
BatchNorm) and the head run on the last mixes. Each mix has its own forward pass, so that BatchNorm
sees two batches. Cost of a step: mixup 1 of vanilla's, MIT 2.
"""

from functools import partial
from itertools import pairwise
from math import inf
from typing import Literal

import torch
from torch import Tensor, nn

from maccal.data.augment import beta, mixup
from maccal.methods.losses.mixing import decouple, mit_l, mix, mixed_cross_entropy
from maccal.training.objective import Inputs, Objective

Where = Literal["logits", "all"]
# of shares: at the input; and after the stem and at most four stages
PAIRS = {"logits": 1, "all": 6}


def mixup_objective(alpha: float = 1.0) -> Objective:
    """Cross-entropy on images mixed with one another; alpha 0 mixes nothing.

    The accuracy shown is against an image's own label.
    """
    check(alpha)
    return Objective(inputs=partial(mixup_inputs, alpha), loss=mixup_loss)


def mixup_inputs(alpha: float, x: Tensor, y: Tensor, generator: torch.Generator) -> Inputs:
    """Mixed images, labels, partners' labels, and the share as often as there are rows."""
    mixed, partner, share = mixup(x, alpha, generator)
    return mixed, y, y[partner], share.expand(len(x))


def mixup_loss(
    network: nn.Module, x: Tensor, y: Tensor, partner: Tensor, share: Tensor
) -> tuple[Tensor, Tensor]:
    logits = network(x)
    return mixed_cross_entropy(logits, y, partner, share), logits


def mit_objective(alpha: float = 1.0, margin: float = 0.0, where: Where = "logits") -> Objective:
    """Mixup inference in training: MIT-L with where="logits", MIT-A with where="all".

    Shares closer than the margin, or equal, are drawn again. Solving multiplies by up to 1 / (l1 -
    l2): at margin 0 a rare batch (1 in 5,000 has a difference below 0.01, at alpha 1) gives huge
    logits and a huge loss, which need a clipped gradient. alpha 0 mixes nothing. ValueError where
    alpha is so large that fewer than 1 pair in 100 keeps the margin."""
    check(alpha)
    if where not in PAIRS:
        raise ValueError(f"where is {where!r}; pass one of {', '.join(map(repr, PAIRS))}")
    if not 0 <= margin < 1:
        raise ValueError(f"margin is {margin}; pass a number from 0 up to but not including 1")
    trial = pairs(alpha, 10_000, torch.Generator().manual_seed(0), torch.float64)
    if float(apart(trial, margin).double().mean()) < 0.01:
        raise ValueError(
            f"with alpha {alpha} shares are hardly ever {margin} apart; pass a smaller margin or a smaller alpha"
        )
    return Objective(
        inputs=partial(mit_inputs, alpha, margin, PAIRS[where]), loss=partial(mit_loss, where)
    )


def check(alpha: float) -> None:
    if not 0 <= alpha < inf:
        raise ValueError(f"alpha is {alpha}; pass a finite number from 0 up")


def pairs(alpha: float, count: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """count x 2 shares: the first from 1/2 up, the second from 1/2 down."""
    first, second = beta(alpha, (2, count), generator).to(dtype)
    return torch.stack([torch.maximum(first, 1 - first), torch.minimum(second, 1 - second)], 1)


def apart(shares: Tensor, margin: float) -> Tensor:
    gap = shares[:, 0] - shares[:, 1]
    return (gap >= margin) & (gap > 0)


def draw(
    alpha: float, margin: float, count: int, generator: torch.Generator, dtype: torch.dtype
) -> Tensor:
    """As many pairs that keep the margin, looked at on the generator's device, and after rounding.

    The loss never divides by 0.
    """
    kept = torch.empty(0, 2, dtype=dtype, device=generator.device)
    while len(kept) < count:
        drawn = pairs(alpha, count - len(kept), generator, dtype)
        kept = torch.cat([kept, drawn[apart(drawn, margin)]])
    return kept


def mit_inputs(
    alpha: float, margin: float, count: int, x: Tensor, y: Tensor, generator: torch.Generator
) -> Inputs:
    """First mixes, labels, second mixes, partners' labels, and both shares of every pair, N x
    pairs, all rows alike.
    """
    partner = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
    shares = draw(alpha, margin, count, generator, x.dtype).to(x.device)
    l1, l2 = (shares[:, side].expand(len(x), -1) for side in (0, 1))
    other = x[partner]
    return mix(x, other, l1[:, 0]), y, mix(x, other, l2[:, 0]), y[partner], l1, l2


def mit_loss(
    where: Where,
    network: nn.Module,
    m1: Tensor,
    y: Tensor,
    m2: Tensor,
    partner: Tensor,
    l1: Tensor,
    l2: Tensor,
) -> tuple[Tensor, Tensor]:
    """Half the cross-entropy of each of the pair, and what the network says of the first of it."""
    first, *rest = stages(network) if where == "all" else [network]
    o1, o2 = first(m1), first(m2)
    for before, stage in enumerate(rest):
        a, b = decouple(o1, o2, l1[:, before], l2[:, before])
        # shares are float32, features may be bf16: solved in the first, handed on in the second
        o1, o2 = (stage(mix(a, b, share[:, before + 1]).to(o1.dtype)) for share in (l1, l2))
    last = l1[:, len(rest)], l2[:, len(rest)]
    return mit_l(o1, o2, y, partner, *last), decouple(o1.detach(), o2.detach(), *last)[0]


def stages(network: nn.Module) -> list[nn.Module]:
    """The network in pieces, to be run one after the other: stem, stages, and the rest with the
    head.

    The stem is what comes before the first block. A stage is a Sequential of blocks, as layer1 of a
    ResNet, or a run of blocks with the transition before it, as in DenseNet: there too a stage
    begins by halving the image. The pieces share the network's parameters, and run as they are
    where the network is compiled. ValueError unless its body has one to four stages."""
    parts = list(getattr(network, "body", nn.Sequential()).children())
    blocks = [any(True for _ in part.children()) for part in parts] + [False]
    ends = [
        i + 1
        for i, part in enumerate(parts)
        if blocks[i] and (isinstance(part, nn.Sequential) or not blocks[i + 1])
    ]
    if not 1 <= len(ends) <= PAIRS["all"] - 2:
        raise ValueError(
            f"a network with {len(ends)} stages, expected one to four in its body; pass one that maccal.models builds"
        )
    *cut, tail = [parts[i:j] for i, j in pairwise([0, blocks.index(True), *ends, len(parts)])]
    return [
        *(nn.Sequential(*piece) for piece in cut),
        nn.Sequential(*tail, network.get_submodule("head")),
    ]
