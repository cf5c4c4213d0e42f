"""Intervals: how much of a number is chance.

Two questions, one machine. The *bootstrap* asks where the number would land on another test set
like this one. The *null band* asks where it would land if the model were perfectly calibrated:
outcomes are drawn from the very confidences it stated.

Rows are first gathered into groups of equal confidence; above ROWS rows into about GROUPS groups of
nearly equal confidence that never straddle a bin. A resample then draws the counts of the groups,
not the rows, and all its statistics come out of cumulative sums over the groups in order of
confidence: 1,000 resamples cost about half a second for a million rows.

An error such as ECE is never below zero, so noise pushes it up, and the bootstrap adds that noise a
second time. The interval is therefore centred: point + (resample - mean of the resamples). It
covers the statistic at this N, as does the null band, so the two can be compared.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from torch import Tensor

from maccal.metrics.arguments import check_bins, check_count, check_share, generator
from maccal.metrics.binning import assign, equal_width_edges, mass_edges
from maccal.metrics.bins import Bins
from maccal.metrics.inputs import Array, Same, as_tensor, check_confidence, like
from maccal.metrics.miscalibration import by_confidence, smooth_error, to_grid
from maccal.metrics.ranking import best_aurc, harmonic

ROWS = 2048  # more rows than this are gathered
GROUPS = 1024  # into about this many groups
BATCH = (
    1 << 18
)  # numbers in one array of a batch of resamples: 2 MB; a dozen such arrays are in use
RESAMPLES = 1_000_000  # at most
GRID = 512  # cells of smece within a resample
LEVEL = 0.95
ROUNDING = 1e-12  # values nearer than this are the same
Z = float(ndtri((1 + LEVEL) / 2))  # half the width of a normal interval, in standard deviations

Statistics = dict[str, np.ndarray]  # one number for each resample, by name
Counts = tuple[np.ndarray, np.ndarray]  # right and wrong rows: resamples x groups


class Interval(NamedTuple):
    """Where a number would land, at LEVEL."""

    low: float
    high: float


class Groups(NamedTuple):
    """Rows gathered by confidence, ascending: how many were right, and how many wrong, at each."""

    confidence: np.ndarray
    right: np.ndarray
    wrong: np.ndarray


def bootstrap(
    metric: Callable[..., float],
    *arrays: Array,
    resamples: int = 1000,
    level: float = LEVEL,
    seed: int = 0,
) -> Interval:
    """The centred bootstrap interval of any metric, by drawing rows of all arrays together.

    For a metric of two samples pass the scores and a mask: `bootstrap(lambda s, inside:
    auroc(s[inside], s[~inside]), s, inside)`.

    >>> from maccal.metrics.ranking import aurc
    >>> confidence = np.linspace(0.5, 1, 200)
    >>> low, high = bootstrap(aurc, confidence, np.arange(200) % 5 > 0, resamples=200)
    >>> 0.1 < low < 0.2 < high < 0.3
    True
    """
    if not 0 < check_share(level, "level") < 1:
        raise ValueError("level is 1; an interval that always holds the number is the whole line")
    data = [like(as_tensor(a, f"array {number}"), a) for number, a in enumerate(arrays)]
    n = same_length(data)
    rng = generator(seed)
    draws = []
    for _ in range(check_resamples(resamples)):
        rows = rng.integers(n, size=n)
        draws.append(metric(*(a[rows] for a in data)))
    return centred(metric(*data), np.array(draws), level, (-np.inf, np.inf))


def same_length(arrays: Sequence[Same]) -> int:
    if not arrays or any(a.ndim == 0 or len(a) == 0 for a in arrays):
        fix = "pass at least one array of at least one row"
        raise ValueError(f"there are no rows to draw from; {fix}")
    if any(len(a) != len(arrays[0]) for a in arrays):
        lengths = ", ".join(str(len(a)) for a in arrays)
        raise ValueError(f"arrays of {lengths} rows; they must match one to one")
    return len(arrays[0])


def check_resamples(resamples: int) -> int:
    return check_count(resamples, "resamples", most=RESAMPLES)


def resample(
    confidence: Array, correct: Array, *, bins: int = 15, resamples: int = 1000, seed: int = 0
) -> tuple[Statistics, Statistics]:
    """Draws of every top-label statistic: from the bootstrap, and from a calibrated model.

    The calibrated model has the same confidences.
    """
    bins = check_bins(bins)
    groups = gather(*check_confidence(confidence, correct), bins)
    return resample_groups(groups, bins, resamples, seed)


def resample_groups(
    groups: Groups, bins: int, resamples: int, seed: int
) -> tuple[Statistics, Statistics]:
    rng = generator(seed)
    boot = table(groups, bootstrap_draws(groups, resamples, rng, bins), bins)
    null = table(groups, null_draws(groups, resamples, rng, bins), bins)
    return boot, null


def table(groups: Groups, draws: Iterator[Counts], bins: int) -> Statistics:
    """Every statistic of all draws."""
    parts = [statistics(groups, right, wrong, bins) for right, wrong in draws]
    columns = {}
    for name in parts[0]:
        columns[name] = np.concatenate([part[name] for part in parts])
    return columns


def centred(
    point: float, draws: np.ndarray, level: float = LEVEL, within: tuple[float, float] = (0.0, 1.0)
) -> Interval:
    """The point plus the spread of the draws about their mean, kept within the metric's range."""
    low, high = point + np.quantile(draws, [(1 - level) / 2, (1 + level) / 2]) - draws.mean()
    return Interval(*np.clip([low, high], *within).tolist())


