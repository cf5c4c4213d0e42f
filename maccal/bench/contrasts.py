"""Two methods compared: a difference, its interval, and whether chance explains it.

    contrast([maccal], [vanilla], "ece")     the first less the second, with its test

Over several seeds the test is Student's on the differences seed by seed. With one shared seed the
bootstrap intervals of the two rows stand in for it: they speak of other test images, not of another
training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import ndtr, ndtri, stdtr, stdtrit

from maccal.bench.lines import Line, shared_seeds
from maccal.evaluation.row import Row

LEVEL = 0.05


@dataclass(frozen=True)
class Contrast:
    """A difference of two methods with its 95 % interval.

    `seeds` is 1 where intervals of the rows stand in for seeds. `alike`: neither can be told from a
    calibrated model, so that no difference of ECE means anything.
    """

    difference: float
    low: float
    high: float
    p_value: float
    seeds: int
    alike: bool

    @property
    def real(self) -> bool:
        return self.p_value <= LEVEL and not self.alike

    @property
    def how(self) -> str:
        if self.seeds > 1:
            return f"{self.seeds} seeds"
        known = math.isfinite(self.p_value)
        return "intervals of one seed" if known else "one seed without intervals"


def contrast(first: Sequence[Line], second: Sequence[Line], key: str = "ece") -> Contrast | None:
    """First less second, averaged over pairs of lines, on the seeds that all of them share.

    None where they share none, or where corruptions were of other images.
    """
    both = [*first, *second]
    seeds = [seed for seed in shared_seeds(both, key) if alike_images(both, key, seed)]
    if not seeds:
        return None
    pairs = [(a.values(key), b.values(key)) for a, b in zip(first, second, strict=True)]
    differences = []
    for seed in seeds:
        differences.append(fmean(a[seed] - b[seed] for a, b in pairs))
    error = sampling_error([line.runs[seeds[0]] for line in both], key) / len(pairs)
    alike = key == "ece" and all(line.calibrated for line in both)
    return seed_test(differences, error, alike)


def alike_images(lines: Sequence[Line], key: str, seed: int) -> bool:
    """Whether numbers of corrupted images are of as many, by the same maker.

    An ECE of fewer images is larger by chance alone.
    """
    if not key.startswith("shift."):
        return True
    seen = []
    for line in lines:
        part = line.runs[seed].shift or {}
        seen.append([part.get(name) for name in ("n", "source", "kinds", "severities")])
    return all(one == seen[0] for one in seen)


def seed_test(differences: Sequence[float], error: float, alike: bool = False) -> Contrast:
    """The test of one difference per seed; `error` is that of a single one."""
    count = len(differences)
    if count > 1:
        error = stdev(differences) / math.sqrt(count)
    return against_zero(fmean(differences), error, count, alike)


def sampling_error(rows: Sequence[Row], key: str) -> float:
    """Of the sum of a number over rows, from their 95 % intervals; nan where a row has none."""
    widths = [row.number(f"{key}_high") - row.number(f"{key}_low") for row in rows]
    return math.hypot(*widths) / (2 * float(ndtri(1 - LEVEL / 2)))


def against_zero(mean: float, error: float, count: int, alike: bool = False) -> Contrast:
    """Whether a mean is zero: by Student's t of `count` numbers, by the normal law where there is
    but one.

    >>> found = against_zero(-0.02, 0.005, 3)
    >>> round(found.p_value, 4), round(found.high, 4), found.real
    (0.0572, 0.0015, False)
    """
    quantile = stdtrit(count - 1, 1 - LEVEL / 2) if count > 1 else ndtri(1 - LEVEL / 2)
    reach = float(quantile) * error
    if error == 0:
        p_value = float(mean == 0)
    else:
        far = -abs(mean / error)
        p_value = 2 * float(stdtr(count - 1, far) if count > 1 else ndtr(far))
    return Contrast(mean, mean - reach, mean + reach, p_value, count, alike)


def paired(differences: Sequence[float]) -> Contrast | None:
    """The test of one number per seed; None of fewer than two."""
    return seed_test(differences, math.nan) if len(differences) > 1 else None
