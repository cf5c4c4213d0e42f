"""Which lines of a benchmark a figure shows, and arrays of what they say.

Rows hold those of all grids. A figure takes the plain lines of the book, or those that differ in
the one setting it is about. Averages over data sets and networks are over the same ones for every
method: a seed counts for a method if it has a run in each.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from maccal.bench.lines import Book, Line, Setting, shared_seeds, spread
from maccal.bench.standing import OURS, compared, lines_of, with_others
from maccal.bench.titles import in_order, title

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Spreads:
    """A number over methods or settings, as bench.lines.Spread has it: one array per field."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    null_low: np.ndarray
    null_high: np.ndarray
    seeds: np.ndarray  # how many


def spreads(groups: Sequence[Sequence[Line]], key: str) -> Spreads:
    """One entry per group of lines, each averaged over its lines and then over seeds.

    ValueError where a number lacks its interval or its band.
    """
    found = [spread(lines, key) for lines in groups]
    for one in found:
        for end in ("low", "high", "null_low", "null_high"):
            if not math.isfinite(getattr(one, end)):
                raise ValueError(f"rows without '{key}_{end}'; make them again with `maccal bench`")
    return Spreads(
        mean=np.array([one.mean for one in found]),
        low=np.array([one.low for one in found]),
        high=np.array([one.high for one in found]),
        null_low=np.array([one.null_low for one in found]),
        null_high=np.array([one.null_high for one in found]),
        seeds=np.array([one.seeds for one in found]),
    )


def needed(lines: Iterable[Thing], what: str, grid: str) -> list[Thing]:
    """What is given, as a list; ValueError where it is empty, naming the grid that makes it."""
    found = list(lines)
    if not found:
        raise ValueError(f"no {what} among the rows; run `maccal bench {grid}`")
    return found


def comparable(book: Book, *, one_seed: bool = False) -> list[Line]:
    """The plain lines, without settings in which MaC-Cal was tried beside vanilla alone.

    Settings of one seed are kept with `one_seed`; else they are out where others have several.
    """
    wanted = [line.setting for line in with_others(book, "ece")]
    if not one_seed:
        wanted = compared(book, "ece")
    tried = [line.setting for line in lines_of(book, OURS, book.settings, "ece")]
    out = set(tried) - set(wanted)
    return [line for line in book.plain if line.setting not in out]


def settings_of(lines: Iterable[Line]) -> list[Setting]:
    return sorted({line.setting for line in lines})


def one_setting(lines: Sequence[Line], grid: str) -> Setting:
    """The data set and network that all lines share."""
    settings = settings_of(lines)
    if len(settings) > 1:
        names = ", ".join(f"{setting.model} on {setting.title}" for setting in settings)
        raise ValueError(
            f"rows of the grid {grid} from {names}; pass those of one network and data set"
        )
    return settings[0]


def by_data(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """The lines of all networks on each data set, by its title."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.setting.title, []).append(line)
    return found


def complete(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """For each method its lines, one in every setting of `lines`, cut down to the seeds that all of
    them have; a method that lacks a setting, or has no such seed, is left out.
    """
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.method, []).append(line)
    wanted = len(settings_of(lines))
    whole = {}
    for method in in_order(found):
        seeds = shared_seeds(found[method])
        if len(found[method]) == wanted and seeds:
            whole[method] = [with_seeds(line, seeds) for line in found[method]]
    return whole


def with_seeds(line: Line, seeds: Sequence[int]) -> Line:
    return Line(line.setting, line.made, {seed: line.runs[seed] for seed in seeds})


def grouped(lines: Sequence[Line], grid: str) -> dict[str, list[Line]]:
    """The complete seeds of every method; ValueError if no method has one."""
    groups = complete(lines)
    needed(groups, "method with a run on each data set and network", grid)
    return groups


def left_out(lines: Iterable[Line], shown: Iterable[str]) -> tuple[str, ...]:
    """The methods of the lines that are not shown."""
    return tuple(in_order({line.method for line in lines} - set(shown)))


def as_before(lines: Iterable[Line]) -> str:
    """What a figure says of methods whose own settings were others when their rows were made."""
    said: dict[str, list[str]] = {}
    for line in lines:
        for word in line.made.said:
            names = said.setdefault(word.replace("_", " "), [])
            if title(line.method) not in names:
                names.append(title(line.method))
    return "".join(f"; {', '.join(names)}: {word}" for word, names in said.items())


def without(methods: Iterable[str]) -> str:
    """What a figure says of methods that it leaves out.

    >>> without(["mit", "tst"]), without([])
    ('; MIT, TST left out where runs are missing', '')
    """
    names = ", ".join(title(name) for name in in_order(set(methods)))
    return f"; {names} left out where runs are missing" if names else ""
