"""Dirichlet calibration with off-diagonal and intercept regularisation (ODIR).

Kull et al. 2019, "Beyond temperature scaling: obtaining well-calibrated multiclass probabilities
with Dirichlet calibration": softmax(W ln p + b), K (K + 1) numbers, least of

    mean NLL + off_diagonal / (K (K - 1)) sum_{i != j} W_ij^2 + intercept / K sum_j b_j^2

As published, the two strengths are chosen by cross-validation where none is given. Here they are
tied, so that every held number costs the same s: off_diagonal = K (K - 1) s and intercept = K s,
with the s of SHARES that has the least log-loss in FOLDS folds. Fits go from the hardest hold to
weaker ones, each from where the last one ended, until the log-loss rises: the weakest are the
slowest to fit, and with more numbers than rows they may have no optimum that can be reached.
StructuredMatrixScaling needs no such choice. The first fit starts at the best temperature, which
saves a third of the looks at the rows.
Cost on one core: 50,000 x 10, 0.1 s with given strengths and 1 s with chosen ones; 5,000 x 100,
chosen, 5 s.
"""

import math

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from maccal.calibration.posthoc.inputs import (
    LEAST,
    Inputs,
    back,
    fit_inputs,
    fitted,
    new_inputs,
    predicted,
    refuse_absent,
    shares,
)
from maccal.calibration.posthoc.logistic import (
    ROUGH,
    STEEPEST,
    NoOptimum,
    identity,
    optimum,
    problem_of,
)
from maccal.calibration.posthoc.one_number import exact_temperature
from maccal.metrics.given import Classes
from maccal.metrics.inputs import Array, Labels, Same

SHARES = (1.0, 0.1, 0.01, 1e-3, 1e-4)
FOLDS = 3
REMEDY = "StructuredMatrixScaling has one"
WEAK = "hold it harder (off_diagonal=, or None to choose it), or use StructuredMatrixScaling"


def odir(classes: int, off_diagonal: float, intercept: float) -> Tensor:
    """What each squared number costs; the diagonal is free."""
    each = off_diagonal / (classes * (classes - 1))
    penalty = torch.full((classes, classes + 1), each, dtype=torch.float64)
    penalty[:, :-1].fill_diagonal_(0)
    penalty[:, -1] = intercept / classes
    return penalty


def fit_odir(
    logs: Tensor,
    labels: Tensor,
    held: Tensor,
    start: Tensor,
    enough: float = STEEPEST,
) -> Tensor:
    """The theta for these costs whose largest slope is `enough`."""
    problem = problem_of("matrix", logs, labels, identity("matrix", len(held)), held)
    return optimum(problem, start, enough)


def at_temperature(logs: Tensor, labels: Tensor) -> Tensor:
    """Where a search starts: the identity at its best temperature, if there is one."""
    start = identity("matrix", logs.shape[1])
    try:
        return start / exact_temperature(logs, labels)
    except ValueError:
        return start


def log_loss(theta: Tensor, logs: Tensor, labels: Tensor) -> float:
    out = logs @ theta[:, :-1].T + theta[:, -1]
    return float(torch.nn.functional.cross_entropy(out, labels, reduction="sum"))


def chosen_share(logs: Tensor, labels: Tensor, start: Tensor) -> float:
    """The cost of each held number that has the least log-loss on rows that were left out.

    Fold by fold, the rows of each class are dealt out in turn, so that it is the same every time.
    """
    classes = logs.shape[1]
    order = torch.argsort(labels, stable=True)
    fold = torch.empty_like(labels)
    fold[order] = torch.arange(len(labels)) % FOLDS
    maps = [start] * FOLDS
    best, least = SHARES[0], math.inf
    for share in SHARES:
        held = odir(classes, classes * (classes - 1) * share, classes * share)
        try:
            loss = left_out(logs, labels, fold, held, maps)
        except NoOptimum:
            break
        if loss >= least:
            break
        best, least = share, loss
    return best


