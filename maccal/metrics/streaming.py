"""Stream: a summary of more rows than fit in memory, in any batches, order and number of processes.

It keeps the exact sums of about two thousand fine bins (sketch.py) and the sums of the row scores:
100 kB, whatever N and K. The memory and time of the summary do not grow with N either. Accuracy,
mean confidence, ECE and MCE are exactly those of all rows at once, NLL and Brier up to rounding.
The confidence of float32 logits is worked out in float64 and rounded to float32. That of `summary`
is worked out in float32, so the two may differ by 1e-7 there.
The other top-label statistics see confidences to the width of a fine bin. They are called
`<name>_binned`, lie within `<name>_binned_error` of what `summary` would say, and have their own
intervals and null bands. What needs every class's probability twice (classwise ECE, the splits) is
left to `summary`.

A batch is read once, by one core: 30 million rows of 10 classes per second, probabilities or
float32 logits (results/load.md). Float64 logits are given to torch's softmax first: 4 million.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from maccal.metrics.arguments import check_bins, check_given
from maccal.metrics.binning import TICK, settled
from maccal.metrics.bins import Bins
from maccal.metrics.given import Classes, plain
from maccal.metrics.inputs import (
    SUM_TOLERANCE,
    Array,
    Labels,
    blocks,
    check_labels,
    check_logits,
    kernels,
    matrix,
    not_finite,
    row_error,
    top_label,
)
from maccal.metrics.resampling import Interval, Statistics, Z, resample_groups
from maccal.metrics.scores import as_scores, row_scores
from maccal.metrics.sketch import CELLS, INEXACT, Grid, fine_grid, read
from maccal.metrics.summaries import Summary, add_resampled


@dataclass(frozen=True)
class Stream:
    """What a summary needs of any number of rows, batch by batch; streams add up like Bins.

    >>> stream = Stream.empty()
    >>> for probs, labels in [([[0.9, 0.1]], [0]), ([[0.8, 0.2], [0.3, 0.7]], [1, 1])]:
    ...     stream += Stream.of(np.array(probs), np.array(labels))
    >>> stream.fine.n, round(stream.summary()["ece"], 3)
    (3, 0.4)
    """

    fine: Bins
    scores: np.ndarray  # sums of NLL, Brier, and their squares
    classes: int
    bins: int

    def __repr__(self) -> str:
        return f"Stream of {self.fine.n:,} rows, {self.classes} classes; summary() has the numbers"

    @classmethod
    def empty(cls, bins: int = 15) -> "Stream":
        bins = check_bins(bins)
        return cls(Bins.empty(fine_grid(bins).edges), np.zeros(4), 0, bins)

    @classmethod
    def of(
        cls,
        probs: Array | None = None,
        labels: Labels | None = None,
        *,
        logits: Array | None = None,
        classes: Classes | None = None,
        normalise: bool = False,
        bins: int = 15,
    ) -> "Stream":
        """One batch of probabilities, or logits, and labels; classes and normalise as in
        `summary`.
        """
        check_given(probs, labels, logits)
        bins = check_bins(bins)
        probs, labels = plain(probs, labels, logits, classes=classes, normalise=normalise)
        given = matrix(logits, "logits") if probs is None else matrix(probs, "probs")
        fast = kernels is not None and given.device.type == "cpu"
        if probs is None and not (fast and given.dtype != torch.float64):
            given = check_logits(given)  # the others are checked in their one look
        y = check_labels(labels, given)
        collect = collect_compiled if fast else collect_torch
        fine, scores = collect(given, y, probs is None, bins)
        return cls(fine, scores, given.shape[1], bins)

    def __add__(self, other: "Stream") -> "Stream":
        if not isinstance(other, Stream):
            return NotImplemented
        if self.bins != other.bins:
            raise ValueError(f"streams of {self.bins} and of {other.bins} bins do not add up")
        if self.classes and other.classes and self.classes != other.classes:
            both = f"a batch of {self.classes} classes and one of {other.classes}"
            raise ValueError(f"{both} do not add up")
        classes = self.classes or other.classes
        return Stream(self.fine + other.fine, self.scores + other.scores, classes, self.bins)

    def __radd__(self, other: int) -> "Stream":
        if other != 0:  # sum() starts from 0
            return NotImplemented
        return self

    def all_reduce(self) -> "Stream":
        """The stream of all ranks of torch.distributed, on every rank.

        Some ranks may have seen no rows.
        """
        ranks: list[tuple[int, int]] = [(0, 0)] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(ranks, (self.classes, self.bins))
        classes = {rank_classes for rank_classes, _ in ranks}
        bins = {rank_bins for _, rank_bins in ranks}
        if len(classes - {0}) > 1 or len(bins) > 1:
            seen = f"{sorted(classes - {0})} classes in {sorted(bins)} bins"
            raise ValueError(f"the ranks stream {seen}; they do not add up")
        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        scores = torch.tensor(self.scores, device=device)
        torch.distributed.all_reduce(scores)
        return Stream(self.fine.all_reduce(), scores.cpu().numpy(), max(classes), self.bins)

    def summary(self, *, interval: bool = False, resamples: int = 1000, seed: int = 0) -> Summary:
        """The numbers of `maccal.summary` that a stream can know; others are `<name>_binned`."""
        coarse = self.fine.coarsen(self.bins)
        worst = coarse.mce()
        n = coarse.n
        groups, numbers = read(self.fine, self.bins)
        result = Summary(n=n, classes=self.classes, bins=self.bins, **numbers)
        result["accuracy"] = float(coarse.correct.sum() / n)
        result["confidence"] = float(coarse.confidence.sum() / n)
        result.update(ece=coarse.ece(), mce=worst.gap, mce_count=worst.count)
        mean, square = np.split(self.scores / n, 2)
        result.update(nll=float(mean[0]), brier=float(mean[1]))
        if interval:
            boot, null = resample_groups(groups, self.bins, resamples, seed)
            add_resampled(result, renamed(boot), renamed(null))
            result.add("nll", mean_interval(mean[0], square[0], n))
            result.add("brier", mean_interval(mean[1], square[1], n))
        return result


def renamed(draws: Statistics) -> Statistics:
    """The draws under the names that a stream's numbers have."""
    return {binned(name): values for name, values in draws.items()}


