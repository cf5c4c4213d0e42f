"""How far confidence is from accuracy: seven answers.

    ece                  share-weighted gap, equal-width bins       Naeini et al. 2015
    aece                 the same, equal-mass bins with ties kept   Nguyen & O'Connor 2015
    mce                  the largest gap of any bin                 Naeini et al. 2015
    classwise_ece        ece of every class's probability, averaged Kull et al. 2019
    debiased_squared_ce  squared error less its sampling noise      Kumar et al. 2019
    smece                no bins: smoothed at one natural width     Blasiok & Nakkiran 2023
    ks                   no bins: the largest cumulative gap        Gupta et al. 2021

All take confidences and outcomes of N rows (classwise_ece the N x K probabilities), return a
fraction, and do not depend on the order of the rows. A perfectly calibrated model does not score 0:
see resampling.py for its band.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from maccal.metrics.arguments import check_bins
from maccal.metrics.binning import Convention, equal_mass_edges, mass_edges
from maccal.metrics.bins import Bins
from maccal.metrics.inputs import Array, check_confidence

GRID = 4096  # cells on which smece smooths; the finest width it resolves is 1 / GRID


def ece(
    confidence: Array, correct: Array, bins: int = 15, *, convention: Convention = "maccal"
) -> float:
    """Expected calibration error: the sum over equal-width bins of share x |gap|.

    The gap of a bin is its mean confidence minus its accuracy (Guo et al. 2017).

    >>> ece(np.array([0.95, 1.0]), np.array([1, 0]), bins=10)
    0.475
    >>> round(ece(np.array([0.2, 0.3]), np.array([1, 0]), bins=5), 6)
    0.25
    >>> round(ece(np.array([0.2, 0.3]), np.array([1, 0]), bins=5, convention="focal"), 6)
    0.55
    """
    return Bins.of(confidence, correct, bins, convention=convention).ece()


def mce(
    confidence: Array,
    correct: Array,
    bins: int = 15,
    *,
    min_count: int = 1,
    convention: Convention = "maccal",
) -> float:
    """Maximum calibration error: the largest |gap| of the bins with at least `min_count` rows.

    NaN if there is no such bin. `Bins.of(...).mce()` also tells which bin it was and how many rows
    it holds: often one.

    >>> round(mce(np.array([0.95, 0.95, 0.31]), np.array([1, 1, 1]), bins=10), 6)
    0.69
    >>> round(mce(np.array([0.95, 0.95, 0.31]), np.array([1, 1, 1]), bins=10, min_count=2), 6)
    0.05
    """
    return Bins.of(confidence, correct, bins, convention=convention).mce(min_count).gap


def aece(
    confidence: Array, correct: Array, bins: int = 15, *, convention: Convention = "maccal"
) -> float:
    """Adaptive ECE: like ece, over bins with about equal numbers of rows.

    Equal confidences are never split.

    >>> round(aece(np.array([0.6, 0.7, 0.8, 0.9]), np.array([0, 1, 1, 1]), bins=2), 6)
    0.15
    """
    return equal_mass(confidence, correct, bins, convention).ece()


def debiased_squared_ce(confidence: Array, correct: Array, bins: int = 15) -> float:
    """Squared calibration error over equal-mass bins, less what sampling noise adds.

    It may be below zero.

    >>> round(debiased_squared_ce(np.full(4, 0.9), np.array([1, 1, 0, 0]), bins=1), 6)
    0.076667
    """
    return equal_mass(confidence, correct, bins).debiased_squared_ce()


def equal_mass(
    confidence: Array, correct: Array, bins: int, convention: Convention = "maccal"
) -> Bins:
    """The rows in bins with about equal numbers of rows."""
    c, hit = check_confidence(confidence, correct)
    if convention == "maccal":
        return equal_mass_of(by_confidence(c, hit), check_bins(bins))
    edges = equal_mass_edges(c, check_bins(bins), convention)
    return Bins.of(c, hit, edges, convention=convention)


def classwise_ece(
    probs: Array, labels: Array, bins: int = 15, *, convention: Convention = "maccal"
) -> float:
    """The mean over all K classes of the ECE of p_k against (label == k).

    >>> round(classwise_ece(np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([0, 1])), 6)
    0.35
    """
    return Bins.of_classes(probs, labels, bins, convention=convention).ece()


def ks(confidence: Array, correct: Array) -> float:
    """Kolmogorov-Smirnov calibration error: the largest cumulative gap.

    That is the largest |sum of (confidence - correct)| / N over the rows up to some confidence.

    >>> round(ks(np.array([0.6, 0.7, 0.8]), np.array([1, 1, 0])), 6)
    0.233333
    """
    return ks_of(by_confidence(*check_confidence(confidence, correct)))


@dataclass(frozen=True)
class Ordered:
    """Rows by ascending confidence; of equal confidences the wrong rows come first.

    So the order of the input leaves no trace.
    """

    confidence: np.ndarray
    correct: np.ndarray

    @cached_property
    def start(self) -> np.ndarray:
        """Where each run of equal confidences starts."""
        changes = np.flatnonzero(self.confidence[1:] != self.confidence[:-1])
        return np.concatenate([[0], changes + 1])

    @cached_property
    def residual(self) -> np.ndarray:
        return self.confidence - self.correct


def by_confidence(confidence: Tensor, correct: Tensor) -> Ordered:
    """The rows in order, by one sort of whole numbers.

    The bits of a float64 in [0, 1], read as a whole number, are in the same order as the float64.
    Shifted by one, they lose the sign of -0.0, and the last bit is free for the outcome.
    """
    keys = confidence.cpu().numpy().view(np.int64) << 1
    keys |= correct.cpu().numpy()
    keys.sort()
    outcome = (keys & 1).astype(bool)
    keys >>= 1
    return Ordered(keys.view(np.float64), outcome)


def equal_mass_of(rows: Ordered, bins: int) -> Bins:
    return Bins.of_ordered(rows.confidence, rows.correct, mass_edges(rows.confidence, bins))


def ks_of(rows: Ordered) -> float:
    cumulative = np.add.reduceat(rows.residual, rows.start).cumsum()
    return float(np.abs(cumulative).max() / len(rows.confidence))


def smece(confidence: Array, correct: Array) -> float:
    """Smooth calibration error: the s at which a Gaussian of width s leaves an error of s.

    The Gaussian smooths confidence - correct, and is reflected at 0 and 1. That is heat flowing in
    a rod with closed ends, which a cosine transform solves.

    >>> round(smece(np.full(100, 0.8), np.arange(100) < 60), 4)
    0.2
    """
    return smece_of(by_confidence(*check_confidence(confidence, correct)))


def smece_of(rows: Ordered) -> float:
    mass = rows.residual[None] / len(rows.confidence)
    return float(smooth_error(to_grid(rows.confidence, mass, GRID))[0])


def to_grid(position: np.ndarray, mass: np.ndarray, cells: int) -> np.ndarray:
    """Masses at ascending positions in [0, 1], on a grid of cells; one row per set of masses.

    Each mass is shared between the two cells whose centres are nearest.
    """
    centre = np.clip(position * cells - 0.5, 0, cells - 1)
    left = np.minimum(centre.astype(np.int64), cells - 2)
    share = centre - left
    start = np.flatnonzero(np.diff(left, prepend=-1))
    out = np.zeros((len(mass), cells))
    out[:, left[start]] += np.add.reduceat(mass * (1 - share), start, axis=1)
    out[:, left[start] + 1] += np.add.reduceat(mass * share, start, axis=1)
    return out


def smooth_error(mass: np.ndarray, steps: int = 24) -> np.ndarray:
    """smECE of each row of residual masses on a grid.

    It is the width at which the sum of |smoothed residual| equals the width. The sum falls as the
    width grows, so bisection finds the one such width.
    """
    from scipy.fft import dct, idct  # a third of a second, which only this metric should wait

    spectrum = dct(mass, axis=1, norm="ortho")
    frequency = np.pi * np.arange(mass.shape[1])
    low = np.zeros(len(mass))
    high = np.ones(len(mass))
    for _ in range(steps):
        width = (low + high) / 2
        damping = np.exp(-0.5 * (width[:, None] * frequency) ** 2)
        smoothed = idct(spectrum * damping, axis=1, norm="ortho")
        above = np.abs(smoothed).sum(1) > width
        low = np.where(above, width, low)
        high = np.where(above, high, width)
    return (low + high) / 2
