"""Rows of runs, gathered: the one aggregator behind tables, figures, claims and page.

    book = Book.of(rows)                         its lines, sorted; failed runs are kept apart
    book.get(setting, "maccal").mean("ece")      a line is the runs that differ in the seed alone
    spread([line, other], "ece")                 over seeds: mean, spread, a calibrated model's band

The spread is the standard deviation over seeds, everywhere. Of one seed it is the run's own 95 %
interval, which speaks of other test images and not of another training. An average over data sets
and networks is over the seeds that all of them have.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any, NamedTuple

from maccal.bench.titles import set_title, title
from maccal.evaluation.row import Ran, Row, worded

# by method, what rows say of the way that was its own before its defaults changed (readings.py)
EARLIER: Mapping[str, tuple[str, ...]] = {
    "maccal": ("start=fresh",),
    "tst": ("as_in_maccal",),
    "vtst": ("as_in_maccal",),
    "mmce": ("form=weighted",),
}
NONE: Mapping[str, tuple[str, ...]] = {}


class Setting(NamedTuple):
    """Where a method was tried: data set, how many of its training images (0 is all), network."""

    data: str
    limit: int
    model: str

    @property
    def title(self) -> str:
        """Of the data set.

        >>> Setting("cifar10", 10_000, "resnet8").title
        'CIFAR-10, 10,000 images'
        """
        return set_title(self.data, self.limit)


class Variant(NamedTuple):
    """A method as it was run: both stages, each with what is not as it has it by itself.

    `said` is what its title says beside, and its name does not: it stands for the method itself.
    """

    first: str
    second: str | None
    changed: tuple[str, ...] = ()
    recalibrated: tuple[str, ...] = ()
    said: tuple[str, ...] = ()

    @property
    def stage1(self) -> str:
        """What the line of its stage I is called in the book."""
        return ",".join([self.first, *self.changed])

    @property
    def name(self) -> str:
        """What its line is called in the book.

        >>> Variant("mixup", "maccal", ("alpha=0.5",)).name, Variant("vanilla", "tst").name
        ('mixup,alpha=0.5+maccal', 'tst')
        """
        if self.second is None:
            return self.stage1
        second = ",".join([self.second, *self.recalibrated])
        return second if self.stage1 == "vanilla" else f"{self.stage1}+{second}"

    @property
    def title(self) -> str:
        """As the page calls it; on a second line what was changed.

        >>> Variant("mixup", "maccal", ("alpha=0.5",), ("eta_init=1",)).title
        'mixup + MaC-Cal\\nalpha=0.5, eta init=1'
        """
        stages = (self.first, self.second)
        if self.second is not None and self.first == "vanilla":
            stages = (self.second, None)
        told = (*self.changed, *self.recalibrated, *self.said)
        words = [change.replace("_", " ") for change in told]
        return "\n".join([title(*stages), ", ".join(words)]).strip()


@dataclass(frozen=True)
class Line:
    """The runs of a variant in a setting, by seed."""

    setting: Setting
    made: Variant
    runs: Mapping[int, Row]

    @cached_property
    def variant(self) -> str:
        return self.made.name

    @property
    def ran(self) -> Ran:
        """What its runs say of themselves; they differ in the seed alone.

        What stands for the method itself is not among the changes.
        """
        found = next(iter(self.runs.values())).ran
        assert found is not None
        known = {word.partition("=")[0] for word in self.made.said}
        left = [change for change in found.changes if change.partition(".")[2] not in known]
        return replace(found, changes=tuple(left))

    @property
    def method(self) -> str:
        return self.ran.method

    @property
    def is_plain(self) -> bool:
        """A method alone, with its own settings: those of Table 1, and no combinations."""
        alone = self.made.second is None or self.made.first == "vanilla"
        return alone and not self.made.changed and not self.made.recalibrated

    def having(self, part: str) -> "Line":
        """Only the runs that have this part of a row."""
        return replace(
            self, runs={seed: row for seed, row in self.runs.items() if getattr(row, part)}
        )

    def values(self, key: str) -> dict[int, float]:
        """A number of each run that has it, by seed; `key` as in Row.number."""
        found = {seed: row.number(key) for seed, row in self.runs.items()}
        return {seed: value for seed, value in found.items() if math.isfinite(value)}

    def mean(self, key: str) -> float:
        return average([self], key)

    def spread(self, key: str) -> float:
        """The standard deviation over seeds; nan of fewer than two."""
        return spread([self], key).deviation

    @property
    def calibrated(self) -> bool:
        """Whether its ECE is within the band of a calibrated model, both averaged over seeds."""
        return self.mean("ece") <= self.mean("ece_null_high")


class Spread(NamedTuple):
    """A number over seeds.

    low and high are a standard deviation from the mean; of one seed, the ends of its 95 % interval.
    """

    mean: float
    deviation: float  # over seeds; nan of fewer than two
    low: float
    high: float
    null_low: float  # where a calibrated model would score
    null_high: float
    seeds: int


def shared_seeds(lines: Sequence[Line], key: str | None = None) -> list[int]:
    """The seeds that every line has a run of, with that number if one is named."""
    found = [set(line.runs if key is None else line.values(key)) for line in lines]
    return sorted(set.intersection(*found)) if found else []


def average(lines: Sequence[Line], key: str) -> float:
    """The mean over lines of their means over seeds: those that all lines have, if there are any.

    Else each line's own; nan where a line has none.
    """
    every = [line.values(key) for line in lines]
    shared = shared_seeds(lines, key)
    if not every or not all(every):
        return math.nan
    means = []
    for values in every:
        means.append(fmean(values[seed] for seed in shared or values))
    return fmean(means)


def spread(lines: Sequence[Line], key: str) -> Spread:
    """A number of these lines, averaged over them and then over seeds."""
    mean = average(lines, key)
    seeds = shared_seeds(lines, key)
    deviation = math.nan
    if len(seeds) > 1:
        by_seed = []
        for seed in seeds:
            by_seed.append(fmean(line.runs[seed].number(key) for line in lines))
        deviation = stdev(by_seed)
        low, high = mean - deviation, mean + deviation
    else:
        # of several rows the mean ends, which lie farther apart than those of their mean
        low = average(lines, f"{key}_low")
        high = average(lines, f"{key}_high")
    return Spread(
        mean,
        deviation,
        low,
        high,
        null_low=average(lines, f"{key}_null_low"),
        null_high=average(lines, f"{key}_null_high"),
        seeds=len(seeds),
    )


@dataclass(frozen=True)
class Book:
    """All lines of the rows, by setting and variant, and the runs that failed, by name."""

    lines: tuple[Line, ...]
    failures: tuple[Row, ...] = ()

    @classmethod
    def of(cls, rows: "Rows") -> "Book":
        """The book of these rows, or this book.

        ValueError where two rows are runs of the same variant and seed: one would hide the other.
        """
        if isinstance(rows, Book):
            return rows
        found = list(rows)
        failures = sorted((row for row in found if row.error is not None), key=by_name)
        lines = []
        for (setting, made), runs in gathered(found).items():
            lines.append(Line(setting, made, dict(sorted(runs.items()))))
        lines.sort(key=lambda line: (line.setting, line.variant))
        return cls(tuple(lines), tuple(failures))

    @cached_property
    def index(self) -> dict[tuple[Setting, str], Line]:
        return {(line.setting, line.variant): line for line in self.lines}

    @cached_property
    def settings(self) -> list[Setting]:
        return sorted({line.setting for line in self.lines})

    @cached_property
    def plain(self) -> list[Line]:
        """The lines of methods alone, with their own settings."""
        return [line for line in self.lines if line.is_plain]

    def get(self, setting: Setting, variant: str) -> Line | None:
        return self.index.get((setting, variant))

    def seconds(self, line: Line) -> dict[int, float]:
        """Of the whole training by seed, both stages; only seeds whose stage I is known."""
        own = line.values("trained.seconds")
        if line.made.second is None:
            return own
        first = self.get(line.setting, line.made.stage1)
        before = first.values("trained.seconds") if first else {}
        return {seed: before[seed] + own[seed] for seed in own if seed in before}


Rows = Book | Iterable[Row]
Runs = dict[tuple[Setting, Variant], dict[int, Row]]


def by_name(row: Row) -> str:
    return row.name


def gathered(rows: Sequence[Row]) -> Runs:
    """The rows of runs by setting, variant and seed."""
    usual = usual_recipes(rows)
    earlier = earlier_ways(rows)
    found: Runs = {}
    for row in sorted(rows, key=by_name):
        if row.ran is None:
            continue
        setting = setting_of(row.ran)
        made = variant_of(row.ran, usual[setting], earlier.get(setting, NONE))
        runs = found.setdefault((setting, made), {})
        before = runs.setdefault(row.ran.seed, row)
        if before != row:
            raise ValueError(
                f"{before.name} and {row.name} are runs of the same method and seed; pass one"
            )
    return found


def setting_of(ran: Ran) -> Setting:
    return Setting(ran.data, ran.limit or 0, ran.model)


def variant_of(
    ran: Ran, usual: Mapping[str, Any], earlier: Mapping[str, tuple[str, ...]] = NONE
) -> Variant:
    """The method as it was run; a recipe that is not the usual one there is a change too.

    `earlier` has the words that are no change there, by method.
    """
    other = []
    for key, value in ran.recipe.items():
        if key != "precision" and value != usual.get(key, value):
            other.append(worded(key, value))
    said: list[str] = []
    parts = []
    for method, stage in ((ran.first, "settings"), (ran.second or "", "calibration")):
        words = ran.words(stage)
        known = [word for word in words if word in earlier.get(method, ())]
        parts.append([word for word in words if word not in known])
        said += known
    return Variant(ran.first, ran.second, (*other, *parts[0]), tuple(parts[1]), tuple(said))


def earlier_ways(rows: Sequence[Row]) -> dict[Setting, dict[str, tuple[str, ...]]]:
    """By setting, the methods that were not run there as they are by themselves today.

    What was their own way when the rows were made then stands for them: its words.
    """
    own: set[tuple[Setting, str]] = set()
    before: set[tuple[Setting, str]] = set()
    for row in rows:
        if row.ran is None:
            continue
        setting = setting_of(row.ran)
        for method, stage in ((row.ran.first, "settings"), (row.ran.second or "", "calibration")):
            words = row.ran.words(stage)
            if method in EARLIER and not words:
                own.add((setting, method))
            if method in EARLIER and set(words) >= set(EARLIER[method]):
                before.add((setting, method))
    found: dict[Setting, dict[str, tuple[str, ...]]] = {}
    for setting, method in before - own:
        found.setdefault(setting, {})[method] = EARLIER[method]
    return found


def usual_recipes(rows: Sequence[Row]) -> dict[Setting, Mapping[str, Any]]:
    """The recipe that most runs of a setting have; of equally many, the first by its words."""
    counts: dict[Setting, Counter[str]] = {}
    recipes = {}
    for row in rows:
        if row.ran is not None:
            words = repr(sorted(row.ran.recipe.items()))
            recipes[words] = row.ran.recipe
            counts.setdefault(setting_of(row.ran), Counter())[words] += 1
    found = {}
    for setting, count in counts.items():
        most = max(count.values())
        found[setting] = recipes[min(words for words in count if count[words] == most)]
    return found
