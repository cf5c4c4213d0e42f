"""Conformal scores: how strange a class looks, given the probabilities of a row. Lower is better.

    THR    -p_y                                           Sadinle et al. 2019 (also called LAC)
    APS    mass of the more probable classes + u p_y      Romano et al. 2020
    RAPS   the same + penalty x (rank of y - free)_+      Angelopoulos et al. 2021

u is 1, or between 0 and 1 and the row's own where randomised. "More probable" is strict: classes
of equal probability have equal scores, so their order does not matter. With u = 1 the last class of
every row has the score 1; where many labels are last, the threshold is 1 and covers more than was
asked for.

Scores never fall along the classes of a row, the most probable first. So a set is all classes
down to some probability, and one sort without its indices is enough. Sums of APS run over the
sorted row in float64, in one order for fitting and predicting: no rounding between the two.

Cost: APS and RAPS sort each row once, 50,000 x 1,000 in about two seconds of one core.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

Method = Literal["thr", "aps", "raps"]
METHODS = ("thr", "aps", "raps")
ALL = 1.0  # the share of its own probability that a class's score counts, if not randomised


@dataclass(frozen=True)
class Scoring:
    """Which scores; `key` is what the random numbers of rows depend on, None for none."""

    method: Method
    penalty: float = 0.0
    free: int = 0
    key: int | None = None

    def of_labels(self, p: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """The score of each row's own label, in float64."""
        own = np.take_along_axis(p, labels[:, None], 1)
        if self.method == "thr":
            return -own[:, 0].astype(np.float64)
        rank = (p > own).sum(1, keepdims=True)
        return np.take_along_axis(self.ranked(p, descending(p)), rank, 1)[:, 0]

    def sets(self, p: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        """The classes whose scores reach no further than the threshold: one, or one per class."""
        if self.method == "thr":
            return np.asarray(p >= -thresholds)
        values = descending(p)
        scores = torch.from_numpy(self.ranked(p, values))
        wanted = torch.from_numpy(thresholds).expand(len(p), -1).contiguous()
        size = torch.searchsorted(scores, wanted, right=True).numpy()
        least = np.take_along_axis(values, np.maximum(size - 1, 0), 1)
        return np.asarray((p >= least) & (size > 0))

    def ranked(self, p: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The scores of the classes of each row, the most probable class first."""
        before = np.zeros(values.shape)
        np.cumsum(values[:, :-1], axis=1, dtype=np.float64, out=before[:, 1:])
        u = ALL if self.key is None else uniforms(p, self.key)[:, None]
        scores = before
        scores += values * u
        if self.method == "raps":
            rank = np.arange(1, values.shape[1] + 1)
            scores += self.penalty * np.maximum(0, rank - self.free)
        return scores


def rounding(one: torch.dtype, other: torch.dtype) -> float:
    """How far a score can move if the same row comes in another precision; 0 if in the same.

    Each probability moves by half an epsilon of itself at most, so their sum by as much in all.

    >>> rounding(torch.float32, torch.float32), rounding(torch.float64, torch.float32) == 2.0**-23
    (0.0, True)
    """
    if one == other:
        return 0.0
    return max(torch.finfo(one).eps, torch.finfo(other).eps)


def descending(p: np.ndarray) -> np.ndarray:
    """Each row sorted, the largest first."""
    return np.ascontiguousarray(np.sort(p, axis=1)[:, ::-1])


def uniforms(p: np.ndarray, key: int) -> np.ndarray:
    """A number in [0, 1) for each row that looks random and depends on nothing but the row and key.

    So a row has the same set alone and in any batch, today and tomorrow. A score that is a function
    of the row also needs no independent random numbers for its guarantee.
    """
    bits = (p.astype(np.float64) + 0.0).view(np.uint64)  # + 0.0: -0.0 is 0.0
    bits ^= bits >> np.uint64(32)  # a float32 leaves the low bits empty
    weights = np.random.default_rng(key).integers(2**63, size=p.shape[1], dtype=np.uint64)
    mixed = (bits * (2 * weights + np.uint64(1))).sum(1, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)) * 2.0**-53
