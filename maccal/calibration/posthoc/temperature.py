"""TemperatureScaling: softmax(logits / T), one number (Guo et al. 2017, "On calibration of modern
neural networks").

The order of the classes stays, and so does the accuracy. Feedback: held-out labels, where T is the
exact minimiser of the NLL, wherever it lies; or a known accuracy and logits without labels, where T
makes the mean confidence equal to it. Public fits stop early, leave T > 0, or do nothing in
float32. Cost: about two passes over the logits, 3 ms for 50,000 x 10.
"""

import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from maccal.calibration.posthoc.inputs import (
    Inputs,
    back,
    checked,
    fit_inputs,
    fitted,
    new_inputs,
    predicted,
    scores,
)
from maccal.calibration.posthoc.one_number import exact_temperature, matching_temperature
from maccal.metrics.arguments import check_share
from maccal.metrics.given import Classes
from maccal.metrics.inputs import Array


class TemperatureScaling(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Divide the logits by the temperature that suits held-out labels best.

    inputs   "logits", or "probs" for probabilities, whose logarithm is divided
    classes  names of the columns, where labels are names

    Fitted: temperature_, classes_, n_features_in_.

    >>> import numpy as np
    >>> logits = np.log(np.array([[0.99, 0.01]] * 10))                    # says 99 %
    >>> labels = np.array([0] * 8 + [1] * 2)                # is right 8 times in 10
    >>> scaling = TemperatureScaling().fit(logits, labels)
    >>> scaling.predict_proba(logits)[0].round(6).tolist()
    [0.8, 0.2]
    >>> unlabelled = TemperatureScaling().fit(logits, accuracy=0.8)       # the same, without labels
    >>> round(unlabelled.temperature_ / scaling.temperature_, 9)
    1.0
    """

    temperature_: float

    def __init__(self, *, inputs: Inputs = "logits", classes: Classes | None = None) -> None:
        self.inputs = inputs
        self.classes = classes

    def fit(
        self, logits: Array, labels: Array | None = None, *, accuracy: float | None = None
    ) -> "TemperatureScaling":
        """Find the temperature from labels, or from a known accuracy on rows like these.

        ValueError where there is no best one.
        """
        if (labels is None) == (accuracy is None):
            raise ValueError("pass labels, or accuracy=... of rows like these: exactly one of them")
        if labels is not None:
            numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
            self.temperature_ = exact_temperature(scores(numbers, self.inputs), codes)
            return fitted(self, numbers)
        known = check_share(accuracy, "accuracy")
        numbers = checked(logits, self.inputs)
        self.temperature_ = matching_temperature(scores(numbers, self.inputs), known)
        return fitted(self, numbers)

    def transform(self, logits: Array) -> Array:
        """The logits, or log-probabilities, divided by the temperature."""
        return back(self._scaled(logits), logits)

    def predict_proba(self, logits: Array) -> Array:
        """Calibrated probabilities."""
        return back(torch.softmax(self._scaled(logits), 1), logits)

    def predict(self, logits: Array) -> Array:
        """The most probable class, which no temperature changes."""
        return predicted(self, back(new_inputs(self, logits).argmax(1), logits))

    def _scaled(self, logits: Array) -> Tensor:
        numbers = new_inputs(self, logits)
        return scores(numbers, self.inputs) / self.temperature_
