"""VectorScaling: softmax(v * logits + b), a factor and a bias per class (Guo et al. 2017).

2 K numbers, the exact minimiser of the NLL on the logits as they are. Nothing holds the numbers, so
many rows per class are wanted; StructuredVectorScaling is the one that is held. Cost: about ten
passes over the logits, 0.03 s for 50,000 x 10 and 0.5 s for 50,000 x 100 on one core.
"""

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from torch import Tensor

from maccal.calibration.posthoc.inputs import (
    LEAST,
    Inputs,
    back,
    fit_inputs,
    fitted,
    new_inputs,
    predicted,
    refuse_absent,
    refuse_apart,
    scores,
)
from maccal.calibration.posthoc.logistic import NoOptimum, identity, optimum, problem_of
from maccal.calibration.posthoc.one_number import NO_BEST, exact_temperature
from maccal.metrics.given import Classes
from maccal.metrics.inputs import Array, Labels, Same

REMEDY = "StructuredVectorScaling is regularised and has one"


class VectorScaling(TransformerMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A factor and a bias for the logit of each class.

    inputs   "logits", or "probs" for probabilities, whose logarithm is scaled
    classes  names of the columns, where labels are names

    Fitted: scale_ and bias_ (K numbers each), classes_, n_features_in_.

    >>> import numpy as np
    >>> logits = np.log(np.array([[0.9, 0.1]] * 10 + [[0.2, 0.8]] * 10))
    >>> labels = np.array([0] * 6 + [1] * 4 + [0] * 5 + [1] * 5)
    >>> VectorScaling().fit(logits, labels).predict_proba(logits)[[0, -1]].round(6).tolist()
    [[0.6, 0.4], [0.5, 0.5]]
    """

    scale_: np.ndarray
    bias_: np.ndarray

    def __init__(self, *, inputs: Inputs = "logits", classes: Classes | None = None) -> None:
        self.inputs = inputs
        self.classes = classes

    def fit(self, logits: Array, labels: Labels) -> "VectorScaling":
        """Find factors and biases; ValueError where there are no best ones."""
        numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
        refuse_absent(codes, numbers.shape[1], REMEDY)
        x = scores(numbers, self.inputs)
        refuse_apart(x, codes, REMEDY)
        try:
            factors, biases = best_vector(x.double(), codes)
        except NoOptimum as error:
            raise ValueError(f"there is no best vector: {error}; {REMEDY}") from None
        if bool(((x * factors + biases).argmax(1) == codes).all()):
            raise ValueError(f"a vector makes every row right, so there is no best one; {REMEDY}")
        self.scale_, self.bias_ = factors.numpy(), biases.numpy()
        return fitted(self, numbers, logits)

    def transform(self, logits: Array) -> Same:
        """The logits after the map, in float64."""
        return back(self._mapped(logits), logits)

    def predict_proba(self, logits: Array) -> Same:
        """Calibrated probabilities, in float64."""
        return back(self._mapped(logits).softmax(1), logits)

    def predict(self, logits: Array) -> Same:
        """The most probable class after the map."""
        return predicted(self, back(self._mapped(logits).argmax(1), logits))

    def _mapped(self, logits: Array) -> Tensor:
        x = scores(new_inputs(self, logits), self.inputs).double()
        return x * torch.from_numpy(self.scale_) + torch.from_numpy(self.bias_)


def best_vector(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Factors and biases, sought near their end: about the mean of each column, at a scale of 1."""
    middle = x.mean(0)
    temperature = first_temperature(x, labels)
    start = identity("vector", x.shape[1])
    free = torch.zeros_like(start)
    factors, biases = optimum(problem_of("vector", (x - middle) / temperature, labels, start, free))
    factors = factors / temperature
    return factors, biases - factors * middle


def first_temperature(x: Tensor, labels: Tensor) -> float:
    """The best one; where none helps, a vector may, so any that makes the scores small."""
    try:
        return exact_temperature(x, labels)
    except ValueError as error:
        if NO_BEST["T to 0"] in str(error):  # what is right already is always better if larger
            raise
        return max(float((x - x.mean(0)).abs().max()), LEAST)
