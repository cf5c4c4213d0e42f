"""Bins: the sums behind a reliability diagram, mergeable and exact.

A bin keeps how many rows fell into it, how many were right, and the sum of their confidences. The
sum is kept in fixed point (binning.py), so adding up is exact: the same rows give the same bits in
any order, in any batches, on any number of processes, up to 2**53 rows. A confidence is kept to
2**-52; float32 confidences above 1/1000 are kept without any rounding.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from maccal.metrics.arguments import check_count
from maccal.metrics.binning import (
    TICK,
    Convention,
    Edges,
    assign,
    check_convention,
    check_edges,
    collect,
    collect_classes,
    collect_classes_torch,
    collect_equal,
    compiled,
    settled,
)
from maccal.metrics.inputs import (
    Array,
    blocks,
    check_confidence,
    check_labels,
    check_probs,
    stretches,
)


@dataclass(frozen=True)
class Worst:
    """The bin with the largest gap, and how many rows stand behind it."""

    gap: float
    count: int
    low: float
    high: float


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
