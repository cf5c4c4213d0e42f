"""Which rows of a benchmark a figure shows, and what several seeds say together.

A file of rows holds those of all grids. A row's name says what in its run is not as the method has
it by itself, so that a figure takes the plain runs, or those that differ in the one setting it is
about. Averages over data sets and networks are over the same ones for every method: a seed counts
for a method if it has a run in each."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from maccal.bench.paper import TITLES

Row = Mapping[str, Any]
Place = tuple[str, str]  # data set, with the number of its images where limited, and network
Key = TypeVar("Key", bound=Hashable)
SETS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny-imagenet": "Tiny-ImageNet",
    "digits": "digits",
}
NAMES = {"maccal": "MaC-Cal", "temperature": "temperature"}  # others have their title of Table 1


@dataclass(frozen=True)
class Spread:
    """A measure over methods or settings: mean over seeds, range and mean null band. One seed.

    The run's own 95 % interval.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    null_low: np.ndarray
    null_high: np.ndarray
    seeds: np.ndarray  # how many


def needed(rows: Iterable[Row], what: str, grid: str) -> list[Row]:
    """The rows by name, if there are any; ValueError else, naming the grid that makes them."""
    found = sorted(rows, key=lambda row: row["name"])
    if not found:
        raise ValueError(f"no {what} among the rows; run `maccal bench {grid}`")
    return found


def done(rows: Iterable[Row]) -> list[Row]:
    """Those that are not of a failed run."""
    return [row for row in rows if "run" in row]


def place_of(row: Row) -> Place:
    run = row["run"]
    return f"{run['data']}.{run['limit']}" if run.get("limit") else run["data"], run["model"]


def changes(row: Row) -> set[str]:
    """What the name says of settings that are not the method's own.

    >>> run = {"data": "cifar10", "model": "resnet8", "seed": 2}
    >>> sorted(changes({"name": "cifar10-resnet8-mixup,alpha=0.5+maccal,gamma=0.9-s2", "run": run}))
    ['alpha=0.5', 'gamma=0.9']
    """
    data, model = place_of(row)
    described = row["name"].removeprefix(f"{data}-{model}-").removesuffix(f"-s{row['run']['seed']}")
    return {change for stage in described.split("+") for change in stage.split(",")[1:]}


def plain(rows: Iterable[Row]) -> list[Row]:
    """The runs of methods alone, with their own settings: those of Table 1, and no combinations."""
    return [row for row in done(rows) if "+" not in row["run"]["method"] and not changes(row)]


def one_place(rows: Sequence[Row], grid: str) -> Place:
    """The data set and network that all rows share."""
    places = sorted({place_of(row) for row in rows})
    if len(places) > 1:
        names = ", ".join(f"{model} on {data}" for data, model in places)
        raise ValueError(
            f"rows of the grid {grid} from {names}; pass those of one network and data set"
        )
    return places[0]


def by_seed(rows: Sequence[Row], key: Callable[[Row], Key]) -> dict[Key, list[list[Row]]]:
    """For each key its seeds, each a list of rows, one in every place of `rows`; incomplete seeds
    are left out.

    ValueError where two rows would have the same place in the figure: one would hide the other.
    """
    places = sorted({place_of(row) for row in rows})
    found: dict[Key, dict[int, dict[Place, Row]]] = {}
    for row in rows:
        cells = found.setdefault(key(row), {}).setdefault(row["run"]["seed"], {})
        if place_of(row) in cells:
            first = cells[place_of(row)]["name"]
            raise ValueError(
                f"{first} and {row['name']} are runs of the same method and seed; pass one of them"
            )
        cells[place_of(row)] = row
    groups = {
        name: [
            [cells[place] for place in places]
            for _, cells in sorted(seeds.items())
            if len(cells) == len(places)
        ]
        for name, seeds in found.items()
    }
    return {name: group for name, group in groups.items() if group}


def left_out(rows: Iterable[Row], shown: Iterable[str]) -> tuple[str, ...]:
    """The methods of the rows that are not shown."""
    return tuple(in_order({row["run"]["method"] for row in rows} - set(shown)))


def without(methods: Iterable[str]) -> str:
    """What a figure says of methods that it leaves out.

    >>> without(["mit", "tst"]), without([])
    ('; MIT, TST left out where runs are missing', '')
    """
    names = ", ".join(title(name) for name in in_order(set(methods)))
    return f"; {names} left out where runs are missing" if names else ""


def spread_of(groups: Sequence[Sequence[Sequence[Row]]], measure: str) -> Spread:
    """A measure of groups of seeds of rows: averaged over the rows of a seed, and then over seeds."""

    def averages(group: Sequence[Sequence[Row]], key: str) -> np.ndarray:
        return np.array([np.mean([row[key] for row in rows]) for rows in group])

    values = [averages(group, measure) for group in groups]
    ends = [
        (v.min(), v.max()) if len(v) > 1 else own_interval(group[0], measure)
        for v, group in zip(values, groups, strict=True)
    ]
    null = {
        side: np.array([averages(group, f"{measure}_null_{side}").mean() for group in groups])
        for side in ("low", "high")
    }
    low, high = np.array(ends, dtype=np.float64).T
    seeds = np.array([len(v) for v in values])
    return Spread(np.array([v.mean() for v in values]), low, high, null["low"], null["high"], seeds)


def own_interval(rows: Sequence[Row], measure: str) -> tuple[float, float]:
    """The mean ends of the rows' intervals.

    Where there are several rows, wider than the interval of their mean.
    """
    low, high = (
        float(np.mean([row[f"{measure}_{side}"] for row in rows])) for side in ("low", "high")
    )
    return low, high


def in_order(methods: Iterable[str]) -> list[str]:
    """As in Table 1; those that are not there last."""
    order = {name: place for place, name in enumerate(TITLES)}
    return sorted(methods, key=lambda name: (order.get(name, len(order)), name))


def title(method: str) -> str:
    """
    >>> title("maccal"), title("mixup+maccal"), title("flsd"), title("new")
    ('MaC-Cal', 'mixup + MaC-Cal', 'FLSD', 'new')
    """
    return " + ".join(NAMES.get(part) or TITLES.get(part, part) for part in method.split("+"))


def set_title(data: str) -> str:
    """
    >>> set_title("cifar100"), set_title("cifar10.10000")
    ('CIFAR-100', 'CIFAR-10, 10,000 images')
    """
    name, _, limit = data.partition(".")
    return SETS.get(name, name) + (f", {int(limit):,} images" if limit else "")
