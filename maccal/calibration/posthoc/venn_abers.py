"""VennAbersCalibration: two isotonic fits per row, one for each label that it might have.

Vovk, Petej and Fedorova 2015, "Large-scale probabilistic predictors with and without guarantees of
validity": the inductive predictor. A new row is added to the fitted ones with the label 0 and with
the label 1; isotonic regression gives it p0 and p1, one of which is perfectly calibrated, and

    p = p1 / (1 - p0 + p1)

is the probability with the least regret in log-loss. Both are known in advance for every gap
between the scores of the fitted rows, by one walk along the corners of the cumulative sums
(Algorithms 1 and 2 there): O(N log N), where each new row costs one look-up.

Several classes: each against the others, divided by the sum; or each pair, put together as in
Manokhin 2017, "Multi-class probabilistic classification using inductive and cross Venn-Abers
predictors": p_i = 1 / (sum_j 1 / p_ij - (K - 2)), divided by the sum.
Cost: 0.1 s for each class of 50,000 rows. It never says 0 or 1.
"""

from itertools import combinations
from typing import Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from maccal.calibration.posthoc.inputs import (
    Inputs,
    back,
    fit_inputs,
    fitted,
    new_inputs,
    predicted,
    scores,
)
from maccal.calibration.posthoc.isotonic import levels
from maccal.calibration.posthoc.one_vs_rest import columns, targets, together
from maccal.metrics.given import Classes
from maccal.metrics.inputs import Array, Labels, Same

# scores of the fitted rows in order; p0 and p1 of the gaps between them, from below to above
Gaps = tuple[np.ndarray, np.ndarray, np.ndarray]


