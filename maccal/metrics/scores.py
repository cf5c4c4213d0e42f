"""Accuracy and the proper scores, each split into what calibration could repair and what it could not.

    nll     -log p_y                  brier   sum_k (p_k - [k = y])^2          means over the rows

A proper score is refinement + calibration: the score that the best recalibration would leave, and what it would save
(Broecker 2009; Berta et al. 2025). Here the recalibration is a temperature, one number, fitted to these rows by its exact
optimum for either score: so `calibration` is what rescaling the logits would gain, a lower bound of the whole.

Rows are summed in float64; the terms of a row are in the precision of the input. Cost: one pass, the splits about six each.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from maccal.metrics.arguments import check_given
from maccal.metrics.inputs import Array, as_tensor, blocks, check_labels, check_logits, check_probs, top_label

LARGE = 1e4
LOG_SCALE_RANGE = (-5.0, 5.0)  # temperatures from 0.007 to 148


class Split(NamedTuple):
    """A proper score in two parts that add up to it."""

    refinement: float
    calibration: float
    temperature: float  # where the recalibrated score was read; above 1 means overconfident


def accuracy(probs: Array, labels: Array) -> float:
    """The share of rows whose most probable class is the label.

    >>> import numpy as np
    >>> accuracy(np.array([[0.8, 0.2], [0.4, 0.6], [0.9, 0.1]]), np.array([0, 1, 1]))
    0.6666666666666666
    """
    return float(as_tensor(top_label(probs, labels)[1], "correct").double().mean())


def nll(probs: Array | None = None, labels: Array = None, *, logits: Array | None = None) -> float:
    """Mean negative log likelihood of the labels, in nats; infinite if a label was given probability 0.

    >>> import numpy as np
    >>> round(nll(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 1])), 6)
    0.490415
    """
    scores, y = as_scores(probs, labels, logits)
    return float(row_scores(scores, y)[0].mean())


def brier(probs: Array | None = None, labels: Array = None, *, logits: Array | None = None) -> float:
    """Mean squared distance between the probabilities and the one-hot label, between 0 and 2.

    >>> import numpy as np
    >>> round(brier(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 1])), 6)
    0.3125
    """
    scores, y = as_scores(probs, labels, logits)
    return float(row_scores(scores, y)[1].mean())


def nll_split(probs: Array | None = None, labels: Array = None, *, logits: Array | None = None) -> Split:
    """NLL as refinement + calibration.

    >>> import numpy as np
    >>> sure, y = np.array([[0.9, 0.1]] * 10), np.array([0] * 8 + [1] * 2)          # says 90 %, is right 80 % of the time
    >>> split = nll_split(sure, y)
    >>> round(split.refinement, 6), round(split.calibration, 6)                     # the entropy of 80 %, the divergence from 90 %
    (0.500402, 0.044403)
    """
    scores, y = as_scores(probs, labels, logits)
    return split_rows(scores, y, 0, row_scores(scores, y)[0])[0]


def brier_split(probs: Array | None = None, labels: Array = None, *, logits: Array | None = None) -> Split:
    """Brier as refinement + calibration.

    >>> import numpy as np
    >>> split = brier_split(np.array([[0.9, 0.1]] * 10), np.array([0] * 8 + [1] * 2))
    >>> round(split.refinement, 6), round(split.calibration, 6)
    (0.32, 0.02)
    """
    scores, y = as_scores(probs, labels, logits)
    return split_rows(scores, y, 1, row_scores(scores, y)[1])[0]


def as_scores(probs: Array | None, labels: Array, logits: Array | None) -> tuple[Tensor, Tensor]:
    """Checked log-probabilities or logits (they differ by a constant a row) and labels."""
    check_given(probs, labels, logits)
    if logits is None:
        p = check_probs(probs)
        scores = (p if p.dtype == torch.float64 else p.float()).log()
    else:
        scores = check_logits(logits)
    return scores, check_labels(labels, scores)


def row_scores(scores: Tensor, labels: Tensor) -> Tensor:
    """NLL and Brier of every row, 2 x N in float64."""
    out = torch.empty(2, len(scores), dtype=torch.float64, device=scores.device)
    for rows in blocks(*scores.shape):
        log_p = scores[rows].log_softmax(1)
        p, own = log_p.exp(), log_p.gather(1, labels[rows, None]).squeeze(1)
        out[0, rows] = -own.double()
        out[1, rows] = 1 + p.square().sum(1).double() - 2 * own.exp().double()
    return out


def split_rows(scores: Tensor, labels: Tensor, which: int, before: Tensor) -> tuple[Split, Tensor]:
    """The split of NLL (0) or Brier (1), given each row's score, and each row's score at the best temperature."""
    if not bool(before.sum().isfinite()):
        return Split(math.inf, math.nan, math.nan), before
    scores = within_reach(scores)
    log_scale = best_log_scale(lambda t: slope(scores, labels, t, which))
    after = row_scores(scores * math.exp(log_scale), labels)[which]
    if after.mean() > before.mean():  # rounding, where T = 1 is already best
        log_scale, after = 0.0, before
    refinement = float(after.mean())
    return Split(refinement, float(before.mean()) - refinement, math.exp(-log_scale)), after


def within_reach(scores: Tensor) -> Tensor:
    """The same rows with numbers that every temperature in the range leaves finite; log 0 stays 0, without 0 x infinity.

    Logits beyond LARGE are counted from their row's largest: log-probabilities never are, they lie above -750, or at -infinity.
    """
    low, high = (float(end) for end in torch.aminmax(scores))
    if high > LARGE or -math.inf < low < -LARGE:
        return (scores - scores.amax(1, keepdim=True)).clamp(min=-1e36)
    return scores.clamp(min=-LARGE)


def best_log_scale(
    slope_at: Callable[[float], tuple[float, float]], within: tuple[float, float] = LOG_SCALE_RANGE, tolerance: float = 1e-6
) -> float:
    """Downhill from T = 1 to where the slope in log(1 / T) is zero, or to the end of the range.

    Fisher scoring, which for the NLL is Newton's step near the optimum, inside a shrinking bracket. The score is flat at its
    minimum: a step of 1e-6 changes it in the twelfth digit.
    """
    low, high = within
    t = 0.0
    for _ in range(100):
        gradient, curvature = slope_at(t)
        low, high = (t, high) if gradient < 0 else (low, t)
        step = -gradient / curvature if curvature > 0 else math.copysign(math.inf, -gradient)
        target = t + max(-1.0, min(1.0, step))
        if not low < target < high:
            target = (low + high) / 2
        if abs(target - t) < tolerance:
            break
        t = target
    return t


def slope(scores: Tensor, labels: Tensor, log_scale: float, which: int) -> tuple[float, float]:
    """Slope of the score in log(1 / T), and the curvature that a calibrated model would have there; a = scores / T.

    NLL: E_p[a] - a_y and Var_p[a].  Brier: 2 sum_k (p_k - [k = y]) p_k (a_k - E_p[a]) and 2 sum_k (p_k (a_k - E_p[a]))^2.
    """
    scale, total = math.exp(log_scale), torch.zeros(2, dtype=torch.float64, device=scores.device)
    for rows in blocks(*scores.shape):
        a, y = scores[rows] * scale, labels[rows, None]
        p = a.softmax(1)
        centred = a - (p * a).sum(1, keepdim=True)
        moved = p * centred
        if which == 0:
            terms = -centred.gather(1, y), (moved * centred).sum(1)
        else:
            terms = 2 * ((p * moved).sum(1, keepdim=True) - moved.gather(1, y)), 2 * moved.square().sum(1)
        total += torch.stack([term.sum(dtype=torch.float64) for term in terms])
    return float(total[0]) / len(scores), float(total[1]) / len(scores)


def variance(p: Tensor, values: Tensor) -> Tensor:
    """Var_p of the values in each row, from centred values: E[x^2] - E[x]^2 may round to below zero."""
    centred = values - (p * values).sum(1, keepdim=True)
    return (p * centred.square()).sum(1)


class NullScore(NamedTuple):
    """What a proper score does when labels are drawn from the probabilities themselves."""

    mean: float
    deviation: float  # of the mean over these rows
    gain: float  # fitting a temperature then saves this much times a chi-squared variable with one degree of freedom


def null_scores(scores: Tensor) -> tuple[NullScore, NullScore]:
    """NLL and Brier of a calibrated model with these very probabilities, in closed form."""
    total = torch.zeros(6, dtype=torch.float64, device=scores.device)
    for rows in blocks(*scores.shape):
        log_p = scores[rows].log_softmax(1).clamp(min=-1e4)
        p = log_p.exp()
        entropy, square = -(p * log_p).sum(1), p.square().sum(1)
        moved = p * (log_p + entropy[:, None])  # d p / d log(1 / T) at T = 1
        terms = (
            entropy,
            variance(p, log_p),
            1 - square,
            4 * variance(p, p),
            4 * variance(p, moved),
            2 * moved.square().sum(1),
        )
        total += torch.stack([term.sum(dtype=torch.float64) for term in terms])
    n = len(scores)
    nll_mean, nll_variance, brier_mean, brier_variance, slope_variance, curvature = (total / n).tolist()
    nll_null = NullScore(nll_mean, math.sqrt(nll_variance / n), 1 / (2 * n))
    brier_gain = slope_variance / (2 * n * curvature) if curvature > 0 else 0.0
    return nll_null, NullScore(brier_mean, math.sqrt(brier_variance / n), brier_gain)
