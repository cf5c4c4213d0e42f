"""The door of the post-hoc calibrators: what was said to be logits, or probabilities, and labels.

Whether numbers are logits or probabilities is said by the parameter `inputs` and never guessed.
What contradicts it is refused: rows that all lie in [0, 1] and sum to 1 are not logits, numbers
below 0 or rows with another sum are not probabilities.

Labels are class indices, or names where the parameter `classes` has them in the order of the
columns; then classes_ are those, and predict gives them.

    checked    the N x K numbers as they came, float32 or float64
    scores     their logits, or log-probabilities
    shares     their probabilities, in float64

The logarithm of a probability of 0 is taken of the smallest normal float32, 1.2e-38: a softmax in
float32 rounds to 0 what is below that.
"""

import math
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from maccal.metrics.arguments import check_given
from maccal.metrics.frames import check_order, check_same_columns, column_names
from maccal.metrics.given import Classes, class_indices, class_names
from maccal.metrics.inputs import (
    Array,
    Labels,
    Same,
    are_probs,
    check_labels,
    check_probs,
    finite_logits,
)

Inputs = Literal["logits", "probs"]
Estimator = TypeVar("Estimator", bound=Any)
LEAST = float(np.finfo(np.float32).tiny)


def checked(values: Array, inputs: Inputs) -> Tensor:
    """The numbers as an N x K tensor; ValueError where they are not what was said."""
    if inputs == "probs":
        return checked_probs(values)
    if inputs != "logits":
        raise ValueError(f'inputs is {inputs!r}; say inputs="logits" or inputs="probs"')
    logits = finite_logits(values)
    if are_probs(logits):
        seen = "all rows lie in [0, 1] and sum to 1, so these are probabilities and not logits"
        raise ValueError(f'{seen}; say inputs="probs"')
    return logits


def checked_probs(values: Array) -> Tensor:
    try:
        probs = check_probs(values)
    except ValueError as error:
        raise ValueError(f'{error} (with inputs="probs"; say inputs="logits" for logits)') from None
    return probs if probs.dtype == torch.float64 else probs.float()


def scores(values: Tensor, inputs: Inputs) -> Tensor:
    """Logits as they are; the logarithm of probabilities, in float64."""
    if inputs == "logits":
        return values
    return values.double().clamp(min=LEAST).log_()


def shares(values: Tensor, inputs: Inputs) -> Tensor:
    """Probabilities in float64, whose rows sum to 1 exactly."""
    wide = values.double()
    return wide.softmax(1) if inputs == "logits" else wide / wide.sum(1, keepdim=True)


def fit_inputs(
    values: Array, labels: Labels, inputs: Inputs, classes: Classes | None = None
) -> tuple[Tensor, Tensor]:
    """Checked numbers and the indices of their labels, on the CPU."""
    check_given(values, labels, None)
    numbers = checked(values, inputs).cpu()
    if classes is not None:
        check_order(values, class_names(classes))
        refuse_numbered(labels, classes)
        labels = class_indices(labels, classes, numbers.shape[1])
    return numbers, check_labels(labels, numbers)


def refuse_numbered(labels: Any, classes: Classes) -> None:
    """ValueError for whole numbers where the classes have names that are not in sorted order.

    Some functions of scikit-learn number the names before they call fit: in sorted order.
    """
    names = class_names(classes)
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.dtype.kind in "iu" and isinstance(names[0], str) and names != sorted(names):
        seen = "labels are whole numbers, and classes are names that are not in sorted order"
        why = (
            "cross_val_predict numbers names in sorted order, so that these may mean other columns"
        )
        remedy = "pass the names as labels; or numbers, and no classes"
        raise ValueError(f"{seen}: {why}; {remedy}")


def fitted(estimator: Estimator, numbers: Tensor, values: Any) -> Estimator:
    """The estimator with what scikit-learn expects of a fitted one; the last line of every fit."""
    columns = numbers.shape[1]
    estimator.__dict__.pop("feature_names_in_", None)
    if column_names(values) is not None:
        estimator.feature_names_in_ = np.array(column_names(values), object)
    named = estimator.classes is not None
    estimator.classes_ = (
        np.array(class_names(estimator.classes, columns)) if named else np.arange(columns)
    )
    estimator.n_features_in_ = columns
    return estimator


def new_inputs(estimator: Any, values: Array) -> Tensor:
    """Checked numbers for a fitted estimator, on the CPU.

    ValueError before fit, and for other classes than those it was fitted on.
    """
    name = type(estimator).__name__
    if not hasattr(estimator, "classes_"):
        raise NotFittedError(f"this {name} is not fitted yet: call fit(logits, labels) first")
    check_same_columns(values, getattr(estimator, "feature_names_in_", None), name)
    numbers = checked(values, estimator.inputs)
    if numbers.shape[1] != len(estimator.classes_):
        found = f"{numbers.shape[1]} columns, and it was fitted on {len(estimator.classes_)}"
        raise ValueError(f"{name} was given {found}; the classes must be the same")
    return numbers.cpu()


def back(result: Tensor, source: Array) -> Same:
    """The result as the caller's kind of array, on the caller's device."""
    return result.to(source.device) if isinstance(source, Tensor) else result.numpy()


def predicted(estimator: Any, indices: Array) -> Array:
    """The predicted classes: by their names where `classes` gives them, else by their indices."""
    if estimator.classes is None:
        return indices
    return estimator.classes_[indices.cpu().numpy() if isinstance(indices, Tensor) else indices]


def refuse_absent(labels: Tensor, classes: int, remedy: str) -> None:
    """ValueError where a class has no row: without regularisation its number falls for ever."""
    counts = torch.bincount(labels, minlength=classes)
    if int((counts > 0).sum()) == 1:
        raise ValueError(f"all labels are {int(labels[0])}; fit on rows of several classes")
    if bool((counts == 0).any()):
        absent = int((counts == 0).to(torch.uint8).argmax())
        raise ValueError(f"no row has the label {absent}, so there is no best fit; {remedy}")


def refuse_apart(scores: Tensor, labels: Tensor, remedy: str) -> None:
    """ValueError where a class has a larger score on each of its rows than on any other.

    Then its factor grows for ever.
    """
    own_columns = labels[:, None]
    own = scores.gather(1, own_columns)[:, 0]
    highest = torch.full_like(scores[0], math.inf)
    least = highest.scatter_reduce(0, labels, own, "amin")
    apart = least > scores.scatter(1, own_columns, -math.inf).amax(0)
    if bool(apart.any()):
        if bool((scores.argmax(1) == labels).all()):
            raise ValueError("no row has a mistake, so there is no best fit; fit on rows with some")
        which = f"class {int(apart.to(torch.uint8).argmax())} is told from the others"
        raise ValueError(f"{which} without a mistake, so there is no best fit; {remedy}")
