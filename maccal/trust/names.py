"""Classes by name: what the columns are called, and labels as columns."""

from typing import Any, cast

import numpy as np

from maccal.metrics.frames import check_index, check_order
from maccal.metrics.given import Classes, class_indices, class_names
from maccal.metrics.inputs import Array, Labels


def columns_of(classes: Classes | None, count: int) -> np.ndarray:
    """What each column is called: its number, where nothing else is said."""
    return np.arange(count) if classes is None else np.asarray(class_names(classes, count))


def numbered(classes: np.ndarray) -> bool:
    """Whether the columns are called by their numbers."""
    return classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(len(classes)))


def indices(labels: Labels, classes: np.ndarray, scores: Any = None) -> Array:
    """The column of each label, where the columns have other names than their numbers.

    ValueError where the scores of the rows are a data frame that is out of step with them.
    """
    check_index(scores, labels)
    check_order(scores, classes.tolist())
    found: Any = labels if numbered(classes) else class_indices(labels, classes.tolist())
    return cast(Array, found)
