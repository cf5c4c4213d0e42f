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
from maccal.calibration.posthoc.one_number import exact_temperature
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
        classes = numbers.shape[1]
        refuse_absent(codes, classes, REMEDY)
        x = scores(numbers, self.inputs)
        refuse_apart(x, codes, REMEDY)
        temperature = exact_temperature(x, codes)  # so that the search starts near the end
        start = identity("vector", classes)
        free = torch.zeros_like(start)
        try:
            theta = optimum(problem_of("vector", x.double() / temperature, codes, start, free))
        except NoOptimum as error:
            raise ValueError(f"there is no best vector: {error}; {REMEDY}") from None
        self.scale_, self.bias_ = (theta[0] / temperature).numpy(), theta[1].numpy()
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
