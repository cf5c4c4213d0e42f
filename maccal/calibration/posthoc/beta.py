"""BetaCalibration: logit q = a ln p - b ln(1 - p) + c with a, b >= 0, for each class.

Kull, Silva Filho and Flach 2017, "Beta calibration: a well-founded and easily implemented
improvement on logistic calibration for binary classifiers"; several classes one against the others,
divided by the sum. Three numbers per class, the exact minimiser of the NLL: Newton's method from
the optimum of a sample of rows: the hits and near misses, which are few where there are many
classes, and some of the others, which stand for more than themselves. Where a or b would be below
0, the best fit with one or both at 0. Cost: about three looks at each class, 0.03 s for 50,000 x 10
on one core.
"""

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from maccal.calibration.posthoc.inputs import (
    LEAST,
    Inputs,
    back,
    fit_inputs,
    fitted,
    new_inputs,
    predicted,
)
from maccal.calibration.posthoc.inputs import shares as shares_of
from maccal.calibration.posthoc.logistic import NoOptimum
from maccal.calibration.posthoc.one_vs_rest import targets, together
from maccal.metrics.given import Classes
from maccal.metrics.inputs import Array, Labels, Same

SAMPLE = 2048  # rows of each group in the sample
POSSIBLE = np.log(0.05)
FLAT = 1e-10  # the largest slope at the optimum
ROUGH = 1e-6  # the same for the sample
APART = 1e-8  # a mean NLL that only rows without a mistake have
STEPS = 60
# what of a, b and c is not held at 0
FACES = (slice(0, 3), slice(1, 3), slice(0, 3, 2), slice(2, 3))


