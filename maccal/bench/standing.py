"""Where MaC-Cal stands among the methods: mean ECE and mean rank with intervals, and the paper's.

standing(rows)     of every method that is measured wherever the methods are compared

An interval is of 10,000 draws in which every method's mean in every setting is drawn from its own
law: Student's over its seeds, or with one seed the normal law of its bootstrap interval.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

import numpy as np

from maccal.bench import paper
from maccal.bench.contrasts import sampling_error
from maccal.bench.lines import Book, Line, Rows, Setting, average
from maccal.bench.paper import TITLES

OURS = "maccal"
DRAWS = 10_000
BESIDE = ("vanilla", OURS)  # where there are no others, nothing is compared
Interval = tuple[float, float]


@dataclass(frozen=True)
class Standing:
    """Mean ECE as a fraction, and mean rank, with 95 % intervals; None where there is none.

    `temperature` is the mean ECE of the yardstick, which has no rank. The paper's are of the same
    networks where it has them, else of its own networks on these data sets. `apart` are settings
    with one seed, or with few methods: they are not averaged with the others. `absent` are methods
    that are not measured in all settings, and have no rank.
    """

    ece: float | None = None
    rank: float | None = None
    paper_ece: float | None = None
    paper_rank: float | None = None
    temperature: float | None = None
    settings: Sequence[Setting] = ()
    apart: Sequence[Setting] = ()
    absent: Sequence[str] = ()
    eces: Mapping[str, float] = field(default_factory=dict)  # by method
    ranks: Mapping[str, float] = field(default_factory=dict)
    ece_intervals: Mapping[str, Interval] = field(default_factory=dict)
    rank_intervals: Mapping[str, Interval] = field(default_factory=dict)
    seeds: Mapping[str, int] = field(default_factory=dict)  # the fewest in a setting


def standing(rows: Rows) -> Standing:
    """Of every method measured wherever the methods are compared."""
    book = Book.of(rows)
    there = measured_everywhere(book, "ece")
    if not there:
        return Standing()
    settings = [line.setting for line in there[OURS]]
    everywhere = [line.setting for line in lines_of(book, OURS, book.settings, "ece")]
    eces = {name: average(lines, "ece") for name, lines in there.items()}
    placed = ranks(there, lambda line: line.mean("ece"))
    scaled = temperatures(book, there[OURS], "ece")
    paper_ece, paper_rank = published(settings)
    means = drawn(there, "ece")
    return Standing(
        eces[OURS],
        placed[OURS],
        paper_ece,
        paper_rank,
        average(scaled, "ece") if scaled else None,
        settings,
        apart=[setting for setting in everywhere if setting not in settings],
        absent=[name for name in TITLES if name not in there],
        eces=eces,
        ranks=placed,
        ece_intervals=intervals(there, means.mean(1)),
        rank_intervals=intervals(there, drawn_ranks(means).mean(1)),
        seeds={name: fewest_seeds(lines, "ece") for name, lines in there.items()},
    )


def compared(book: Book, key: str) -> list[Setting]:
    """Where the methods are compared: MaC-Cal is measured, and others than vanilla.

    Settings of one seed are judged by themselves where others have several: among them they would
    leave one seed to all. Where nothing but vanilla was run, wherever MaC-Cal was.
    """
    chosen = with_others(book, key)
    several = [line for line in chosen if len(line.values(key)) > 1]
    return [line.setting for line in several or chosen]


def with_others(book: Book, key: str) -> list[Line]:
    """The lines of MaC-Cal where others than vanilla are measured; all where there are none.

    Of settings and methods the largest table without a gap: while rows still come in, a setting
    with few of the methods is judged by itself, and does not leave these few to all.
    """
    ours = lines_of(book, OURS, book.settings, key)
    others = {line.setting: others_in(book, line.setting, key) for line in ours}
    found = {setting: names for setting, names in others.items() if names}
    if not found:
        return ours
    ordered = sorted(found, key=lambda setting: len(found[setting]), reverse=True)
    largest = 0
    chosen = ordered
    for count in range(1, len(ordered) + 1):
        shared = set.intersection(*(found[setting] for setting in ordered[:count]))
        cells = count * (len(shared) + len(BESIDE))
        if cells > largest:
            largest, chosen = cells, ordered[:count]
    return [line for line in ours if line.setting in chosen]


def of_one_seed(book: Book, key: str) -> list[Setting]:
    """Where methods are compared with one seed, while others have several: judged apart."""
    within = compared(book, key)
    chosen = [line.setting for line in with_others(book, key)]
    return [setting for setting in chosen if setting not in within]


def partly(book: Book, key: str) -> list[Setting]:
    """Where others than vanilla are measured too, but too few of them to be compared yet."""
    chosen = with_others(book, key)
    ours = lines_of(book, OURS, book.settings, key)
    left = [line.setting for line in ours if line not in chosen]
    return [setting for setting in left if others_in(book, setting, key)]


def others_in(book: Book, setting: Setting, key: str) -> set[str]:
    """The methods that are measured there beside vanilla and MaC-Cal."""
    others = [name for name in TITLES if name not in BESIDE]
    return {name for name in others if lines_of(book, name, [setting], key)}


def measured_everywhere(
    book: Book, key: str, settings: Sequence[Setting] | None = None
) -> dict[str, list[Line]]:
    """The methods of Table 1 that are measured in all these settings, each with its lines there.

    By default those in which the methods are compared.
    """
    wanted = compared(book, key) if settings is None else settings
    found = {}
    for name in TITLES:
        lines = lines_of(book, name, wanted, key)
        if lines and len(lines) == len(wanted):
            found[name] = lines
    return found


def lines_of(book: Book, name: str, settings: Sequence[Setting], key: str) -> list[Line]:
    """The lines of a variant in those of the settings where it has this number."""
    found = []
    for setting in settings:
        line = book.get(setting, name)
        if line is not None and line.values(key):
            found.append(line)
    return found


def temperatures(book: Book, ours: Sequence[Line], key: str) -> list[Line]:
    """The lines of the temperature in the same settings, if it is measured in all."""
    lines = lines_of(book, "temperature", [own.setting for own in ours], key)
    return lines if len(lines) == len(ours) else []


def fewest_seeds(lines: Sequence[Line], key: str) -> int:
    return min(len(line.values(key)) for line in lines)


# Intervals


def drawn(there: Mapping[str, Sequence[Line]], key: str) -> np.ndarray:
    """Means as they might have come out: methods x settings x draws, the same every time."""
    rng = np.random.default_rng(0)
    found = []
    for lines in there.values():
        found.append([drawn_means(line, key, rng) for line in lines])
    return np.array(found)


def drawn_means(line: Line, key: str, rng: np.random.Generator) -> np.ndarray:
    """Of one line: by Student's law over its seeds, or by the bootstrap interval of its one run."""
    values = list(line.values(key).values())
    if len(values) > 1:
        error = stdev(values) / math.sqrt(len(values))
        noise = rng.standard_t(len(values) - 1, DRAWS)
    else:
        error = sampling_error([line.runs[seed] for seed in line.values(key)], key)
        noise = rng.standard_normal(DRAWS)
    return np.clip(fmean(values) + error * noise, 0, 1)


