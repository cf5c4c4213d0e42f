"""Cross-entropy with a weight a row that falls as the row gets confident.

The weight is part of the gradient.
"""

import torch
from torch import Tensor

from maccal.methods.losses.entropy import Reduction, log_softmax, own, reduce, widen


def focal(
    logits: Tensor, labels: Tensor, gamma: float = 3.0, reduction: Reduction = "mean"
) -> Tensor:
    """Focal loss (Lin et al. 2017; for calibration Mukhoti et al. 2020).

        -(1 - p_y)^gamma log p_y

    gamma = 0 is cross-entropy.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(focal(logits, labels).item(), 5)
    0.76172
    """
    log_p = own(log_softmax(logits), labels)
    return reduce(-power(-log_p.expm1(), gamma) * log_p, reduction)


def flsd(
    logits: Tensor,
    labels: Tensor,
    gammas: tuple[float, float, float] = (5.0, 3.0, 3.0),
    reduction: Reduction = "mean",
) -> Tensor:
    """Sample-dependent focal loss, FLSD-53: hard rows get the larger exponent (Mukhoti et al.
    2020).

        -(1 - p_y)^gamma log p_y,    gamma = gammas[0] if p_y < 0.2, gammas[1] if 0.2 <= p_y < 0.5, gammas[2] from 0.5 on

    The choice of gamma is not differentiated. Three times 0 is cross-entropy.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(flsd(logits, labels).item(), 5)
    0.59933
    """
    log_p = own(log_softmax(logits), labels)
    p = log_p.detach().exp()
    hard, middle, easy = (power(-log_p.expm1(), gamma) for gamma in gammas)
    return reduce(
        -torch.where(p < 0.2, hard, torch.where(p < 0.5, middle, easy)) * log_p, reduction
    )


def dual_focal(
    logits: Tensor, labels: Tensor, gamma: float = 5.0, reduction: Reduction = "mean"
) -> Tensor:
    """Dual focal loss: the weight looks at the lead over the runner-up instead of the probability
    alone (Tao et al. 2023).

        -(1 - p_y + p_j)^gamma log p_y,    p_j the largest probability strictly below p_y, or 0 where there is none

    The gradient flows through p_y and p_j, not through the choice of j. gamma = 0 is cross-entropy.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(dual_focal(logits, labels, reduction="sum").item(), 5)
    1.51852
    """
    s, log_p = widen(logits), log_softmax(logits)
    # logits are compared, not probabilities: two classes can differ and still round to the same
    # probability
    below = s < own(s, labels)[:, None]
    runner_up = torch.where(below, log_p.exp(), 0).amax(1)
    log_p = own(log_p, labels)
    return reduce(-power(runner_up - log_p.expm1(), gamma) * log_p, reduction)


def power(base: Tensor, gamma: float) -> Tensor:
    """base^gamma for a base from 0 to 1.

    At 0 the gradient is 0, where gamma < 1 would make it infinite and then 0 x inf = NaN.
    """
    return base.clamp(min=torch.finfo(base.dtype).tiny) ** gamma
