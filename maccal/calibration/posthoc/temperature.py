"""TemperatureScaling: softmax(logits / T), one number (Guo et al. 2017, "On calibration of modern
neural networks").

The order of the classes stays, and so does the accuracy. One number can be fitted by any feedback
(feedback.py): with held-out labels T is the exact minimiser of the NLL, wherever it lies; all other
feedback says what the mean confidence should be, and T makes it so. Public fits stop early, leave
T > 0, or do nothing in float32. Cost: about two passes over the logits, 3 ms for 50,000 x 10.
"""

from typing import Literal

import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from torch import Tensor

from maccal.calibration.feedback import Feedback
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
from maccal.metrics.inputs import Array, Labels, Same

Source = Literal["held-out", "unlabelled", "accuracy", "views"]
# whether there are labels, and whether an accuracy on unseen rows is known
NEEDS: dict[Source, tuple[bool, bool]] = {
    "held-out": (True, False),
    "unlabelled": (False, True),
    "accuracy": (True, True),
    "views": (True, False),
}


class TemperatureScaling(TransformerMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
        self,
        logits: Array,
        labels: Labels | None = None,
        *,
        accuracy: float | None = None,
        feedback: Source | None = None,
    ) -> "TemperatureScaling":
        """Find the temperature; ValueError where there is none.

        feedback       rows of logits         labels  accuracy   what T does
        "held-out"     unseen                 theirs  -          makes the NLL least
        "unlabelled"   unseen                 -       on unseen  makes the confidence equal to it
        "accuracy"     the training's         theirs  on unseen  the same, for the geometric mean of
                                                                 that and the accuracy here
        "views"        changed, of training   theirs  -          the same, for the accuracy here

        By default labels are held-out, and an accuracy without labels is that of rows like these.
        """
        source = source_of(labels is not None, accuracy is not None, feedback)
        known = None if accuracy is None else check_share(accuracy, "accuracy")
        if labels is None:
            numbers, codes = checked(logits, self.inputs), None
        else:
            numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
        self.temperature_ = found_temperature(scores(numbers, self.inputs), codes, known, source)
        return fitted(self, numbers, logits)

    def transform(self, logits: Array) -> Same:
        """The logits, or log-probabilities, divided by the temperature."""
        return back(self._scaled(logits), logits)

    def predict_proba(self, logits: Array) -> Same:
        """Calibrated probabilities."""
        return back(torch.softmax(self._scaled(logits), 1), logits)

    def predict(self, logits: Array) -> Same:
        """The most probable class, which no temperature changes."""
        return predicted(self, back(new_inputs(self, logits).argmax(1), logits))

    def _scaled(self, logits: Array) -> Tensor:
        numbers = new_inputs(self, logits)
        return scores(numbers, self.inputs) / self.temperature_


def source_of(labels: bool, accuracy: bool, feedback: str | None) -> Source:
    """The kind of feedback; ValueError where what was given does not fit it."""
    if feedback is None:
        if labels == accuracy:
            both = 'feedback="accuracy" takes both, for rows of the training'
            either = "pass labels, or accuracy=... of rows like these: exactly one of them"
            raise ValueError(f"{either} ({both})")
        return "held-out" if labels else "unlabelled"
    for source, needs in NEEDS.items():
        if source != feedback:
            continue
        if needs != (labels, accuracy):
            wanted = [
                name for name, need in zip(("labels", "accuracy="), needs, strict=True) if need
            ]
            raise ValueError(f"feedback={source!r} takes {' and '.join(wanted)}, and nothing else")
        return source
    raise ValueError(f"feedback is {feedback!r}; say one of {', '.join(NEEDS)}")


def found_temperature(
    x: Tensor, labels: Tensor | None, accuracy: float | None, source: Source
) -> float:
    """The temperature that this feedback asks for."""
    if source == "held-out":
        assert labels is not None
        return exact_temperature(x, labels)
    seen = 0.0 if labels is None else float((x.argmax(1) == labels).double().mean())
    return matching_temperature(x, Feedback(source, accuracy=accuracy).target(seen, gamma=1.0))