def drawn_ranks(means: np.ndarray) -> np.ndarray:
    """The rank of each method in every setting and draw; of equal ones the first is before.

    nan where a mean could not be drawn: a rank depends on all the others.
    """
    if not np.isfinite(means).all():
        return np.full_like(means, np.nan)
    return means.argsort(0, kind="stable").argsort(0, kind="stable") + 1.0


def intervals(names: Mapping[str, object], draws: np.ndarray) -> dict[str, Interval]:
    """The middle 95 % of each method's draws; none where rows of one seed have no interval."""
    if not np.isfinite(draws).all():
        return {}
    low, high = np.quantile(draws, (0.025, 0.975), axis=1)
    return dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))


# Ranks


def ranks(there: Mapping[str, Sequence[Line]], value: Callable[[Line], float]) -> dict[str, float]:
    """Mean over settings of each method's rank there; ties share theirs."""
    by_setting = []
    for lines in zip(*there.values(), strict=True):
        by_setting.append(rankdata([value(line) for line in lines]))
    return {
        name: fmean(own) for name, own in zip(there, zip(*by_setting, strict=True), strict=True)
    }


def rankdata(values: Sequence[float]) -> list[float]:
    """The rank of each, from 1; equal values share the mean of theirs.

    >>> rankdata([0.3, 0.1, 0.3])
    [2.5, 1.0, 2.5]
    """
    numbers = np.asarray(values)
    return [float((numbers < one).sum() + ((numbers == one).sum() + 1) / 2) for one in numbers]


def published(settings: Sequence[Setting]) -> tuple[float | None, float | None]:
    """The paper's mean ECE and mean rank of MaC-Cal in these settings."""
    table = paper.table("table1")
    networks = {(setting.data, setting.model) for setting in settings}
    sets = {data for data, _ in networks}
    cells = [row for row in table if (row["data"], row["model"]) in networks]
    cells = cells or [row for row in table if row["data"] in sets]
    columns: dict[tuple[str, str], dict[str, float]] = {}
    for row in cells:
        columns.setdefault((row["data"], row["model"]), {})[row["method"]] = row["ece"] / 100
    if not columns:
        return None, None
    eces = [column[OURS] for column in columns.values()]
    places = []
    for column in columns.values():
        places.append(rankdata(list(column.values()))[list(column).index(OURS)])
    return fmean(eces), fmean(places)
