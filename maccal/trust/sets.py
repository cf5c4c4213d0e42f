"""set_summary: how often sets of classes hold the label, and how large they are; by class too.

The guarantee of conformal sets is about all rows together: a class that is hard may be left out far
more often than the rest. So each class has a line. Intervals of coverage are exact
(Clopper-Pearson), those of mean sizes normal.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import torch

from maccal.metrics.counts import clopper_pearson
from maccal.metrics.groups import class_names
from maccal.metrics.inputs import Array, as_tensor, check_labels
from maccal.metrics.listing import Column, Listing
from maccal.metrics.resampling import LEVEL
from maccal.metrics.summaries import mean_interval, show

COLUMNS = (
    Column("class", "class", "text"),
    Column("rows", "rows", "count"),
    Column("coverage", "coverage"),
    Column("coverage", "95 % int.", "range"),
    Column("size", "mean size", "size"),
)


class SetSummary(dict[str, Any]):
    """A plain dict that prints, and shows in a notebook, as a sentence and a table;
    `["classes"]` is a line for each class.
    """

    def to_frame(self) -> Any:
        """The lines of the classes as a pandas DataFrame."""
        return self["classes"].to_frame()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.sentence())}</p>{self['classes']._repr_html_()}"

    def __str__(self) -> str:
        return "\n".join([self.sentence(), "", str(self["classes"])])

    def sentence(self) -> str:
        """Coverage and size in words."""
        low, high = show(self["coverage_low"], True), show(self["coverage_high"], True)
        held = f"{show(self['coverage'], True)} of {self['n']:,} sets hold the label"
        sizes = f"{self['size']:.2f} classes on average"
        parts = f"{show(self['single'], True)} hold one, {show(self['empty'], True)} none"
        return f"{held} (95 % interval {low} to {high}); {sizes}, {parts}."


def set_summary(sets: Array, labels: Array, *, names: Sequence[str] = ()) -> SetSummary:
    """Coverage and size of N x K boolean sets, overall and by the class of the label.

    Keys: n, coverage, size, single and empty (shares of sets of one class and of none), sizes (how
    many sets have 0, 1, ... K classes), classes; `_low` and `_high` of coverage and size.

    >>> sets = np.array([[True, False], [True, True], [False, False], [False, True]])
    >>> found = set_summary(sets, np.array([0, 1, 1, 1]))
    >>> found["coverage"], found["size"], found["empty"]
    (0.75, 1.0, 0.25)
    >>> [line["coverage"] for line in found["classes"]]
    [1.0, 0.6666666666666666]
    """
    chosen, y = checked_sets(sets, labels)
    n, classes = chosen.shape
    hit = chosen[np.arange(n), y]
    size = chosen.sum(1)
    result = SetSummary(n=n, **rates(hit, size))
    result["single"] = float((size == 1).mean())
    result["empty"] = float((size == 0).mean())
    result["sizes"] = np.bincount(size, minlength=classes + 1).tolist()
    lines = []
    for k, name in enumerate(class_names(names, classes)):
        own = y == k
        if own.any():
            lines.append({"class": name, "rows": int(own.sum()), **rates(hit[own], size[own])})
    result["classes"] = Listing(lines, COLUMNS)
    return result


def rates(hit: np.ndarray, size: np.ndarray) -> dict[str, float]:
    """Coverage and mean size with their intervals."""
    low, high = clopper_pearson(int(hit.sum()), len(hit), LEVEL)
    least, most = mean_interval(torch.from_numpy(size.astype(np.float64)))
    return {
        "coverage": float(hit.mean()),
        "coverage_low": low,
        "coverage_high": high,
        "size": float(size.mean()),
        "size_low": least,
        "size_high": most,
    }


def checked_sets(sets: Array, labels: Array) -> tuple[np.ndarray, np.ndarray]:
    """Boolean N x K sets and class indices as numpy arrays."""
    tensor = as_tensor(sets, "sets")
    if tensor.ndim != 2 or tensor.dtype != torch.bool or 0 in tensor.shape:
        found = f"sets have shape {tuple(tensor.shape)} and dtype {tensor.dtype}"
        raise ValueError(f"{found}; expected booleans of shape (rows, classes), as predict gives")
    return tensor.cpu().numpy(), check_labels(labels, tensor).cpu().numpy()
