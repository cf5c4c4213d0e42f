"""The three alarms of a monitor, each a gambler of wealth.py who is told sums after every batch.

    calibration    H0: a row is right with its confidence, give or take the tolerance.
                   Half of the money on all rows, half spread evenly over the bins of confidence.
    accuracy       H0: a row is right with probability `least_accuracy` or more.
    drift          H0: the confidences are spread as in the reference. It needs no labels.

The drift of the confidences. For each of the confidences u in WATCHED, the share of rows below u is
F(u). The reference of n rows gives an exact (Clopper-Pearson) interval of F(u); all of them hold
together with probability 1 - alpha / 2 (Bonferroni). Within it, widened by the tolerance, the rows
are bet against as above; the money must reach 2 / alpha. Both together: a false alarm ever with
probability alpha at most, over the draw of the reference too. It assumes that rows are drawn
independently; it says that the inputs have changed, not that the model is wrong about them.
"""

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import betaincinv

from maccal.metrics import Bins
from maccal.metrics.binning import equal_width_edges
from maccal.metrics.sketch import fine_grid
from maccal.monitoring.cells import Cells
from maccal.monitoring.settings import Settings
from maccal.monitoring.wealth import BETS, Wealth, gains_down, gains_up

WATCHED = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999)
SIDES = 2  # bets go down and up


class Calibration:
    """The confidence is no longer the chance of being right."""

    watches = "known"  # labelled rows

    def __init__(self, settings: Settings) -> None:
        self.bins = settings.bins
        self.tolerance = settings.tolerance
        self.threshold = -math.log(settings.alpha)
        edges = equal_width_edges(self.bins)
        self.bin_of = np.searchsorted(edges, fine_grid(self.bins).edges[:-1], side="right") - 1
        bets = SIDES * len(BETS)
        whole = np.full(bets, 0.5 / bets)
        each = np.full(bets * self.bins, 0.5 / (bets * self.bins))
        self.wealth = Wealth(np.concatenate([whole, each]))

    def told(self, known: Cells) -> float:
        """The log of the money after these rows."""
        return self.wealth.round(self.gains(known))

    def gains(self, known: Cells) -> np.ndarray:
        """Of every bet on all rows, then of every bet on each bin."""
        count, right = known.sums[:2]
        fine = Bins(np.zeros(0), known.sums, known.rows)
        mean = fine.confidence / count
        down = gains_down(right, count, np.clip(mean - self.tolerance, 0, 1))
        up = gains_up(right, count, np.clip(mean + self.tolerance, 0, 1))
        gains = np.concatenate([down, up])
        per_bin = np.zeros((len(gains), self.bins))
        np.add.at(per_bin.T, self.bin_of[known.index], gains.T)
        return np.concatenate([gains.sum(1), per_bin.ravel()])

    def overconfident(self) -> bool:
        """Whether most of the money lies on bets that the confidence is too high."""
        money = self.wealth.money + self.wealth.shares
        whole, each = np.split(money, [SIDES * len(BETS)])
        by_side = np.concatenate([whole[:, None], each.reshape(len(whole), self.bins)], 1)
        down, up = np.split(by_side, SIDES)
        return bool(np.logaddexp.reduce(down, axis=None) >= np.logaddexp.reduce(up, axis=None))


class Accuracy:
    """The model is right less often than it has to be."""

    watches = "known"

    def __init__(self, settings: Settings, least: float) -> None:
        self.least = least
        self.threshold = -math.log(settings.alpha)
        self.wealth = Wealth(np.full(len(BETS), 1 / len(BETS)))

    def told(self, known: Cells) -> float:
        right = np.array(float(known.right))
        return self.wealth.round(gains_down(right, np.array(known.rows), np.array(self.least)))


class Drift:
    """The confidences are not spread as they were."""

    watches = "said"  # all rows

    def __init__(self, settings: Settings, reference: Cells) -> None:
        self.threshold = -math.log(settings.alpha / 2)
        edges = fine_grid(settings.bins).edges
        # The nearest edges of fine bins: chosen without a look at the data
        self.cuts = np.array([np.abs(edges - u).argmin() for u in WATCHED])
        chance = settings.alpha / (2 * SIDES * len(WATCHED))
        low, high = clopper_pearson(self.below(reference), reference.rows, chance)
        self.low = np.clip(low - settings.tolerance, 0, 1)
        self.high = np.clip(high + settings.tolerance, 0, 1)
        bets = SIDES * len(BETS) * len(WATCHED)
        self.wealth = Wealth(np.full(bets, 1 / bets))

    def below(self, said: Cells) -> np.ndarray:
        """How many rows are less sure than each cut."""
        upto = np.concatenate([[0.0], said.sums[0].cumsum()])
        return upto[np.searchsorted(said.index, self.cuts)]

    def told(self, said: Cells) -> float:
        hits = self.below(said)
        rows = np.full_like(hits, said.rows)
        down = gains_down(hits, rows, self.low)
        up = gains_up(hits, rows, self.high)
        return self.wealth.round(np.concatenate([down.ravel(), up.ravel()]))


Alarm = Calibration | Accuracy | Drift


def alarms(settings: Settings) -> Mapping[str, Alarm]:
    """Those that the settings ask for, before any row."""
    found: dict[str, Alarm] = {"calibration": Calibration(settings)}
    if settings.least_accuracy is not None:
        found["accuracy"] = Accuracy(settings, settings.least_accuracy)
    if settings.reference is not None:
        found["drift"] = Drift(settings, settings.reference)
    return found


def clopper_pearson(hits: np.ndarray, rows: int, chance: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of a probability, each of which fails with this chance at most.

    >>> low, high = clopper_pearson(np.array([0.0, 5.0, 10.0]), 10, 0.025)
    >>> low.round(4).tolist(), high.round(4).tolist()
    ([0.0, 0.1871, 0.6915], [0.3085, 0.8129, 1.0])
    """
    none, all_ = hits == 0, hits == rows
    low = betaincinv(np.where(none, 1, hits), rows - hits + 1, chance)
    high = betaincinv(hits + 1, np.where(all_, 1, rows - hits), 1 - chance)
    return np.where(none, 0.0, low), np.where(all_, 1.0, high)
