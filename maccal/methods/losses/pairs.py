"""Losses over pairs: CPC compares the classes of a row two by two, MMCE the rows of a batch.

Both are cross-entropy plus a weighted term; the terms stand alone too. CPC's exclusion has N (K -
1)^2 of them: it works through them a block at a time and takes the gradient along, so that memory
stays at a few blocks whatever N and K are."""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from maccal.methods.losses.entropy import Reduction, cross_entropy, log_softmax, own, reduce, widen

Form: TypeAlias = Literal["weighted", "unweighted", "as coded"]
DIVISORS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "weighted": lambda g: g,
    "as coded": lambda g: g * (g + 1e-5),
}
BLOCK = 1 << 20  # pairs at a time: 4 MB in float32, and two such blocks alive
WIDTH = 0.4  # of MMCE's kernel
TINY = 1e-10  # under MMCE's root, whose slope at 0 would be infinite


def cpc(
    logits: Tensor,
    labels: Tensor,
    discrimination: float = 0.1,
    exclusion: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Calibration by pairwise constraints: cross-entropy + lambda_D BDC + lambda_E BEC (Cheng &
    Vasconcelos 2022).

    Both weights 0 is cross-entropy. Raises ValueError for fewer than three classes, where BEC has
    no pairs.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(cpc(logits, labels).item(), 5)
    2.29777
    """
    against = discrimination * binary_discrimination(logits, labels, reduction)
    among = exclusion * binary_exclusion(logits, labels, reduction)
    return cross_entropy(logits, labels, reduction) + against + among


def binary_discrimination(logits: Tensor, labels: Tensor, reduction: Reduction = "mean") -> Tensor:
    """BDC, CPC's first term: the label's class against each of the others. 0 in the limit of a sure
    and right row.

        -(1 / (K - 1)) sum_{k != y} log sigmoid(s_y - s_k)

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(binary_discrimination(logits, labels).item(), 5)
    0.72009
    """
    mine, rest = apart(widen(logits), labels)
    return reduce(-F.logsigmoid(mine[:, None] - rest).mean(1), reduction)


def binary_exclusion(logits: Tensor, labels: Tensor, reduction: Reduction = "mean") -> Tensor:
    """BEC, CPC's second term: the classes other than the label against each other, least where they
    are equal.

        -(1 / ((K - 1) (K - 2))) sum_{j != y} sum_{k != y} log sigmoid(s_j - s_k) / 2

    The pairs j = k are in the sum, as in the public code: they add the constant log(2) / (2 (K -
    2)). That code also adds 1e-10 to every difference, which changes nothing and is left out here.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(binary_exclusion(logits, labels).item(), 5)
    0.93704
    """
    classes = logits.shape[1]
    if classes < 3:
        raise ValueError(
            f"CPC needs at least 3 classes, here are {classes}: it divides by K - 2, the pairs without the label"
        )
    _, rest = apart(widen(logits), labels)
    return reduce(pair_sums(rest) / (2 * (classes - 1) * (classes - 2)), reduction)


def mmce(
    logits: Tensor,
    labels: Tensor,
    weight: float = 2.0,
    form: Form = "weighted",
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy + weight x the kernel calibration error of the batch (Kumar et al. 2018).

    weight = 0 is cross-entropy. Mukhoti et al. 2020 train with weight 2 and the form "as coded".

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(mmce(logits, labels, form="as coded").item(), 5)
    2.64891
    """
    return cross_entropy(logits, labels, reduction) + weight * kernel_calibration_error(
        logits, labels, form, reduction
    )


def kernel_calibration_error(
    logits: Tensor, labels: Tensor, form: Form = "weighted", reduction: Reduction = "mean"
) -> Tensor:
    """MMCE: how far confidences r are from being right (c = 1) or wrong (c = 0), smoothed by a
    kernel (Kumar et al. 2018).

        unweighted    sum_ij (c_i - r_i) (c_j - r_j) exp(-|r_i - r_j| / 0.4) / N^2, the square, without a root
        weighted      the root of the same with N^2 replaced by g_i g_j, where g_i is the number of rows as right or wrong as i
        as coded      the root with g_i g_j (g_i g_j + 1e-5): public code divides twice, so its value is about 1 / g of `weighted`

    The gradient flows through r everywhere, c is constant. Both rooted forms are 0, with gradient
    0, for a batch that is all right or all wrong, so for a batch of one too. "sum" is the value
    times N.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> [round(kernel_calibration_error(logits, labels, form).item(), 5) for form in ("unweighted", "weighted", "as coded")]
    [0.11563, 0.6801, 0.68009]
    """
    r, right = log_softmax(logits).amax(1).exp(), logits.argmax(1) == labels
    gap = right.to(r.dtype) - r
    products = gap[:, None] * gap * (-(r[:, None] - r).abs() / WIDTH).exp()
    value = products.mean() if form == "unweighted" else rooted(products, right, DIVISORS[form])
    return reduce(value.expand(len(r)), reduction)


def rooted(products: Tensor, right: Tensor, divisor: Callable[[Tensor], Tensor]) -> Tensor:
    """The root of the sum over pairs, each divided by the sizes of its two groups.

    0 if there is only one group.
    """
    alike = (right[:, None] == right).sum(1).to(products.dtype)
    square = (products / divisor(alike[:, None] * alike)).sum()
    both = right.any() & ~right.all()
    # relu: rounding takes a square near 0 below it
    return torch.where(both, (square.relu() + TINY).sqrt(), 0)


def apart(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The logits of the labels, N, and of all other classes, N x (K - 1), by an index that needs no
    look at the values.
    """
    columns = torch.arange(logits.shape[1] - 1, device=logits.device)
    return own(logits, labels), logits.gather(1, columns + (columns >= labels[:, None]))


def pair_sums(s: Tensor) -> Tensor:
    """Row sums of log(1 + exp(s_j - s_k)) over all j and k, N x M -> N, in blocks.

    d / d s_j = sum_k tanh((s_j - s_k) / 2) is worked out beside the value, from the same
    differences: nothing is kept for the backward pass but this slope. First derivatives only."""
    fixed = s.detach()
    sums, slope = fixed.new_zeros(len(s)), torch.empty_like(fixed)
    step = max(1, BLOCK // max(1, s.numel()))
    for part, out in zip(torch.split(fixed, step, 1), torch.split(slope, step, 1), strict=True):
        gaps = part[:, :, None] - fixed[:, None, :]
        sums += F.softplus(gaps).sum((1, 2))
        out.copy_(gaps.div_(2).tanh_().sum(2))
    return sums + (slope * (s - fixed)).sum(1)  # the second summand is 0 and carries the gradient