def band(draws: np.ndarray, level: float = LEVEL) -> Interval:
    """The middle of the draws, a share `level` of them."""
    return Interval(*np.quantile(draws, [(1 - level) / 2, (1 + level) / 2]).tolist())


def tail(value: float, draws: np.ndarray) -> float:
    """The share of a calibrated model's draws that reach this value, which counts as one of them.

    What is equal but for rounding is equal: of few confidences many draws are the value itself.

    >>> tail(0.3, np.array([0.1 + 0.2, 0.3, 0.3 - 1e-16, 0.2]))
    0.8
    """
    return (1 + int((draws >= value - ROUNDING).sum())) / (1 + len(draws))


def gather(confidence: Tensor, correct: Tensor, bins: int) -> Groups:
    """Groups of equal confidence; if there are many rows, of nearly equal confidence in one bin."""
    if len(confidence) <= ROWS:
        values, index = np.unique(confidence.cpu().numpy(), return_inverse=True)
        right = np.bincount(index, correct.cpu().numpy())
        return Groups(values, right, np.bincount(index) - right)
    rows = by_confidence(confidence, correct)
    edges = np.union1d(mass_edges(rows.confidence, GROUPS), equal_width_edges(bins))
    return groups_of(Bins.of_ordered(rows.confidence, rows.correct, edges))


def groups_of(fine: Bins) -> Groups:
    """The filled bins as groups, each at its mean confidence."""
    filled = fine.count > 0
    count = fine.count[filled]
    right = fine.correct[filled]
    mean = fine.confidence[filled] / count
    # Rounding must not carry a mean over an edge of its bin
    low = fine.edges[:-1][filled]
    high = np.nextafter(fine.edges[1:][filled], 0)
    return Groups(np.clip(mean, low, high), right, count - right)


def bootstrap_draws(
    groups: Groups, resamples: int, rng: np.random.Generator, bins: int = 15
) -> Iterator[Counts]:
    """Batches of (right, wrong) counts of resampled rows: N draws with replacement."""
    atoms = np.concatenate([groups.right, groups.wrong])
    n = int(atoms.sum())
    few = n < 16 * len(atoms)  # then drawing rows is cheaper than drawing counts
    for many in batches(resamples, max(len(atoms), bins, GRID)):
        drawn = drawn_rows(atoms, many, rng) if few else rng.multinomial(n, atoms / n, many)
        right, wrong = np.split(drawn.astype(np.float64), 2, axis=1)
        yield right, wrong


def drawn_rows(atoms: np.ndarray, many: int, rng: np.random.Generator) -> np.ndarray:
    """Multinomial counts of the atoms, many x atoms, by drawing single rows."""
    size = len(atoms)
    atom_of = np.repeat(np.arange(size), atoms.astype(np.int64))
    n = len(atom_of)
    counts = np.empty((many, size), np.int64)
    for resample in range(many):
        counts[resample] = np.bincount(atom_of[rng.integers(n, size=n)], minlength=size)
    return counts


