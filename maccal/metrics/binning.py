"""Binning: which bin a confidence belongs to, and exact sums over each bin.

This file holds the only binning function of the package. Two conventions:

    "maccal"  [lo, hi), the last bin closed: every value in [0, 1] has exactly one bin (the default)
    "focal"   (lo, hi], as in the code of Mukhoti et al. 2020, which the paper builds on: a value at
              or below the first edge belongs to no bin and is left out

A bin has five sums: how many rows fell into it, how many were right, and three for the sum of their
confidences in fixed point. All are float64 numbers that only ever hold whole numbers, so adding up
is exact. The loops are in _kernels.c; their twins here serve other devices, and installs without a
compiler.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from maccal.metrics.arguments import check_bins
from maccal.metrics.inputs import as_tensor, kernels

Convention = Literal["maccal", "focal"]
Edges = Sequence[float] | np.ndarray
# A sum of confidences is whole + high / TICK + low / TICK**2, all three whole numbers, the last two
# below TICK
TICK = 2.0**26


def equal_width_edges(bins: int) -> np.ndarray:
    return np.arange(bins + 1) / bins


def equal_mass_edges(
    confidence: Tensor, bins: int, convention: Convention = "maccal"
) -> np.ndarray:
    """Edges that put about N / bins rows into each bin; equal confidences always share one bin.

    "focal" interpolates between the sorted confidences, so that its first edge is the minimum and
    its last the maximum.
    """
    ordered = np.sort(confidence.cpu().numpy())
    if convention == "focal":
        n = len(ordered)
        return np.interp(np.linspace(0, n, bins + 1), np.arange(n), ordered)
    return mass_edges(ordered, bins)


def mass_edges(ordered: np.ndarray, bins: int) -> np.ndarray:
    """The same for confidences that are in ascending order."""
    inner = ordered[np.arange(1, bins) * len(ordered) // bins]
    return np.concatenate([[0.0], np.unique(inner), [1.0]])


def assign(values: Tensor, edges: np.ndarray, convention: Convention) -> Tensor:
    """The bin of each float64 value; -1 if the convention leaves the value out.

    Values are compared with the edges themselves: floor(value * bins) would be off by one, for
    example at 0.29 of 100 bins.
    """
    bins = len(edges) - 1
    ends = torch.from_numpy(edges).to(values.device)
    if convention == "focal":
        index = torch.bucketize(values, ends) - 1
        return torch.where(index < bins, index, -1)
    if not np.array_equal(edges, equal_width_edges(bins)):
        return torch.bucketize(values, ends[1:-1], right=True)
    # If all widths are equal, only the nearest edge can matter: no search
    nearest = (values * bins).add_(0.5).long()
    edge = ends.index_select(0, nearest.flatten()).view_as(values)
    return nearest.sub_((values < edge).long()).clamp_(max=bins - 1)


def collect(index: Tensor, confidence: Tensor, correct: Tensor, size: int) -> np.ndarray:
    """Count, correct, high and low of every bin, one row each: float64 sums of whole numbers.

    Index -1 is left out. A fifth row, whole, is zero: `settled` carries into it. The sums are exact
    for calls of up to 2**27 rows.
    """
    if kernels and index.device.type == "cpu":
        return collect_compiled(index, confidence, correct, size)
    return collect_torch(index, confidence, correct, size)


def collect_torch(index: Tensor, confidence: Tensor, correct: Tensor, size: int) -> np.ndarray:
    inside = index >= 0
    index = index[inside]
    outcome = torch.bincount(2 * index + correct[inside], minlength=2 * size).double()
    wrong, right = outcome.view(size, 2).T
    scaled = confidence[inside] * TICK
    floor = scaled.floor()
    high = torch.bincount(index, floor, minlength=size)
    low = torch.bincount(index, ((scaled - floor) * TICK).round(), minlength=size)
    return torch.stack([wrong + right, right, high, low, torch.zeros_like(high)]).cpu().numpy()


def collect_compiled(index: Tensor, confidence: Tensor, correct: Tensor, size: int) -> np.ndarray:
    sums = np.zeros((5, size))
    assert kernels is not None
    kernels.collect(
        index.data_ptr(),
        confidence.data_ptr(),
        correct.data_ptr(),
        len(index),
        size,
        TICK,
        sums.ctypes.data,
    )
    return sums


def settled(sums: np.ndarray) -> np.ndarray:
    """The same sums with high and low below TICK: what is over is carried to the next.

    So equal values have one form, and stay far below 2**53.
    """
    count, correct, high, low, whole = sums
    carry = np.floor(low / TICK)
    high = high + carry
    over = np.floor(high / TICK)
    return np.stack([count, correct, high - over * TICK, low - carry * TICK, whole + over])


def compiled(values: Tensor, edges: np.ndarray, convention: Convention) -> bool:
    """Whether the compiled loops can find these bins: of equal width, and values on the CPU."""
    equal = convention == "maccal" and np.array_equal(edges, equal_width_edges(len(edges) - 1))
    return kernels is not None and equal and values.device.type == "cpu"


def collect_equal(confidence: Tensor, correct: Tensor, edges: np.ndarray) -> np.ndarray:
    """What assign and collect give for bins of equal width, in one pass."""
    assert kernels is not None
    bins = len(edges) - 1
    sums = np.zeros((5, bins))
    kernels.collect_equal(
        confidence.data_ptr(),
        correct.data_ptr(),
        len(confidence),
        bins,
        edges.ctypes.data,
        TICK,
        sums.ctypes.data,
    )
    return sums


def collect_classes(
    probs: Tensor, labels: Tensor, edges: np.ndarray, convention: Convention
) -> np.ndarray:
    """What collect gives for every class and bin of equal width: 5 x K x bins."""
    assert kernels is not None
    rows, classes = probs.shape
    bins = len(edges) - 1
    sums = np.zeros((5, classes, bins))
    first = np.zeros((2, classes))  # scratch memory for the first bin, where most values are
    kernels.collect_classes(
        probs.dtype == torch.float64,
        probs.data_ptr(),
        labels.data_ptr(),
        rows,
        classes,
        bins,
        edges.ctypes.data,
        TICK,
        sums.ctypes.data,
        first.ctypes.data,
    )
    return sums


def collect_classes_torch(
    probs: Tensor, labels: Tensor, edges: np.ndarray, convention: Convention
) -> np.ndarray:
    """The same for any edges and on any device."""
    classes = probs.shape[1]
    width = len(edges) - 1
    names = torch.arange(classes, device=probs.device)
    value = probs.double().clamp(max=1.0)  # a float32 row may overshoot one by an ulp
    index = assign(value, edges, convention)
    index = (index + names * width).masked_fill(index < 0, -1).flatten()
    sums = collect(index, value.flatten(), (labels[:, None] == names).flatten(), classes * width)
    return sums.reshape(5, classes, width)


def check_edges(bins: int | Edges, convention: Convention) -> np.ndarray:
    """The edges of a number of equal-width bins, or those given."""
    if isinstance(bins, str) or not hasattr(bins, "__len__") or getattr(bins, "ndim", 1) == 0:
        return equal_width_edges(check_bins(bins))
    array = as_tensor(bins, "bins").cpu().double().numpy().copy()
    row = array.ndim == 1 and len(array) >= 2
    if not row or not np.isfinite(array).all() or not (np.diff(array) >= 0).all():
        raise ValueError("bins must be a number of bins, or their ascending edges")
    if convention == "maccal" and not (array[0] <= 0 and array[-1] >= 1):
        run = f"the edges of the bins run from {array[0]:g} to {array[-1]:g}"
        raise ValueError(f"{run}; they must cover 0 to 1")
    return array


def check_convention(convention: Convention) -> None:
    if convention not in ("maccal", "focal"):
        raise ValueError(f"convention is {convention!r}; choose 'maccal' or 'focal'")
