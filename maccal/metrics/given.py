"""What the public metrics are given, as the plain arrays that they measure.

    labels       class indices; or class names, where `classes` has the names in the order of the
                 columns
    normalise    each row of probabilities is divided by its sum: percentages, counts, and
                 probabilities that were rounded when they were written

Nothing is guessed: names without `classes`, and rows that do not sum to 1 without `normalise`, are
refused. Cost: names are looked up one by one; normalising is one pass and a copy in float64.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maccal.metrics.arguments import Array, Labels, as_tensor, refuse_missing, shortened
from maccal.metrics.frames import check_order
from maccal.metrics.inputs import Same, blocks, first, like, matrix, not_finite

Classes = Sequence[Any]  # names, or whole numbers, one for each column
SHOWN = 8  # classes that a message names


def plain(
    probs: Array | None,
    labels: Any,
    logits: Array | None = None,
    *,
    classes: Classes | None = None,
    normalise: bool = False,
) -> tuple[Any, Any]:
    """Probabilities that sum to 1 if asked for, and labels as indices if classes are named."""
    if normalise and probs is None:
        raise ValueError("normalise=True is for probs; the softmax of logits sums to 1 anyway")
    if classes is not None:
        names = class_names(classes)
        check_order(logits if probs is None else probs, names)
        given = as_tensor(*((logits, "logits") if probs is None else (probs, "probs")))
        labels = class_indices(labels, names, given.shape[1] if given.ndim == 2 else None)
    if probs is not None and normalise:
        probs = normalised(probs)
    return probs, labels


def class_names(classes: Classes, columns: int | None = None) -> list[Any]:
    """The classes as a list of names or of whole numbers, each once; one for each column."""
    unordered = isinstance(classes, (str, bytes, set, frozenset, Mapping))
    if unordered or not isinstance(classes, Iterable):
        expected = "a list of class names in the order of the columns"
        raise ValueError(f"classes is {shortened(classes)}; expected {expected}")
    given: Any = classes
    values = given.tolist() if isinstance(given, np.ndarray | Tensor) else list(given)
    names = [value.item() if isinstance(value, np.generic) else value for value in values]
    wrong = [name for name in names if not isinstance(name, str | int)]
    if wrong or len({isinstance(name, str) for name in names}) > 1:
        seen = shortened(wrong[0] if wrong else names)
        raise ValueError(f"classes holds {seen}; expected names, or whole numbers, not both")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"classes has {shortened(twice)} twice; each class has one column")
    if columns is not None and len(names) != columns:
        raise ValueError(f"{len(names)} classes for {columns} columns; name each column, in order")
    return names


def class_indices(labels: Labels, classes: Classes, columns: int | None = None) -> Labels:
    """Labels as indices of the classes.

    With names as classes, labels that are whole numbers are indices already and stay as they are.

    >>> class_indices(["dog", "cat"], classes=["cat", "dog"]).tolist()
    [1, 0]
    >>> class_indices([30, 10], classes=[10, 20, 30]).tolist(), class_indices([1], ["cat", "dog"])
    ([2, 0], [1])
    """
    names = class_names(classes, columns)
    if labels is None:
        raise ValueError("labels are missing")
    if not isinstance(labels, Tensor):
        refuse_missing(labels, "labels")
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    named = bool(names) and isinstance(names[0], str)
    if named and array.dtype.kind in "iu":
        check_indices(names)
        return labels
    if array.ndim != 1:
        return labels  # the checks of labels say what is wrong
    known = {name: index for index, name in enumerate(names)}
    codes = np.empty(len(array), np.int64)
    for row, label in enumerate(array.tolist()):
        code = known.get(label)
        if code is None:
            raise unknown(label, row, names)
        codes[row] = code
    return codes


def check_indices(names: list[str]) -> None:
    """ValueError where a whole number could be a name as well as the index of another class."""
    for index, name in enumerate(names):
        if name.strip().isdecimal() and name != str(index):
            problem = f"labels are numbers, and class {index} is called {shortened(name)}"
            remedy = "pass the names as text, labels.astype(str), or classes as numbers"
            raise ValueError(f"{problem}: an index or a name? {remedy}")


def unknown(label: object, row: int, names: list[Any]) -> ValueError:
    some = ", ".join(shortened(name) for name in names[:SHOWN])
    more = ", ..." if len(names) > SHOWN else ""
    return ValueError(f"label {shortened(label)} in row {row} is none of the classes {some}{more}")


def normalised(probs: Array) -> Same:
    """Each row divided by its sum; ValueError for a row below 0, without a sum, or not finite.

    >>> normalised(np.array([[98.0, 2.0], [33.3, 66.6]])).round(4).tolist()
    [[0.98, 0.02], [0.3333, 0.6667]]
    """
    tensor = as_tensor(probs, "probs")
    if not tensor.is_floating_point():
        tensor = tensor.double()  # percentages are often whole numbers
    given = matrix(tensor, "probs")
    result = torch.empty_like(given, dtype=torch.float64)
    for rows in blocks(*given.shape):
        part = given[rows].double()
        total = part.sum(1, keepdim=True)
        wrong = ~((part >= 0).all(1) & (total.squeeze(1) > 0) & total.squeeze(1).isfinite())
        if bool(wrong.any()):
            raise cannot(part[first(wrong)], rows.start + first(wrong))
        result[rows] = part / total
    return like(result, probs)


def cannot(row: Tensor, index: int) -> ValueError:
    """Why a row cannot be divided by its sum."""
    if not bool(row.isfinite().all()):
        return not_finite("probs", row, index)
    seen = f"ranges from {float(row.min()):.4g} to {float(row.max()):.4g}"
    return ValueError(f"probs row {index} {seen}; a row of probabilities is not below 0 nor all 0")
