"""Rows of runs, gathered: a line is the runs of one method on one data set and network, which
differ in the seed alone.

    book = Book.of(rows)                                   the lines, sorted; failed runs are left out
    book.get(setting, "maccal").mean("ece")                over its seeds
    contrast([maccal], [vanilla], "ece")                   the first less the second, with its test

Over several seeds the test is Student's on the differences seed by seed. With one shared seed the
bootstrap intervals of the two rows stand in for it: they speak of other test images, not of another
training.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any, NamedTuple

from scipy.special import ndtr, ndtri, stdtr, stdtrit

from maccal.bench.paper import HEADS, TITLES, YARDSTICKS

Row = Mapping[str, Any]
LEVEL = 0.05
NAMES = {**TITLES, **YARDSTICKS, "maccal": "MaC-Cal"}


class Setting(NamedTuple):
    """Where a method was tried: data set, how many of its training images (0 is all), and network."""

    data: str
    limit: int
    model: str

    @property
    def place(self) -> str:
        """
        >>> Setting("cifar10", 10_000, "resnet8").place
        'cifar10.10000'
        """
        return f"{self.data}.{self.limit}" if self.limit else self.data


@dataclass(frozen=True)
class Line:
    """The runs of a method, by seed.

    `variant` is the method and what is not as it has it by itself.
    """

    setting: Setting
    method: str
    variant: str
    runs: Mapping[int, Row]

    def values(self, key: str) -> dict[int, float]:
        """A number of each run that has it, by seed; `key` as in `number`."""
        found = {seed: number(row, key) for seed, row in self.runs.items()}
        return {seed: value for seed, value in found.items() if math.isfinite(value)}

    def mean(self, key: str) -> float:
        values = self.values(key).values()
        return fmean(values) if values else math.nan

    def spread(self, key: str) -> float:
        """The standard deviation over seeds; nan of fewer than two."""
        values = list(self.values(key).values())
        return stdev(values) if len(values) > 1 else math.nan

    @property
    def calibrated(self) -> bool:
        """Whether its ECE is within the band of a calibrated model, both averaged over seeds."""
        return self.mean("ece") <= self.mean("ece_null_high")

    @property
    def first(self) -> str:
        """The variant that is its stage I: itself, where it has no stage II."""
        if not set(HEADS) & set(self.method.split("+")):
            return self.variant
        return self.variant.rpartition("+")[0] or "vanilla"


def number(row: Row, key: str) -> float:
    """A number of a row, nan where there is none; dots lead into its parts.

    >>> number({"shift": {"overall": {"ece": 0.1}}}, "shift.overall.ece"), number({}, "ood.mean.auroc")
    (0.1, nan)
    """
    found: Any = row
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) else math.nan


@dataclass(frozen=True)
class Book:
    """All lines of the rows, by setting and variant."""

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Book":
        runs: dict[tuple[Setting, str, str], dict[int, Row]] = {}
        for row in sorted(
            (row for row in rows if "run" in row), key=lambda row: (row["run"]["seed"], row["name"])
        ):
            about = row["run"]
            setting = Setting(about["data"], about.get("limit") or 0, about["model"])
            runs.setdefault((setting, variant(row, setting), about["method"]), {})[
                about["seed"]
            ] = row
        return cls(
            tuple(
                Line(setting, method, kind, runs[setting, kind, method])
                for setting, kind, method in sorted(runs)
            )
        )

    @cached_property
    def index(self) -> dict[tuple[Setting, str], Line]:
        return {(line.setting, line.variant): line for line in self.lines}

    @property
    def settings(self) -> list[Setting]:
        return sorted({line.setting for line in self.lines})

    def get(self, setting: Setting, variant: str) -> Line | None:
        return self.index.get((setting, variant))

    def seconds(self, line: Line) -> dict[int, float]:
        """Of the whole training by seed, both stages; only seeds whose stage I is known."""
        own, first = line.values("trained.seconds"), self.get(line.setting, line.first)
        if first is line:
            return own
        before = first.values("trained.seconds") if first else {}
        return {seed: before[seed] + own[seed] for seed in own if seed in before}


def variant(row: Row, setting: Setting) -> str:
    """The run's name without data, network and seed; a name that is not of that form stands whole.

    >>> run = {"data": "cifar10", "model": "resnet8", "method": "maccal", "seed": 2}
    >>> variant({"name": "cifar10-resnet8-maccal,gamma=0.9-s2", "run": run}, Setting("cifar10", 0, "resnet8"))
    'maccal,gamma=0.9'
    """
    name, start, end = row["name"], f"{setting.place}-{setting.model}-", f"-s{row['run']['seed']}"
    return str(
        name[len(start) : -len(end)] if name.startswith(start) and name.endswith(end) else name
    )


@dataclass(frozen=True)
class Contrast:
    """A difference of two methods with its 95 % interval; `seeds` is 1 where intervals of the rows
    stand in for seeds.

    `alike`: neither can be told from a calibrated model, so that no difference of ECE means
    anything."""

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
        return f"{self.seeds} seeds" if self.seeds > 1 else "intervals of one seed"


def contrast(first: Sequence[Line], second: Sequence[Line], key: str = "ece") -> Contrast | None:
    """First less second, averaged over pairs of lines, on the seeds that all of them share.

    None where they share none.
    """
    pairs = [(a.values(key), b.values(key)) for a, b in zip(first, second, strict=True)]
    seeds = sorted(set.intersection(*(set(a) & set(b) for a, b in pairs))) if pairs else []
    if not seeds:
        return None
    differences = [fmean(a[seed] - b[seed] for a, b in pairs) for seed in seeds]
    alone = [row for lines in (first, second) for row in (line.runs[seeds[0]] for line in lines)]
    error = (
        stdev(differences) / math.sqrt(len(seeds))
        if len(seeds) > 1
        else sampling_error(alone, key) / len(pairs)
    )
    alike = key == "ece" and all(line.calibrated for lines in (first, second) for line in lines)
    return against_zero(fmean(differences), error, len(seeds), alike)


def sampling_error(rows: Sequence[Row], key: str) -> float:
    """Of the sum of a number over rows, from their 95 % intervals; nan where a row has none."""
    widths = [number(row, f"{key}_high") - number(row, f"{key}_low") for row in rows]
    return math.hypot(*widths) / (2 * float(ndtri(1 - LEVEL / 2)))


def against_zero(mean: float, error: float, count: int, alike: bool = False) -> Contrast:
    """Whether a mean is zero: by Student's t of `count` numbers, by the normal law where there is
    but one.

    >>> found = against_zero(-0.02, 0.005, 3)
    >>> round(found.p_value, 4), round(found.high, 4), found.real
    (0.0572, 0.0015, False)
    """
    reach = float(stdtrit(count - 1, 1 - LEVEL / 2) if count > 1 else ndtri(1 - LEVEL / 2)) * error
    if error == 0:
        p_value = float(mean == 0)
    else:
        far = -abs(mean / error)
        p_value = 2 * float(stdtr(count - 1, far) if count > 1 else ndtr(far))
    return Contrast(mean, mean - reach, mean + reach, p_value, count, alike)


def points(value: float, sign: bool = False) -> str:
    """A fraction in per cent, without the sign for it.

    >>> points(0.0142), points(0.0142, sign=True), points(-0.5, sign=True), points(float("nan"))
    ('1.42', '+1.42', '−50.00', '–')
    """
    if not math.isfinite(value):
        return "–"
    return f"{100 * value:{'+' if sign else ''}.2f}".replace("-", "−")


def chance(p: float) -> str:
    """
    >>> chance(0.0004), chance(0.25), chance(float("nan"))
    ('p < 0.001', 'p = 0.250', 'no test')
    """
    if math.isnan(p):
        return "no test"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def titled(variant: str) -> str:
    """A method as the page calls it; on a second line what was changed.

    >>> titled("mbls+maccal"), titled("mixup,alpha=0.5+maccal,gamma=0.9")
    ('MbLS + MaC-Cal', 'mixup + MaC-Cal\\nalpha=0.5, gamma=0.9')
    """
    parts = [part.split(",") for part in variant.split("+")]
    changes = [change.replace("_", " ") for _, *changed in parts for change in changed]
    return " + ".join(NAMES.get(name, name) for name, *_ in parts) + (
        "\n" + ", ".join(changes) if changes else ""
    )
