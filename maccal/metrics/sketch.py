"""The sketch behind Stream: about two thousand fine bins of confidence, and how far off they can
be.

There are FINE equal bins, and towards 1, where a trained model's rows crowd, 32 more to every
halving of 1 - confidence down to 2**-40. They refine the bins of the diagram, so ECE and MCE lose
nothing. What depends on the order of the rows within a fine bin is known within bounds. `errors`
has them, from the counts alone:

    aurc, e_aurc           the wrong rows of every bin are its surest, or its least sure
    ks                     how far a bin's rows can carry the cumulative gap before they are all in
    aece, debiased CE^2    each cut between equal-mass bins lies anywhere in the fine bin it falls into
    smece                  every row moved by the width of its bin moves smECE by at most
                           sqrt(2 / pi) x (sum of |residual| x width) / smECE
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from maccal.metrics.bins import Bins, equal_width_edges
from maccal.metrics.miscalibration import GRID, smooth_error, to_grid
from maccal.metrics.resampling import Groups, area_under_risk, groups_of, statistics

FINE = 1024
HALVINGS = range(11, 41)  # of 1 - confidence, below 1 / FINE
STEPS = 32  # bins to a halving
CELLS = 4096  # of the table that finds the bin of a confidence
ROUNDING = 2.0**-23  # bisection leaves smECE within 2**-24 on either side; sums round to far less

# what fine bins do not know exactly
INEXACT = ("aece", "smece", "ks", "debiased_squared_ce", "aurc", "e_aurc")


class Grid(NamedTuple):
    """Edges of the fine bins; the bin at the start of each of CELLS parts of [0, 1], and at 1."""

    edges: np.ndarray
    first: np.ndarray


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

    INEXACT ones are called `<name>_binned`; `<name>_binned_error` is how far off they are at most.
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
    low, high = fine.edges[:-1][filled], fine.edges[1:][filled]
    # the most that a group's rows can add to the residual, and take from it
    up, down = groups.wrong * high, groups.right * (1 - low)
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
    """How far AURC can be off: every group parted into its wrong rows and its right ones."""
    none = np.zeros_like(groups.wrong)
    halves = [np.stack([groups.wrong, groups.right], 1), np.stack([groups.wrong, none], 1)]
    best, worst = (
        area_under_risk(count.reshape(1, -1), wrong.reshape(1, -1), n)[0]
        for count, wrong in (halves, [half[:, ::-1] for half in halves])
    )
    return float(max(value - best, worst - value))


def cumulative_reach(groups: Groups, up: np.ndarray, down: np.ndarray) -> float:
    """The largest |cumulative residual| that rows in these groups can have had, in rows."""
    residual = (groups.right + groups.wrong) * groups.confidence - groups.right
    after = residual.cumsum()
    before = after - residual
    return float(np.max([np.abs(before + up), np.abs(before - down), np.abs(after)]))


def cut_errors(groups: Groups, reach: np.ndarray, bins: int) -> tuple[float, float]:
    """How far AECE and the debiased squared error, times N, can be off by cuts within groups.

    Moving a cut changes the residual S of the two bins it parts by `reach` at most, and their
    counts m by that of the group. So the sum of |S| moves by twice the reach at most, and S^2 / m
    stays between its values at the ends. The noise term of a bin lies between 0 and 1 in any case.
    """
    count = groups.right + groups.wrong
    n = int(count.sum())
    upto = count.cumsum()
    cut = np.searchsorted(upto, np.arange(1, bins) * n // bins, side="right")
    start = np.concatenate([[0], cut, [len(count)]])
    residual = count * groups.confidence - groups.right
    m, s = (np.diff(np.concatenate([[0.0], x.cumsum()])[start]) for x in (count, residual))
    spread, rows = (np.convolve(np.pad(x[cut], 1), [1, 1], "valid") for x in (reach, count))
    size = np.abs(s)
    now = np.where(m > 1, s**2 / np.maximum(m, 1), 0.0)
    most = np.minimum((size + spread) ** 2 / np.maximum(m - rows, 1), m + rows)
    least = np.where(m - rows > 1, np.maximum(size - spread, 0) ** 2 / np.maximum(m + rows, 1), 0.0)
    change = np.where(rows > 0, np.maximum(most - now, now - least) + 1, 0.0)
    return 2 * float(reach[cut].sum()), float(change.sum())
