"""ConformalSets: sets of classes that hold the label as often as you ask (split conformal).

    Vovk et al. 2005; Papadopoulos et al. 2002; scores in scores.py

Fit on n held-out rows: the threshold is the score of rank ceil((n + 1) coverage) among theirs. A
new row's set is every class whose score is not above it. If the new row comes from where the
held-out rows came from (is exchangeable with them), its set holds its label with a probability of
at least `coverage`, whatever the model and however wrong its probabilities; and of at most
coverage + 1 / (n + 1) where no scores are equal. The rank is worked out in whole numbers from the
decimal that you wrote: 0.55 of 20 is 11, and not 12 as in floating point.

What it does not promise: that each class, or each kind of row, is covered as often. per_class=True
has a threshold for each class, fitted on its own rows, and then the promise holds for every class;
sets are larger, and a class with too few rows is in every set.

Cost: THR one pass over the numbers; APS and RAPS one sort per row, when fitting and predicting.
"""

import math
from fractions import Fraction

import numpy as np
import torch
from sklearn.base import BaseEstimator

from maccal.caution import warn
from maccal.metrics.arguments import check_count, check_number, shortened
from maccal.metrics.frames import check_same_columns, column_names
from maccal.metrics.given import Classes
from maccal.metrics.inputs import (
    Array,
    Labels,
    Same,
    blocks,
    check_labels,
    check_probs,
    refuse_several,
)
from maccal.trust.names import columns_of, indices
from maccal.trust.scores import METHODS, Method, Scoring, rounding
from maccal.trust.sets import SetSummary, set_summary


