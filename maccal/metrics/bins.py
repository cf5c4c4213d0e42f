"""Bins: the sums behind a reliability diagram, mergeable and exact.

A bin keeps how many rows fell into it, how many were right, and the sum of their confidences. The
sum is kept in fixed point, as three float64 numbers that only ever hold whole numbers, so that
adding up is exact: the same rows give the same bits in any order, in any batches, on any number of
processes, up to 2**53 rows. A confidence is kept to 2**-52; float32 confidences above 1/1000 are
kept without any rounding.

This file holds the only binning function of the package. Two conventions:

    "maccal"  [lo, hi), the last bin closed: every value in [0, 1] has exactly one bin (the default)
    "focal"   (lo, hi], as in the code of Mukhoti et al. 2020, which the paper builds on; a value at or below the first edge
              belongs to no bin and is left out there
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from maccal.metrics.arguments import check_bins, check_count
from maccal.metrics.inputs import (
    Array,
    as_tensor,
    blocks,
    check_confidence,
    check_labels,
    check_probs,
    kernels,
    stretches,
)

Convention = Literal["maccal", "focal"]
Edges = Sequence[float] | np.ndarray
# a sum of confidences is whole + high / TICK + low / TICK**2, high and low whole numbers below TICK
TICK = 2.0**26


@dataclass(frozen=True)
class Worst:
    """The bin with the largest gap, and how many rows stand behind it."""

    gap: float
    count: int
    low: float
    high: float


def equal_width_edges(bins: int) -> np.ndarray:
    return np.arange(bins + 1) / bins


def equal_mass_edges(
    confidence: Tensor, bins: int, convention: Convention = "maccal"
) -> np.ndarray:
    """Edges that put about N / bins rows into each bin; equal confidences always share one bin.

    "focal" interpolates between the sorted confidences, so that its last edge is the maximum and
    its first the minimum."""
    ordered = np.sort(confidence.cpu().numpy())
    if convention == "focal":
        n = len(ordered)
        return np.interp(np.linspace(0, n, bins + 1), np.arange(n), ordered)
    return mass_edges(ordered, bins)


def mass_edges(ordered: np.ndarray, bins: int) -> np.ndarray:
    """The same of ascending confidences."""
    inner = ordered[np.arange(1, bins) * len(ordered) // bins]
    return np.concatenate([[0.0], np.unique(inner), [1.0]])


def assign(values: Tensor, edges: np.ndarray, convention: Convention) -> Tensor:
    """The bin of each float64 value; -1 where the convention leaves the value out.

    Compared with the edges themselves, not with floor(value * bins), which is off by one at 0.29 of
    100 bins."""
    bins = len(edges) - 1
    if convention == "maccal":
        if not np.array_equal(edges, equal_width_edges(bins)):
            return torch.bucketize(
                values, torch.from_numpy(edges[1:-1]).to(values.device), right=True
            )
        # of equal widths only the nearest edge can matter: no search
        nearest = (values * bins).add_(0.5).long()
        edge = (
            torch.from_numpy(edges)
            .to(values.device)
            .index_select(0, nearest.flatten())
            .view_as(values)
        )
        return nearest.sub_((values < edge).long()).clamp_(max=bins - 1)
    inside = torch.bucketize(values, torch.from_numpy(edges).to(values.device)) - 1
    return torch.where(inside < bins, inside, -1)


def collect(index: Tensor, confidence: Tensor, correct: Tensor, size: int) -> np.ndarray:
    """Rows count, correct, high, low of every bin: float64 sums of whole numbers. Index -1 is left
    out.

    A fifth row is zero, for what `settled` carries. The sums are exact for calls of up to 2**27
    rows."""
    return (collect_compiled if kernels and index.device.type == "cpu" else collect_torch)(
        index, confidence, correct, size
    )


def collect_torch(index: Tensor, confidence: Tensor, correct: Tensor, size: int) -> np.ndarray:
    inside = index >= 0
    index, confidence, correct = index[inside], confidence[inside], correct[inside]
    outcome = torch.bincount(2 * index + correct, minlength=2 * size).double().view(size, 2)
    scaled = confidence * TICK
    high = scaled.floor()
    low = ((scaled - high) * TICK).round()
    sums = [torch.bincount(index, part, minlength=size) for part in (high, low)]
    return (
        torch.stack([outcome.sum(1), outcome[:, 1], *sums, torch.zeros_like(sums[0])]).cpu().numpy()
    )


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
    """The same sums with high and low below TICK, what is over carried to the left.

    The one form of a value, far from 2**53.
    """
    count, correct, high, low, whole = sums
    carry = np.floor(low / TICK)
    high = high + carry
    over = np.floor(high / TICK)
    return np.stack([count, correct, high - over * TICK, low - carry * TICK, whole + over])


def compiled(values: Tensor, edges: np.ndarray, convention: Convention) -> bool:
    """Whether the compiled loops find these bins by themselves: of equal width, in main memory."""
    equal = convention == "maccal" and np.array_equal(edges, equal_width_edges(len(edges) - 1))
    return kernels is not None and equal and values.device.type == "cpu"


def collect_equal(confidence: Tensor, correct: Tensor, edges: np.ndarray) -> np.ndarray:
    """What assign and collect give for bins of equal width, in one go."""
    assert kernels is not None
    sums = np.zeros((5, len(edges) - 1))
    arrays = confidence.data_ptr(), correct.data_ptr()
    kernels.collect_equal(
        *arrays, len(confidence), len(edges) - 1, edges.ctypes.data, TICK, sums.ctypes.data
    )
    return sums


def collect_classes(
    probs: Tensor, labels: Tensor, edges: np.ndarray, convention: Convention
) -> np.ndarray:
    """What collect gives for every class and bin of equal width: 5 x K x bins."""
    assert kernels is not None
    (rows, classes), bins = probs.shape, len(edges) - 1
    sums, first = np.zeros((5, classes, bins)), np.zeros((2, classes))
    arrays = probs.dtype == torch.float64, probs.data_ptr(), labels.data_ptr()
    kernels.collect_classes(
        *arrays, rows, classes, bins, edges.ctypes.data, TICK, sums.ctypes.data, first.ctypes.data
    )
    return sums


def collect_classes_torch(
    probs: Tensor, labels: Tensor, edges: np.ndarray, convention: Convention
) -> np.ndarray:
    """The same for any edges and on any device."""
    classes, width = probs.shape[1], len(edges) - 1
    names = torch.arange(classes, device=probs.device)
    value = probs.double().clamp(max=1.0)  # a float32 row may overshoot one by an ulp
    index = assign(value, edges, convention)
    index = torch.where(index < 0, -1, index + names * width).flatten()
    sums = collect(index, value.flatten(), (labels[:, None] == names).flatten(), classes * width)
    return sums.reshape(5, classes, width)


@dataclass(frozen=True, eq=False)
class Bins:
    """Mergeable sums of a reliability diagram.

    >>> a = Bins.of(np.array([0.95, 0.7]), np.array([True, False]), bins=10)
    >>> b = Bins.of(np.array([1.0]), np.array([False]), bins=10)
    >>> (a + b).n, round((a + b).ece(), 4)
    (3, 0.55)

    `sums` has rows count, correct, high, low, whole over a last axis of bins; classwise sums have
    an axis of classes between."""

    edges: np.ndarray
    sums: np.ndarray
    # rows seen, those that "focal" leaves out included (for classwise sums: rows of probabilities)
    n: int
    convention: Convention = "maccal"

    @classmethod
    def empty(
        cls,
        bins: int | Edges = 15,
        *,
        classes: int | None = None,
        convention: Convention = "maccal",
    ) -> "Bins":
        """No rows yet: the start of a stream, `total += Bins.of(...)`."""
        check_convention(convention)
        edges = check_edges(bins, convention)
        width = len(edges) - 1
        shape = (5, width) if classes is None else (5, check_count(classes, "classes"), width)
        return cls(edges, np.zeros(shape), 0, convention)

    @classmethod
    def of(
        cls,
        confidence: Array,
        correct: Array,
        bins: int | Edges = 15,
        *,
        convention: Convention = "maccal",
    ) -> "Bins":
        """The sums of N confidences and their outcomes.

        `bins` is a number of equal-width bins, or the edges.
        """
        c, hit = check_confidence(confidence, correct)
        start = cls.empty(bins, convention=convention)
        width, sums = len(start.edges) - 1, start.sums
        fast = compiled(c, start.edges, convention)
        # the sums are exact, so steps that stay in cache change nothing but the time
        for part in stretches(len(c)):
            if fast:
                new = collect_equal(c[part], hit[part], start.edges)
            else:
                new = collect(assign(c[part], start.edges, convention), c[part], hit[part], width)
            sums = settled(sums + new)
        return cls(start.edges, sums, len(c), convention)

    @classmethod
    def of_ordered(cls, confidence: np.ndarray, correct: np.ndarray, edges: np.ndarray) -> "Bins":
        """What `of` gives, for ascending confidences.

        A bin is a stretch of them, and only the edges have to be searched for.
        """
        place = np.searchsorted(confidence, edges[1:-1])
        index = np.repeat(
            np.arange(len(edges) - 1), np.diff(place, prepend=0, append=len(confidence))
        )
        start = cls.empty(edges)
        sums = start.sums
        for part in stretches(len(index)):
            where, sure, right = (
                torch.from_numpy(array[part]) for array in (index, confidence, correct)
            )
            sums = settled(sums + collect(where, sure, right, len(edges) - 1))
        return cls(start.edges, sums, len(index))

    @classmethod
    def of_classes(
        cls,
        probs: Array,
        labels: Array,
        bins: int | Edges = 15,
        *,
        convention: Convention = "maccal",
    ) -> "Bins":
        """One diagram a class: the confidence is p_k, the outcome whether the label is k."""
        p = check_probs(probs)
        return cls.of_checked_classes(p, check_labels(labels, p), bins, convention=convention)

    @classmethod
    def of_checked_classes(
        cls, p: Tensor, y: Tensor, bins: int | Edges, *, convention: Convention = "maccal"
    ) -> "Bins":
        """The same where probabilities and labels are known to be sound."""
        rows, classes = p.shape
        start = cls.empty(bins, classes=classes, convention=convention)
        fast = compiled(p, start.edges, convention) and p.dtype in (torch.float32, torch.float64)
        take = collect_classes if fast else collect_classes_torch
        sums = start.sums
        for part in blocks(rows, classes):
            sums = settled(sums + take(p[part], y[part], start.edges, convention))
        return cls(start.edges, sums, rows, convention)

    def coarsen(self, bins: int | Edges) -> "Bins":
        """The same rows in wider bins, whose edges are among these.

        The very sums that `of` would have made.
        """
        coarse = Bins.empty(bins, convention=self.convention)
        if not np.isin(coarse.edges, self.edges).all():
            raise ValueError("the edges of wider bins must be among the edges of these")
        sums = np.add.reduceat(self.sums, np.searchsorted(self.edges, coarse.edges[:-1]), axis=-1)
        return Bins(coarse.edges, settled(sums), self.n, self.convention)

    def __add__(self, other: "Bins") -> "Bins":
        if not isinstance(other, Bins):
            return NotImplemented
        same = (
            self.sums.shape == other.sums.shape
            and np.array_equal(self.edges, other.edges)
            and self.convention == other.convention
        )
        if not same:
            raise ValueError(
                "these Bins have different edges, classes or conventions; only like Bins add up"
            )
        if self.n + other.n > 2**53:
            raise ValueError("more than 2**53 rows: the counts would no longer be exact")
        return Bins(self.edges, settled(self.sums + other.sums), self.n + other.n, self.convention)

    def __radd__(self, other: int) -> "Bins":
        if other != 0:  # sum() starts from 0
            return NotImplemented
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bins):
            return NotImplemented
        same = (
            self.convention == other.convention
            and self.n == other.n
            and np.array_equal(self.edges, other.edges)
        )
        return same and np.array_equal(self.sums, other.sums)

    def all_reduce(self, group: "torch.distributed.ProcessGroup | None" = None) -> "Bins":
        """The sums over all ranks of torch.distributed, on every rank.

        The very bits one process would have got.
        """
        on_gpu = torch.distributed.get_backend(group) == "nccl"
        total = torch.tensor(
            [*self.sums.flat, self.n], dtype=torch.float64, device="cuda" if on_gpu else "cpu"
        )
        torch.distributed.all_reduce(total, group=group)
        *sums, n = total.tolist()
        return Bins(self.edges, settled(np.reshape(sums, self.sums.shape)), int(n), self.convention)

    @property
    def count(self) -> np.ndarray:
        return self.sums[0]

    @property
    def correct(self) -> np.ndarray:
        return self.sums[1]

    @property
    def confidence(self) -> np.ndarray:
        """The sum of the confidences in each bin."""
        # exact within the brackets
        return self.sums[4] + (self.sums[2] / TICK + self.sums[3] / TICK**2)

    @property
    def gap(self) -> np.ndarray:
        """Mean confidence minus accuracy of each bin: above zero is overconfident.

        NaN where a bin is empty.
        """
        filled = np.where(self.count > 0, self.count, np.nan)
        return (self.confidence - self.correct) / filled

    def ece(self) -> float:
        """Sum over bins of share x |gap|; the mean over classes for classwise sums."""
        self._not_empty()
        per_class = np.abs(self.confidence - self.correct).sum(-1) / self.n
        return float(per_class.mean())

    def mce(self, min_count: int = 1) -> Worst:
        """The largest |gap| of the bins that hold at least `min_count` rows.

        Gap NaN and count 0 if no bin does.
        """
        self._not_empty()
        few = max(1, check_count(min_count, "min_count", least=0))
        gap = np.where(self.count >= few, np.abs(self.gap), -1.0)
        worst = int(gap.argmax())
        if gap.flat[worst] < 0:
            return Worst(float("nan"), 0, 0.0, 1.0)
        place = worst % (len(self.edges) - 1)
        return Worst(
            float(gap.flat[worst]),
            int(self.count.flat[worst]),
            *(float(e) for e in self.edges[place : place + 2]),
        )

    def debiased_squared_ce(self) -> float:
        """Sum over bins of share x (gap^2 - a (1 - a) / (n - 1)), a the bin's accuracy (Kumar et
        al. 2019); may be below zero.

        A bin of one row has no variance to subtract and counts as zero.
        """
        self._not_empty()
        many = self.count > 1
        count, accuracy = self.count[many], self.correct[many] / self.count[many]
        noise = accuracy * (1 - accuracy) / (count - 1)
        return float((count * (self.gap[many] ** 2 - noise)).sum() / self.n)

    def _not_empty(self) -> None:
        if self.n == 0:
            raise ValueError("these Bins hold no rows")


def check_edges(bins: int | Edges, convention: Convention) -> np.ndarray:
    """The edges of a number of equal-width bins, or those given."""
    if isinstance(bins, str) or not hasattr(bins, "__len__") or getattr(bins, "ndim", 1) == 0:
        return equal_width_edges(check_bins(bins))
    array = as_tensor(bins, "bins").cpu().double().numpy().copy()
    if (
        array.ndim != 1
        or len(array) < 2
        or not np.isfinite(array).all()
        or not (np.diff(array) >= 0).all()
    ):
        raise ValueError("bins must be a number of bins, or their ascending edges")
    if convention == "maccal" and not (array[0] <= 0 and array[-1] >= 1):
        raise ValueError(
            f"the edges of the bins run from {array[0]:g} to {array[-1]:g}; they must cover 0 to 1"
        )
    return array


def check_convention(convention: Convention) -> None:
    if convention not in ("maccal", "focal"):
        raise ValueError(f"convention is {convention!r}; choose 'maccal' or 'focal'")
