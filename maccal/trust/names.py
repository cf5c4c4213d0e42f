"""Classes by name: what the columns are called, and labels as columns."""

from typing import Any, cast

import numpy as np

from maccal.metrics.given import Classes, class_indices, class_names
from maccal.metrics.inputs import Array, Labels


def columns_of(classes: Classes | None, count: int) -> np.ndarray:
    """What each column is called: its number, where nothing else is said."""
    return np.arange(count) if classes is None else np.asarray(class_names(classes, count))


def indices(labels: Labels, classes: np.ndarray) -> Array:
    """The column of each label, where the columns have other names than their numbers."""
    numbered = classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(len(classes)))
    found: Any = labels if numbered else class_indices(labels, classes.tolist())
    return cast(Array, found)
