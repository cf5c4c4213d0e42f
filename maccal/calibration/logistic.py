"""Stage I of MaCCalClassifier: scikit-learn's logistic regression, and what its folds say of it.

    Logistic          the classifier, on features that are standardised on the way
    folds_of          rows to train on and rows held out, several times over
    expected_from     the accuracy on held-out rows, and the scale of the logits that meets it

A classifier that was fitted to all rows has no row left to be judged on. The folds lend it theirs:
each is predicted by a classifier that was fitted to the others, and the scale s at which the mean
confidence of those predictions is their accuracy is the scale of the final logits.

    mean of max softmax(s logits) = (right + 1) / (N + 2)

The two answers that are added, one right and one wrong (Laplace's rule), keep the scale finite
where there is no mistake. Rows have weights throughout; a weight of two is the same as the row
twice.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import check_cv
from sklearn.preprocessing import StandardScaler
from sklearn.utils.extmath import safe_sparse_dot

from maccal.calibration.solving import nearest_scale

TOLERANCE = 1e-6  # of the gradient, where the solver of the logistic regression stops
WIDEST = 100.0  # scale of the logits, or its reciprocal
MOST_DRAWS = 1 << 20  # rows that weights may stand for, where there are not as many rows
Split: TypeAlias = tuple[np.ndarray, np.ndarray]  # numbers of the rows to train on, and held out


@dataclass(frozen=True)
class Sample:
    """Rows x (dense or sparse), the numbers of their classes, and their weights, all positive."""

    x: Any
    y: np.ndarray
    weights: np.ndarray

    def take(self, rows: np.ndarray) -> "Sample":
        """These rows only."""
        return Sample(self.x[rows], self.y[rows], self.weights[rows])

    @property
    def size(self) -> int:
        """How many rows it is worth: the sum of the weights, where they count rows.

        Weights on another scale, such as shares, count as many rows as there are.
        """
        return max(len(self.y), min(round(self.weights.sum()), MOST_DRAWS))

    def merged(self) -> "Sample":
        """Equal rows of one class as one, with the sum of their weights, and in sorted order.

        So to the bit nothing depends on the order of the rows, or on whether a row stands there
        twice or has the weight two.
        """
        keys = keys_of(self.x, self.y)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        new = np.ones(len(keys), dtype=bool)
        new[1:] = keys[1:] != keys[:-1]
        weights = np.bincount(np.cumsum(new) - 1, self.weights[order])
        first = order[new]
        return Sample(self.x[first], self.y[first], weights)


@dataclass(frozen=True)
class Linear:
    """Logits = weight x + bias: weight K x D, bias K."""

    weight: np.ndarray
    bias: np.ndarray

    def logits(self, x: Any) -> np.ndarray:
        """In float64, one row per row of x."""
        scores: np.ndarray = safe_sparse_dot(x, self.weight.T, dense_output=True) + self.bias
        return scores

    def scaled(self, scale: float) -> "Linear":
        """All logits times the scale."""
        return Linear(scale * self.weight, scale * self.bias)

    def for_standardised(self, scaler: StandardScaler) -> "Linear":
        """The same classifier for features that the scaler has transformed."""
        return Linear(self.weight * scaler.scale_, self.bias + self.weight @ centre_of(scaler))

    def for_raw(self, scaler: StandardScaler) -> "Linear":
        """The same classifier for features as they were before the scaler."""
        weight = self.weight / scaler.scale_
        return Linear(weight, self.bias - weight @ centre_of(scaler))


@dataclass(frozen=True)
class Expected:
    """What is known of unseen rows, from how many of them."""

    source: Literal["folds", "validation", "nothing"]
    rows: int
    accuracy: float  # with Laplace's two answers; NaN where nothing is known
    scale: float  # of the logits, at which their confidence is the accuracy


NOTHING = Expected("nothing", 0, math.nan, 1.0)


def keys_of(x: Any, y: np.ndarray) -> np.ndarray:
    """What sorts the rows: the same for equal rows of one class."""
    if not issparse(x):
        both = np.column_stack([x, y]) + 0.0  # -0.0 becomes 0.0
        return both.view(np.dtype((np.void, both.strides[0]))).ravel()
    rows = x.copy()
    rows.sum_duplicates()
    rows.eliminate_zeros()
    keys = np.empty(len(y), dtype=object)
    for row, (start, end) in enumerate(pairwise(rows.indptr)):
        indices, values = rows.indices[start:end], rows.data[start:end]
        keys[row] = (int(y[row]), indices.astype(np.int64).tobytes(), values.tobytes())
    return keys


def scaler_of(sample: Sample) -> StandardScaler:
    """Mean and spread of each feature; sparse features are not centred, to stay sparse."""
    scaler = StandardScaler(with_mean=not issparse(sample.x))
    return scaler.fit(sample.x, sample_weight=sample.weights)


def centre_of(scaler: StandardScaler) -> np.ndarray:
    """What the scaler subtracts."""
    return scaler.mean_ if scaler.with_mean else np.zeros_like(scaler.scale_)


@dataclass(frozen=True)
class Logistic:
    """Logistic regression on standardised features."""

    classes: int
    c: float  # smaller is a stronger penalty
    max_iter: int

    def fit(self, sample: Sample) -> Linear:
        """As a classifier of the features as they are.

        Classes that the sample has no row of get the logit -inf.
        """
        sample = sample.merged()
        scaler = scaler_of(sample)
        model = LogisticRegression(C=self.c, tol=TOLERANCE, max_iter=self.max_iter)
        model.fit(scaler.transform(sample.x), sample.y, sample_weight=sample.weights)
        weight, bias = model.coef_, model.intercept_
        if len(bias) == 1:  # two classes have one logit, the second's; here both have half of it
            weight = np.vstack([-weight, weight]) / 2
            bias = np.hstack([-bias, bias]) / 2
        fitted = Linear(weight, bias).for_raw(scaler)
        all_weights = np.zeros((self.classes, sample.x.shape[1]))
        all_biases = np.full(self.classes, -np.inf)
        all_weights[model.classes_] = fitted.weight
        all_biases[model.classes_] = fitted.bias
        return Linear(all_weights, all_biases)


def folds_of(cv: Any, x: Any, y: np.ndarray, kept: np.ndarray, seed: int) -> list[Split]:
    """The splits that cv stands for, as numbers among the kept rows.

    A number of folds deals the rows out by class, shuffled; it becomes smaller where all classes
    but one have fewer rows than that, and where even two folds are too many there are no splits.
    Anything else is scikit-learn's: a splitter, or an iterable of splits.
    """
    if isinstance(cv, Integral):
        if cv < 2:
            raise ValueError(f"cv is {cv}; pass at least 2 folds, or X_val= and y_val= to fit")
        return dealt(y[kept], int(cv), seed)
    number = np.full(len(y), -1)
    number[kept] = np.arange(len(kept))
    splits = []
    for train, held_out in check_cv(cv, y, classifier=True).split(x, y):
        known, new = number[train], number[held_out]
        splits.append((known[known >= 0], new[new >= 0]))
    return splits


def dealt(y: np.ndarray, folds: int, seed: int) -> list[Split]:
    """So many folds, every class in its share, in a random order."""
    # the two largest classes are then in every part that is trained on
    folds = min(folds, int(np.sort(np.bincount(y))[-2]))
    if folds < 2:
        return []
    order = np.random.RandomState(seed).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % folds
    return [(np.flatnonzero(fold != i), np.flatnonzero(fold == i)) for i in range(folds)]


def expected_from_folds(logistic: Logistic, sample: Sample, splits: Iterable[Split]) -> Expected:
    """What classifiers that were fitted to a part of the rows make of the others."""
    rows = []
    scores = []
    for train, held_out in splits:
        part = sample.take(train)
        if len(held_out) == 0 or len(np.unique(part.y)) < 2:
            continue
        rows.append(held_out)
        scores.append(logistic.fit(part).logits(sample.x[held_out]))
    if not rows:
        return NOTHING
    return expected_from("folds", np.vstack(scores), sample.take(np.concatenate(rows)))


def expected_from(
    source: Literal["folds", "validation"], logits: np.ndarray, unseen: Sample
) -> Expected:
    """The accuracy of these logits of unseen rows, and the scale that makes it their confidence."""
    right = np.average(logits.argmax(1) == unseen.y, weights=unseen.weights)
    accuracy = (right * unseen.size + 1) / (unseen.size + 2)
    weights = torch.from_numpy(unseen.weights)
    scale = nearest_scale(torch.from_numpy(logits), accuracy, WIDEST, weights)
    return Expected(source, len(unseen.y), float(accuracy), scale)
