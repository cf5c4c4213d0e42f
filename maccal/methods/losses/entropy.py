"""Cross-entropy, with and without smoothed labels; the divergence from a standard normal."""

import torch
from torch import Tensor

from maccal.methods.losses.rows import (
    Reduction,
    check_weights,
    counted,
    log_softmax,
    own,
    reduce,
    widen,
)
from maccal.metrics.arguments import check_number


def cross_entropy(
    logits: Tensor,
    labels: Tensor,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """How surprising the labels are, in nats.

        -log p_y

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(cross_entropy(logits, labels).item(), 5)
    1.28873
    """
    rows = counted(logits, labels, class_weights, ignore_index)
    return rows.reduce(-own(log_softmax(logits), rows.labels), reduction)


def label_smoothing(
    logits: Tensor,
    labels: Tensor,
    alpha: float = 0.05,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """Cross-entropy with labels that give a share alpha to all classes alike.

    (Szegedy et al. 2016; Müller et al. 2019)

        -(1 - alpha) log p_y - alpha (1 / K) sum_k log p_k

    The label's own class gets 1 - alpha + alpha / K. alpha = 0 is cross-entropy. With class weights
    every log p_k is weighted with its own class's, as torch does it.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(label_smoothing(logits, labels, alpha=0.1).item(), 5)
    1.32206
    """
    check_number(alpha, "alpha", 0, 1)
    rows = counted(logits, labels, class_weights, ignore_index)
    log_p = log_softmax(logits)
    sharp = -(1 - alpha) * own(log_p, rows.labels)
    if class_weights is None:
        return rows.reduce(sharp - alpha * log_p.mean(1), reduction)
    by_class = check_weights(class_weights, logits).view(-1, *[1] * (logits.dim() - 2))
    smooth = -alpha * (log_p * by_class).mean(1)
    if rows.seen is not None:
        smooth = torch.where(rows.seen, smooth, 0)
    return rows.total(rows.weighted(sharp) + smooth, reduction)


def standard_normal_kl(mean: Tensor, log_variance: Tensor, reduction: Reduction = "mean") -> Tensor:
    """The divergence of N(mean, variance) from N(0, 1) per latent dimension, for N x Z means.

    It is the second term of V-TST's loss (Jordahn & Olmos 2024).

        (1 / Z) sum_j (mean_j^2 + variance_j - 1 - log variance_j) / 2

    It is 0 at mean 0 and variance 1: there V-TST's loss, cross-entropy plus this, is cross-entropy.

    >>> mean = torch.tensor([[0.5, -1.0], [0.0, 2.0]])
    >>> log_variance = torch.tensor([[-0.1, -2.0], [-1.0, -0.5]])
    >>> round(standard_normal_kl(mean, log_variance).item(), 6)
    0.858073
    """
    mean = widen(mean)
    log_variance = widen(log_variance)
    # expm1: variance - 1 keeps its digits near the minimum
    return reduce((mean.square() + log_variance.expm1() - log_variance).mean(1) / 2, reduction)
