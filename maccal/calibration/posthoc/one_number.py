"""One temperature, from either kind of feedback, exactly.

exact_temperature       held-out labels: where the NLL is least (metrics/temperature.py)
matching_temperature    a known accuracy: where the mean confidence is equal to it (solving.py)
"""

import math

from torch import Tensor

from maccal.calibration.solving import scale_to
from maccal.metrics import softmaxes
from maccal.metrics.temperature import best, runs_away

NO_BEST = {
    "T to 0": "every label has the largest logit, so the NLL falls for ever as T goes to 0; "
    "fit on rows with mistakes",
    "T to infinity": "the logits do not tell the labels, so the NLL falls for ever as T grows; "
    "check that the rows match",
}

EQUAL = "the logits of each row are all equal, so any temperature is as good as another"


def exact_temperature(scores: Tensor, labels: Tensor) -> float:
    """The temperature with the least NLL; ValueError where there is none."""
    rows = softmaxes.Rows.of(scores, labels)
    found, _ = best(rows, nll=True, brier=False)
    if bool((scores == scores[:, :1]).all()):
        raise ValueError(EQUAL)
    if found is None:
        raise ValueError(NO_BEST[runs_away(rows)])
    return math.exp(-found.log_scale)


def matching_temperature(scores: Tensor, target: float) -> float:
    """The temperature whose mean confidence is the target; ValueError where there is none."""
    return 1 / scale_to(scores, target)
