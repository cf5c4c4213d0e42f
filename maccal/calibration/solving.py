"""One number that makes the mean confidence what it should be.

    scale_to(scores, target)    the scale s at which the mean of max softmax(s scores) is the target
    nearest_scale(...)          the same, or the end of a range where none in it is right

The mean confidence rises with s, from 1 / K at s = 0 to 1, so that it meets every target in between
exactly once. A temperature is 1 / s, and the keep of a head that starts from the trained classifier
is q0 s. Rows may have weights. Cost: about eight passes over the N x K scores, in float64.
"""

import math

import torch
from torch import Tensor

ROWS = 4096  # of one step: what is made of them stays in the processor's cache
WIDEST = 40.0  # of log s: from 4e-18 to 2e17
CLOSE = 1e-12  # how near the confidence comes to its target
TOLERATED = 1e-6  # or this near, where the scale cannot be told any better
MOST_STEPS = 100  # bisection alone would need 47


def scale_to(scores: Tensor, target: float, weights: Tensor | None = None) -> float:
    """The scale at which the mean confidence is the target; ValueError where there is none.

    >>> scores = torch.tensor([[2.0, 0.0]])
    >>> round(scale_to(scores, 0.9), 6)                      # log(0.9 / 0.1) / 2
    1.098612
    """
    classes = scores.shape[1]
    if not 1 / classes < target < 1:
        advice = "are there rows with some mistakes to look at, or is the accuracy known?"
        if target <= 1 / classes:
            chance = f"that is no better than chance among {classes} classes"
            advice = f"{chance}; check the labels, and the accuracy or gamma if one was passed"
        raise ValueError(
            f"no scale of the logits makes the mean confidence {100 * target:.2f} %: {advice}"
        )
    low, high = -WIDEST, WIDEST
    at = 0.0
    for _ in range(MOST_STEPS):
        confidence, slope = confidence_at(scores, math.exp(at), weights)
        gap = confidence - target
        if abs(gap) <= CLOSE or (high - low <= CLOSE and abs(gap) < TOLERATED):
            return math.exp(at)
        low, high = (at, high) if gap < 0 else (low, at)
        # Newton's step on log s, where it stays between the bounds; else halve them
        newton = at - gap / slope if slope > 0 else math.inf
        at = newton if low < newton < high else (low + high) / 2
    raise ValueError(
        f"the mean confidence does not reach {target:.2%} at any scale of the logits; "
        "do the rows have equal logits?"
    )


def nearest_scale(
    scores: Tensor, target: float, within: float, weights: Tensor | None = None
) -> float:
    """As scale_to, from 1 / within to within: an end of it where the right scale is beyond.

    >>> nearest_scale(torch.tensor([[2.0, 0.0]]), 1.0, within=100.0)
    100.0
    """
    if mean_confidence(scores, within, weights) <= target:
        return within
    if mean_confidence(scores, 1 / within, weights) >= target:
        return 1 / within
    return scale_to(scores, target, weights)


def mean_confidence(scores: Tensor, scale: float = 1.0, weights: Tensor | None = None) -> float:
    """The mean of the largest probability.

    >>> even = torch.tensor([[0.75, 0.25], [0.5, 0.5]]).log()
    >>> round(mean_confidence(even, weights=torch.tensor([3.0, 1.0])), 6)
    0.6875
    """
    return confidence_at(scores, scale, weights)[0]


def confidence_at(scores: Tensor, scale: float, weights: Tensor | None) -> tuple[float, float]:
    """The mean confidence of the scaled scores, and its slope by the logarithm of the scale.

    d/ds max p = max p (max score - mean score), the mean weighted by p.
    """
    if weights is None:
        weights = scores.new_ones(1, dtype=torch.float64).expand(len(scores))
    total = torch.zeros(2, dtype=torch.float64, device=scores.device)
    pairs = zip(torch.split(scores, ROWS), torch.split(weights, ROWS), strict=True)
    for part, counts in pairs:
        below = part.double()
        below = below - below.amax(1, keepdim=True)  # never above zero
        odds = (scale * below).exp_()
        top = odds.sum(1).reciprocal_()
        distance = -top * (odds * below).sum(1)
        total += torch.stack([(counts * top).sum(), (counts * top * distance).sum()])
    confidence, slope = (total / weights.sum()).tolist()
    return confidence, scale * slope
