"""Accuracy and the proper scores, each split into what calibration could repair and the rest.

    nll     mean over the rows of -log p_y
    brier   mean over the rows of sum_k (p_k - [k = y])^2

A proper score is refinement + calibration: the score that the best recalibration would leave, and
what it would save (Broecker 2009; Berta et al. 2025). Here the recalibration is a temperature, one
number, at its exact optimum for these rows and either score. So `calibration` is what rescaling the
logits would gain, a lower bound of the whole.

Everything is worked out in float64 from the numbers given. Cost: one pass over the N x K numbers;
both splits together take about four more.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from maccal.metrics.arguments import check_given
from maccal.metrics.inputs import (
    Array,
    as_tensor,
    blocks,
    check_labels,
    check_logits,
    check_probs,
    top_label,
)
from maccal.metrics.softmaxes import Rows, score_rows, slopes
from maccal.metrics.temperature import Best, best, end_of


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


def nll(
    probs: Array | None = None, labels: Array | None = None, *, logits: Array | None = None
) -> float:
    """Mean negative log likelihood of the labels, in nats.

    Infinite if a label has probability 0.

    >>> import numpy as np
    >>> round(nll(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 1])), 6)
    0.490415
    """
    scores, y = as_scores(probs, labels, logits)
    return float(row_scores(scores, y)[0].mean())


def brier(
    probs: Array | None = None, labels: Array | None = None, *, logits: Array | None = None
) -> float:
    """Mean squared distance between the probabilities and the one-hot label, between 0 and 2.

    >>> import numpy as np
    >>> round(brier(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 1])), 6)
    0.3125
    """
    scores, y = as_scores(probs, labels, logits)
    return float(row_scores(scores, y)[1].mean())


def nll_split(
    probs: Array | None = None, labels: Array | None = None, *, logits: Array | None = None
) -> Split:
    """NLL as refinement + calibration.

    This model says 90 % and is right 80 % of the time. Refinement is the entropy of 80 %, and
    calibration the divergence from 90 %.

    >>> import numpy as np
    >>> split = nll_split(np.array([[0.9, 0.1]] * 10), np.array([0] * 8 + [1] * 2))
    >>> round(split.refinement, 6), round(split.calibration, 6)
    (0.500402, 0.044403)
    """
    rows = Rows.of(*as_scores(probs, labels, logits))
    return splits(rows, score_rows(rows).mean(1), brier=False)[0]


def brier_split(
    probs: Array | None = None, labels: Array | None = None, *, logits: Array | None = None
) -> Split:
    """Brier as refinement + calibration.

    >>> import numpy as np
    >>> split = brier_split(np.array([[0.9, 0.1]] * 10), np.array([0] * 8 + [1] * 2))
    >>> round(split.refinement, 6), round(split.calibration, 6)
    (0.32, 0.02)
    """
    rows = Rows.of(*as_scores(probs, labels, logits))
    return splits(rows, score_rows(rows).mean(1), nll=False)[1]


def as_scores(
    probs: Array | None, labels: Array | None, logits: Array | None
) -> tuple[Tensor, Tensor]:
    """Checked log-probabilities or logits (which differ by a constant per row), and labels."""
    check_given(probs, labels, logits)
    scores = log_probs(check_probs(probs)) if logits is None else check_logits(logits)
    return scores, check_labels(labels, scores)


def log_probs(probs: Tensor) -> Tensor:
    return (probs if probs.dtype == torch.float64 else probs.float()).log()


def row_scores(scores: Tensor, labels: Tensor) -> Tensor:
    """NLL and Brier of every row, 2 x N in float64."""
    return score_rows(Rows.of(scores, labels))


def splits(
    rows: Rows, before: Tensor, *, nll: bool = True, brier: bool = True
) -> tuple[Split, Split]:
    """The splits of NLL and Brier, given their means at T = 1; NaN for one not asked for."""
    infinite = not math.isfinite(before[0])
    found = best(rows, nll and not infinite, brier)
    if infinite:
        return Split(math.inf, math.nan, math.nan), split(float(before[1]), found[1])
    if nll and found[0] is None:
        end = end_of(rows)
        found = Best(end, float(slopes(rows, math.exp(end), 0.0)[0, 0])), found[1]
    return split(float(before[0]), found[0]), split(float(before[1]), found[1])


def split(before: float, after: Best | None) -> Split:
    if after is None:
        return Split(math.nan, math.nan, math.nan)
    if not after.value < before:  # by rounding: T = 1 is already best
        return Split(before, 0.0, 1.0)
    return Split(after.value, before - after.value, math.exp(-after.log_scale))


def variance(p: Tensor, values: Tensor) -> Tensor:
    """Var_p of the values in each row.

    From centred values, as E[x^2] - E[x]^2 may round to below zero.
    """
    centred = values - (p * values).sum(1, keepdim=True)
    return (p * centred.square()).sum(1)


class NullScore(NamedTuple):
    """What a proper score does when labels are drawn from the probabilities themselves."""

    mean: float
    deviation: float  # of the mean over these rows
    # What fitting a temperature saves then, in units of a chi-squared variable with one degree of
    # freedom
    gain: float


def null_scores(scores: Tensor) -> tuple[NullScore, NullScore]:
    """NLL and Brier of a calibrated model with these very probabilities, in closed form."""
    total = torch.zeros(6, dtype=torch.float64, device=scores.device)
    for rows in blocks(*scores.shape):
        log_p = scores[rows].log_softmax(1).clamp(min=-1e4)
        p = log_p.exp()
        entropy = -(p * log_p).sum(1)
        moved = p * (log_p + entropy[:, None])  # d p / d log(1 / T) at T = 1
        terms = (
            entropy,
            variance(p, log_p),
            1 - p.square().sum(1),
            4 * variance(p, p),
            4 * variance(p, moved),
            2 * moved.square().sum(1),
        )
        total += torch.stack([term.sum(dtype=torch.float64) for term in terms])
    n = len(scores)
    means = (total / n).tolist()
    nll_mean, nll_variance, brier_mean, brier_variance, slope_variance, curvature = means
    nll_null = NullScore(nll_mean, math.sqrt(nll_variance / n), 1 / (2 * n))
    brier_gain = slope_variance / (2 * n * curvature) if curvature > 0 else 0.0
    return nll_null, NullScore(brier_mean, math.sqrt(brier_variance / n), brier_gain)
