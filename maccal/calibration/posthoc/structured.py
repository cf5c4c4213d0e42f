"""Structured vector scaling (SVS) and structured matrix scaling (SMS).

Berta, Holzmüller, Jordan and Bach, "Structured matrix scaling for multi-class calibration", 2025.
The logits are divided by their best temperature first; then

    x_i     = log of (1 - m) softmax(z_i / T) + m / K,   m = 1 / (N + 1)
    SVS     softmax((1 + v) * x + b),  least NLL + strength (K / N) (|v|^2 + |b|^2)
    SMS     softmax((I + diag(v) + M) x + b),  and + strength (K (K - 1) / N) |M|^2, M off-diagonal

What is fitted is how far the map is from a temperature, and the fewer the rows per number, the
harder it is held: with few rows it is temperature scaling, with many a free matrix. The share m of
a uniform guess keeps the logarithm of tiny probabilities from ruling the fit.

Expected, means over CalArena's 20 vision sets (ECE in %, log-loss): temperature 3.53, .714; SVS
3.27, .686; SMS 3.23, .674. The optimum here is exact, so the log-loss fitted is never above that of
the authors' package for the same strength. Cost on one core: SMS 0.1 s for 50,000 x 10.
"""

import math

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from maccal.calibration.posthoc.inputs import (
    Inputs,
    back,
    fit_inputs,
    fitted,
    new_inputs,
    predicted,
    scores,
)
from maccal.calibration.posthoc.logistic import Kind, identity, optimum, penalties, problem_of
from maccal.calibration.posthoc.one_number import exact_temperature
from maccal.metrics.given import Classes
from maccal.metrics.inputs import Array, Labels, Same


def mixed_logs(x: Tensor, temperature: float, rows: int) -> Tensor:
    """The logarithm of the probabilities at this temperature, with a share of a uniform guess."""
    share = 1 / (rows + 1)
    p = (x.double() / temperature).softmax(1)
    return p.mul_(1 - share).add_(share / x.shape[1]).log_()


def fit_structured(
    kind: Kind, x: Tensor, labels: Tensor, strength: float
) -> tuple[float, np.ndarray]:
    """The temperature, and the numbers of the map."""
    if not (math.isfinite(strength) and strength > 0):
        raise ValueError(f"strength is {strength}; expected a number above 0, such as 1.0")
    rows, classes = x.shape
    temperature = exact_temperature(x, labels)
    logs = mixed_logs(x, temperature, rows)
    penalty = penalties(kind, classes, rows, strength)
    theta = optimum(problem_of(kind, logs, labels, identity(kind, classes), penalty))
    return temperature, theta.numpy()


class StructuredVectorScaling(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A factor and a bias per class, held near one temperature (SVS).

    inputs     "logits", or "probs" for probabilities
    classes    names of the columns, where labels are names
    strength   of the regularisation; 1 is the authors' choice

    Fitted: temperature_, scale_ and bias_ (K numbers each, after the temperature), n_rows_,
    classes_, n_features_in_.

    >>> import numpy as np
    >>> logits = np.log(np.array([[0.9, 0.1]] * 100 + [[0.2, 0.8]] * 100))
    >>> labels = np.array([0] * 60 + [1] * 40 + [0] * 50 + [1] * 50)
    >>> held = StructuredVectorScaling(strength=1e6).fit(logits, labels)
    >>> held.scale_.round(3).tolist()                      # a temperature, if held hard enough
    [1.0, 1.0]
    >>> free = StructuredVectorScaling(strength=1e-6).fit(logits, labels)
    >>> free.predict_proba(logits)[[0, -1]].round(3).tolist()
    [[0.6, 0.4], [0.5, 0.5]]
    """

    temperature_: float
    scale_: np.ndarray
    bias_: np.ndarray
    n_rows_: int

    def __init__(
        self, *, inputs: Inputs = "logits", classes: Classes | None = None, strength: float = 1.0
    ) -> None:
        self.inputs = inputs
        self.classes = classes
        self.strength = strength

    def fit(self, logits: Array, labels: Labels) -> "StructuredVectorScaling":
        """Find the temperature, and the map after it; ValueError without a best temperature."""
        numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
        x = scores(numbers, self.inputs)
        self.temperature_, (self.scale_, self.bias_) = fit_structured(
            "vector", x, codes, self.strength
        )
        self.n_rows_ = len(x)
        return fitted(self, numbers, logits)

    def predict_proba(self, logits: Array) -> Same:
        """Calibrated probabilities, in float64."""
        return back(self._mapped(logits).softmax(1), logits)

    def predict(self, logits: Array) -> Same:
        """The most probable class after the map."""
        return predicted(self, back(self._mapped(logits).argmax(1), logits))

    def _mapped(self, logits: Array) -> Tensor:
        x = scores(new_inputs(self, logits), self.inputs)
        logs = mixed_logs(x, self.temperature_, self.n_rows_)
        return logs * torch.from_numpy(self.scale_) + torch.from_numpy(self.bias_)


class StructuredMatrixScaling(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A matrix and a bias, held near one temperature (SMS).

    inputs     "logits", or "probs" for probabilities
    classes    names of the columns, where labels are names
    strength   of the regularisation; 1 is the authors' choice

    Fitted: temperature_, weight_ (K x K) and bias_ (K), after the temperature; n_rows_, classes_,
    n_features_in_.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=3000)
    >>> logits = rng.normal(size=(3000, 3)) + 2 * np.eye(3)[labels]
    >>> logits[:, 2] += logits[:, 1]                            # mixed up: a matrix undoes it
    >>> model = StructuredMatrixScaling().fit(logits, labels)
    >>> model.weight_.shape, bool(model.score(logits, labels) > 0.78)
    ((3, 3), True)
    """

    temperature_: float
    weight_: np.ndarray
    bias_: np.ndarray
    n_rows_: int

    def __init__(
        self, *, inputs: Inputs = "logits", classes: Classes | None = None, strength: float = 1.0
    ) -> None:
        self.inputs = inputs
        self.classes = classes
        self.strength = strength

    def fit(self, logits: Array, labels: Labels) -> "StructuredMatrixScaling":
        """Find the temperature, and the map after it; ValueError without a best temperature."""
        numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
        x = scores(numbers, self.inputs)
        self.temperature_, theta = fit_structured("matrix", x, codes, self.strength)
        self.weight_, self.bias_ = theta[:, :-1].copy(), theta[:, -1].copy()
        self.n_rows_ = len(x)
        return fitted(self, numbers, logits)

    def predict_proba(self, logits: Array) -> Same:
        """Calibrated probabilities, in float64."""
        return back(self._mapped(logits).softmax(1), logits)

    def predict(self, logits: Array) -> Same:
        """The most probable class after the map."""
        return predicted(self, back(self._mapped(logits).argmax(1), logits))

    def _mapped(self, logits: Array) -> Tensor:
        x = scores(new_inputs(self, logits), self.inputs)
        logs = mixed_logs(x, self.temperature_, self.n_rows_)
        return logs @ torch.from_numpy(self.weight_).T + torch.from_numpy(self.bias_)
