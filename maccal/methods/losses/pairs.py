"""Losses over pairs: CPC compares the classes of a row two by two, MMCE the rows of a batch.

Both are cross-entropy plus weighted terms, which are functions of their own here. The exclusion
term of CPC has N (K - 1)^2 pairs: they are worked through in blocks, value and gradient together,
so that memory stays at a few blocks whatever N and K are.

MMCE is of a batch, not of a row: it refuses reduction="none", class weights, and more than two
dimensions, whose places would make (N d1 ...)^2 pairs.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from maccal.methods.losses.entropy import cross_entropy
from maccal.methods.losses.rows import (
    Reduction,
    check_rows,
    counted,
    log_softmax,
    own,
    reduce,
    widen,
)
from maccal.metrics.arguments import check_number, shortened

Form: TypeAlias = Literal["weighted", "unweighted", "as coded"]
# What a pair of rows is divided by, given g = g_i g_j.
DIVISORS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "weighted": lambda g: g,
    "as coded": lambda g: g * (g + 1e-5),
}
BLOCK = 1 << 20  # pairs at a time: 4 MB in float32, and two such blocks at once
WIDTH = 0.4  # of MMCE's kernel
TINY = 1e-10  # under MMCE's root, whose slope at 0 would be infinite


def cpc(
    logits: Tensor,
    labels: Tensor,
    discrimination: float = 0.1,
    exclusion: float = 1.0,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """Calibration by pairwise constraints (Cheng & Vasconcelos 2022).

        cross-entropy + lambda_D BDC + lambda_E BEC

    lambda_D is `discrimination`, lambda_E `exclusion`; with both 0 it is cross-entropy. ValueError
    for fewer than three classes, where BEC has no pairs.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(cpc(logits, labels).item(), 5)
    2.29777
    """
    check_number(discrimination, "discrimination", 0)
    check_number(exclusion, "exclusion", 0)
    parts = []
    for term in (cross_entropy, binary_discrimination, binary_exclusion):
        parts.append(
            term(
                logits,
                labels,
                reduction,
                class_weights=class_weights,
                ignore_index=ignore_index,
            )
        )
    surprise, against, among = parts
    return surprise + discrimination * against + exclusion * among


def binary_discrimination(
    logits: Tensor,
    labels: Tensor,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """BDC, the first term of CPC: the label's class against each of the others.

        -(1 / (K - 1)) sum_{k != y} log sigmoid(s_y - s_k)

    It tends to 0 as a row becomes sure and right.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(binary_discrimination(logits, labels).item(), 5)
    0.72009
    """
    rows = counted(logits, labels, class_weights, ignore_index)
    mine, rest = apart(widen(logits), rows.labels)
    against = -F.logsigmoid(mine[:, None] - rest).mean(1)
    return rows.reduce(against.view_as(labels), reduction)


def binary_exclusion(
    logits: Tensor,
    labels: Tensor,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """BEC, the second term of CPC: the classes other than the label against each other.

        -(1 / ((K - 1) (K - 2))) sum_{j != y} sum_{k != y} log sigmoid(s_j - s_k) / 2

    It is least where they are equal. The pairs j = k are in the sum, as in the public code: they
    add the constant log(2) / (2 (K - 2)). That code also adds 1e-10 to every difference, which
    changes nothing and is left out here.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(binary_exclusion(logits, labels).item(), 5)
    0.93704
    """
    rows = counted(logits, labels, class_weights, ignore_index)
    classes = logits.shape[1]
    if classes < 3:
        raise ValueError(
            f"CPC needs at least 3 classes, here are {classes}: "
            "it divides by K - 2, the pairs without the label"
        )
    _, rest = apart(widen(logits), rows.labels)
    among = pair_sums(rest) / (2 * (classes - 1) * (classes - 2))
    return rows.reduce(among.view_as(labels), reduction)


def mmce(
    logits: Tensor,
    labels: Tensor,
    weight: float = 2.0,
    form: Form = "as coded",
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """Cross-entropy + weight times the kernel calibration error of the batch (Kumar et al. 2018).

    weight = 0 is cross-entropy. Mukhoti et al. 2020 train with weight 2 and the form "as coded".

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(mmce(logits, labels).item(), 5)
    2.64891
    """
    check_number(weight, "weight", 0)
    logits, labels = whole_batch(logits, labels, reduction, class_weights, ignore_index)
    error = kernel_calibration_error(logits, labels, form, reduction)
    return cross_entropy(logits, labels, reduction) + weight * error


def kernel_calibration_error(
    logits: Tensor,
    labels: Tensor,
    form: Form = "weighted",
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """MMCE: how far confidences are from being right, smoothed by a kernel (Kumar et al. 2018).

        unweighted    sum_ij (c_i - r_i) (c_j - r_j) exp(-|r_i - r_j| / 0.4) / N^2
        weighted      the square root of this sum with g_i g_j in place of N^2
        as coded      the square root of it with g_i g_j (g_i g_j + 1e-5): public code divides twice

    r_i is the confidence of row i, c_i is 1 if it is right and 0 if it is wrong, and g_i is how
    many rows are right, or wrong, as it is. The value of "as coded" is about 1 / g of "weighted".

    The gradient flows through every r; c is constant. Both rooted forms are 0, with gradient 0, for
    a batch that is all right or all wrong, and so for a batch of one. reduction="sum" is the value
    times N.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> forms = ("unweighted", "weighted", "as coded")
    >>> [round(kernel_calibration_error(logits, labels, form).item(), 5) for form in forms]
    [0.11563, 0.6801, 0.68009]
    """
    if form not in get_args(Form):
        raise ValueError(f"form is {shortened(form)}; choose one of {', '.join(get_args(Form))}")
    logits, labels = whole_batch(logits, labels, reduction, class_weights, ignore_index)
    r = log_softmax(logits).amax(1).exp()
    right = logits.argmax(1) == labels
    gap = right.to(r.dtype) - r
    products = gap[:, None] * gap * (-(r[:, None] - r).abs() / WIDTH).exp()
    value = products.mean() if form == "unweighted" else rooted(products, right, DIVISORS[form])
    return reduce(value.expand(len(r)), reduction)


def whole_batch(
    logits: Tensor,
    labels: Tensor,
    reduction: Reduction,
    class_weights: Tensor | None,
    ignore_index: int | None,
) -> tuple[Tensor, Tensor]:
    """The rows that are not ignored; ValueError for what a loss of the whole batch cannot do."""
    what = "the kernel calibration error compares all rows of a batch with each other"
    if reduction == "none":
        raise ValueError(f"{what}, and has no value per row; pass reduction='mean' or 'sum'")
    if class_weights is not None:
        raise ValueError(f"{what}, and has no class weights; leave them out")
    if logits.dim() > 2:
        raise ValueError(
            f"{what}, and logits have the shape {tuple(logits.shape)}; draw some of their places "
            "and pass N x K: logits.movedim(1, -1).flatten(0, -2)[drawn]"
        )
    check_rows(logits, labels)
    if ignore_index is not None:
        seen = labels != ignore_index
        logits, labels = logits[seen], labels[seen]
    own(logits.detach(), labels)  # raises for a label out of range, as in all other losses
    return logits, labels


def rooted(products: Tensor, right: Tensor, divisor: Callable[[Tensor], Tensor]) -> Tensor:
    """The square root of the sum over pairs, each divided by the sizes of its two groups.

    0 if all rows are right, or all wrong.
    """
    alike = (right[:, None] == right).sum(1).to(products.dtype)
    square = (products / divisor(alike[:, None] * alike)).sum()
    both = right.any() & ~right.all()
    # relu: rounding may take a square near 0 below it
    return torch.where(both, (square.relu() + TINY).sqrt(), 0)


def apart(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The logits of the labels, N, and of all other classes, N x (K - 1).

    N are all rows, where there are more than two dimensions. By gather, not by a boolean mask, for
    which a GPU would have to be waited for.
    """
    if logits.dim() > 2:
        logits = logits.movedim(1, -1).flatten(0, -2)
        labels = labels.flatten()
    columns = torch.arange(logits.shape[1] - 1, device=logits.device)
    others = columns + (columns >= labels[:, None])
    return own(logits, labels), logits.gather(1, others)


def pair_sums(s: Tensor) -> Tensor:
    """Row sums of log(1 + exp(s_j - s_k)) over all j and k, N x M -> N, in blocks.

    The slope d / d s_j = sum_k tanh((s_j - s_k) / 2) is worked out beside the value, from the same
    differences, and nothing else is kept for the backward pass. First derivatives only.
    """
    fixed = s.detach()
    sums = fixed.new_zeros(len(s))
    slope = torch.empty_like(fixed)
    step = max(1, BLOCK // max(1, s.numel()))
    for part, out in zip(torch.split(fixed, step, 1), torch.split(slope, step, 1), strict=True):
        gaps = part[:, :, None] - fixed[:, None, :]
        sums += F.softplus(gaps).sum((1, 2))
        out.copy_(gaps.div_(2).tanh_().sum(2))
    return sums + (slope * (s - fixed)).sum(1)  # the second summand is 0 and carries the gradient
