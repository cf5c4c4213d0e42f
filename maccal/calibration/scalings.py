"""The calibrators "vector" and "matrix": an affine map of the logits, folded into the classifier.

    logits = W z + b  ->  A C logits / T + c,   C takes the mean over the classes away

T is the best temperature, and A and c are held near "no change" as structured scaling holds them
(posthoc/structured.py): the fewer rows per number, the harder. A map of the logits of a linear
classifier is a linear classifier, so the network has the same layers and keys as before.
StructuredVectorScaling and StructuredMatrixScaling, for logits without a network, map the log of
probabilities instead, which no linear layer does.

The map is fitted where the feedback has labels: the held-out rows, or the views; else the training
rows. Feedback without held-out labels then says what the mean confidence should be, and one scale
meets that exactly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maccal.calibration.heads import with_history
from maccal.calibration.live import Table
from maccal.calibration.posthoc.logistic import Kind, identity, optimum, penalties, problem_of
from maccal.calibration.posthoc.one_number import exact_temperature
from maccal.calibration.task import Task
from maccal.calibration.temperature import logits_of, scale_for


@dataclass(frozen=True)
class Scaling:
    """The choices of the calibrators "vector" and "matrix"."""

    kind: Kind = "vector"
    # how hard the map is held near a temperature; 1 is the choice of the authors of SVS and SMS
    strength: float = 1.0
    # accuracy on unseen rows over accuracy in training, about: used where nothing better is known
    gamma: float = 0.97

    def __post_init__(self) -> None:
        if not 0 < self.strength < float("inf"):
            raise ValueError(f"strength is {self.strength}; pass a number above 0, such as 1.0")


def mapped_classifier(choices: Scaling, task: Task) -> nn.Module:
    """The classifier with the map folded into its weights."""
    if not isinstance(task.start, nn.Linear):
        raise ValueError("a map of logits changes a trained linear classifier, and there is none")
    if len(list(task.start.parameters())) < 2:
        remedy = "pass calibrator='temperature' or 'maccal'"
        raise ValueError(f"the map has a bias and the classifier has none; {remedy}")
    rows = labelled_rows(task)
    weight, bias = fitted_map(choices, task.start, rows)
    new = folded(task.start, weight, bias)
    known = task.feedback.source == "held-out"
    scale = best_scale(new, rows) if known else scale_for(new, task, choices.gamma)
    new = folded(task.start, scale * weight, scale * bias)
    return with_history(new, [{"epoch": 1, "scale": scale}])


def labelled_rows(task: Task) -> Table:
    """Where the map is fitted: the rows nearest to unseen ones that have labels."""
    if task.feedback.source in ("held-out", "views") and task.feedback.rows is not None:
        return task.feedback.rows
    return task.train


def best_scale(head: nn.Linear, rows: Table) -> float:
    """The scale of lowest log-loss; 1 where there is none.

    The map is held near the temperature of the classifier as it was trained. Where the map mends
    much, that temperature is too high.
    """
    try:
        return 1 / exact_temperature(logits_of(head, rows).double(), rows.y)
    except ValueError:  # the mapped logits tell the labels apart
        return 1.0


def fitted_map(choices: Scaling, head: nn.Linear, rows: Table) -> tuple[Tensor, Tensor]:
    """The map of the logits: K x K and K, in float64."""
    logits = logits_of(head, rows).double()
    count, classes = logits.shape
    temperature = exact_temperature(logits, rows.y)
    centred = (logits - logits.mean(1, keepdim=True)) / temperature
    penalty = penalties(choices.kind, classes, count, choices.strength)
    start = identity(choices.kind, classes)
    theta = optimum(problem_of(choices.kind, centred, rows.y, start, penalty))
    if choices.kind == "vector":
        weight, bias = torch.diag(theta[0]), theta[1]
    else:
        weight, bias = theta[:, :-1], theta[:, -1]
    # the mean over the classes is taken away by a matrix too
    return (weight - weight.mean(1, keepdim=True)) / temperature, bias


def folded(head: nn.Linear, weight: Tensor, bias: Tensor) -> nn.Linear:
    """The classifier and then the map, as one linear layer where the classifier is."""
    old = head.weight
    new = nn.Linear(head.in_features, head.out_features, device=old.device, dtype=old.dtype)
    with torch.no_grad():
        new.weight.copy_(weight @ old.detach().cpu().double())
        new.bias.copy_(weight @ head.bias.detach().cpu().double() + bias)
    return new.eval().requires_grad_(False)
