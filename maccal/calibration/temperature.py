"""Calibration after training: maps of the logits fitted on held-out labels.

    TemperatureScaling    softmax(logits / T), one number (Guo et al. 2017); keeps the order of the classes, so accuracy stays
    Temperature           the same as a stage II of a run: scaled_head divides the weights of the classifier

The temperature is the exact minimiser of the NLL, wherever it lies: see metrics/temperature.py.
Public fits stop early, leave T > 0, or do nothing in float32. Cost: about two passes over the
logits.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from maccal.metrics.inputs import Array, check_labels, check_logits, like
from maccal.metrics.softmaxes import Rows
from maccal.metrics.temperature import best, runs_away

NO_BEST = {
    "T to 0": "every label has the largest logit, so the NLL falls for ever as T goes to 0; fit on rows with mistakes",
    "T to infinity": "the logits do not tell the labels, so the NLL falls for ever as T grows; check that the rows match",
}


@dataclass(frozen=True)
class Temperature:
    """A stage II without choices."""


def scaled_head(head: nn.Linear, z: Tensor, y: Tensor) -> Any:
    """The linear head with its weights over the temperature that suits these held-out features and
    labels; `history` has it.
    """
    new: Any = copy.deepcopy(head)
    with torch.no_grad():
        temperature = TemperatureScaling().fit(head.cpu()(z.float()), y).temperature_
        for weight in new.parameters():
            weight /= temperature
    new.history = [{"epoch": 1, "temperature": temperature}]
    return new


class TemperatureScaling:
    """Divide the logits by the temperature that suits held-out labels best.

    >>> import numpy as np
    >>> logits = np.log(np.array([[0.99, 0.01]] * 10))                    # says 99 %
    >>> scaling = TemperatureScaling().fit(logits, np.array([0] * 8 + [1] * 2))    # is right 8 times in 10
    >>> scaling.predict_proba(logits)[0].round(6).tolist()
    [0.8, 0.2]
    """

    temperature_: float

    def fit(self, logits: Array, labels: Array) -> "TemperatureScaling":
        """Find the temperature; ValueError where there is no best one."""
        scores = check_logits(logits)
        rows = Rows.of(scores, check_labels(labels, scores))
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