def left_out(logs: Tensor, labels: Tensor, fold: Tensor, held: Tensor, maps: list[Tensor]) -> float:
    """The log-loss of every row by the fit without its fold, which starts from and goes to maps."""
    total = 0.0
    for number, start in enumerate(maps):
        out = fold == number
        # a held-out log-loss needs no exact fit
        found = fit_odir(logs[~out], labels[~out], held, start, ROUGH)
        total += log_loss(found, logs[out], labels[out])
        maps[number] = found
    return total


class DirichletCalibration(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A matrix and a bias on log-probabilities, with ODIR.

    inputs         "logits", or "probs" for probabilities
    classes        names of the columns, where labels are names
    off_diagonal   lambda of ODIR; None chooses both strengths by cross-validation
    intercept      mu of ODIR; None is that of an equal cost for each number

    Fitted: weight_ (K x K), bias_ (K), off_diagonal_, intercept_, classes_, n_features_in_.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=600)
    >>> logits = rng.normal(size=(600, 3)) + 2 * np.eye(3)[labels]
    >>> model = DirichletCalibration(off_diagonal=1.0).fit(logits, labels)
    >>> model.weight_.shape, round(float(model.predict_proba(logits).sum()), 6)
    ((3, 3), 600.0)
    """

    weight_: np.ndarray
    bias_: np.ndarray
    off_diagonal_: float
    intercept_: float

    def __init__(
        self,
        *,
        inputs: Inputs = "logits",
        classes: Classes | None = None,
        off_diagonal: float | None = None,
        intercept: float | None = None,
    ) -> None:
        self.inputs = inputs
        self.classes = classes
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    def fit(self, logits: Array, labels: Labels) -> "DirichletCalibration":
        """Find the map, and the strengths where they are not given."""
        numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
        classes = numbers.shape[1]
        refuse_absent(codes, classes, REMEDY)
        logs = log_shares(numbers, self.inputs)
        refuse_right(logs, codes, torch.ones(classes, dtype=torch.float64))
        try:
            start = at_temperature(logs, codes)
            self.off_diagonal_, self.intercept_ = self._strengths(logs, codes, start)
            held = odir(classes, self.off_diagonal_, self.intercept_)
            found = fit_odir(logs, codes, held, start)
        except NoOptimum as error:
            raise ValueError(f"there is no best map: {error}; {WEAK}") from None
        refuse_right(logs, codes, found.diagonal())
        theta = found.numpy()
        self.weight_, self.bias_ = theta[:, :-1].copy(), theta[:, -1].copy()
        return fitted(self, numbers, logits)

    def _strengths(self, logs: Tensor, labels: Tensor, start: Tensor) -> tuple[float, float]:
        """Lambda and mu, given or chosen."""
        for name, value in (("off_diagonal", self.off_diagonal), ("intercept", self.intercept)):
            if value is not None and not 0 <= value < np.inf:
                raise ValueError(f"{name} is {value}; expected a number of at least 0, or None")
        classes = logs.shape[1]
        off_diagonal = self.off_diagonal
        if off_diagonal is None:
            off_diagonal = classes * (classes - 1) * chosen_share(logs, labels, start)
        same = off_diagonal / (classes - 1)
        return off_diagonal, same if self.intercept is None else self.intercept

    def predict_proba(self, logits: Array) -> Same:
        """Calibrated probabilities, in float64."""
        return back(self._mapped(logits).softmax(1), logits)

    def predict(self, logits: Array) -> Same:
        """The most probable class after the map."""
        return predicted(self, back(self._mapped(logits).argmax(1), logits))

    def _mapped(self, logits: Array) -> Tensor:
        logs = log_shares(new_inputs(self, logits), self.inputs)
        return logs @ torch.from_numpy(self.weight_).T + torch.from_numpy(self.bias_)


def refuse_right(logs: Tensor, labels: Tensor, factors: Tensor) -> None:
    """ValueError where these factors of the classes are above 0 and make every row right.

    Then larger ones are always better: the diagonal of the matrix, which nothing holds, grows for
    ever.
    """
    if bool((factors > 0).all()) and bool(((logs * factors).argmax(1) == labels).all()):
        raise ValueError("no row has a mistake, so there is no best map; fit on rows with mistakes")


def log_shares(numbers: Tensor, inputs: Inputs) -> Tensor:
    """Log-probabilities in float64."""
    return shares(numbers, inputs).clamp_(min=LEAST).log_()
