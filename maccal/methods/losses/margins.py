"""Cross-entropy plus a penalty on logits that are further apart than a margin.

Within the margin nothing is added.
"""

import torch
from torch import Tensor

from maccal.methods.losses.rows import Reduction, counted, log_softmax, own, widen
from maccal.metrics.arguments import check_number


def mbls(
    logits: Tensor,
    labels: Tensor,
    margin: float = 10.0,
    alpha: float = 0.1,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """Margin-based label smoothing: a linear penalty on the distance to the largest logit.

        -log p_y + alpha (1 / K) sum_k relu(max_j s_j - s_k - margin)

    (Liu et al. 2022.) The gradient flows through the maximum too. The authors take margin 10 for
    Tiny-ImageNet, others take 6 for CIFAR. alpha = 0 is cross-entropy, and so is any margin that no
    distance exceeds.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(mbls(logits, labels, margin=1.0).item(), 5)
    1.35539
    """
    check_number(margin, "margin")
    check_number(alpha, "alpha", 0)
    rows = counted(logits, labels, class_weights, ignore_index)
    s = widen(logits)
    surprise = -own(log_softmax(s), rows.labels)
    penalty = (s.amax(1, keepdim=True) - s - margin).relu().mean(1)
    return rows.reduce(surprise, reduction) + alpha * rows.reduce(penalty, reduction)


def acls(
    logits: Tensor,
    labels: Tensor,
    margin: float = 10.0,
    alpha: float = 0.1,
    top: float = 1.0,
    rest: float = 0.1,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """Adaptive and conditional label smoothing: two squared penalties (Park et al. 2023).

        -log p_y + alpha (top  sum_{k: s_k = max}  relu(s_k - margin)^2
                        + rest sum_{k: s_k < max}  relu(max - s_k - margin)^2 / (K - 1))

    The first penalty is for the predicted class; classes that tie for it all count. It looks at the
    logit itself, not at a distance, so this loss changes when a constant is added to the logits.
    The second is for the other classes; the maximum in it is a constant to the gradient. The labels
    enter the cross-entropy only. alpha = 0 is cross-entropy, and so is a margin that nothing
    exceeds.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(acls(logits, labels, margin=1.0).item(), 5)
    1.55373
    """
    check_number(margin, "margin")
    for name, weight in (("alpha", alpha), ("top", top), ("rest", rest)):
        check_number(weight, name, 0)
    rows = counted(logits, labels, class_weights, ignore_index)
    s = widen(logits)
    surprise = -own(log_softmax(s), rows.labels)
    largest = s.detach().amax(1, keepdim=True)
    above = top * (s - margin).relu().square()
    below = rest / (s.shape[1] - 1) * (largest - s - margin).relu().square()
    penalty = torch.where(s.detach() == largest, above, below).sum(1)
    return rows.reduce(surprise, reduction) + alpha * rows.reduce(penalty, reduction)
