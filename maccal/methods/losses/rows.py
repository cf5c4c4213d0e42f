"""What every loss is built from: rows and their labels, and how many losses become one.

A row is one label and its K logits. Logits are N x K, or N x K x d1 x ... with labels
N x d1 x ..., as for the pixels of an image: then every place of an image is a row.

    reduction         "mean", "sum", or "none": one loss per row, in the shape of the labels
    class_weights     K numbers. A row counts as much as its label's class, and the mean is divided
                      by the sum of these weights, as torch's cross-entropy does it
    ignore_index      rows with this label count nothing; None: there is no such label. A mean over
                      no row at all is NaN, as in torch
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from maccal.metrics.arguments import check_number

Reduction: TypeAlias = Literal["mean", "sum", "none"]


def as_it_is(rows: Tensor) -> Tensor:
    return rows


REDUCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mean": torch.mean,
    "sum": torch.sum,
    "none": as_it_is,
}
# torch skips rows with the label -100 unless told another one
NO_LABEL = torch.iinfo(torch.int64).min


class Counted(NamedTuple):
    """The labels of all rows, and how much each of them counts."""

    labels: Tensor  # a row that counts nothing has the label 0 here
    seen: Tensor | None  # which rows count; None: all do
    weights: Tensor | None  # of each row; None: all count alike

    def reduce(self, rows: Tensor, reduction: Reduction) -> Tensor:
        """The mean or the sum of one loss per row, or all of them, each with its weight."""
        return self.total(self.weighted(rows), reduction)

    def weighted(self, rows: Tensor) -> Tensor:
        """Each loss times its weight; 0 for a row that does not count, whatever its loss is."""
        if self.seen is not None:
            rows = torch.where(self.seen, rows, 0)
        return rows if self.weights is None else rows * self.weights

    def total(self, rows: Tensor, reduction: Reduction) -> Tensor:
        """The same of losses that have been weighted."""
        if self.weights is None or reduction != "mean":
            return reduce(rows, reduction)
        return rows.sum() / self.weights.sum()


def counted(
    logits: Tensor,
    labels: Tensor,
    class_weights: Tensor | None = None,
    ignore_index: int | None = None,
) -> Counted:
    """The labels, checked by their shape, with what they count; ValueError where they do not fit.

    >>> logits, labels = torch.zeros(2, 3), torch.tensor([2, -1])
    >>> counted(logits, labels, torch.tensor([1.0, 1.0, 4.0]), ignore_index=-1).weights
    tensor([4., 0.])
    """
    check_rows(logits, labels)
    seen = None
    if ignore_index is not None:
        seen = labels != ignore_index
        labels = torch.where(seen, labels, 0)
    weights = None
    if class_weights is not None:
        weights = check_weights(class_weights, logits)[labels]
    if seen is not None:
        ones = torch.ones_like(labels, dtype=widened(logits.dtype))
        weights = torch.where(seen, ones if weights is None else weights, 0)
    return Counted(labels, seen, weights)


def check_rows(logits: Tensor, labels: Tensor) -> None:
    """ValueError unless there is one class index for every row of logits."""
    if logits.dim() < 2:
        raise ValueError(
            f"logits have the shape {tuple(logits.shape)}; expected N x K, or N x K x d1 x ..."
        )
    expected = (logits.shape[0], *logits.shape[2:])
    if labels.shape != expected:
        raise ValueError(
            f"labels have the shape {tuple(labels.shape)}, logits {tuple(logits.shape)}; "
            f"expected one class index per row, {expected}"
        )
    if not logits.is_floating_point():
        raise ValueError(f"logits have dtype {logits.dtype}; expected floating point")
    if labels.dtype != torch.int64:  # uint8 would be a mask where it picks class weights
        raise ValueError(f"labels have dtype {labels.dtype}; expected class indices, int64")


def check_weights(class_weights: Tensor, logits: Tensor) -> Tensor:
    """The weights in the dtype and on the device of the loss; ValueError unless there are K."""
    class_weights = torch.as_tensor(class_weights)  # a list or an array will do
    classes = logits.shape[1]
    if class_weights.shape != (classes,):
        raise ValueError(
            f"class_weights have the shape {tuple(class_weights.shape)}; "
            f"expected one number for each of the {classes} classes"
        )
    # those on a GPU are not looked into: it would have to be waited for
    if class_weights.device.type == "cpu":
        for number, weight in enumerate(class_weights.tolist()):
            check_number(weight, f"the class weight of class {number}", 0)
    return class_weights.to(logits.device, widened(logits.dtype))


def widened(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def widen(x: Tensor) -> Tensor:
    """At least float32."""
    return x.to(widened(x.dtype))


def log_softmax(logits: Tensor) -> Tensor:
    return widen(logits).log_softmax(1)


def own(scores: Tensor, labels: Tensor) -> Tensor:
    """The score of each row's label.

    Unlike gather, this raises where there are fewer labels than rows.
    """
    return -F.nll_loss(scores, labels, reduction="none", ignore_index=NO_LABEL)


def reduce(rows: Tensor, reduction: Reduction) -> Tensor:
    """The mean or the sum of one loss per row, or all of them."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"no reduction {reduction!r}; they are {', '.join(REDUCTIONS)}")
    return REDUCTIONS[reduction](rows)
