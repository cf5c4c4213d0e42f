"""Choice: what compare_calibrators found, and which calibrator to use.

It prints, and shows in a notebook, as a table with the advice below; `to_frame()` has all numbers.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from maccal.metrics import Difference, Summary
from maccal.metrics.notebooks import needs_pandas, rows_table
from maccal.metrics.resampling import LEVEL
from maccal.metrics.summaries import percent_range, probability, show

if TYPE_CHECKING:
    import pandas as pd

UNTOUCHED = "as it is"
COMPARED = ("accuracy", "ece", "nll", "brier")
HEAD = ("", "accuracy", "ECE", "95 % int.", "NLL", "Brier", "p")


@dataclass(frozen=True)
class Candidate:
    """One calibrator: its cross-fitted numbers, and its differences from two others."""

    name: str
    numbers: Summary
    from_best: Mapping[str, Difference]
    from_temperature: Mapping[str, Difference]

    def cells(self, best: str) -> tuple[str, ...]:
        """Its line under HEAD; p is that of its NLL against the best's."""
        return (
            self.name,
            show(self.numbers["accuracy"], percent=True),
            show(self.numbers["ece"], percent=True),
            percent_range(self.numbers, "ece"),
            show(self.numbers["nll"], percent=False),
            show(self.numbers["brier"], percent=False),
            "" if self.name == best else chance(self.from_best),
        )


@dataclass(frozen=True)
class Choice:
    """The calibrators, the simplest first; why some are missing; which to use, in words."""

    candidates: tuple[Candidate, ...]
    failed: Mapping[str, str]
    best: str
    use: str
    advice: str
    votes: Mapping[str, int]  # how many ways to split the rows advise each

    def lines(self) -> list[tuple[str, ...]]:
        """One per calibrator, under HEAD."""
        return [one.cells(self.best) for one in self.candidates]

    def notes(self) -> list[str]:
        """Why calibrators are missing, and the advice."""
        found = []
        for name, why in self.failed.items():
            words = why if why.startswith("left out") else f"not compared, {why}"
            found.append(f"{name}: {words}")
        return [*found, self.advice]

    def __str__(self) -> str:
        rows = [HEAD, *self.lines()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        texts = []
        for name, *cells in rows:
            padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
            texts.append("  ".join([name.ljust(widths[0]), *padded]).rstrip())
        return "\n".join([*texts, *self.notes()])

    __repr__ = __str__  # a notebook shows it as text too

    def _repr_html_(self) -> str:
        chosen_one = [one.name for one in self.candidates].index(self.use)
        return rows_table(HEAD, self.lines(), bold=chosen_one, notes=self.notes())

    def to_frame(self) -> "pd.DataFrame":
        """A pandas DataFrame: one row per calibrator, and one column per number of its summary."""
        pandas = needs_pandas()
        names = [one.name for one in self.candidates]
        numbers = [dict(one.numbers) for one in self.candidates]
        return pandas.DataFrame(numbers, index=pandas.Index(names, name="calibrator"))


def chance(tested: Mapping[str, Difference]) -> str:
    """The p-value of the NLL; nothing where it is infinite."""
    if "nll" not in tested or math.isnan(tested["nll"].p_value):
        return ""
    return probability(tested["nll"].p_value).removeprefix("p ").removeprefix("= ")


def with_votes(choices: Sequence[Choice]) -> Choice:
    """The first, and how many advise each."""
    first = choices[0]
    votes = Counter(choice.use for choice in choices)
    advice = first.advice
    if len(choices) > 1:
        others = [f"{name} by {count}" for name, count in votes.items() if name != first.use]
        same = f" Of {len(choices)} ways to split the rows, {votes[first.use]} advise it"
        advice += same + (f", {', '.join(others)}." if others else ".")
    return replace(first, advice=advice, votes=dict(votes))


def score(numbers: Summary) -> tuple[float, float]:
    """What the best has least of: NLL, and Brier where all NLLs are infinite."""
    return float(numbers["nll"]), float(numbers["brier"])


def really_worse(candidate: Candidate, level: float) -> list[str]:
    """The metrics in which it is worse than the best, and not by chance."""
    if not math.isfinite(candidate.numbers["nll"]):
        return ["nll"]
    found = []
    for key in COMPARED:
        tested = candidate.from_best[key]
        lower = tested.difference < 0
        if tested.p_value < level and lower == (key == "accuracy"):
            found.append(key)
    return found


def chosen(candidates: tuple[Candidate, ...], failed: Mapping[str, str], best: str) -> Choice:
    """The simplest that is not really worse than the best, and the reason."""
    level = (1 - LEVEL) / max(1, len(candidates) - 1)
    rest = {one.name: one for one in candidates}
    simple = [one.name for one in candidates if one.name == best or not really_worse(one, level)]
    use = simple[0]
    advice = reason(use, best, rest)
    if use != UNTOUCHED:
        advice += gained(rest[UNTOUCHED].numbers, rest[use].numbers)
    infinite = [one.name for one in candidates if not math.isfinite(one.numbers["nll"])]
    if infinite:
        advice += f" A label got the probability 0 from {', '.join(infinite)}."
    return Choice(candidates, failed, best, use, advice, {use: 1})


def reason(use: str, best: str, rest: Mapping[str, Candidate]) -> str:
    """Why this one."""
    lowest = f"has the lowest NLL, {rest[best].numbers['nll']:.4f}"
    own = f"NLL {rest[use].numbers['nll']:.4f}"
    verb = "Leave it" if use == UNTOUCHED else "Use"
    if use != best:
        chance = probability(rest[use].from_best["nll"].p_value)
        simpler = f"{use} is simpler and no worse than chance explains ({own}, {chance})."
        if use == UNTOUCHED:
            simpler = f"without it nothing is worse than chance explains ({own}, {chance})."
        return f"{verb} {use}: {best} {lowest}, but {simpler}"
    if use == UNTOUCHED:
        return f"{verb} {use}: no calibrator has a lower NLL than {rest[use].numbers['nll']:.4f}."
    return (
        f"{verb} {use}: it {lowest}, and all simpler ones are worse by more than chance explains."
    )


def gained(before: Summary, after: Summary) -> str:
    """What changes, in words."""
    losses = f"NLL from {before['nll']:.4f} to {after['nll']:.4f}"
    errors = f"ECE from {100 * before['ece']:.2f} to {100 * after['ece']:.2f} %"
    right = f"the accuracy from {100 * before['accuracy']:.2f} to {100 * after['accuracy']:.2f} %"
    if before["accuracy"] == after["accuracy"]:
        return f" It brings {losses} and {errors}; the accuracy stays."
    return f" It brings {losses}, {errors} and {right}."
