"""Calibration after training: maps of the logits fitted on held-out labels.

    TemperatureScaling    softmax(logits / T), one number (Guo et al. 2017); the order of the
                          classes stays, and so does the accuracy
    scaled_classifier     the same as a calibrator: the weights of the classifier, divided

The temperature is the exact minimiser of the NLL, wherever it lies: see metrics/temperature.py.
Public fits stop early, leave T > 0, or do nothing in float32. Cost: about two passes over the
logits.
"""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maccal.calibration.heads import with_history
from maccal.calibration.task import Task
from maccal.features.table import CHUNK, FeatureTable
from maccal.metrics import softmaxes
from maccal.metrics.inputs import Array, check_labels, check_logits, like
from maccal.metrics.temperature import best, runs_away

NO_BEST = {
    "T to 0": "every label has the largest logit, so the NLL falls for ever as T goes to 0; "
    "fit on rows with mistakes",
    "T to infinity": "the logits do not tell the labels, so the NLL falls for ever as T grows; "
    "check that the rows match",
}
WIDEST = 20.0  # of log T: from 2e-9 to 5e8


@dataclass(frozen=True)
class Temperature:
    """The choices of the calibrator "temperature"."""

    # accuracy on unseen rows over accuracy in training, about: used where nothing better is known
    gamma: float = 0.97


def scaled_classifier(choices: Temperature, task: Task) -> nn.Module:
    """The calibrator "temperature": the classifier with weights and bias over one number.

    Held-out labels: the number with the lowest NLL. Other feedback says only what the mean
    confidence should be, and that the number meets exactly.
    """
    if not isinstance(task.start, nn.Linear):
        raise ValueError("a temperature scales a trained linear classifier, and there is none")
    if task.feedback.source == "held-out" and task.feedback.rows is not None:
        rows = task.feedback.rows
        temperature = TemperatureScaling().fit(logits_of(task.start, rows), rows.y).temperature_
    else:
        temperature = matching(task, choices.gamma)
    new = copy.deepcopy(task.start).eval().requires_grad_(False)
    with torch.no_grad():
        for weight in new.parameters():
            weight.div_(temperature)
    return with_history(new, [{"epoch": 1, "temperature": temperature}])


@torch.no_grad()
def logits_of(head: nn.Linear, rows: FeatureTable) -> Tensor:
    """What the classifier says of all rows, in order."""
    z = torch.cat([rows.raw(start) for start in range(0, rows.count, CHUNK)])
    logits: Tensor = copy.deepcopy(head).cpu()(z.float())
    return logits


def matching(task: Task, gamma: float) -> float:
    """The temperature at which the mean confidence on the rows looked at is what it should be."""
    assert task.start is not None
    rows = task.feedback.rows or task.train
    scores = logits_of(task.start, rows).double()
    seen = float((scores.argmax(1) == rows.y).double().mean()) if task.feedback.labelled else 0.0
    target = task.feedback.target(seen, gamma)

    def gap(log_temperature: float) -> float:
        sure = (scores / math.exp(log_temperature)).softmax(1).amax(1)
        return float(sure.mean()) - target

    if not gap(WIDEST) < 0 < gap(-WIDEST):
        chance = f"between {1 / scores.shape[1]:.2%} and 100 %"
        raise ValueError(
            f"no temperature makes the mean confidence {target:.2%}: it must lie {chance}; "
            "look on rows with some mistakes, or pass val= with held-out labels"
        )
    from scipy.optimize import brentq  # only here: it takes a while to import

    return math.exp(brentq(gap, -WIDEST, WIDEST, xtol=1e-12, rtol=1e-12))


class TemperatureScaling:
    """Divide the logits by the temperature that suits held-out labels best.

    >>> import numpy as np
    >>> logits = np.log(np.array([[0.99, 0.01]] * 10))                    # says 99 %
    >>> labels = np.array([0] * 8 + [1] * 2)                # is right 8 times in 10
    >>> scaling = TemperatureScaling().fit(logits, labels)
    >>> scaling.predict_proba(logits)[0].round(6).tolist()
    [0.8, 0.2]
    """

    temperature_: float

    def fit(self, logits: Array, labels: Array) -> "TemperatureScaling":
        """Find the temperature; ValueError where there is no best one."""
        scores = check_logits(logits)
        rows = softmaxes.Rows.of(scores, check_labels(labels, scores))
        found, _ = best(rows, nll=True, brier=False)
        if found is None:
            raise ValueError(NO_BEST[runs_away(rows)])
        self.temperature_ = math.exp(-found.log_scale)
        return self

    def transform(self, logits: Array) -> Array:
        """The logits divided by the temperature."""
        return like(check_logits(logits) / self._fitted(), logits)

    def predict_proba(self, logits: Array) -> Array:
        """Calibrated probabilities."""
        return like(torch.softmax(check_logits(logits) / self._fitted(), 1), logits)

    def predict(self, logits: Array) -> Array:
        """The most probable class, which no temperature changes."""
        return like(check_logits(logits).argmax(1), logits)

    def _fitted(self) -> float:
        if not hasattr(self, "temperature_"):
            raise ValueError(
                "this TemperatureScaling is not fitted yet: call fit(logits, labels) first"
            )
        return self.temperature_