def null_draws(
    groups: Groups, resamples: int, rng: np.random.Generator, bins: int = 15
) -> Iterator[Counts]:
    """Batches of (right, wrong) counts of a calibrated model.

    Each row is right with the probability that it states.
    """
    count = groups.right + groups.wrong
    trials = count.astype(np.int64)
    single = trials.max() == 1  # a comparison is much cheaper than a binomial draw
    for many in batches(resamples, max(len(count), bins, GRID)):
        shape = (many, len(count))
        if single:
            right = (rng.random(shape) < groups.confidence).astype(np.float64)
        else:
            right = rng.binomial(trials, groups.confidence, shape).astype(np.float64)
        yield right, count - right


def batches(resamples: int, width: int) -> Iterator[int]:
    """How many resamples of `width` numbers to draw at a time."""
    resamples = check_resamples(resamples)
    most = max(1, BATCH // max(1, width))
    return (min(most, resamples - start) for start in range(0, resamples, most))


def statistics(groups: Groups, right: np.ndarray, wrong: np.ndarray, bins: int) -> Statistics:
    """Every top-label statistic of each resample, one per row of the right and wrong counts.

    One resample that equals the data gives what the public functions give; a test says so.
    """
    count = right + wrong
    n = int(count[0].sum())
    residual = count * groups.confidence - right
    upto = [np.pad(x.cumsum(1), ((0, 0), (1, 0))) for x in (count, right, residual)]
    masses = equal_mass_sums(upto, bins)
    risk = area_under_risk(count, wrong, n)
    return {
        "accuracy": right.sum(1) / n,
        "confidence": (count @ groups.confidence) / n,
        **equal_width(groups.confidence, count, residual, bins, n),
        "aece": np.abs(masses[2]).sum(1) / n,
        "debiased_squared_ce": debiased(*masses) / n,
        "smece": smooth_error(to_grid(groups.confidence, residual / n, GRID), steps=16),
        "ks": np.abs(upto[2]).max(1) / n,
        "aurc": risk,
        "e_aurc": risk - best_aurc(wrong.sum(1).astype(np.int64), n),
    }


def equal_width(
    confidence: np.ndarray, count: np.ndarray, residual: np.ndarray, bins: int, n: int
) -> Statistics:
    index = assign(as_tensor(confidence, "confidence"), equal_width_edges(bins), "maccal").numpy()
    start = np.flatnonzero(np.diff(index, prepend=-1))
    gap = np.abs(np.add.reduceat(residual, start, axis=1))
    size = np.add.reduceat(count, start, axis=1)
    return {"ece": gap.sum(1) / n, "mce": (gap / np.maximum(size, 1)).max(1)}


def equal_mass_sums(upto: list[np.ndarray], bins: int) -> list[np.ndarray]:
    """Count, right and residual in each equal-mass bin of each resample.

    From their cumulative sums over the groups, which start with 0.
    """
    reached = upto[0][:, 1:]
    resamples, groups = reached.shape
    n = reached[0, -1]
    ranks = np.arange(1, bins) * int(n) // bins
    # One search for all resamples: the counts of each are shifted beyond those of the one before
    number = np.arange(resamples)[:, None]
    shift = number * (n + 1)
    found = np.searchsorted((reached + shift).ravel(), (ranks + shift).ravel(), side="right")
    inner = found.reshape(resamples, -1) - groups * number
    cut = np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (0, groups)))
    return [np.diff(np.take_along_axis(x, cut, 1), axis=1) for x in upto]


def debiased(count: np.ndarray, right: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """N times the debiased squared error (Kumar et al. 2019) from the sums of each bin."""
    size = np.maximum(count, 2)
    noise = right * (size - right) / (size * (size - 1))
    return np.where(count > 1, residual**2 / size - noise, 0.0).sum(1)


def area_under_risk(count: np.ndarray, wrong: np.ndarray, n: int) -> np.ndarray:
    """AURC from counts by ascending confidence; a group's errors are spread evenly over its ranks.

    A group on the ranks a+1 .. b, with E errors before it and an error share e, adds the risks
    (E - a e)(H_b - H_a) + (b - a) e.
    """
    count = count[:, ::-1]
    wrong = wrong[:, ::-1]
    share = wrong / np.maximum(count, 1)
    before = np.cumsum(wrong, 1) - wrong
    b = np.cumsum(count, 1).astype(np.int64)
    a = b - count.astype(np.int64)
    # This is H_b - H_a, as a group starts where the one before it ends
    between = np.diff(harmonic(b), prepend=0.0)
    return np.asarray(((before - a * share) * between + wrong).sum(1) / n)
