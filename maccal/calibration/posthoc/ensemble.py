"""EnsembleTemperatureScaling (ETS): a temperature, the output as it is, and a uniform guess, mixed.

Zhang, Kailkhura and Han 2020, "Mix-n-Match: ensemble and compositional methods for uncertainty
calibration in deep learning":

    w1 softmax(z / T) + w2 softmax(z) + w3 / K,   w >= 0, sum 1

T is the exact temperature of the NLL, then w has the least NLL. That is convex in w, and only the
probabilities of the labels matter, N x 3 numbers: Newton's steps on the weights that are not 0
until no weight wants to change. The order of the classes stays, and so does the accuracy. Cost: the
temperature, two softmaxes and about ten looks at N x 3 numbers.
"""

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
from maccal.calibration.posthoc.one_number import exact_temperature
from maccal.metrics.given import Classes
from maccal.metrics.inputs import Array, Labels, Same

STEPS = 200
SETTLED = 1e-11  # of the slope, in nats per unit of weight


class EnsembleTemperatureScaling(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A mixture of the output at a temperature, the output as it is, and a uniform guess.

    inputs   "logits", or "probs" for probabilities
    classes  names of the columns, where labels are names

    Fitted: temperature_, weights_ (three shares that sum to 1), classes_, n_features_in_.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=2000)
    >>> logits = 6 * np.eye(3)[labels]
    >>> labels[:500] = rng.integers(3, size=500)                 # a quarter is pure chance
    >>> EnsembleTemperatureScaling().fit(logits, labels).predict_proba(logits)[0].round(2).tolist()
    [0.08, 0.08, 0.83]
    """

    temperature_: float
    weights_: np.ndarray

    def __init__(self, *, inputs: Inputs = "logits", classes: Classes | None = None) -> None:
        self.inputs = inputs
        self.classes = classes

    def fit(self, logits: Array, labels: Labels) -> "EnsembleTemperatureScaling":
        """Find the temperature, then the weights; ValueError without a best temperature."""
        numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
        x = scores(numbers, self.inputs)
        self.temperature_ = exact_temperature(x, codes)
        own = [own_probability(x, codes, scale) for scale in (1 / self.temperature_, 1.0)]
        own.append(np.full(len(x), 1 / x.shape[1]))
        self.weights_ = best_weights(np.stack(own))
        return fitted(self, numbers, logits)

    def predict_proba(self, logits: Array) -> Same:
        """Calibrated probabilities, in float64."""
        x = scores(new_inputs(self, logits), self.inputs).double()
        first, second, third = self.weights_.tolist()
        p = first * (x / self.temperature_).softmax(1) + second * x.softmax(1)
        return back(p.add_(third / x.shape[1]), logits)

    def predict(self, logits: Array) -> Same:
        """The most probable class, which stays what it was."""
        return predicted(self, back(new_inputs(self, logits).argmax(1), logits))


def own_probability(x: Tensor, labels: Tensor, scale: float) -> np.ndarray:
    """The probability of each row's label at this scale of the scores."""
    wide = x.double() * scale
    own = wide.gather(1, labels[:, None]).squeeze(1)
    return torch.exp(own - wide.logsumexp(1)).numpy()


def best_weights(own: np.ndarray) -> np.ndarray:
    """The shares of the rows of `own` whose mixture has the least mean NLL.

    A weight that reaches 0 drops out. Once the others are settled, the one that would lower the NLL
    most takes part again: the NLL is lower at each such point, so none comes twice.
    """
    weights = np.full(len(own), 1 / len(own))
    taking_part = np.ones(len(own), bool)
    for _ in range(STEPS):
        ratio = own / (weights @ own)
        slope = -ratio.mean(1)
        # sum of w x slope is -1 everywhere, so at the optimum each slope is -1 or above
        if np.abs(slope[taking_part] + 1).max() < SETTLED:
            if slope.min() > -1 - 10 * SETTLED:
                break
            taking_part[slope.argmin()] = True
        move = np.zeros(len(own))
        move[taking_part] = constrained_step(ratio[taking_part], slope[taking_part])
        weights, taking_part = moved(own, weights, move, taking_part)
    return weights


def constrained_step(ratio: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Newton's step among weights whose sum stays."""
    size = len(ratio)
    second = ratio @ ratio.T / ratio.shape[1]
    second[np.diag_indices(size)] += 1e-12 * second.trace()
    system = np.ones((size + 1, size + 1))
    system[:size, :size] = second
    system[size, size] = 0
    return np.linalg.solve(system, np.append(-slope, 0.0))[:size]


def moved(
    own: np.ndarray, weights: np.ndarray, move: np.ndarray, taking_part: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As far as the step goes down and no weight falls below 0; one that reaches 0 drops out."""
    falling = move < 0
    room = np.full(len(weights), np.inf)
    room[falling] = weights[falling] / -move[falling]
    length = min(1.0, float(room.min()))
    ended = int(room.argmin()) if length == room.min() else None
    before = np.log(weights @ own).mean()
    while np.log((weights + length * move) @ own).mean() < before - 1e-15 and length > 1e-12:
        length /= 2
        ended = None
    weights = np.maximum(weights + length * move, 0.0)
    if ended is not None:
        weights[ended] = 0.0
        taking_part = taking_part.copy()
        taking_part[ended] = False
    return weights / weights.sum(), taking_part
