"""Bins: the sums behind a reliability diagram, mergeable and exact.

A bin keeps how many rows fell into it, how many were right, and the sum of their confidences. The
sum is kept in fixed point, as three float64 numbers that only ever hold whole numbers, so that
adding up is exact: the same rows give the same bits in any order, in any batches, on any number of
processes, up to 2**53 rows. A confidence is kept to 2**-52; float32 confidences above 1/1000 are
kept without any rounding.

This file holds the only binning function of the package. Two conventions:

    "maccal"  [lo, hi), the last bin closed: every value in [0, 1] has exactly one bin (the default)
    "focal"   (lo, hi], as in the code of Mukhoti et al. 2020, which the paper builds on: a value at
              or below the first edge belongs to no bin and is left out
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
# A sum of confidences is whole + high / TICK + low / TICK**2, all three whole numbers, the last two
# below TICK
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

    `sums` is 5 x bins: count, correct, high, low and whole. Classwise sums are 5 x classes x bins.
    """

    edges: np.ndarray
    sums: np.ndarray
    n: int  # rows seen, including those that "focal" leaves out
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
        width = len(start.edges) - 1
        sums = start.sums
        fast = compiled(c, start.edges, convention)
        # The sums are exact, so steps that stay in cache change nothing but the time
        for part in stretches(len(c)):
            if fast:
                new = collect_equal(c[part], hit[part], start.edges)
            else:
                new = collect(assign(c[part], start.edges, convention), c[part], hit[part], width)
            sums = settled(sums + new)
        return cls(start.edges, sums, len(c), convention)

    @classmethod
    def of_ordered(cls, confidence: np.ndarray, correct: np.ndarray, edges: np.ndarray) -> "Bins":
        """What `of` gives, for confidences that are in ascending order.

        A bin is a stretch of them, so only the edges have to be searched for.
        """
        bins = len(edges) - 1
        cuts = np.searchsorted(confidence, edges[1:-1])
        counts = np.diff(cuts, prepend=0, append=len(confidence))
        index = torch.from_numpy(np.repeat(np.arange(bins), counts))
        c = torch.from_numpy(confidence)
        hit = torch.from_numpy(correct)
        start = cls.empty(edges)
        sums = start.sums
        for part in stretches(len(index)):
            sums = settled(sums + collect(index[part], c[part], hit[part], bins))
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
        """One diagram per class: the confidence is p_k, the outcome whether the label is k."""
        p = check_probs(probs)
        return cls.of_checked_classes(p, check_labels(labels, p), bins, convention=convention)

    @classmethod
    def of_checked_classes(
        cls, p: Tensor, y: Tensor, bins: int | Edges, *, convention: Convention = "maccal"
    ) -> "Bins":
        """The same for probabilities and labels that have been checked."""
        rows, classes = p.shape
        start = cls.empty(bins, classes=classes, convention=convention)
        fast = compiled(p, start.edges, convention) and p.dtype in (torch.float32, torch.float64)
        take = collect_classes if fast else collect_classes_torch
        sums = start.sums
        for part in blocks(rows, classes):
            sums = settled(sums + take(p[part], y[part], start.edges, convention))
        return cls(start.edges, sums, rows, convention)

    def coarsen(self, bins: int | Edges) -> "Bins":
        """The same rows in wider bins, whose edges must be among these.

        The sums are exactly those that `of` would have made.
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
            found = "these Bins have different edges, classes or conventions"
            raise ValueError(f"{found}; only like Bins add up")
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

        They are the same bits that one process would have got.
        """
        device = "cuda" if torch.distributed.get_backend(group) == "nccl" else "cpu"
        total = torch.tensor([*self.sums.flat, self.n], dtype=torch.float64, device=device)
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
        # What is in the brackets is exact
        return self.sums[4] + (self.sums[2] / TICK + self.sums[3] / TICK**2)

    @property
    def gap(self) -> np.ndarray:
        """Mean confidence minus accuracy of each bin: above zero is overconfident.

        NaN for an empty bin.
        """
        filled = np.where(self.count > 0, self.count, np.nan)
        return (self.confidence - self.correct) / filled

    def ece(self) -> float:
        """The sum over bins of share x |gap|; for classwise sums its mean over the classes."""
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
        bin_ = worst % (len(self.edges) - 1)
        low, high = self.edges[bin_ : bin_ + 2].tolist()
        return Worst(float(gap.flat[worst]), int(self.count.flat[worst]), low, high)

    def debiased_squared_ce(self) -> float:
        """The sum over bins of share x (gap^2 - a (1 - a) / (n - 1)); it may be below zero.

        Here a is the accuracy of a bin and n its count (Kumar et al. 2019). A bin of one row has no
        variance to subtract, and counts as zero.
        """
        self._not_empty()
        many = self.count > 1
        count = self.count[many]
        accuracy = self.correct[many] / count
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
