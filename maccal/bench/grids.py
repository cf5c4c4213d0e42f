"""The paper's tables and figures as grids of runs: what each needs, what is there, and what the
rest will cost.

    jobs("table1", "cpu", seeds=(1, 2, 3))    the runs of a table or figure; "all": of all of them,
                                              of some methods or data sets alone if asked
    plan(jobs, runs, recorded)                what is done, failed, missing, and what that will cost
    remaining(jobs, runs, recorded)           those to be made, with the stage I that they need
    collect(jobs, runs)                       the rows of those that are there

A run is done when its folder has its row, or when the rows recorded earlier have it: a file of
results stands for the folders. But where stage I was trained again since, to other bits, what
stood on the earlier training is missing. Runs are shared: stage I of vanilla serves TST, V-TST,
MaC-Cal, the ablation and the sensitivity figures. How large a grid is says its scale (scales.py).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Literal

from maccal.bench.readings import BESIDE
from maccal.bench.scales import SCALES, Scale
from maccal.calibration.stage2 import ABLATION, BOTTLENECK, READINGS, Stage2
from maccal.evaluation.row import Row, read_row
from maccal.io import FileError, read_json
from maccal.methods.registry import COMBINATIONS, EVERY, method
from maccal.runs import Config
from maccal.runs.config import is_of
from maccal.runs.origin import collected, stands_on
from maccal.training.recipe import Recipe

State = Literal["done", "failed", "missing"]
Extra = Literal["ood", "shift", "motivation"]
Rows = Mapping[str, Row]  # by name
ERROR = "error 1"
NOTHING: Rows = {}
SENSITIVITY = ("vanilla", "plp", "tst", "vtst", "balcal", "maccal")  # of Table 2
GAMMAS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99)


@dataclass(frozen=True)
class Job:
    """A run and what is measured of it beyond its own test images."""

    config: Config
    extras: frozenset[Extra] = field(default_factory=frozenset)

    @property
    def first(self) -> Config:
        """Stage I of the run: the run itself, if it has no stage II."""
        return replace(self.config, method=self.config.plan.first, stage2=None, feedback=None)

    def state(self, runs: Path, recorded: Rows = NOTHING) -> State:
        if any(self.is_done_by(row) for row in self.rows(runs, recorded)):
            return "done"
        return "failed" if (runs / self.config.name / "error.json").is_file() else "missing"

    def rows(self, runs: Path, recorded: Rows = NOTHING) -> list[Row]:
        """Of its folder, and of those recorded earlier.

        But not where stage I was trained again since, to other bits: that would compare methods on
        two networks as if they were one.
        """
        found = [row_of(self.config, runs), recorded.get(self.config.name)]
        there = [row for row in found if row is not None]
        if not there or self.config.stage2 is None:
            return there
        first = row_of(self.first, runs) or recorded.get(self.first.name)
        return [row for row in there if stands_on(row, first) is not False]

    def is_done_by(self, row: Row) -> bool:
        """Whether it is the row of this very run, whatever the precision of its numbers, with all
        that is to be measured.
        """
        if row.ran is None or not self.extras <= row.parts:
            return False
        precise = replace(self.config.recipe, precision=row.ran.recipe.get("precision", "auto"))
        # a choice that did not exist when the row was made has its default
        return is_of(replace(self.config, recipe=precise), row.ran.about)


def row_of(config: Config, runs: Path) -> Row | None:
    """The row of a run; None where there is none or it is damaged.

    Then the run is to be made, which mends it.
    """
    folder = runs / config.name
    file = folder / "row.json"
    try:
        return collected(folder, read_row(file)) if file.exists() else None
    except FileError:
        return None


def read_error(file: Path) -> str:
    """What the error.json of a run says; where it is damaged, that."""
    try:
        return str(read_json(file, ERROR)["error"])
    except (FileError, KeyError) as problem:
        return f"failed, and its error.json cannot be read ({problem})"


class Grid:
    """Makes the jobs of a scale and a seed."""

    def __init__(self, scale: Scale, seed: int) -> None:
        self.scale = scale
        self.seed = seed

    def job(
        self,
        data: str,
        model: str,
        method: str,
        *extras: Extra,
        recipe: Recipe | None = None,
        **changes: Any,
    ) -> Job:
        config = Config(
            data,
            model,
            method,
            self.seed,
            self.scale.limits.get(data),
            recipe or self.scale.recipes[data],
            **changes,
        )
        own = self.scale.own
        config = replace(
            config,
            settings={**own.get(config.plan.first, {}), **config.settings},
            stage2=config.stage2 or own.get(config.plan.second or ""),
        )
        return Job(config.planned(), frozenset(extras))

    def every(
        self, data: str, model: str, method: str, *extras: Extra, **changes: Any
    ) -> list[Job]:
        """The run, and those of other readings of its method, where the scale has them."""
        found = [self.job(data, model, method, *extras, **changes)]
        plan = found[0].config.plan
        beside = BESIDE.get(plan.second or plan.first)
        if self.scale.readings and beside is not None:
            found.append(self.job(data, model, method, *extras, **{**changes, **beside}))
        return found

    def everywhere(
        self, methods: Sequence[str], *extras: Extra, sets: Sequence[str] | None = None
    ) -> list[Job]:
        found = []
        for data in sets or self.scale.networks:
            for model, name in product(self.scale.networks[data], methods):
                found += self.every(data, model, name, *extras)
        return found


CIFARS = ("cifar10", "cifar100")


def ablation(grid: Grid) -> list[Job]:
    """Table 5 under each reading of its masks, and all steps but the restructured head."""
    jobs = []
    for data in CIFARS:
        jobs.append(grid.job(data, grid.scale.last, "vanilla"))
        jobs += grid.every(data, grid.scale.last, "maccal")
    readings = READINGS if grid.scale.readings else READINGS[:1]
    heads = [Stage2(start="fresh")]
    for row, reading in product(ABLATION, readings):
        heads.append(Stage2.ablation(row, reading))
    for data, head in product(CIFARS, heads):
        jobs.append(grid.job(data, grid.scale.last, "maccal", stage2=head))
    return jobs


def mixup(grid: Grid) -> list[Job]:
    found = []
    for alpha, name in product(grid.scale.alphas, ("mixup", "mit", "mixup+maccal")):
        found += grid.every("cifar10", grid.scale.main, name, settings={"alpha": alpha})
    return found


def gamma(grid: Grid) -> list[Job]:
    """Feedback from the training rows, without held-out labels: there alone gamma matters.

    From changed images it needs none.
    """
    own = grid.scale.own.get("maccal", Stage2())
    sets = CIFARS if grid.scale.readings else ("cifar100",)
    heads = [own, Stage2(hidden=BOTTLENECK)] if grid.scale.readings else [own]
    feedbacks = ("mixed", "views") if grid.scale.readings else ("mixed",)
    jobs = []
    for data, head, value in product(sets, heads, GAMMAS):
        told = replace(head, statistics="deployed", gamma=value)
        jobs.append(grid.job(data, grid.scale.last, "maccal", stage2=told, feedback="training"))
    for data, feedback in product(CIFARS, feedbacks):
        jobs.append(grid.job(data, grid.scale.last, "maccal", feedback=feedback))
    return jobs


def motivation(grid: Grid) -> list[Job]:
    found = []
    for name in ("vanilla", "maccal"):
        found += grid.every("cifar10", grid.scale.main, name, "motivation")
    return found


def tabled() -> list[str]:
    """The methods that tables have: the paper's, a temperature, and those that users register."""
    return [name for name, row in EVERY.items() if row.tabled]


