"""BetaCalibration: logit q = a ln p - b ln(1 - p) + c with a, b >= 0, for each class.

Kull, Silva Filho and Flach 2017, "Beta calibration: a well-founded and easily implemented
improvement on logistic calibration for binary classifiers"; several classes one against the others,
divided by the sum. Three numbers per class, the exact minimiser of the NLL: Newton's method from
the optimum of a sample of rows. Where a or b would be below 0, the best fit with one or both at 0.
Cost: about four looks at each class, 0.1 s for 50,000 x 10 on one core.
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
from maccal.metrics.inputs import Array

SAMPLE = 2048  # rows at least of the sample
SHARE = 16  # or one row in SHARE, if that is more
FLAT = 1e-10  # the largest slope at the optimum
APART = 1e-8  # a mean NLL that only rows without a mistake have
STEPS = 60
FACES = ((0, 1), (1,), (0,), ())  # which of a and b are not held at 0


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

    def fit(self, logits: Array, labels: Array) -> "BetaCalibration":
        """Find the numbers; ValueError where a class can be told apart without a mistake."""
        numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
        features = beta_features(numbers, self.inputs)
        maps = []
        for c, hit in enumerate(targets(codes, len(features))):
            try:
                maps.append(beta_map(features[c], hit))
            except NoOptimum:
                which = f"class {c} is told from the others without a mistake"
                raise ValueError(f"{which}, so there is no best fit; fit on more rows") from None
        self.maps_ = np.stack(maps)
        return fitted(self, numbers)

    def predict_proba(self, logits: Array) -> Array:
        """Calibrated probabilities, in float64."""
        features = beta_features(new_inputs(self, logits), self.inputs)
        pairs = zip(features, self.maps_, strict=True)
        mapped = [expit(found[:2] @ two + found[2]) for two, found in pairs]
        return back(together(np.stack(mapped)), logits)

    def predict(self, logits: Array) -> Array:
        """The most probable class after the map."""
        return predicted(self, self.predict_proba(logits).argmax(1))


def beta_features(numbers: Tensor, inputs: Inputs) -> np.ndarray:
    """ln p and -ln(1 - p) of each class: K x 2 x N, or 1 x 2 x N for two classes.

    1 - p of the most probable class is the sum of the others, which loses nothing near 1.
    """
    p = shares_of(numbers, inputs).T.contiguous()
    other = 1 - p
    top = p.argmax(0, keepdim=True)
    others = p.scatter(0, top, 0.0).sum(0, keepdim=True)
    other.scatter_(0, top, others)
    features = np.empty((len(p), 2, p.shape[1]))
    features[:, 0] = p.clamp_(min=LEAST).log_().numpy()
    features[:, 1] = -other.clamp_(min=LEAST).log_().numpy()
    return features[1:] if len(features) == 2 else features


def beta_map(two: np.ndarray, hit: np.ndarray) -> np.ndarray:
    """a, b and c of one class."""
    if hit.all() or not hit.any():
        return np.array([0.0, 0.0, np.inf if hit.all() else -np.inf])
    features = np.concatenate([two, np.ones((1, len(hit)))])
    found = []
    for face in FACES:
        used = [*face, 2]
        value, numbers = best_logistic(features[used], hit)
        if (numbers[:-1] >= 0).all():
            whole = np.zeros(3)
            whole[used] = numbers
            if len(face) == 2:
                return whole
            found.append((value, whole))
    return min(found, key=lambda pair: pair[0])[1]


def best_logistic(features: np.ndarray, hit: np.ndarray) -> tuple[float, np.ndarray]:
    """The least mean NLL of expit(numbers @ features), and its numbers."""
    step = max(1, min(hit.size // SAMPLE, SHARE))
    some = hit[::step]
    start = np.zeros(len(features))
    if step > 1 and some.any() and not some.all():
        try:
            start = newton(features[:, ::step], some, start)[1]
        except NoOptimum:
            start = np.zeros(len(features))  # the sample is told apart; all rows may not be
    return newton(features, hit, start)


def newton(features: np.ndarray, hit: np.ndarray, numbers: np.ndarray) -> tuple[float, np.ndarray]:
    """Newton's method with halved steps; NoOptimum where the NLL falls for ever."""
    value, slope, second = slopes(features, hit, numbers)
    for _ in range(STEPS):
        if value < APART:
            break
        if np.abs(slope).max() < FLAT:
            return value, numbers
        second[np.diag_indices(len(second))] *= 1 + 1e-12
        if not np.linalg.cond(second) < 1e15:
            break
        way = -np.linalg.solve(second, slope)
        length = 1.0
        new = slopes(features, hit, numbers + way)
        while not new[0] <= value + 1e-4 * length * (slope @ way) + 1e-15 and length > 1e-9:
            length /= 2
            new = slopes(features, hit, numbers + length * way)
        numbers = numbers + length * way
        value, slope, second = new
    raise NoOptimum("the value falls for ever")


def slopes(
    features: np.ndarray, hit: np.ndarray, numbers: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """The mean NLL, its slope and its second derivatives."""
    eta = numbers @ features
    small = np.exp(-np.abs(eta))
    value = float((np.log1p(small) + np.maximum(eta, 0)).mean() - eta[hit].sum() / len(hit))
    p = np.where(eta > 0, 1.0, small) / (1 + small)
    slope = features @ (p - hit) / len(hit)
    second = (features * (p * (1 - p))) @ features.T / len(hit)
    return value, slope, second
