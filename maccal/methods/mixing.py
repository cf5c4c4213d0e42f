"""Training on mixed images: mixup, and MIT, which takes two mixes of a pair apart again.

mixup (Zhang et al. 2018): one share s ~ Beta(alpha, alpha) per batch,

    x~ = s x + (1 - s) x'        loss = s CE(y) + (1 - s) CE(y')

MIT (Wang et al. 2023): two mixes of the same pair run through the network, with one pair of shares
per batch, l1 = max(b, 1 - b) and l2 = min(b', 1 - b') for b, b' ~ Beta(alpha, alpha). The two
outputs are two equations, which are solved for what the network says of x and of x'.

MIT-L solves them at the logits. MIT-A solves them after the stem and after every stage, mixes again
with new shares, and solves at the logits too; whatever follows the last stage (pooling, DenseNet's
last BatchNorm) and the head run on the last mixes. Each mix has its own forward pass, so BatchNorm
sees two batches. Cost of a step, in steps of vanilla: mixup 1, MIT 2.
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
# How many pairs of shares: one at the input; one each after the stem and at most four stages.
PAIRS = {"logits": 1, "all": 6}


def mixup_objective(alpha: float = 1.0) -> Objective:
    """Cross-entropy on images that are mixed with one another; alpha 0 mixes nothing.

    The accuracy that is shown counts an image's own label as right.
    """
    check_alpha(alpha)
    return Objective(inputs=partial(mixup_inputs, alpha), loss=mixup_loss)


def mixup_inputs(alpha: float, x: Tensor, y: Tensor, generator: torch.Generator) -> Inputs:
    """Mixed images, their labels, their partners' labels, and the share, repeated for each row."""
    mixed, partner, share = mixup(x, alpha, generator)
    return mixed, y, y[partner], share.expand(len(x))


def mixup_loss(
    network: nn.Module, x: Tensor, y: Tensor, partner: Tensor, share: Tensor
) -> tuple[Tensor, Tensor]:
    logits = network(x)
    return mixed_cross_entropy(logits, y, partner, share), logits


def mit_objective(alpha: float = 1.0, margin: float = 0.0, where: Where = "logits") -> Objective:
    """Mixup inference in training: MIT-L with where="logits", MIT-A with where="all".

    Two shares that are equal, or nearer than the margin, are drawn again. Solving multiplies by up
    to 1 / (l1 - l2). So at margin 0 a rare batch (at alpha 1, one in 5,000 has a difference below
    0.01) gives huge logits and a huge loss, which need a clipped gradient. alpha 0 mixes nothing.
    ValueError where alpha is so large that fewer than 1 pair in 100 keeps the margin.
    """
    check_alpha(alpha)
    if where not in PAIRS:
        raise ValueError(f"where is {where!r}; pass one of {', '.join(map(repr, PAIRS))}")
    if not 0 <= margin < 1:
        raise ValueError(f"margin is {margin}; pass a number from 0 up to but not including 1")
    trial = pairs(alpha, 10_000, torch.Generator().manual_seed(0), torch.float64)
    if float(apart(trial, margin).double().mean()) < 0.01:
        raise ValueError(
            f"with alpha {alpha} shares are hardly ever {margin} apart; "
            "pass a smaller margin or a smaller alpha"
        )
    return Objective(
        inputs=partial(mit_inputs, alpha, margin, PAIRS[where]), loss=partial(mit_loss, where)
    )


def check_alpha(alpha: float) -> None:
    if not 0 <= alpha < inf:
        raise ValueError(f"alpha is {alpha}; pass a finite number from 0 up")


def pairs(alpha: float, count: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """count x 2 shares: l1 from 1/2 up, l2 from 1/2 down."""
    first, second = beta(alpha, (2, count), generator).to(dtype)
    l1 = torch.maximum(first, 1 - first)
    l2 = torch.minimum(second, 1 - second)
    return torch.stack([l1, l2], 1)


def apart(shares: Tensor, margin: float) -> Tensor:
    """Which pairs of shares keep the margin, and differ."""
    gap = shares[:, 0] - shares[:, 1]
    return (gap >= margin) & (gap > 0)


def draw(
    alpha: float, margin: float, count: int, generator: torch.Generator, dtype: torch.dtype
) -> Tensor:
    """So many pairs of shares that keep the margin.

    They are compared in the dtype of the images, after rounding: the loss never divides by 0. And
    on the generator's device, so that a GPU is not waited for.
    """
    kept = torch.empty(0, 2, dtype=dtype, device=generator.device)
    while len(kept) < count:
        drawn = pairs(alpha, count - len(kept), generator, dtype)
        kept = torch.cat([kept, drawn[apart(drawn, margin)]])
    return kept


def mit_inputs(
    alpha: float, margin: float, count: int, x: Tensor, y: Tensor, generator: torch.Generator
) -> Inputs:
    """First mixes, labels, second mixes, partners' labels, l1 and l2.

    The shares are N x count, all rows alike: a column for each place where the network mixes.
    """
    partner = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
    shares = draw(alpha, margin, count, generator, x.dtype).to(x.device)
    l1 = shares[:, 0].expand(len(x), -1)
    l2 = shares[:, 1].expand(len(x), -1)
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
    """Half the cross-entropy of each of the pair, and what the network says of x.

    Column i of the shares belongs to the mixes that piece i of the network runs on.
    """
    first, *rest = stages(network) if where == "all" else [network]
    o1 = first(m1)
    o2 = first(m2)
    for i, stage in enumerate(rest):
        a, b = decouple(o1, o2, l1[:, i], l2[:, i])
        # Shares are float32 and features may be bf16: solve in float32, hand on in bf16.
        narrow = o1.dtype
        o1 = stage(mix(a, b, l1[:, i + 1]).to(narrow))
        o2 = stage(mix(a, b, l2[:, i + 1]).to(narrow))
    last1 = l1[:, len(rest)]
    last2 = l2[:, len(rest)]
    logits, _ = decouple(o1.detach(), o2.detach(), last1, last2)
    return mit_l(o1, o2, y, partner, last1, last2), logits


def stages(network: nn.Module) -> list[nn.Module]:
    """The network in pieces that run one after the other: stem, stages, the rest with the head.

    The stem is what comes before the first block. A stage is a Sequential of blocks, such as layer1
    of a ResNet, or, as in DenseNet, a run of blocks with the transition before it: there too a
    stage begins by halving the image. The pieces share the network's parameters; where the network
    is compiled, they run uncompiled. ValueError unless its body has one to four stages.
    """
    layers = list(getattr(network, "body", nn.Sequential()).children())
    is_block = [has_children(layer) for layer in layers]
    ends = []
    for i, layer in enumerate(layers):
        last_of_run = i + 1 == len(layers) or not is_block[i + 1]
        if is_block[i] and (isinstance(layer, nn.Sequential) or last_of_run):
            ends.append(i + 1)
    if not 1 <= len(ends) <= PAIRS["all"] - 2:
        raise ValueError(
            f"a network with {len(ends)} stages, expected one to four in its body; "
            "pass one that maccal.models builds"
        )
    cuts = [0, is_block.index(True), *ends]
    pieces = [nn.Sequential(*layers[start:stop]) for start, stop in pairwise(cuts)]
    rest = nn.Sequential(*layers[ends[-1] :], network.get_submodule("head"))
    return [*pieces, rest]


def has_children(layer: nn.Module) -> bool:
    return next(layer.children(), None) is not None