class ConformalSets(BaseEstimator):  # type: ignore[misc]
    """Sets of classes with a guaranteed coverage.

    method       "thr": smallest sets on average. "aps": larger ones where rows are hard, smaller
                 where they are easy. "raps": APS that avoids very large sets
    coverage     share of new rows whose set must hold the label
    randomised   of APS and RAPS, which are so unless False: much smaller sets, as a class counts
                 with a random part of its own probability; the random number depends on the row and
                 the seed alone, so a row always has the same set
    penalty      of RAPS: added to the score for every rank beyond `free`
    free         of RAPS: ranks without a penalty
    per_class    a threshold, and the guarantee, for each class
    allow_empty  False: the most probable class is always in the set, which can only add coverage
    seed         of randomised scores

    Fitted: thresholds_ (of one, or of K scores; infinite where rows are too few), classes_,
    n_features_in_, precision_ (of the numbers fitted on; rows of another precision are rounded
    otherwise, and a class that only rounding would leave out stays in its set).

    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.7, 0.3]])
    >>> sets = ConformalSets(coverage=0.8).fit(probs, np.array([0, 0, 1, 1]))  # rank ceil(4) of 4
    >>> sets.predict(np.array([[0.95, 0.05], [0.65, 0.35]])).tolist()
    [[True, False], [True, True]]
    """

    thresholds_: np.ndarray

    def __init__(
        self,
        method: Method = "thr",
        coverage: float = 0.9,
        *,
        randomised: bool | None = None,
        penalty: float | None = None,
        free: int | None = None,
        per_class: bool = False,
        allow_empty: bool = True,
        seed: int = 0,
    ) -> None:
        self.method = method
        self.coverage = coverage
        self.randomised = randomised
        self.penalty = penalty
        self.free = free
        self.per_class = per_class
        self.allow_empty = allow_empty
        self.seed = seed

    def fit(self, probs: Array, labels: Labels, classes: Classes | None = None) -> "ConformalSets":
        """Find the thresholds on held-out rows; a warning where there are too few rows.

        Labels may be names where `classes` has them in the order of the columns.
        """
        scoring, share, _ = self._asked()
        refuse_several(labels, probs)
        p = check_probs(probs)
        self.classes_ = columns_of(classes, p.shape[1])
        y = check_labels(indices(labels, self.classes_, probs), p).cpu().numpy()
        scores = np.empty(len(y))
        for rows in blocks(*p.shape):
            scores[rows] = scoring.of_labels(plain(p[rows]), y[rows])
        if self.per_class:
            found = [quantile(scores[y == k], share) for k in range(p.shape[1])]
        else:
            found = [quantile(scores, share)]
        self.thresholds_ = np.array(found)
        self.asked_, self.columns_ = self._asked(), column_names(probs)
        self.precision_ = p.dtype
        self.n_features_in_ = p.shape[1]
        self._warn_of_few(len(y), share)
        return self

    def predict(self, probs: Array) -> Same:
        """N x K booleans: which classes are in the set of each row."""
        if not hasattr(self, "thresholds_"):
            raise ValueError("these ConformalSets are not fitted yet: call fit(probs, labels)")
        if self._asked() != self.asked_:
            raise ValueError("method, coverage or another parameter was changed; call fit again")
        scoring = self._scoring()
        check_same_columns(probs, self.columns_, "ConformalSets")
        p = check_probs(probs)
        if p.shape[1] != self.n_features_in_:
            found = f"{p.shape[1]} columns, and it was fitted on {self.n_features_in_}"
            raise ValueError(f"ConformalSets was given {found}; the classes must be the same")
        reach = self.thresholds_ + rounding(self.precision_, p.dtype)
        sets = np.empty(tuple(p.shape), bool)
        for rows in blocks(*p.shape):
            block = plain(p[rows])
            sets[rows] = scoring.sets(block, reach)
            if not self.allow_empty:
                np.put_along_axis(sets[rows], block.argmax(1)[:, None], True, 1)
        made = torch.from_numpy(sets)
        return made.to(probs.device) if isinstance(probs, torch.Tensor) else made.numpy()

    def measure(self, probs: Array, labels: Labels) -> SetSummary:
        """Coverage and size of the sets of rows that were not fitted on."""
        sets = self.predict(probs)
        names = [str(name) for name in self.classes_.tolist()]
        return set_summary(sets, indices(labels, self.classes_, probs), names=names)

    def _scoring(self) -> Scoring:
        """The scores that the parameters ask for; ValueError for those that do not apply."""
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; choose one of {', '.join(METHODS)}")
        if self.method == "thr" and self.randomised:
            raise ValueError("randomised does not apply to thr; choose aps or raps")
        if self.method != "raps":
            if self.penalty is not None or self.free is not None:
                raise ValueError(f"penalty and free do not apply to {self.method}; choose raps")
            return Scoring(self.method, key=self._key())
        penalty = 0.01 if self.penalty is None else check_number(self.penalty, "penalty", 0)
        free = 5 if self.free is None else check_count(self.free, "free", least=0)
        return Scoring("raps", penalty, free, self._key())

    def _asked(self) -> tuple[Scoring, Fraction, bool]:
        """What the thresholds depend on."""
        if not isinstance(self.per_class, bool | np.bool_):
            raise ValueError(f"per_class is {shortened(self.per_class)}; expected True or False")
        return self._scoring(), decimal(self.coverage), bool(self.per_class)

    def _key(self) -> int | None:
        exact = self.method == "thr" or self.randomised is False
        return None if exact else check_count(self.seed, "seed", least=0)

    def _warn_of_few(self, rows: int, share: Fraction) -> None:
        """Where a threshold is infinite, every set has all classes, or all such classes."""
        endless = int(np.isinf(self.thresholds_).sum())
        if not endless:
            return
        needed = f"at least {fewest_rows(share)} are needed for {float(share):.4g}"
        if self.per_class:
            classes = f"{endless} of {self.n_features_in_} classes have too few rows"
            warn(f"{classes} and will be in every set; {needed} each")
        else:
            warn(f"{rows} rows are too few: every set will hold every class; {needed}")


def decimal(coverage: float) -> Fraction:
    """The share as the decimal that was written; ValueError unless it is between 0 and 1."""
    try:
        share = Fraction(repr(float(coverage)))
    except (TypeError, ValueError):
        share = Fraction(0)
    if not 0 < share < 1:
        raise ValueError(f"coverage is {shortened(coverage)}; expected a share between 0 and 1")
    return share


def fewest_rows(share: Fraction) -> int:
    """The least n with ceil((n + 1) share) <= n.

    >>> fewest_rows(Fraction(9, 10))
    9
    """
    return math.ceil(share / (1 - share))


def quantile(scores: np.ndarray, share: Fraction) -> float:
    """The score of rank ceil((n + 1) share); infinite where there is none.

    >>> quantile(np.array([0.3, 0.1, 0.2]), Fraction(1, 2)), quantile(np.ones(3), Fraction(4, 5))
    (0.2, inf)
    """
    rank = math.ceil((len(scores) + 1) * share)
    if rank > len(scores):
        return math.inf
    return float(np.partition(scores, rank - 1)[rank - 1])


def plain(p: torch.Tensor) -> np.ndarray:
    """A numpy array of float32 or float64."""
    return (p if p.dtype == torch.float64 else p.float()).cpu().numpy()
