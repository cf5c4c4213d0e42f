"""AbstainingClassifier: answer only where the answers are right often enough, else abstain.

Asked for a risk of 1 %, it answers a row if the confidence is above a threshold, and promises: with
a probability of at least 1 - delta over the held-out rows, at most 1 % of the answers to new rows
are wrong. The threshold is the one that answers most, of `steps` candidates:

1. Sort the n held-out rows by confidence. Candidate j answers those above the confidence of rank
   n j / steps + 1; the last answers all. These ranks do not depend on the labels.
2. Given that confidence t, the rows above it are independent draws from all rows above t. So the
   number of wrong ones is binomial, whatever t is and however equal confidences fall. If the risk
   above t were larger than asked for, so few would be wrong with a probability of at most
   P(Bin(answered, risk) <= wrong): the exact p-value.
3. A candidate passes at p <= delta / steps. By the union bound no candidate that breaks the promise
   passes, but for a chance of delta. So the best of those that pass can be chosen freely.

No assumption is made about how confidence and errors hang together: not even that surer rows are
right more often. (After the same exact test Geifman & El-Yaniv 2017 search in halves, and
Angelopoulos et al. 2021 test in a fixed order.)

Cost: one sort of n confidences.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator

from maccal.metrics.arguments import check_count, real, shortened
from maccal.metrics.counts import chance_of_fewer, clopper_pearson, rate_bound
from maccal.metrics.frames import check_same_columns, column_names
from maccal.metrics.given import Classes
from maccal.metrics.inputs import (
    Array,
    Labels,
    Same,
    as_tensor,
    check_probs,
    refuse_several,
    top_label,
)
from maccal.metrics.listing import Column, Listing
from maccal.metrics.resampling import LEVEL
from maccal.metrics.summaries import show
from maccal.trust.names import columns_of, indices, numbered
from maccal.trust.scores import rounding

ABSTAINED = -1  # in place of a label
COLUMNS = (
    Column("coverage", "answered"),
    Column("threshold", "confidence above", "number"),
    Column("answered", "rows", "count"),
    Column("wrong", "wrong", "count"),
    Column("risk", "risk"),
    Column("bound", "at most"),
)


class Answers(NamedTuple):
    """Labels, -1 where abstaining, and the mask of the rows that are not answered.

    Where the classes have names, those, and None where abstaining.
    """

    labels: Same
    abstained: Same


class AbstainingClassifier(BaseEstimator):  # type: ignore[misc]
    """Labels where at most a share `risk` of the answers is wrong, and abstentions elsewhere.

    risk     share of answers that may be wrong
    delta    chance, over the held-out rows, that the promise fails
    steps    candidate thresholds; more are finer, but each is tested more strictly

    Fitted: threshold_ (rows with a larger confidence are answered; infinite where no candidate
    passes), found_, coverage_ and its interval coverage_low_ and coverage_high_, risk_ (that of the
    held-out rows), bound_ (of the risk of new rows), candidates_ (a Listing), verdict_.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.5, 1, 4000)
    >>> labels = (rng.random(4000) > p).astype(int)
    >>> probs = np.stack([p, 1 - p], 1)
    >>> model = AbstainingClassifier(risk=0.1).fit(probs, labels)
    >>> model.found_, model.bound_ <= 0.1, round(model.coverage_, 2)
    (True, True, 0.25)
    >>> model.predict(np.array([[0.99, 0.01], [0.6, 0.4]]))
    Answers(labels=array([ 0, -1]), abstained=array([False,  True]))
    """

    threshold_: float

    def __init__(self, *, risk: float = 0.01, delta: float = 0.05, steps: int = 20) -> None:
        self.risk = risk
        self.delta = delta
        self.steps = steps

    def fit(
        self, probs: Array, labels: Labels, classes: Classes | None = None
    ) -> "AbstainingClassifier":
        """Choose the threshold on held-out rows.

        Labels may be names where `classes` has them in the order of the columns.
        """
        risk, delta = checked(self.risk, "risk"), checked(self.delta, "delta")
        refuse_several(labels, probs)
        given = check_probs(probs)
        self.n_features_in_, self.precision_ = given.shape[1], given.dtype
        self.columns_ = column_names(probs)
        self.classes_ = columns_of(classes, self.n_features_in_)
        top = top_label(probs, indices(labels, self.classes_, probs))
        confidence, correct = (vector(part) for part in top)
        steps = check_count(self.steps, "steps", most=10_000)
        level = delta / steps
        lines = [
            candidate(confidence, correct, rank, risk, level)
            for rank in ranks(len(confidence), steps)
        ]
        self.candidates_ = Listing(lines, COLUMNS)
        passed = [line for line in lines if line["p_value"] <= level]
        best = max(passed, key=lambda line: line["answered"], default=nothing(len(confidence)))
        self.found_ = bool(passed)
        self.threshold_ = best["threshold"]
        self.coverage_ = best["coverage"]
        # Among so many candidates one was chosen: the interval holds for all of them together
        ends = clopper_pearson(best["answered"], len(confidence), 1 - (1 - LEVEL) / steps)
        self.coverage_low_, self.coverage_high_ = ends if passed else (0.0, 0.0)
        self.risk_, self.bound_ = best["risk"], best["bound"]
        self.verdict_ = verdict(self, risk, delta, steps)
        return self

    def predict(self, probs: Array) -> Answers:
        """The most probable class of each row, and which rows are not answered."""
        if not hasattr(self, "threshold_"):
            raise ValueError("this AbstainingClassifier is not fitted: call fit(probs, labels)")
        check_same_columns(probs, self.columns_, "AbstainingClassifier")
        p = check_probs(probs)
        if p.shape[1] != self.n_features_in_:
            found = f"{p.shape[1]} columns, and it was fitted on {self.n_features_in_}"
            raise ValueError(f"AbstainingClassifier was given {found}; the classes must match")
        # In another precision: what rounding may have lifted above the threshold is not answered
        least = self.threshold_ + rounding(self.precision_, p.dtype)
        abstained = p.amax(1).double().clamp(max=1) <= least
        if not numbered(self.classes_):
            return self._named(p.argmax(1).cpu().numpy(), abstained, probs)
        labels = p.argmax(1).masked_fill(abstained, ABSTAINED)
        if isinstance(probs, torch.Tensor):
            return Answers(labels, abstained)
        return Answers(labels.numpy(), abstained.numpy())

    def _named(self, predicted: np.ndarray, abstained: torch.Tensor, probs: Array) -> Answers:
        """The answers by the names of the classes, None where abstaining."""
        names = self.classes_.astype(object)[predicted]
        names[abstained.cpu().numpy()] = None
        return Answers(names, abstained if isinstance(probs, torch.Tensor) else abstained.numpy())

    def measure(self, probs: Array, labels: Labels) -> dict[str, Any]:
        """Coverage and risk on rows that were not fitted on, with exact 95 % intervals.

        The risk is NaN where nothing is answered.
        """
        answered = ~vector(self.predict(probs).abstained)
        _, correct = top_label(probs, indices(labels, self.classes_, probs))
        many, wrong = int(answered.sum()), int((answered & ~vector(correct)).sum())
        low, high = clopper_pearson(many, len(answered))
        least, most = clopper_pearson(wrong, many) if many else (math.nan, math.nan)
        return {
            "n": len(answered),
            "answered": many,
            "coverage": many / len(answered),
            "coverage_low": low,
            "coverage_high": high,
            "wrong": wrong,
            "risk": wrong / many if many else math.nan,
            "risk_low": least,
            "risk_high": most,
        }


def ranks(n: int, steps: int) -> list[int]:
    """How many of n rows each candidate would answer if no confidences were equal.

    >>> ranks(10, 4)
    [2, 5, 7, 10]
    """
    found = [n * step // steps for step in range(1, steps + 1)]
    return [rank for rank in dict.fromkeys(found) if rank > 0]


def candidate(
    confidence: np.ndarray, correct: np.ndarray, rank: int, risk: float, level: float
) -> dict[str, Any]:
    """The threshold below the `rank` surest rows, what it answers, and its exact test."""
    n = len(confidence)
    threshold = -math.inf if rank == n else float(np.partition(confidence, n - rank - 1)[-rank - 1])
    above = confidence > threshold
    answered, wrong = int(above.sum()), int((above & ~correct).sum())
    return {
        "coverage": answered / n,
        "threshold": threshold,
        "answered": answered,
        "wrong": wrong,
        "risk": wrong / answered if answered else math.nan,
        "bound": rate_bound(wrong, answered, level),
        "p_value": chance_of_fewer(wrong, answered, risk),
    }


def nothing(n: int) -> dict[str, Any]:
    """What stands where no candidate passes: no row is answered."""
    absent = {"threshold": math.inf, "risk": math.nan, "bound": math.nan}
    return {"coverage": 0.0, "answered": 0, "wrong": 0, **absent}


def verdict(model: AbstainingClassifier, risk: float, delta: float, steps: int) -> str:
    """What is promised, in words, or why nothing can be."""
    sure = f"with {100 * (1 - delta):.4g} % certainty"
    if model.found_:
        low, high = show(model.coverage_low_, True), show(model.coverage_high_, True)
        bound = f"at most {show(risk, True)} of the answers are wrong {sure}"
        share = f"Answers {show(model.coverage_, True)} of the rows ({low} to {high})"
        where = f", where the confidence is above {distinct(model.threshold_)}"
        return f"{share}{where if model.threshold_ > 0 else ''}: {bound}."
    best = min(model.candidates_, key=lambda line: line["bound"])
    needed = math.ceil(math.log(delta / steps) / math.log1p(-risk))
    head = f"No threshold keeps the risk at {show(risk, True)} {sure}, so no row is answered"
    reach = f"the least bound is {show(best['bound'], True)}, for {best['answered']:,} answers"
    return f"{head}: {reach}. Even without an error {needed:,} answered rows would be needed."


def distinct(threshold: float) -> str:
    """In as many digits as tell it from 1.

    >>> distinct(0.95), distinct(1 - 1e-8)
    ('0.95', '0.99999999')
    """
    texts = [f"{threshold:.{digits}g}" for digits in (6, 9, 12, 17)]
    return next((text for text in texts if text != "1"), "1")


def checked(value: Any, name: str) -> float:
    """A share between 0 and 1, neither included."""
    share = real(value)
    if not 0 < share < 1:
        raise ValueError(f"{name} is {shortened(value)}; expected a share between 0 and 1")
    return share


def vector(values: Array) -> np.ndarray:
    """Confidences in float64, or booleans, as numpy has them."""
    tensor = as_tensor(values, "values").cpu()
    return (tensor if tensor.dtype == torch.bool else tensor.double()).numpy()
