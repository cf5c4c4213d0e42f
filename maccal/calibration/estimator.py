"""MaCCalClassifier: MaC-Cal as a scikit-learn classifier, for numeric features.

    1. stage I    scikit-learn's own logistic regression, on all rows              logistic.py
    2. feedback   the accuracy to expect on unseen rows, from folds or from a validation set, and
                  the scale of the logits at which the confidence there is that accuracy
    3. stage II   a few epochs under random masks, from stage I on, kept at that confidence

What comes out is a linear classifier like stage I's: coef_ and intercept_.

Cost: as many logistic regressions as there are folds, and one more; 1,797 digits of 64 pixels take
a quarter of a second on one core. Expect the accuracy of logistic regression and about half of its
ECE where its penalty has made it timid: digits 0.9 % against 1.7 % (results/tables.md).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import nn

from maccal.calibration.heads import history_of, plain, with_history
from maccal.calibration.logistic import (
    Expected,
    Linear,
    Logistic,
    Sample,
    expected_from,
    expected_from_folds,
    folds_of,
    scaler_of,
)
from maccal.calibration.mac_cal import calibrate_head
from maccal.calibration.solving import mean_confidence
from maccal.calibration.stage2 import Stage2
from maccal.caution import warn

DENSE = 1 << 30  # bytes of float32: more of sparse features are not made dense for stage II
FLAT = 1e-9  # logits whose differences are smaller are equal


class MaCCalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic regression whose predict_proba can be trusted.

    Features need no scaler: they are standardised inside, and the result is a classifier of the
    features as they are. X may be sparse.

    C                     of the logistic regression: smaller is a stronger penalty
    class_weight          None, "balanced" or a dict; multiplies the weights of the rows in all
                          stages, so the probabilities are those where classes are so frequent
    cv                    where the feedback comes from: a number of stratified folds, a splitter of
                          scikit-learn, or an iterable of splits; unused with a validation set
    epochs, lr,
    batch_size            of stage II; None is what Stage2() does. lr=0 is a temperature
    max_iter              of the logistic regression's solver
    verbose               1 prints the feedback, and the progress of stage II
    random_state          None, an int or a RandomState; the same int gives the same bits

    Fitted: classes_, coef_ and intercept_ (as LogisticRegression has them), head_ (a torch module,
    features to logits, float32), feedback_ (source "folds", "validation" or "nothing"; its rows;
    the accuracy expected; the scale of stage I's logits that meets it), history_ (one dict per
    epoch of stage II), n_validation_ (rows of the feedback), n_iter_ (epochs), n_features_in_.

    >>> from sklearn.datasets import load_digits
    >>> x, y = load_digits(return_X_y=True)
    >>> model = MaCCalClassifier().fit(x[:1000], y[:1000])
    >>> model.predict_proba(x[1000:]).shape, model.n_validation_
    ((797, 10), 1000)
    >>> bool(model.score(x[1000:], y[1000:]) > 0.9)
    True
    """

    classes_: np.ndarray
    coef_: np.ndarray
    intercept_: np.ndarray
    head_: nn.Sequential
    feedback_: Expected
    history_: list[dict[str, float]]
    n_validation_: int
    n_iter_: int

    def __init__(
        self,
        *,
        C: float = 1.0,
        class_weight: dict[Any, float] | str | None = None,
        cv: Any = 5,
        epochs: int | None = None,
        lr: float | None = None,
        batch_size: int = 128,
        max_iter: int = 1000,
        verbose: int = 0,
        random_state: Any = 1,
    ) -> None:
        self.C = C
        self.class_weight = class_weight
        self.cv = cv
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Sparse features are welcome."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None
    ) -> "MaCCalClassifier":
        """Train on features X (rows x dimensions) with labels y of any type.

        A row of weight zero is as if it were not there. With X_val and y_val, rows that are not
        among X, the feedback comes from them instead of from folds.
        """
        config = self._stage2()
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2
        )
        check_classification_targets(y)
        weights = checked_weights(sample_weight, X)
        kept = np.flatnonzero(weights)
        self.classes_ = np.unique(y[kept])
        if len(self.classes_) < 2:
            problem = f"all labels are {y[kept].tolist()[0]!r}, one class only"
            raise ValueError(f"{problem}; a classifier needs rows of at least two classes")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        codes = np.searchsorted(self.classes_, y)
        sample, unseen = self._samples(X, codes, weights, kept, X_val, y_val)
        # stage I, and the feedback on it
        logistic = Logistic(len(self.classes_), self.C, self.max_iter)
        fitted = logistic.fit(sample)
        if unseen is None:
            splits = folds_of(self.cv, X, codes, kept, seed)
            self.feedback_ = expected_from_folds(logistic, sample, splits)
        else:
            self.feedback_ = expected_from("validation", fitted.logits(unseen.x), unseen)
        self._say(self.feedback_)
        # stage II
        sample = sample.merged()
        judged = sample if unseen is None else unseen.merged()
        stage2 = partial(calibrate_head, config=config, seed=seed, progress=self.verbose > 0)
        self._settle(*masked(fitted, self.feedback_, sample, judged, stage2))
        return self

    def _stage2(self) -> Stage2:
        """The choices of stage II that the parameters make; the others are the defaults."""
        return Stage2(start="trained", epochs=self.epochs, lr=self.lr, batch_size=self.batch_size)

    def _samples(
        self,
        X: Any,
        codes: np.ndarray,
        weights: np.ndarray,
        kept: np.ndarray,
        X_val: Any,
        y_val: Any,
    ) -> tuple[Sample, Sample | None]:
        """The rows to train on, and those of the validation set, if there is one."""
        y = codes[kept]
        own = class_weights(self.class_weight, self.classes_, y, weights[kept])
        sample = Sample(X[kept], y, weights[kept] * own[y])
        if X_val is None and y_val is None:
            return sample, None
        if X_val is None or y_val is None:
            raise ValueError("a validation set is X_val and y_val: pass both, or none for folds")
        X_val = validate_data(self, X_val, reset=False, accept_sparse="csr", dtype=np.float64)
        labels = column_or_1d(y_val)
        check_consistent_length(X_val, labels)
        new = np.setdiff1d(labels, self.classes_)
        if len(new):
            raise ValueError(f"y_val has the label {new.tolist()[0]!r}, which no row of y has")
        y_new = np.searchsorted(self.classes_, labels)
        return sample, Sample(X_val, y_new, own[y_new])

    def _say(self, feedback: Expected) -> None:
        """What was found out about unseen rows: a warning if nothing was."""
        if feedback.source == "nothing":
            warn(
                "too few rows for folds, so that nothing is known of unseen ones: the probabilities"
                " are those of plain logistic regression; pass X_val= and y_val= to fit"
            )
        elif self.verbose > 0:
            expected = f"accuracy {feedback.accuracy:.2%} on unseen rows"
            found = f"{feedback.source}, {feedback.rows:,} rows: {expected}"
            print(f"{found}; stage I's logits times {feedback.scale:.3f} are as sure as that")

    def _settle(self, linear: Linear, history: list[dict[str, float]]) -> None:
        """The fitted attributes."""
        weight, bias = linear.weight, linear.bias
        weights, biases = torch.tensor(weight).float(), torch.tensor(bias).float()
        self.head_ = with_history(plain([weights], [biases]), history)
        if len(self.classes_) == 2:
            weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
        self.coef_ = weight
        self.intercept_ = bias
        self.history_ = history
        self.n_iter_ = len(history)
        self.n_validation_ = self.feedback_.rows

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits, rows x classes; with two classes one number per row, second minus first."""
        logits = self._logits(X)
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities in the order of classes_, float64."""
        logits = self._logits(X)
        if len(self.classes_) == 2:
            return expit(np.hstack([-logits, logits]))
        return softmax(logits, axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row."""
        logits = self._logits(X)
        best = (logits[:, 0] > 0).astype(int) if len(self.classes_) == 2 else logits.argmax(1)
        return self.classes_[best]

    def _logits(self, X: Any) -> np.ndarray:
        """In float64, so that a row's numbers do not depend on the rows beside it."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        return Linear(self.coef_, self.intercept_).logits(X)


def checked_weights(sample_weight: Any, x: Any) -> np.ndarray:
    """One weight per row, by default 1; ValueError unless they are positive or zero."""
    weights: np.ndarray = _check_sample_weight(sample_weight, x, dtype=np.float64)
    if weights.min() < 0:
        row = int(weights.argmin())
        raise ValueError(f"sample_weight of row {row} is {weights[row]}; it must not be negative")
    if weights.max() == 0:
        raise ValueError("every sample_weight is zero; at least one must be positive")
    return weights


def class_weights(
    asked: dict[Any, float] | str | None, classes: np.ndarray, y: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """One weight per class; "balanced" makes the weights of the rows of each class sum to one.

    >>> y = np.array([0, 0, 0, 1])
    >>> class_weights("balanced", np.array(["a", "b"]), y, np.ones(4))
    array([0.66666667, 2.        ])
    """
    if asked == "balanced":
        sums = np.bincount(y, weights)
        return weights.sum() / (len(classes) * sums)
    return compute_class_weight(asked, classes=classes, y=classes[y])


def masked(
    fitted: Linear,
    expected: Expected,
    sample: Sample,
    judged: Sample,
    stage2: Callable[..., nn.Sequential],
) -> tuple[Linear, list[dict[str, float]]]:
    """Stage II from the fitted classifier on, and its history.

    It keeps the confidence that the scaled logits have on the judged rows. Without masks, and with
    no history, where nothing is known, the logits are all equal, or the rows do not fit or are of
    one class but for a share that weighs nothing.
    """
    scaled = fitted.scaled(expected.scale)
    if expected.source == "nothing":
        return scaled, []
    scores = scaled.logits(judged.x)
    if 4 * sample.size * sample.x.shape[1] > DENSE and issparse(sample.x):
        warn(
            f"{sample.size:,} sparse rows of {sample.x.shape[1]:,} features are too many for stage"
            " II, which is dense: logistic regression was scaled, without masks"
        )
        return scaled, []
    if np.ptp(scores, axis=1).max() < FLAT:
        return scaled, []
    scaler = scaler_of(sample)
    z, y = drawn(sample, scaler)
    if len(np.unique(y)) < 2:  # weights so uneven that no other row is drawn
        return scaled, []
    start = fitted.for_standardised(scaler)
    weights = torch.from_numpy(judged.weights)
    head = stage2(
        z,
        y,
        start=(start.weight, start.bias),
        unlabelled=drawn(judged, scaler)[0],
        accuracy=mean_confidence(torch.from_numpy(scores), weights=weights),
    )
    weight, bias = (part.double().numpy() for part in head.parameters())
    return Linear(weight, bias).for_raw(scaler), history_of(head)


def drawn(sample: Sample, scaler: StandardScaler) -> tuple[np.ndarray, np.ndarray]:
    """Standardised float32 features and labels, each row as often as its weight says."""
    z = scaler.transform(sample.x)
    dense = (z.toarray() if issparse(z) else z).astype(np.float32)
    reached = np.cumsum(sample.weights)
    places = (np.arange(sample.size) + 0.5) * (reached[-1] / sample.size)
    rows = np.searchsorted(reached, places)
    return dense[rows], sample.y[rows]
