"""Stream: a summary of more rows than fit in memory, batch by batch, in any order, on any number of processes.

Keeps a Bins of about a thousand fine bins that refine the coarse ones, and the sums of the row scores: 40 kB, whatever N and K.
Accuracy, mean confidence, ECE and MCE come out as from all rows at once. The other top-label statistics see confidences to the
width of a fine bin, as do all intervals and null bands. What needs every class's probability twice (classwise ECE, the splits)
is left to `summary`.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from maccal.metrics.bins import Bins, equal_width_edges
from maccal.metrics.inputs import Array, matrix, top_label
from maccal.metrics.resampling import Interval, Z, groups_of, resample_groups, statistics
from maccal.metrics.scores import as_scores, row_scores
from maccal.metrics.summaries import Summary, add_resampled

FINE = 1024


@dataclass(frozen=True)
class Stream:
    """What is kept of the rows seen so far; streams add up like Bins.

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

    @classmethod
    def empty(cls, bins: int = 15) -> "Stream":
        edges = np.union1d(equal_width_edges(bins), equal_width_edges(FINE))
        return cls(Bins.empty(edges), np.zeros(4), 0, bins)

    @classmethod
    def of(cls, probs: Array | None = None, labels: Array = None, *, logits: Array | None = None, bins: int = 15) -> "Stream":
        """One batch of probabilities, or logits, and labels."""
        scores, y = as_scores(probs, labels, logits)
        p = scores.softmax(1) if probs is None else matrix(probs, "probs")
        rows = row_scores(scores, y)
        sums = torch.cat([rows.sum(1), rows.square().sum(1)]).cpu().numpy()
        return cls(Bins.of(*top_label(p, y), cls.empty(bins).fine.edges), sums, p.shape[1], bins)

    def __add__(self, other: "Stream") -> "Stream":
        if self.classes and other.classes and self.classes != other.classes:
            raise ValueError(f"a batch of {self.classes} classes and one of {other.classes} do not add up")
        return Stream(self.fine + other.fine, self.scores + other.scores, self.classes or other.classes, self.bins)

    def all_reduce(self) -> "Stream":
        """The stream of all ranks of torch.distributed, on every rank."""
        fine = self.fine.all_reduce()
        device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
        scores = torch.tensor(self.scores, device=device)
        torch.distributed.all_reduce(scores)
        return Stream(fine, scores.cpu().numpy(), self.classes, self.bins)

    def summary(self, *, interval: bool = False, resamples: int = 1000, seed: int = 0) -> Summary:
        """The numbers of `maccal.summary` that a stream can know."""
        coarse = self.fine.coarsen(self.bins)
        worst, groups, n = coarse.mce(), groups_of(self.fine), coarse.n
        top = statistics(groups, groups.right[None], groups.wrong[None], self.bins)
        result = Summary(n=n, classes=self.classes, bins=self.bins, **{name: float(value[0]) for name, value in top.items()})
        result.update(ece=coarse.ece(), mce=worst.gap, mce_count=worst.count)
        mean, square = np.split(self.scores / n, 2)
        result.update(nll=float(mean[0]), brier=float(mean[1]))
        if interval:
            add_resampled(result, *resample_groups(groups, self.bins, resamples, seed))
            for name, m, s in zip(("nll", "brier"), mean, square, strict=True):
                half = Z * math.sqrt(max(0.0, s - m * m) / n)
                result.add(name, Interval(max(0.0, m - half), m + half))
        return result