def networks(grid: Grid) -> list[Job]:
    """The paper's own networks, end to end: as trained, with a temperature, with MaC-Cal."""
    found = []
    trials = product(grid.scale.trials.items(), ("vanilla", "temperature", "maccal"))
    for (model, recipe), name in trials:
        found += grid.every("cifar10", model, name, recipe=recipe)
    return found


GRIDS: Mapping[str, Callable[[Grid], list[Job]]] = {
    "table1": lambda grid: grid.everywhere(tabled()),  # and the average-metrics figure
    "ood": lambda grid: grid.everywhere([*SENSITIVITY, "temperature"], "ood", sets=CIFARS),
    "combine": lambda grid: grid.everywhere(
        [name.removesuffix("+maccal") for name in COMBINATIONS] + list(COMBINATIONS)
    ),
    "cost": lambda grid: grid.everywhere(["vanilla", "mit", "tst", "vtst", "balcal", "maccal"]),
    "ablation": ablation,
    "shift": lambda grid: grid.everywhere(tabled(), "shift", sets=CIFARS),
    "mixup": mixup,
    "gamma": gamma,
    "sparsity": lambda grid: grid.everywhere(["maccal"]),
    "motivation": motivation,
    "networks": networks,
}


@dataclass(frozen=True)
class Asked:
    """The methods and data sets that are asked for; none named are all."""

    methods: frozenset[str]
    sets: frozenset[str]

    @classmethod
    def of(cls, only: Sequence[str], data: Sequence[str], scale: str) -> "Asked":
        """ValueError for a name that is not known, or a data set that the scale has not."""
        known = SCALES[scale].networks
        for name in data:
            if name not in known:
                raise ValueError(f"no data {name!r} at this scale; it has {', '.join(known)}")
        return cls(frozenset(method(name).name for name in only), frozenset(data))

    def has(self, config: Config) -> bool:
        named = not self.methods or config.plan.name in self.methods
        return named and (not self.sets or config.data in self.sets)


