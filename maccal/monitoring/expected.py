"""The accuracy to expect where labels are missing, from confidence alone, with its interval.

If the confidence is calibrated, the expected accuracy of rows is their mean confidence. If there
are labelled reference rows, the gap that each bin had there is taken off first:

    expected = mean confidence - sum over bins b of share_b x gap_b

where share_b is the bin's share of the unlabelled rows, and gap_b the mean confidence minus the
accuracy of the reference rows in it. Bins with few reference rows are drawn towards calibration by
one made-up row that was right with its own confidence: gap_b = (confidence - right) / (n_b + 1).

The interval is that of the accuracy which these very rows will turn out to have. By the delta
method its variance has two parts: the outcomes of the N rows, sum of p (1 - p) / N^2, and the
reference's own luck, sum over bins of share_b^2 q_b (1 - q_b) / (n_b + 1). There q_b counts two
more right rows and two more wrong ones (Agresti and Coull 1998): a bin without an error may be
lucky, and its plain variance would be near zero. Without a reference the second part is zero, and
the interval holds only as far as the confidence is calibrated. The accuracy of N rows is a whole
number of them over N: the ends are rounded outwards to such a number.

Assumed: of rows with the same confidence as many are right as in the reference. A change of the
inputs that keeps it so (other confidences) is taken into account; one that breaks it is not seen
without labels, and this is what the calibration alarm is for.
"""

import math
from typing import NamedTuple

import numpy as np

from maccal.metrics import Bins
from maccal.metrics.resampling import Z, groups_of

ROUNDING = 1e-6  # rows: 78 is not 77.9999999


class Expected(NamedTuple):
    """Of rows without labels: how many, their mean confidence, the accuracy to expect."""

    rows: int
    confidence: float
    accuracy: float
    low: float
    high: float


def expected_accuracy(said: Bins, bins: int, reference: Bins | None = None) -> Expected:
    """The accuracy that the rows in these fine bins will have, and its 95 % interval.

    >>> from maccal.metrics.sketch import fine_grid
    >>> sure = Bins.of(np.full(100, 0.8), np.zeros(100, bool), fine_grid(15).edges)
    >>> found = expected_accuracy(sure, 15)
    >>> round(found.accuracy, 3), round(found.low, 3), round(found.high, 3)
    (0.8, 0.72, 0.88)
    """
    groups = groups_of(said)
    count = groups.right + groups.wrong
    n = said.n
    confidence = float(count @ groups.confidence / n)
    chance = groups.confidence
    gap = 0.0
    unsure = 0.0
    if reference is not None:
        share = said.coarsen(bins).count / n
        gaps, variance = reference_gaps(reference, bins)
        gap = float(share @ gaps)
        unsure = float(share**2 @ variance)
        starts = np.searchsorted(said.edges, reference.coarsen(bins).edges[:-1])
        bin_of = np.searchsorted(starts, np.flatnonzero(said.count), side="right") - 1
        chance = np.clip(groups.confidence - gaps[bin_of], 0, 1)
    outcomes = float(count @ (chance * (1 - chance))) / n**2
    half = Z * math.sqrt(outcomes + unsure)
    accuracy = min(1.0, max(0.0, confidence - gap))
    low = math.floor(n * max(0.0, accuracy - half) + ROUNDING)
    high = math.ceil(n * min(1.0, accuracy + half) - ROUNDING)
    return Expected(n, confidence, accuracy, low / n, high / n)


def reference_gaps(reference: Bins, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """The gap of each bin, with one made-up row of the bin's confidence, and its variance."""
    known = reference.coarsen(bins)
    gaps = (known.confidence - known.correct) / (known.count + 1)
    doubted = (known.correct + 2) / (known.count + 4)
    return gaps, doubted * (1 - doubted) / (known.count + 1)