class VennAbersCalibration(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Inductive Venn-Abers probabilities: two isotonic fits per row, and the bounds they give.

    inputs    "logits", or "probs" for probabilities
    classes   names of the columns, where labels are names
    ways      "one-vs-rest" or "one-vs-one"; the same thing for two classes

    Fitted: gaps_ (for each class, or each pair of classes in order), classes_, n_features_in_. Two
    classes have one, that of the second.

    >>> import numpy as np
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    >>> model = VennAbersCalibration(inputs="probs").fit(probs, np.array([0, 0, 1, 1]))
    >>> low, high = model.predict_bounds(np.array([[0.35, 0.65]]))
    >>> low[0, 1].round(3), high[0, 1].round(3)
    (np.float64(0.5), np.float64(1.0))
    >>> model.predict_proba(np.array([[0.35, 0.65]]))[0, 1].round(3)
    np.float64(0.667)
    """

    gaps_: list[Gaps]

    def __init__(
        self,
        *,
        inputs: Inputs = "logits",
        classes: Classes | None = None,
        ways: Literal["one-vs-rest", "one-vs-one"] = "one-vs-rest",
    ) -> None:
        self.inputs = inputs
        self.classes = classes
        self.ways = ways

    def fit(self, logits: Array, labels: Labels) -> "VennAbersCalibration":
        """Work out p0 and p1 of every gap."""
        if self.ways not in ("one-vs-rest", "one-vs-one"):
            known = 'ways="one-vs-rest" or ways="one-vs-one"'
            raise ValueError(f"ways is {self.ways!r}; say {known}")
        numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
        if self.ways == "one-vs-one" and numbers.shape[1] > 2:
            self.gaps_ = fit_pairs(scores(numbers, self.inputs).double().numpy(), codes.numpy())
        else:
            probs = columns(numbers, self.inputs)
            both = zip(probs, targets(codes, len(probs)), strict=True)
            self.gaps_ = [gaps(p, hit) for p, hit in both]
        return fitted(self, numbers, logits)

    def predict_proba(self, logits: Array) -> Same:
        """Calibrated probabilities, in float64."""
        numbers = new_inputs(self, logits)
        if self.ways == "one-vs-one" and numbers.shape[1] > 2:
            x = scores(numbers, self.inputs).double().numpy()
            return back(coupled(x, self.gaps_), logits)
        pairs = zip(columns(numbers, self.inputs), self.gaps_, strict=True)
        return back(together(np.stack([one(*bounds(p, gap)) for p, gap in pairs])), logits)

    def predict_bounds(self, logits: Array) -> tuple[Same, Same]:
        """p0 and p1 of every class against the others, N x K each: how sure the probability is."""
        numbers = new_inputs(self, logits)
        if self.ways == "one-vs-one" and numbers.shape[1] > 2:
            raise ValueError('bounds are of a class against the rest: say ways="one-vs-rest"')
        pairs = zip(columns(numbers, self.inputs), self.gaps_, strict=True)
        low, high = np.stack([np.stack(bounds(p, gap)) for p, gap in pairs], 2)
        if len(self.gaps_) == 1:
            low, high = np.hstack([1 - high, low]), np.hstack([1 - low, high])
        return back(torch.from_numpy(low), logits), back(torch.from_numpy(high), logits)

    def predict(self, logits: Array) -> Same:
        """The most probable class after the map."""
        return predicted(self, self.predict_proba(logits).argmax(1))


def gaps(score: np.ndarray, hit: np.ndarray) -> Gaps:
    """The scores of the fitted rows, and p0 and p1 below, between and above them."""
    if len(score) == 0:
        return score, np.zeros(1), np.ones(1)
    at, share, count = levels(score, hit)
    hits = np.rint(share * count)
    p1 = added_one(count, hits)
    p0 = 1 - added_one(count[::-1], (count - hits)[::-1])[::-1]
    return at, p0, p1


def added_one(count: np.ndarray, hits: np.ndarray) -> np.ndarray:
    """The isotonic value of a row with the label 1, for every gap that it may be added in.

    In the cumulative sums (rows, hits) the added row is a step of (1, 1). It starts below all
    groups of rows and moves up past one group after the other. `stack` has the corners of the
    greatest convex minorant of what lies above it, the nearest last.
    """
    x = [-1.0, 0.0, *np.cumsum(count).tolist()]
    y = [-1.0, 0.0, *np.cumsum(hits).tolist()]
    stack: list[int] = []
    for index in range(len(x) - 1, -1, -1):
        while len(stack) > 1 and not turns_up(x, y, index, stack[-1], stack[-2]):
            stack.pop()
        stack.append(index)
    found = []
    for index in range(1, len(x) - 1):
        a, b = stack[-1], stack[-2]
        slope = (y[b] - y[a]) / (x[b] - x[a])
        found.append(slope)
        # the group changes places with the added row
        x[index] = x[index - 1] + x[index + 1] - x[index]
        y[index] = y[index - 1] + y[index + 1] - y[index]
        if y[index] < y[a] + slope * (x[index] - x[a]):
            stack.pop()
            while len(stack) > 1 and not turns_up(x, y, index, stack[-1], stack[-2]):
                stack.pop()
            stack.append(index)
    return np.array([*found, 1.0])


def turns_up(x: list[float], y: list[float], a: int, b: int, c: int) -> bool:
    """Whether the way from a over b to c becomes steeper at b."""
    return (y[b] - y[a]) * (x[c] - x[b]) < (y[c] - y[b]) * (x[b] - x[a])


def bounds(score: np.ndarray, gap: Gaps) -> tuple[np.ndarray, np.ndarray]:
    """p0 and p1 of new scores."""
    at, p0, p1 = gap
    return p0[np.searchsorted(at, score, "right")], p1[np.searchsorted(at, score, "left")]


def one(p0: np.ndarray, p1: np.ndarray) -> np.ndarray:
    """The one probability that stands for both."""
    return p1 / (1 - p0 + p1)


def fit_pairs(x: np.ndarray, labels: np.ndarray) -> list[Gaps]:
    """For every pair of classes, on their rows: by how much the second has the higher score."""
    found = []
    for i, j in combinations(range(x.shape[1]), 2):
        rows = (labels == i) | (labels == j)
        found.append(gaps(x[rows, j] - x[rows, i], labels[rows] == j))
    return found


def coupled(x: np.ndarray, pairs: list[Gaps]) -> Tensor:
    """The probabilities of all pairs put together."""
    classes = x.shape[1]
    total = np.full(x.shape, 2.0 - classes)
    for (i, j), gap in zip(combinations(range(classes), 2), pairs, strict=True):
        second = one(*bounds(x[:, j] - x[:, i], gap))
        total[:, j] += 1 / second
        total[:, i] += 1 / (1 - second)
    return together((1 / total).T)
