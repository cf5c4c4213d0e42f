"""The sketch behind Stream: two thousand fine bins of confidence, and how far off they can be.

There are FINE equal bins. Towards 1, where most rows of a trained model are, there are 32 more for
every halving of 1 - confidence, down to 2**-40. They refine the bins of the diagram, so ECE and MCE
lose nothing. What depends on the order of the rows within a fine bin is known within bounds, which
`errors` finds from the counts alone:

    aurc, e_aurc           the wrong rows of every bin are its surest, or its least sure
    ks                     how far a bin's rows can carry the cumulative gap before all are counted
    aece, debiased CE^2    a cut between equal-mass bins lies anywhere in the fine bin it falls into
    smece                  every row moved by the width of its bin moves smECE by at most
                           sqrt(2 / pi) x (sum of |residual| x width) / smECE
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from maccal.metrics.binning import equal_width_edges
from maccal.metrics.bins import Bins
from maccal.metrics.miscalibration import GRID, smooth_error, to_grid
from maccal.metrics.resampling import Groups, area_under_risk, groups_of, statistics

FINE = 1024
HALVINGS = range(11, 41)  # of 1 - confidence, below 1 / FINE
STEPS = 32  # bins per halving
CELLS = 4096  # of the table that finds the bin of a confidence
ROUNDING = 2.0**-23  # bisection leaves smECE within 2**-24 on either side; sums round to far less

# What fine bins do not know exactly
INEXACT = ("aece", "smece", "ks", "debiased_squared_ce", "aurc", "e_aurc")


class Grid(NamedTuple):
    """The fine bins, and a table that finds them."""

    edges: np.ndarray
    first: np.ndarray  # the bin at the start of each of CELLS parts of [0, 1], and at 1


@lru_cache(maxsize=16)
def fine_grid(bins: int) -> Grid:
    towards_one = [1 - np.ldexp(1 + np.arange(STEPS) / STEPS, -k) for k in HALVINGS]
    equal = [equal_width_edges(bins), equal_width_edges(FINE)]
    edges = np.unique(np.concatenate([*equal, *towards_one]))
    starts = np.arange(CELLS + 1) / CELLS
    first = np.minimum(np.searchsorted(edges, starts, side="right") - 1, len(edges) - 2)
    for array in (edges, first):
        array.flags.writeable = False  # shared by all streams
    return Grid(edges, first)


def read(fine: Bins, bins: int) -> tuple[Groups, dict[str, float]]:
    """The groups that stand for the rows, and every statistic of them.

    Those in INEXACT are called `<name>_binned`; `<name>_binned_error` is how far off each is at
    most.
    """
    groups = groups_of(fine)
    table = statistics(groups, groups.right[None], groups.wrong[None], bins)
    numbers = {name: float(value[0]) for name, value in table.items()}
    count = groups.right + groups.wrong
    residual = (count * groups.confidence - groups.right) / fine.n
    numbers["smece"] = float(smooth_error(to_grid(groups.confidence, residual[None], GRID))[0])
    bounds = errors(fine, groups, bins, numbers)
    for name in INEXACT:
        numbers[f"{name}_binned"] = numbers.pop(name)
        numbers[f"{name}_binned_error"] = bounds[name] + ROUNDING
    return groups, numbers


def errors(fine: Bins, groups: Groups, bins: int, numbers: dict[str, float]) -> dict[str, float]:
    """How far each number of the groups can at most be from that of the rows."""
    filled = fine.count > 0
    low = fine.edges[:-1][filled]
    high = fine.edges[1:][filled]
    # The most that the rows of a group can add to the residual, and take from it
    up = groups.wrong * high
    down = groups.right * (1 - low)
    risk = risk_error(groups, fine.n, numbers["aurc"])
    moved = math.sqrt(2 / math.pi) * float(((up + down) * (high - low)).sum()) / fine.n
    mass, squared = cut_errors(groups, np.maximum(up, down), bins)
    return {
        "aurc": risk,
        "e_aurc": risk,
        "ks": cumulative_reach(groups, up, down) / fine.n - numbers["ks"],
        "aece": mass / fine.n,
        "debiased_squared_ce": squared / fine.n,
        "smece": min(moved / max(numbers["smece"], 1e-9), math.sqrt(moved)),
    }


def risk_error(groups: Groups, n: int, value: float) -> float:
    """How far AURC can be off: in every group the wrong rows come first, or last."""
    none = np.zeros_like(groups.wrong)
    count = np.stack([groups.wrong, groups.right], 1)
    wrong = np.stack([groups.wrong, none], 1)
    best = area_under_risk(count.reshape(1, -1), wrong.reshape(1, -1), n)[0]
    worst = area_under_risk(count[:, ::-1].reshape(1, -1), wrong[:, ::-1].reshape(1, -1), n)[0]
    return float(max(value - best, worst - value))


def cumulative_reach(groups: Groups, up: np.ndarray, down: np.ndarray) -> float:
    """The largest |cumulative residual| that rows in these groups can have had, in rows."""
    residual = (groups.right + groups.wrong) * groups.confidence - groups.right
    after = residual.cumsum()
    before = after - residual
    return float(np.max([np.abs(before + up), np.abs(before - down), np.abs(after)]))


def cut_errors(groups: Groups, reach: np.ndarray, bins: int) -> tuple[float, float]:
    """How far AECE and the debiased squared error, times N, can be off by cuts within groups.

    Moving a cut changes the residual S of the two bins beside it by `reach` at most, and their
    counts m by that of the group. So the sum of |S| moves by twice the reach at most, and S^2 / m
    stays between its values at the ends. The noise term of a bin lies between 0 and 1 in any case.
    """
    count = groups.right + groups.wrong
    n = int(count.sum())
    upto = count.cumsum()
    cut = np.searchsorted(upto, np.arange(1, bins) * n // bins, side="right")
    start = np.concatenate([[0], cut, [len(count)]])
    m = between_cuts(count, start)
    s = np.abs(between_cuts(count * groups.confidence - groups.right, start))
    spread = at_both_ends(reach[cut])
    rows = at_both_ends(count[cut])
    now = np.where(m > 1, s**2 / np.maximum(m, 1), 0.0)
    most = np.minimum((s + spread) ** 2 / np.maximum(m - rows, 1), m + rows)
    lowest = np.maximum(s - spread, 0) ** 2 / np.maximum(m + rows, 1)
    least = np.where(m - rows > 1, lowest, 0.0)
    change = np.where(rows > 0, np.maximum(most - now, now - least) + 1, 0.0)
    return 2 * float(reach[cut].sum()), float(change.sum())


def between_cuts(values: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The sums of the values from each start to the next."""
    return np.diff(np.concatenate([[0.0], values.cumsum()])[start])


def at_both_ends(at_cuts: np.ndarray) -> np.ndarray:
    """For each bin the sum of the values at the cuts on its two sides."""
    return np.convolve(np.pad(at_cuts, 1), [1, 1], "valid")
