"""Losses of training on mixed images: mixup, and MIT, which takes two mixes of a pair apart again.

A share is a number, or a tensor with one share per row: a share drawn on a GPU stays there.
"""

from typing import TypeAlias

from torch import Tensor

from maccal.methods.losses.entropy import cross_entropy
from maccal.methods.losses.rows import Reduction, counted, log_softmax, own, reduce, widen
from maccal.metrics.arguments import check_number

Share: TypeAlias = float | Tensor


def mixed_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    partners: Tensor,
    share: Share,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """Cross-entropy of mixup: the label counts `share`, the partner's label the rest.

        -share log p_y - (1 - share) log p_partner

    (Zhang et al. 2018; for calibration Thulasidasan et al. 2019.) share = 1 is cross-entropy. Each
    of the two terms has the class weight of its own label, and is left out where that is ignored.

    >>> import torch
    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(mixed_cross_entropy(logits, labels, labels.flip(0), share=0.3).item(), 5)
    2.33873
    """
    mine = counted(logits, labels, class_weights, ignore_index)
    other = counted(logits, partners, class_weights, ignore_index)
    share = along(share, labels)
    log_p = log_softmax(logits)
    first = mine.weighted(own(log_p, mine.labels))
    second = other.weighted(own(log_p, other.labels))
    rows = -share * first - (1 - share) * second
    if mine.weights is None or other.weights is None or reduction != "mean":
        return reduce(rows, reduction)
    return rows.sum() / (share * mine.weights + (1 - share) * other.weights).sum()


def along(share: Share, x: Tensor) -> Share:
    """The share in a shape that multiplies the rows of x."""
    if not isinstance(share, Tensor):
        return check_number(share, "a share", 0, 1)
    return share.view(-1, *[1] * (x.dim() - 1))


def mix(a: Tensor, b: Tensor, share: Share) -> Tensor:
    """The share of a and the rest of b, row by row."""
    share = along(share, a)
    return share * a + (1 - share) * b


def decouple(o1: Tensor, o2: Tensor, l1: Share, l2: Share) -> tuple[Tensor, Tensor]:
    """a and b from their mixes o1 = l1 a + (1 - l1) b and o2 = l2 a + (1 - l2) b, of any shape.

        a = ((1 - l2) o1 - (1 - l1) o2) / (l1 - l2)
        b = (l1 o2 - l2 o1) / (l1 - l2)

    (Wang et al. 2023.) For an affine network without batch normalisation these are exactly its
    outputs for the unmixed images. Nearly equal shares blow them up by 1 / |l1 - l2|. Equal shares
    raise ValueError if they are numbers; tensors are not looked into, and give inf or NaN.

    >>> import torch
    >>> decouple(torch.tensor([2.5]), torch.tensor([1.75]), 0.75, 0.375)
    (tensor([3.]), tensor([1.]))
    """
    if not isinstance(l1, Tensor) and not isinstance(l2, Tensor) and l1 == l2:
        raise ValueError(
            f"two mixes with the same share {l1} are the same mix; draw shares that differ"
        )
    l1 = along(l1, o1)
    l2 = along(l2, o1)
    a = ((1 - l2) * o1 - (1 - l1) * o2) / (l1 - l2)
    b = (l1 * o2 - l2 * o1) / (l1 - l2)
    return a, b


def mit_l(
    o1: Tensor,
    o2: Tensor,
    labels: Tensor,
    partners: Tensor,
    l1: Share,
    l2: Share,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """MIT-L, mixup inference in training: cross-entropy of both decoupled logits.

        (-log softmax(a)_y - log softmax(b)_partner) / 2        a, b = decouple(o1, o2, l1, l2)

    (Wang et al. 2023.) l1 = 1 with l2 = 0 mixes nothing: the mean of two cross-entropies.

    >>> import torch
    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> other, partners = logits.roll(1, dims=1), labels.flip(0)
    >>> round(mit_l(logits, other, labels, partners, l1=0.8, l2=0.3).item(), 5)
    2.04313
    """
    a, b = decouple(widen(o1), widen(o2), l1, l2)
    halves = []
    for logits, truth in ((a, labels), (b, partners)):
        halves.append(
            cross_entropy(
                logits,
                truth,
                reduction,
                class_weights=class_weights,
                ignore_index=ignore_index,
            )
        )
    return (halves[0] + halves[1]) / 2