def binned(name: str) -> str:
    return f"{name}_binned" if name in INEXACT else name


def mean_interval(mean: float, square: float, n: int) -> Interval:
    """The normal interval of a mean, given the mean of the squares.

    NaN if there is only one row, or an infinite one.
    """
    if n < 2 or not math.isfinite(square):
        return Interval(math.nan, math.nan)
    half = Z * math.sqrt(max(0.0, float(square - mean * mean)) / (n - 1))
    return Interval(max(0.0, float(mean) - half), float(mean) + half)


def collect_compiled(
    given: Tensor, labels: Tensor, logits: bool, bins: int
) -> tuple[Bins, np.ndarray]:
    """The fine bins and the scores of a batch, by _kernels.c: one look at every row."""
    grid = fine_grid(bins)
    sums = np.zeros((5, len(grid.edges) - 1))
    scores = np.zeros(4)
    narrow = logits and given.dtype != torch.float64
    for rows in blocks(*given.shape):
        if narrow:
            wrong = add_logits(given[rows].float(), labels[rows], grid, sums, scores)
        else:
            wrong = add_probs(given[rows], labels[rows], logits, grid, sums, scores)
        if wrong >= 0:
            index = rows.start + wrong
            row = given[index]
            raise not_finite("logits", row, index) if narrow else row_error(row, index)
        sums[:] = settled(sums)
    return Bins(grid.edges, sums, len(given)), scores


def add_logits(
    logits: Tensor, labels: Tensor, grid: Grid, sums: np.ndarray, scores: np.ndarray
) -> int:
    """Add float32 logits to the sums; the softmax is part of the one look.

    Returns the first row that is not finite, -1 if all are.
    """
    assert kernels is not None
    return int(
        kernels.stream_logits(
            logits.data_ptr(),
            labels.data_ptr(),
            *logits.shape,
            *addresses(grid),
            TICK,
            sums.ctypes.data,
            scores.ctypes.data,
        )
    )


def add_probs(
    block: Tensor,
    labels: Tensor,
    logits: bool,
    grid: Grid,
    sums: np.ndarray,
    scores: np.ndarray,
) -> int:
    """Add probabilities, or float64 logits, to the sums.

    Returns the first row that is not one of probabilities, -1 if all are.
    """
    assert kernels is not None
    tolerance = SUM_TOLERANCE.get(block.dtype, 1e-3)
    block = block if block.dtype == torch.float64 else block.float()
    probs = block.softmax(1) if logits else block
    return int(
        kernels.stream(
            probs.dtype == torch.float64,
            probs.data_ptr(),
            block.data_ptr() if logits else 0,
            labels.data_ptr(),
            *probs.shape,
            tolerance,
            *addresses(grid),
            TICK,
            sums.ctypes.data,
            scores.ctypes.data,
        )
    )


def addresses(grid: Grid) -> tuple[int, int, int, int]:
    """The edges and the table that finds a bin, each with its length."""
    return grid.edges.ctypes.data, len(grid.edges) - 1, grid.first.ctypes.data, CELLS


def collect_torch(
    given: Tensor, labels: Tensor, logits: bool, bins: int
) -> tuple[Bins, np.ndarray]:
    """The same in torch operations: several looks at every row."""
    scores, y = as_scores(None if logits else given, labels, given if logits else None)
    rows = row_scores(scores, y)
    sums = torch.cat([rows.sum(1), rows.square().sum(1)]).cpu().numpy()
    confidence, correct = top_logits(scores, y) if logits else top_label(given, y)
    return Bins.of(confidence, correct, fine_grid(bins).edges), sums


def top_logits(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Confidence, and whether the label's logit is the first of the largest.

    The softmax of float32 logits is worked out in float64, and its largest rounded to float32:
    that does not depend on the order in which a processor adds up.
    """
    if logits.dtype == torch.float64:
        return top_label(logits.softmax(1), labels)
    confidence = logits.double().softmax(1).amax(1).float()
    return confidence, logits.argmax(1) == labels