class BetaCalibration(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Three numbers per class, then divided by the sum.

    inputs   "logits", or "probs" for probabilities
    classes  names of the columns, where labels are names

    Fitted: maps_ (rows a, b, c; one row per class, and one row in all for two classes, that of the
    second), classes_, n_features_in_. A class that no row has gets the probability 0.

    >>> import numpy as np
    >>> probs = np.array([[0.9, 0.1]] * 10 + [[0.2, 0.8]] * 10)
    >>> labels = np.array([0] * 8 + [1] * 2 + [0] * 3 + [1] * 7)
    >>> model = BetaCalibration(inputs="probs").fit(probs, labels)
    >>> model.predict_proba(probs)[[0, -1], 1].round(6).tolist()
    [0.2, 0.7]
    """

    maps_: np.ndarray

    def __init__(self, *, inputs: Inputs = "logits", classes: Classes | None = None) -> None:
        self.inputs = inputs
        self.classes = classes

    def fit(self, logits: Array, labels: Labels) -> "BetaCalibration":
        """Find the numbers; ValueError where a class can be told apart without a mistake."""
        numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
        columns = both_columns(numbers, self.inputs)
        maps = []
        for c, hit in enumerate(targets(codes, len(columns[0]))):
            try:
                maps.append(beta_map(beta_features(columns, c), hit))
            except NoOptimum as error:
                raise ValueError(f"class {c} {error}; fit on more rows") from None
        self.maps_ = np.stack(maps)
        return fitted(self, numbers, logits)

    def predict_proba(self, logits: Array) -> Same:
        """Calibrated probabilities, in float64."""
        columns = both_columns(new_inputs(self, logits), self.inputs)
        mapped = []
        for c, found in enumerate(self.maps_):
            two = beta_features(columns, c)[:2]
            mapped.append(expit(found[:2] @ two + found[2]))
        return back(together(np.stack(mapped)), logits)

    def predict(self, logits: Array) -> Same:
        """The most probable class after the map."""
        return predicted(self, self.predict_proba(logits).argmax(1))


def both_columns(numbers: Tensor, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
    """p and 1 - p of each class: K x N, or 1 x N for two classes.

    1 - p of the most probable class is the sum of the others, which loses nothing near 1.
    """
    p = shares_of(numbers, inputs).T.contiguous()
    other = 1 - p
    top = p.argmax(0, keepdim=True)
    others = p.scatter(0, top, 0.0).sum(0, keepdim=True)
    other.scatter_(0, top, others)
    first = 1 if len(p) == 2 else 0
    return p[first:].numpy(), other[first:].numpy()


def beta_features(columns: tuple[np.ndarray, np.ndarray], c: int) -> np.ndarray:
    """ln p, -ln(1 - p) and 1 of a class: 3 x N."""
    p, other = columns
    features = np.ones((3, p.shape[1]))
    np.log(np.maximum(p[c], LEAST), out=features[0])
    np.log(np.maximum(other[c], LEAST), out=features[1])
    features[1] *= -1
    return features


def beta_map(features: np.ndarray, hit: np.ndarray) -> np.ndarray:
    """a, b and c of one class."""
    if hit.all() or not hit.any():
        return np.array([0.0, 0.0, np.inf if hit.all() else -np.inf])
    start = np.array([1.0, 1.0, 0.0])  # the probabilities as they are
    rows, weight = sampled(features[0], hit)
    if slopes(features[:, rows], hit[rows], start, weight)[0] > np.log(2):  # no better than none
        start = np.zeros(3)
    if len(rows) < len(hit):
        try:
            start = best_face(features[:, rows], hit[rows], start, weight, ROUGH)
        except NoOptimum:  # the sample is told apart; all rows may not be
            start = np.zeros(3)
    try:
        return best_face(features, hit, start, np.ones(1), FLAT)
    except NoOptimum:
        if not start.any():
            raise
        # where the start is all but 0 and 1, no slope tells the way
        return best_face(features, hit, np.zeros(3), np.ones(1), FLAT)


def best_face(
    features: np.ndarray, hit: np.ndarray, start: np.ndarray, weight: np.ndarray, enough: float
) -> np.ndarray:
    """The numbers with the least mean NLL where a and b are not below 0.

    The NLL is convex: a fit with some numbers held at 0 is the best one if the others are not below
    0 and the NLL does not fall where the held ones leave 0. The face of the start comes first.
    """
    found = []
    held = start == 0
    for face in sorted(FACES, key=lambda some: bool(held[some][:-1].any())):
        value, numbers = newton(features[face], hit, start[face], weight, enough)
        if (numbers[:-1] < 0).any():
            continue
        whole = np.zeros(3)
        whole[face] = numbers
        if len(numbers) == 3 or slopes(features, hit, whole, weight)[1].min() > -10 * enough:
            return whole
        found.append((value, whole))
    return min(found, key=lambda pair: pair[0])[1]


def sampled(log_p: np.ndarray, hit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows that tell the map, and how many rows each stands for.

    Of the hits, of what was thought possible and of the rest up to SAMPLE each, evenly spread.
    """
    possible = log_p > POSSIBLE
    rows, weights = [], []
    for group in (hit, ~hit & possible, ~hit & ~possible):
        some = np.flatnonzero(group)
        if len(some) > 0:
            rows.append(some[:: 1 + len(some) // SAMPLE])
            weights.append(np.full(len(rows[-1]), len(some) / len(rows[-1])))
    weight = np.concatenate(weights)
    return np.concatenate(rows), weight / weight.mean()


def newton(
    features: np.ndarray, hit: np.ndarray, numbers: np.ndarray, weight: np.ndarray, enough: float
) -> tuple[float, np.ndarray]:
    """Newton's method with halved steps; NoOptimum where the NLL falls for ever."""
    value, slope, second = slopes(features, hit, numbers, weight)
    for _ in range(STEPS):
        if value < APART:
            raise NoOptimum("is told from the others without a mistake, so there is no best fit")
        if np.abs(slope).max() < enough:
            return value, numbers
        second[np.diag_indices(len(second))] *= 1 + 1e-12
        if np.linalg.cond(second) < 1e15:
            way = -np.linalg.solve(second, slope)
        else:  # many numbers are as good as these, such as where all rows have one of two values
            way = -np.linalg.lstsq(second, slope, rcond=1e-12)[0]
        length = 1.0
        new = slopes(features, hit, numbers + way, weight)
        while not new[0] <= value + 1e-4 * length * (slope @ way) + 1e-15 and length > 1e-9:
            length /= 2
            new = slopes(features, hit, numbers + length * way, weight)
        numbers = numbers + length * way
        value, slope, second = new
    raise NoOptimum(
        f"has no best fit that {STEPS} steps find; its probabilities may be nearly equal"
    )


def slopes(
    features: np.ndarray, hit: np.ndarray, numbers: np.ndarray, weight: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """The weighted mean NLL, its slope and its second derivatives."""
    count = len(hit)
    eta = numbers @ features
    small = np.exp(-np.abs(eta))
    own = np.log1p(small) + np.maximum(eta, 0) - np.where(hit, eta, 0)
    p = np.where(eta > 0, 1.0, small) / (1 + small)
    slope = features @ (weight * (p - hit)) / count
    second = (features * (weight * p * (1 - p))) @ features.T / count
    return float((weight * own).sum() / count), slope, second
