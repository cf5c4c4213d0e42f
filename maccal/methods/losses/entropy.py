"""Cross-entropy, with and without smoothed labels; the divergence from a standard normal.

And what every loss is built from: widen, log_softmax, own, reduce.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Reduction: TypeAlias = Literal["mean", "sum"]
REDUCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"mean": torch.mean, "sum": torch.sum}
# torch skips rows with the label -100 unless told another one
NO_LABEL = torch.iinfo(torch.int64).min


def cross_entropy(logits: Tensor, labels: Tensor, reduction: Reduction = "mean") -> Tensor:
    """How surprising the labels are, in nats.

        -log p_y

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(cross_entropy(logits, labels).item(), 5)
    1.28873
    """
    return reduce(-own(log_softmax(logits), labels), reduction)


def label_smoothing(
    logits: Tensor, labels: Tensor, alpha: float = 0.05, reduction: Reduction = "mean"
) -> Tensor:
    """Cross-entropy with labels that give a share alpha to all classes alike.

    (Szegedy et al. 2016; Müller et al. 2019)

        -(1 - alpha) log p_y - alpha (1 / K) sum_k log p_k

    The label's own class gets 1 - alpha + alpha / K. alpha = 0 is cross-entropy.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(label_smoothing(logits, labels, alpha=0.1).item(), 5)
    1.32206
    """
    log_p = log_softmax(logits)
    return reduce(-(1 - alpha) * own(log_p, labels) - alpha * log_p.mean(1), reduction)


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


def widen(x: Tensor) -> Tensor:
    """At least float32."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def log_softmax(logits: Tensor) -> Tensor:
    return widen(logits).log_softmax(1)


def own(scores: Tensor, labels: Tensor) -> Tensor:
    """The score of each row's label.

    Unlike gather, this raises where there are fewer labels than rows.
    """
    return -F.nll_loss(scores, labels, reduction="none", ignore_index=NO_LABEL)


def reduce(rows: Tensor, reduction: Reduction) -> Tensor:
    """The mean or the sum of one loss per row."""
    return REDUCTIONS[reduction](rows)
