"""Claims that compare MaC-Cal with other methods in the same settings.

lowest(book, key, words)                   lower than each of the others
best_rank(book)                            the best mean rank by ECE
against(book, other, key, words, better)   better than one other method
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from maccal.bench.contrasts import Contrast, contrast
from maccal.bench.judging import Claim, Verdict, absent, judged, shown, tally, unrefuted, where
from maccal.bench.lines import Book, Line, Setting, average, shared_seeds
from maccal.bench.paper import TITLES
from maccal.bench.standing import (
    OURS,
    compared,
    drawn,
    drawn_ranks,
    fewest_seeds,
    lines_of,
    measured_everywhere,
    of_one_seed,
    partly,
    ranks,
    temperatures,
)
from maccal.bench.titles import PRINTED, chance, counted, points, title

NO_OTHER = "No runs of MaC-Cal and another method on the same data; run `maccal bench {grid}`."


def lowest(
    book: Book,
    key: str,
    words: str,
    grid: str = "table1",
    settings: Sequence[Setting] | None = None,
) -> Claim:
    """In these settings; by default where the methods are compared."""
    there = measured_everywhere(book, key, settings)
    others = {name: lines for name, lines in there.items() if name != OURS}
    if OURS not in there or not others:
        return Claim(words, "not judged", NO_OTHER.format(grid=grid))
    found = {name: contrast(there[OURS], lines, key) for name, lines in others.items()}
    means = {name: average(lines, key) for name, lines in there.items()}
    nearest = min(others, key=lambda name: means[name])
    count = counted(len(others), "other")
    evidence = (
        f"{points(means[OURS])} % over {where(there[OURS])}; lowest of {count}: "
        f"{title(nearest)}, {points(means[nearest])} % ({shown(found[nearest])})."
    )
    evidence += tally(found) + yardstick(book, there[OURS], key)
    evidence += as_printed(book, there[OURS], key) + absent(set(TITLES) - set(there))
    verdict = judged(found, len(TITLES) - 1)
    if settings is None:
        short = few_methods(book, key)
        verdict, but = with_those_apart(book, key, unrefuted(verdict, short), list(others), -1)
        evidence += short + but
    return Claim(words, verdict, evidence)


def with_those_apart(
    book: Book, key: str, verdict: Verdict, others: Sequence[str], better: int
) -> tuple[Verdict, str]:
    """What several seeds say does not hold where one seed says the contrary; and where, in words.

    Settings of one seed are not averaged with the others.
    """
    contrary = []
    for setting in of_one_seed(book, key):
        there = {name: both(book, OURS, name, key, [setting]) for name in others}
        found = {name: contrast(*lines, key) for name, lines in there.items() if lines[0]}
        if judged(found, len(found), better) == "does not hold":
            contrary.append(f"{setting.title}, {setting.model}")
    if not contrary:
        return verdict, ""
    said = f" With one seed, and so not in the mean, the contrary: {'; '.join(contrary)}."
    return "cannot be told" if verdict == "holds" else verdict, said


def few_methods(book: Book, key: str) -> str:
    """The settings in which methods are missing that could refute what holds in the others."""
    left = partly(book, key)
    names = "; ".join(f"{setting.title}, {setting.model}" for setting in left)
    return f" Too few methods yet on {names}." if left else ""


def yardstick(book: Book, ours: Sequence[Line], key: str) -> str:
    """What a temperature does with the held-out labels that MaC-Cal's feedback sees and the methods
    of stage I do not.
    """
    lines = temperatures(book, ours, key)
    if not lines:
        return ""
    found = shown(contrast(ours, lines, key))
    return (
        " A temperature fitted on the held-out labels that MaC-Cal's feedback sees: "
        f"{points(average(lines, key))} % ({found})."
    )


def as_printed(book: Book, ours: Sequence[Line], key: str) -> str:
    """What MaC-Cal as printed has in the same settings, where it was run: its other reading."""
    lines = lines_of(book, PRINTED, [own.setting for own in ours], key)
    if len(lines) < len(ours):
        return ""
    found = shown(contrast(lines, ours, key))
    return f" As printed MaC-Cal has {points(average(lines, key))} % ({found})."


def best_rank(book: Book) -> Claim:
    words = "MaC-Cal has the best mean rank of all methods by ECE."
    there = measured_everywhere(book, "ece")
    if len(there) < 2:
        return Claim(words, "not judged", NO_OTHER.format(grid="table1"))
    overall = ranks(there, lambda line: line.mean("ece"))
    found = rank_contrasts(there, overall)
    nearest = min(found, key=lambda name: overall[name])
    test = found[nearest]
    evidence = (
        f"Mean rank {overall[OURS]:.2f} of {len(there)} over {where(there[OURS])}; "
        f"best other: {title(nearest)}, {overall[nearest]:.2f} "
        f"({chance(test.p_value)}, {test.how}).{tally(found)}"
    )
    short = few_methods(book, "ece")
    evidence += absent(set(TITLES) - set(there)) + short
    return Claim(words, unrefuted(judged(found, len(TITLES) - 1), short), evidence)


def rank_contrasts(
    there: Mapping[str, Sequence[Line]], overall: Mapping[str, float]
) -> dict[str, Contrast]:
    """MaC-Cal's mean rank less each other method's, by the draws of standing.py."""
    placed = dict(zip(there, drawn_ranks(drawn(there, "ece")).mean(1), strict=True))
    found = {}
    for name, lines in there.items():
        if name != OURS:
            gap = placed[OURS] - placed[name]
            low, high = np.quantile(gap, (0.025, 0.975)).tolist()
            p_value = min(1.0, 2 * float(min((gap >= 0).mean(), (gap <= 0).mean())))
            if not np.isfinite(gap).all():  # rows of one seed without an interval tell nothing
                p_value = math.nan
            seeds = fewest_seeds([*there[OURS], *lines], "ece")
            difference = overall[OURS] - overall[name]
            found[name] = Contrast(difference, low, high, p_value, seeds, alike=False)
    return found


def both(
    book: Book, name: str, other: str, key: str, settings: Sequence[Setting] | None = None
) -> tuple[list[Line], list[Line]]:
    """The lines of two methods wherever both are measured, or in these settings."""
    first, second = [], []
    for setting in book.settings if settings is None else settings:
        one, two = book.get(setting, name), book.get(setting, other)
        if one and two and one.values(key) and two.values(key):
            first.append(one)
            second.append(two)
    return first, second


def against(book: Book, other: str, key: str, words: str, better: int, grid: str) -> Claim:
    """Better than one other method; +1 where more is better."""
    ours, theirs = both(book, OURS, other, key, compared(book, key))
    if not ours:
        missing = f"No such numbers of MaC-Cal and {title(other)}; run `maccal bench {grid}`."
        return Claim(words, "not judged", missing)
    found = contrast(ours, theirs, key)
    evidence = (
        f"{points(average(ours, key))} % against {points(average(theirs, key))} % "
        f"over {where(ours)} ({shown(found)}). {runs_won(ours, theirs, key)}"
        f"{as_printed(book, ours, key)}"
    )
    verdict = judged({other: found}, 1, better)
    verdict, but = with_those_apart(book, key, verdict, [other], better)
    return Claim(words, verdict, evidence + but)


def runs_won(ours: Sequence[Line], theirs: Sequence[Line], key: str) -> str:
    """In how many runs the number is lower, and in how many higher."""
    differences = []
    for own, other in zip(ours, theirs, strict=True):
        mine, others = own.values(key), other.values(key)
        differences += [mine[seed] - others[seed] for seed in shared_seeds([own, other], key)]
    low = sum(difference < 0 for difference in differences)
    high = sum(difference > 0 for difference in differences)
    return f"Lower in {low} of {counted(len(differences), 'run')}, higher in {high}."
