"""Several views of the training rows, looked at with the classifier as trained.

For each view the temperature T at which the mean confidence is the accuracy on it. Of the
candidates, the view with the middle T is aimed at. On its rows, every view's T gives a confidence;
the largest distance from the one aimed at is how sure the estimate is. The T of unchanged rows
counts too where the network does not know them: there views were up to 6 points too low.

    looked_at(family, features, head)    the view to aim at, and how sure that is

Cost: some ten softmaxes of 3,000 rows per view.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maccal.calibration.solving import mean_confidence, nearest_scale
from maccal.features.table import CHUNK
from maccal.features.views import UNCHANGED, Family

WIDEST = math.exp(6)  # T or 1 / T: where a view has no mistakes, no T is low enough
DOUBTFUL = 0.05  # views that are farther apart than so much confidence are warned of
KNOWN = 0.95  # a network that is right so often on its training rows knows them


@dataclass(frozen=True)
class Look:
    """The view that is aimed at: which of the family, and the farthest that another is from it."""

    number: int
    view: str
    temperatures: dict[str, float]  # by the view's name
    confidences: dict[str, float]  # on the rows of the view aimed at
    within: float
    known: float  # accuracy on unchanged rows

    @property
    def warning(self) -> str | None:
        """What to tell the user, where the estimate cannot be trusted."""
        if self.within <= DOUBTFUL:
            return None
        apart = f"by up to {100 * self.within:.1f} points of confidence"
        why = f"views of the training rows disagree {apart}, so it may be that far off"
        if self.known < KNOWN:
            right = f"only {100 * self.known:.1f} % of its training rows are right"
            why = f"{right}, so that views of them may be too hard, {apart}"
        return f"{why}; pass val= or accuracy= instead"


@torch.no_grad()
def scores_of(head: nn.Linear, z: Tensor) -> Tensor:
    """Logits of the classifier as trained, float64."""
    weight = head.weight.cpu().float()
    bias = torch.zeros(1) if head.bias is None else head.bias.cpu().float()
    parts = [x.float() @ weight.T + bias for x in torch.split(z, CHUNK)]
    return torch.cat(parts).double()


def looked_at(family: Family, features: Sequence[tuple[Tensor, Tensor]], head: nn.Linear) -> Look:
    """The view to aim at.

    These are features and labels of the family's views, in order, and then of unchanged rows.
    """
    scores = [scores_of(head, z) for z, _ in features]
    right = []
    for own, (_, y) in zip(scores, features, strict=True):
        right.append(float((own.argmax(1) == y).double().mean()))
    pairs = zip(scores, right, strict=True)
    temperatures = [1 / nearest_scale(own, accuracy, WIDEST) for own, accuracy in pairs]
    candidates = range(len(family.candidates))
    chosen = sorted(candidates, key=lambda number: temperatures[number])[len(candidates) // 2]
    names = [view.name for view in (*family.all, UNCHANGED)]
    sure = [mean_confidence(scores[chosen], 1 / temperature) for temperature in temperatures]
    counted = sure if right[-1] < KNOWN else sure[:-1]
    return Look(
        number=chosen,
        view=names[chosen],
        temperatures=dict(zip(names, temperatures, strict=True)),
        confidences=dict(zip(names, sure, strict=True)),
        within=max(abs(other - sure[chosen]) for other in counted),
        known=right[-1],
    )
