"""Cross-entropy with a weight for each row that falls as the row gets confident.

The gradient flows through the weight too.
"""

import torch
from torch import Tensor

from maccal.methods.losses.rows import Reduction, counted, log_softmax, own, widen
from maccal.metrics.arguments import check_number, shortened


def focal(
    logits: Tensor,
    labels: Tensor,
    gamma: float = 3.0,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """Focal loss (Lin et al. 2017; for calibration Mukhoti et al. 2020).

        -(1 - p_y)^gamma log p_y

    gamma = 0 is cross-entropy.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(focal(logits, labels).item(), 5)
    0.76172
    """
    check_number(gamma, "gamma", 0)
    rows = counted(logits, labels, class_weights, ignore_index)
    log_p = own(log_softmax(logits), rows.labels)
    return rows.reduce(-power(-log_p.expm1(), gamma) * log_p, reduction)


def flsd(
    logits: Tensor,
    labels: Tensor,
    gammas: tuple[float, float, float] = (5.0, 3.0, 3.0),
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """Sample-dependent focal loss, FLSD-53: hard rows get the larger exponent.

        -(1 - p_y)^gamma log p_y        gamma = gammas[0]    if p_y < 0.2
                                                gammas[1]    if 0.2 <= p_y < 0.5
                                                gammas[2]    if 0.5 <= p_y

    (Mukhoti et al. 2020.) The choice of gamma is not differentiated. (0, 0, 0) is cross-entropy.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(flsd(logits, labels).item(), 5)
    0.59933
    """
    check_gammas(gammas)
    rows = counted(logits, labels, class_weights, ignore_index)
    log_p = own(log_softmax(logits), rows.labels)
    p = log_p.detach().exp()
    hard, middle, easy = (power(-log_p.expm1(), gamma) for gamma in gammas)
    weight = torch.where(p < 0.2, hard, torch.where(p < 0.5, middle, easy))
    return rows.reduce(-weight * log_p, reduction)


def dual_focal(
    logits: Tensor,
    labels: Tensor,
    gamma: float = 5.0,
    reduction: Reduction = "mean",
    *,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Tensor:
    """Dual focal loss: the weight falls with the lead over the runner-up (Tao et al. 2023).

        -(1 - p_y + p_j)^gamma log p_y

    p_j is the largest probability strictly below p_y, or 0 where there is none. The gradient flows
    through p_y and p_j, not through the choice of j. gamma = 0 is cross-entropy.

    >>> logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2])
    >>> round(dual_focal(logits, labels, reduction="sum").item(), 5)
    1.51852
    """
    check_number(gamma, "gamma", 0)
    rows = counted(logits, labels, class_weights, ignore_index)
    s = widen(logits)
    log_p = log_softmax(logits)
    # compare logits, not probabilities: two classes can differ and round to the same probability
    below = s < own(s, rows.labels)[:, None]
    runner_up = torch.where(below, log_p.exp(), 0).amax(1)
    log_p_y = own(log_p, rows.labels)
    weight = power(runner_up - log_p_y.expm1(), gamma)
    return rows.reduce(-weight * log_p_y, reduction)


def check_gammas(gammas: tuple[float, float, float]) -> None:
    if not isinstance(gammas, tuple | list) or len(gammas) != 3:
        raise ValueError(f"gammas is {shortened(gammas)}; expected three numbers")
    for gamma in gammas:
        check_number(gamma, "each of gammas", 0)


def power(base: Tensor, gamma: float) -> Tensor:
    """base^gamma for a base from 0 to 1, with gradient 0 at 0.

    With gamma < 1 the gradient there would be infinite, and then 0 x inf = NaN.
    """
    return base.clamp(min=torch.finfo(base.dtype).tiny) ** gamma
