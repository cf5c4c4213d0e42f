"""The calibrator "temperature": the weights of the classifier, divided by one number.

The number is the exact minimiser of the NLL where there are held-out labels, wherever it lies: see
posthoc/one_number.py. TemperatureScaling, for logits, is in posthoc/temperature.py.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maccal.calibration.heads import with_history
from maccal.calibration.live import Table
from maccal.calibration.posthoc.one_number import exact_temperature
from maccal.calibration.solving import scale_to
from maccal.calibration.task import Task
from maccal.features.table import CHUNK


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
        temperature = exact_temperature(logits_of(task.start, rows), rows.y)
    else:
        temperature = 1 / scale_for(task.start, task, choices.gamma)
    new = copy.deepcopy(task.start).eval().requires_grad_(False)
    with torch.no_grad():
        for weight in new.parameters():
            weight.div_(temperature)
    return with_history(new, [{"epoch": 1, "temperature": temperature}])


@torch.no_grad()
def logits_of(head: nn.Linear, rows: Table) -> Tensor:
    """What the classifier says of all rows, in order; worked out where the features are."""
    z = torch.cat([rows.raw(start) for start in range(0, rows.count, CHUNK)])
    logits: Tensor = copy.deepcopy(head).to(z.device)(z.to(head.weight.dtype))
    return logits.cpu()


def scale_for(head: nn.Linear, task: Task, gamma: float) -> float:
    """What to multiply the logits with, so that the mean confidence is what it should be."""
    rows = task.feedback.rows or task.train
    scores = logits_of(head, rows)
    seen = float((scores.argmax(1) == rows.y).double().mean()) if task.feedback.labelled else 0.0
    return scale_to(scores, task.feedback.target(seen, gamma))
