"""Feedback: where the truth about confidence comes from. Any calibrator takes any of these.

    source       looked at              the confidence there should be
    held-out     rows with labels       the accuracy on them
    unlabelled   rows without labels    the accuracy on unseen data, which is known
    accuracy     the training rows      sqrt(known accuracy x accuracy there)
    views        changed training rows  the accuracy on them
    training     the training rows      gamma x accuracy there: a guess

They are listed best first. A network is surer of its training rows than of unseen ones, so what is
right there lies between the two accuracies; the geometric mean is what fits (docs/calibrate.md).
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from maccal.calibration.live import Table
from maccal.features.table import FeatureTable, check_pair
from maccal.metrics.arguments import check_share, real, shortened
from maccal.metrics.inputs import Array

Source = Literal["held-out", "unlabelled", "accuracy", "views", "training"]
SOURCES = {
    "held-out": "held-out labels",
    "unlabelled": "unlabelled rows and a known accuracy",
    "accuracy": "a known accuracy",
    "views": "views of the training rows",
    "training": "gamma x training accuracy, a guess",
}
VAGUE = 0.1  # an accuracy that is known to ten points only
GUESS = (
    "without held-out rows or a known accuracy, gamma x training accuracy is a guess; "
    "pass val= or accuracy="
)


@dataclass(frozen=True)
class Feedback:
    """The rows whose confidence is looked at, and what it should be, given the accuracy there."""

    source: Source
    rows: Table | None = None  # None: the training rows
    accuracy: float | None = None  # on unseen data, where it is known
    ceiling: float = 1.0  # the confidence that is never asked for more than
    view: str | None = None  # how the training rows were changed
    aimed: float | None = None  # the confidence it asks of the classifier as trained
    # how far that may be off: by the other views, or by chance (two standard errors)
    within: float | None = None
    count: int | None = None  # the rows that are looked at

    @property
    def vague(self) -> bool:
        """Whether so few rows have labels that chance alone may be far off."""
        return self.source == "held-out" and self.within is not None and self.within > VAGUE

    @property
    def labelled(self) -> bool:
        """Whether the rows that are looked at have labels."""
        return self.source != "unlabelled"

    def target(self, seen: float, gamma: float) -> float:
        """What the confidence should be, where `seen` is the accuracy on the rows looked at.

        >>> Feedback("accuracy", accuracy=0.81).target(1.0, gamma=0.97)
        0.9
        """
        if self.source in ("held-out", "views"):
            wanted = seen
        elif self.accuracy is None:
            wanted = gamma * seen
        elif self.source == "unlabelled":
            wanted = self.accuracy
        else:
            wanted = math.sqrt(self.accuracy * seen)
        return min(wanted, self.ceiling)

    def told(self, right: float, rows: int, gamma: float) -> "Feedback":
        """With what it asks of the classifier as trained, which is right so often on the rows."""
        within = self.within
        if self.source == "held-out":
            within = 2 * math.sqrt(max(right * (1 - right), 1 / (4 * rows)) / rows)
        return replace(self, aimed=self.target(right, gamma), within=within, count=rows)

    def describe(self) -> str:
        """One sentence: the source, the rows, the confidence aimed at, and how sure that is.

        >>> Feedback("accuracy", accuracy=0.81).told(1.0, 5000, gamma=0.97).describe()
        'feedback from a known accuracy, 5,000 training rows: aims at a confidence of 90.00 %'
        """
        words = f"feedback from {SOURCES[self.source]}"
        if self.view is not None:
            words += f" ({self.view})"
        if self.count is not None:
            kind = "training rows" if self.rows is None else "rows"
            words += f", {self.count:,} {kind}"
        if self.aimed is not None:
            words += f": aims at a confidence of {100 * self.aimed:.2f} %"
        if self.within is not None:
            judge = "by the other views" if self.source == "views" else "by chance"
            words += f", within {100 * self.within:.2f} points {judge}"
        return words

    def card(self) -> dict[str, Any]:
        """The same as plain values, for a file."""
        return {
            "source": self.source,
            "view": self.view,
            "rows": self.count,
            "accuracy": self.accuracy,
            "aimed": self.aimed,
            "within": self.within,
            "words": self.describe(),
        }

    def on_training_rows(self) -> "Feedback":
        """The same knowledge without the rows: for readings that look at the training rows."""
        source: Source = "training" if self.accuracy is None else "accuracy"
        return Feedback(source, None, self.accuracy, self.ceiling)


def feedback_of(
    train: FeatureTable,
    *,
    val: tuple[Array, Array] | None = None,
    accuracy: float | None = None,
    unlabelled: Array | None = None,
    views: tuple[Array, Array] | None = None,
    ceiling: float = 1.0,
) -> Feedback:
    """The best feedback that these arguments allow; ValueError where they contradict each other."""
    check_known(val, accuracy, unlabelled)
    ceiling = check_share(ceiling, "ceiling")
    if val is not None:
        z, y = check_pair(val)
        return Feedback(
            "held-out", same_width(train, FeatureTable(z, y, "val"), "val"), None, ceiling
        )
    if unlabelled is not None:
        rows = FeatureTable(unlabelled, None, "unlabelled", labelled=False)
        return Feedback("unlabelled", same_width(train, rows, "unlabelled"), accuracy, ceiling)
    if accuracy is not None:
        return Feedback("accuracy", None, accuracy, ceiling)
    if views is not None:
        rows = FeatureTable(*views, "views")
        return Feedback("views", same_width(train, rows, "views"), None, ceiling)
    return Feedback("training", None, None, ceiling)


def check_known(
    val: object | None, accuracy: float | None, unlabelled: object | None = None
) -> None:
    """ValueError where what is known does not fit together."""
    if accuracy is not None and not 0 < real(accuracy) <= 1:
        share = "pass the share of right answers on unseen data, such as 0.937"
        raise ValueError(f"accuracy is {shortened(accuracy)}; {share}")
    if unlabelled is not None and accuracy is None:
        remedy = "pass accuracy= too, or val=(z, y) with labels"
        raise ValueError(f"unlabelled rows say nothing without a known accuracy: {remedy}")
    if val is not None and accuracy is not None:
        remedy = "pass val or accuracy, not both"
        raise ValueError(f"val holds labels, which tell the accuracy: {remedy}")


def same_width(train: FeatureTable, rows: FeatureTable, name: str) -> FeatureTable:
    """The rows, if they can come from the same network as those of the training."""
    if rows.width != train.width:
        problem = f"z has {train.width} features and {name} {rows.width}"
        raise ValueError(f"{problem}; both must come from the same network")
    return rows


def with_feedback(head: nn.Module, card: dict[str, Any]) -> None:
    """Let the head say what it was calibrated by, as its attribute `feedback`."""
    head.feedback = card  # type: ignore[assignment]


def feedback_card(head: nn.Module) -> dict[str, Any]:
    """What the head was calibrated by."""
    found: dict[str, Any] = head.feedback  # type: ignore[assignment]
    return found
