"""trust_in: what may be done with predictions, beyond measuring them.

Conformal sets at a coverage, answers at a risk, and calibration by predicted class and by group.
Thresholds are fitted on one part of the rows and measured on the other: half and half at random,
or all of one file and all of another. Classes and groups are measured on the rows of both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maccal.evaluation.predictions import Predictions
from maccal.evaluation.tasks import plain_numbers
from maccal.metrics import Listing, by_class, by_group
from maccal.metrics.arguments import generator
from maccal.metrics.inputs import check_labels, check_probs, refuse_several
from maccal.trust.conformal import ConformalSets
from maccal.trust.scores import Method
from maccal.trust.selective import AbstainingClassifier
from maccal.trust.sets import SetSummary, set_summary


@dataclass(frozen=True)
class Trust:
    """What was fitted, and what it does on rows that it was not fitted on."""

    name: str
    fitted_on: int
    measured_on: int
    sets: tuple[ConformalSets, ...]
    measured_sets: tuple[SetSummary, ...]
    answers: AbstainingClassifier
    measured_answers: dict[str, Any]
    classes: Listing
    groups: Listing | None

    def record(self) -> dict[str, Any]:
        """Plain values, with the thresholds; what JSON cannot say is None."""
        sets = []
        for made, found in zip(self.sets, self.measured_sets, strict=True):
            sets.append(set_record(made, found))
        answers = {
            "risk": self.answers.risk,
            "delta": self.answers.delta,
            "found": self.answers.found_,
            "threshold": self.answers.threshold_,
            "coverage": self.answers.coverage_,
            "bound": self.answers.bound_,
            "verdict": self.answers.verdict_,
            "candidates": list(self.answers.candidates_),
        }
        return {
            "fitted_on": self.fitted_on,
            "measured_on": self.measured_on,
            "sets": sets,
            "answers": plain_numbers(answers),
            "measured_answers": plain_numbers(self.measured_answers),
            "classes": plain_numbers({"lines": self.classes})["lines"],
            "groups": None if self.groups is None else plain_numbers({"g": self.groups})["g"],
        }


def trust_in(
    predictions: Predictions,
    test: Predictions | None = None,
    *,
    coverage: float = 0.9,
    methods: Sequence[Method] = ("thr", "aps", "raps"),
    deterministic: bool = False,
    per_class: bool = False,
    risk: float = 0.01,
    delta: float = 0.05,
    groups: np.ndarray | None = None,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> Trust:
    """Fit on one part and measure on the other; `groups` has a name for each row of both."""
    refuse_several(predictions.labels, predictions.scores)
    check_labels(predictions.labels, check_probs(predictions.probs))  # before rows are halved
    old, new = halves(predictions, seed) if test is None else (predictions, test)
    made, found = [], []
    for method in methods:
        chance = False if deterministic and method != "thr" else None
        sets = ConformalSets(method, coverage, randomised=chance, per_class=per_class, seed=seed)
        made.append(sets.fit(old.probs, old.labels))
        chosen = sets.predict(new.probs)
        found.append(set_summary(chosen, new.labels, names=predictions.classes))
    answers = AbstainingClassifier(risk=risk, delta=delta).fit(old.probs, old.labels)
    probs, labels = predictions.probs, predictions.labels
    if test is not None:
        probs, labels = np.concatenate([probs, test.probs]), np.r_[labels, test.labels]
    classes = by_class(
        probs, labels, names=predictions.classes, bins=bins, resamples=resamples, seed=seed
    )
    lines = None
    if groups is not None:
        lines = by_group(probs, labels, groups, bins=bins, resamples=resamples, seed=seed)
    return Trust(
        predictions.name,
        len(old.labels),
        len(new.labels),
        tuple(made),
        tuple(found),
        answers,
        answers.measure(new.probs, new.labels),
        classes,
        lines,
    )


def halves(predictions: Predictions, seed: int) -> tuple[Predictions, Predictions]:
    """Two random halves of the rows, in the order of the file."""
    n = len(predictions.labels)
    if n < 2:
        raise ValueError("one row cannot be split; pass more rows, or others with --test")
    order = generator(seed).permutation(n)
    parts = []
    for rows in (np.sort(order[: n // 2]), np.sort(order[n // 2 :])):
        scores, labels = predictions.scores[rows], predictions.labels[rows]
        parts.append(replace(predictions, scores=scores, labels=labels))
    return parts[0], parts[1]


def set_record(made: ConformalSets, found: SetSummary) -> dict[str, Any]:
    """One method: its settings, its thresholds, and what its sets are like."""
    thresholds = [t if np.isfinite(t) else None for t in made.thresholds_.tolist()]
    settings = {
        "method": made.method,
        "asked": made.coverage,
        "randomised": made.method != "thr" and made.randomised is not False,
        "per_class": made.per_class,
        "thresholds": thresholds,
    }
    return settings | plain_numbers(found)