def jobs(
    names: str | Sequence[str],
    scale: str,
    seeds: Sequence[int],
    only: Sequence[str] = (),
    data: Sequence[str] = (),
) -> list[Job]:
    """The runs of a table or figure, or of several, stage I before what builds on it, each once.

    `only` and `data` leave of them these methods, in every reading, and data sets: those that are
    asked for, with the stage I that they need.
    """
    keys = [names] if isinstance(names, str) else list(names)
    unknown = [key for key in keys if key not in (*GRIDS, "all")]
    if unknown:
        raise ValueError(f"no grid {unknown[0]!r}; the grids are {', '.join(GRIDS)} and all")
    if scale not in SCALES:
        raise ValueError(f"no scale {scale!r}; the scales are {', '.join(SCALES)}")
    asked = Asked.of(only, data, scale)
    grids = [Grid(SCALES[scale], seed) for seed in seeds]
    wanted: list[Job] = []
    for grid, key in product(grids, GRIDS if "all" in keys else keys):
        made = [job for job in GRIDS[key](grid) if grid.scale.has(job.config)]
        wanted += [job for job in made if asked.has(job.config)]
    merged: dict[str, Job] = {}
    for job in [Job(job.first) for job in wanted] + wanted:
        before = merged.get(job.config.name, job)
        merged[job.config.name] = Job(job.config, before.extras | job.extras)
    return list(merged.values())


@dataclass(frozen=True)
class Plan:
    """What there is and what is not; `seconds` is None where no like run has been timed yet."""

    states: Mapping[str, State]
    seconds: float | None

    def count(self, state: State) -> int:
        return list(self.states.values()).count(state)


def plan(wanted: Sequence[Job], runs: Path, recorded: Rows = NOTHING) -> Plan:
    """Which runs are there, and what the others will take, judged by those that are."""
    states = {job.config.name: job.state(runs, recorded) for job in wanted}
    known = speeds(wanted, runs, recorded)
    total: float | None = 0.0
    for job in wanted:
        if states[job.config.name] != "done" and total is not None:
            data, model, _ = kind(job.config)
            cost = known.get(kind(job.config), known.get((data, model, "")))
            total = None if cost is None else total + cost
    return Plan(states, total)


def kind(config: Config) -> tuple[str, str, str]:
    """What a run's time depends on."""
    return config.data, config.model, config.plan.second or config.plan.first


def remaining(wanted: Sequence[Job], runs: Path, recorded: Rows = NOTHING) -> list[Job]:
    """The runs that are not done.

    And those of stage I that they build on, if only their rows are there.
    """
    missing = {job.config.name: job for job in wanted if job.state(runs, recorded) != "done"}
    firsts = {job.first.name for job in missing.values()}
    return [
        job
        for job in wanted
        if job.config.name in missing or (job.config.name in firsts and job.state(runs) != "done")
    ]


def speeds(wanted: Sequence[Job], runs: Path, recorded: Rows) -> dict[tuple[str, str, str], float]:
    """Seconds of a run by data set, network and method; with "" for the method, of any stage I."""
    times: dict[tuple[str, str, str], list[float]] = {}
    for job in wanted:
        row = row_of(job.config, runs) or recorded.get(job.config.name)
        if row is not None and math.isfinite(row.number("trained.seconds")):
            names = [kind(job.config)]
            if job.config.plan.second is None:
                names.append((job.config.data, job.config.model, ""))
            for name in names:
                times.setdefault(name, []).append(row.number("trained.seconds"))
    return {name: median(values) for name, values in times.items()}


def collect(wanted: Sequence[Job], runs: Path) -> list[Row]:
    """The rows of the runs that are done, by name; a failed run is a row with its error.

    The checksums of a run's files stay with the files; that of the network of stage I goes along.
    """
    found: list[Row] = []
    for job in wanted:
        rows = job.rows(runs)
        error = runs / job.config.name / "error.json"
        if rows:
            found += rows
        elif error.is_file():
            found.append(Row(job.config.name, error=read_error(error)))
    return sorted(found, key=lambda row: row.name)
