"""The paper's claims, each judged by rows: by seeds, or the intervals of one seed, and the bands of
calibrated models.

    standing(rows)    mean ECE and mean rank of MaC-Cal over all settings, and the paper's
    claims(rows)      what the paper says, whether it holds here, and the numbers

A claim about several comparisons holds where each of them is real, and does not hold where one is
real in the other direction, at a level divided by their number. It is "not measured" while runs are
missing that could refute it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np

from maccal.bench import paper
from maccal.bench.lines import (
    LEVEL,
    Book,
    Contrast,
    Line,
    Row,
    Setting,
    against_zero,
    chance,
    contrast,
    points,
    titled,
)
from maccal.bench.paper import TITLES
from maccal.calibration.stage2 import ABLATION, Stage2

Verdict = Literal["holds", "does not hold", "cannot be told", "not measured"]
Found = Mapping[str, Contrast | None]
COMBINATIONS = tuple(dict.fromkeys(f"{row['method']}+maccal" for row in paper.table("combine")))
KEPT = 0.01  # accuracy that a calibrated network may lose
STEADY = 0.01  # how far ECE may move with gamma
CHEAP = 0.10  # of stage I, that stage II may cost; in the paper's Table 4 it costs about 5 %


@dataclass(frozen=True)
class Claim:
    """What the paper says, whether it holds here, and by which numbers."""

    words: str
    verdict: Verdict
    evidence: str


def claims(rows: Sequence[Row]) -> list[Claim]:
    """Every claim, in the paper's order."""
    book = Book.of(rows)
    return [
        lowest(
            book,
            "ece",
            "MaC-Cal has the lowest ECE of all methods, averaged over data sets and networks.",
        ),
        best_rank(book),
        lowest(book, "aece", "MaC-Cal has the lowest AECE of all methods."),
        lowest(book, "mce", "MaC-Cal has the lowest MCE of all methods."),
        against_vanilla(
            book,
            "ood.mean.auroc",
            "MaC-Cal tells images from elsewhere better than vanilla does (AUROC).",
            +1,
        ),
        against_vanilla(
            book,
            "shift.overall.ece_pooled_mean",
            "MaC-Cal has a lower ECE than vanilla on corrupted images.",
            -1,
        ),
        lowest(
            book,
            "shift.overall.ece_pooled_mean",
            "MaC-Cal has the lowest ECE of all methods on corrupted images.",
        ),
        added(book),
        accuracy_kept(book),
        cheap(book),
        steps(book),
        better_at_every_gamma(book),
        steady_in_gamma(book),
    ]


def judged(found: Found, wanted: int, better: int = -1) -> Verdict:
    """All of these differences real and in the direction of `better`.

    `wanted` is how many there should be.
    """
    real = {name: c for name, c in found.items() if c and c.real}
    if any(c.difference * better < 0 and c.p_value <= LEVEL / len(found) for c in real.values()):
        return "does not hold"
    if len(found) < wanted or not found:
        return "not measured"
    return (
        "holds"
        if len(real) == len(found) and all(c.difference * better > 0 for c in real.values())
        else "cannot be told"
    )


def field(book: Book, key: str) -> dict[str, list[Line]]:
    """The methods that are measured wherever MaC-Cal is, each with its lines there."""
    settings = [s for s in book.settings if (line := book.get(s, "maccal")) and line.values(key)]
    found = {
        name: [line for s in settings if (line := book.get(s, name)) and line.values(key)]
        for name in TITLES
    }
    return {name: lines for name, lines in found.items() if lines and len(lines) == len(settings)}


def average(lines: Sequence[Line], key: str) -> float:
    return fmean(line.mean(key) for line in lines)


def lowest(book: Book, key: str, words: str) -> Claim:
    there = field(book, key)
    others = {name: lines for name, lines in there.items() if name != "maccal"}
    if not others:
        return Claim(
            words, "not measured", "No runs of MaC-Cal and another method on the same data."
        )
    found = {name: contrast(there["maccal"], lines, key) for name, lines in others.items()}
    nearest = min(others, key=lambda name: average(others[name], key))
    evidence = (
        f"{points(average(there['maccal'], key))} % over {counted(len(there['maccal']), 'setting')}; lowest of "
        f"{counted(len(others), 'other')}: {titled(nearest)}, {points(average(others[nearest], key))} % ({shown(found[nearest])})."
    )
    evidence += tally(found) + yardstick(book, there["maccal"], key)
    return Claim(words, judged(found, len(TITLES) - 1), evidence + absent(set(TITLES) - set(there)))


def temperatures(book: Book, ours: Sequence[Line], key: str) -> list[Line]:
    """The lines of the temperature in the same settings, if it is measured in all."""
    lines = [
        line for own in ours if (line := book.get(own.setting, "temperature")) and line.values(key)
    ]
    return lines if len(lines) == len(ours) else []


def yardstick(book: Book, ours: Sequence[Line], key: str) -> str:
    """What a temperature does with the held-out labels that MaC-Cal's feedback sees and the methods
    of stage I do not.
    """
    lines = temperatures(book, ours, key)
    if not lines:
        return ""
    found = shown(contrast(ours, lines, key))
    return f" A temperature fitted on the held-out labels that MaC-Cal's feedback sees: {points(average(lines, key))} % ({found})."


def best_rank(book: Book) -> Claim:
    """Ranks have no interval of their own: only seeds can tell."""
    words, there = "MaC-Cal has the best mean rank of all methods by ECE.", field(book, "ece")
    if len(there) < 2:
        return Claim(
            words, "not measured", "No runs of MaC-Cal and another method on the same data."
        )
    seeds = sorted(
        set.intersection(*(set(line.values("ece")) for lines in there.values() for line in lines))
    )
    by_seed = [ranks(there, lambda line, s=seed: line.values("ece")[s]) for seed in seeds]  # type: ignore[misc]
    overall = ranks(there, lambda line: line.mean("ece"))
    found = {
        name: paired([r["maccal"] - r[name] for r in by_seed]) for name in there if name != "maccal"
    }
    nearest = min(found, key=lambda name: overall[name])
    evidence = f"Mean rank {overall['maccal']:.2f} of {len(there)}; best other: {titled(nearest)}, {overall[nearest]:.2f}"
    test = found[nearest]
    evidence += (
        f" ({chance(test.p_value)}, {test.how})."
        if test
        else "; one seed, and ranks without seeds have no interval."
    )
    return Claim(words, judged(found, len(TITLES) - 1), evidence + absent(set(TITLES) - set(there)))


def ranks(there: Mapping[str, list[Line]], value: Callable[[Line], float]) -> dict[str, float]:
    """Mean over settings of each method's rank there; ties share theirs."""
    placed = [
        rankdata([value(lines[s]) for lines in there.values()]) for s in range(len(there["maccal"]))
    ]
    return {name: fmean(float(place[i]) for place in placed) for i, name in enumerate(there)}


def rankdata(values: Sequence[float]) -> list[float]:
    """The rank of each, from 1; equal values share the mean of theirs.

    >>> rankdata([0.3, 0.1, 0.3])
    [2.5, 1.0, 2.5]
    """
    numbers = np.asarray(values)
    return [float((numbers < one).sum() + ((numbers == one).sum() + 1) / 2) for one in numbers]


def paired(differences: Sequence[float]) -> Contrast | None:
    """The test of numbers a seed; None of fewer than two."""
    if len(differences) < 2:
        return None
    return against_zero(
        fmean(differences), stdev(differences) / math.sqrt(len(differences)), len(differences)
    )


def both(book: Book, name: str, other: str, key: str) -> tuple[list[Line], list[Line]]:
    """The lines of two methods wherever both are measured."""
    pairs = [(book.get(s, name), book.get(s, other)) for s in book.settings]
    there = [(a, b) for a, b in pairs if a and b and a.values(key) and b.values(key)]
    return [a for a, _ in there], [b for _, b in there]


def against_vanilla(book: Book, key: str, words: str, better: int) -> Claim:
    ours, vanilla = both(book, "maccal", "vanilla", key)
    if not ours:
        return Claim(words, "not measured", "No such numbers of both.")
    found = contrast(ours, vanilla, key)
    evidence = (
        f"{points(average(ours, key))} % against {points(average(vanilla, key))} % over {counted(len(ours), 'setting')} "
        f"({shown(found)})."
    )
    return Claim(words, judged({"vanilla": found}, 1, better), evidence)


def added(book: Book) -> Claim:
    words = "Adding MaC-Cal to any of ten other methods lowers its ECE."
    names = {name: both(book, name, name.removesuffix("+maccal"), "ece") for name in COMBINATIONS}
    found = {
        name.removesuffix("+maccal"): contrast(*pair) for name, pair in names.items() if pair[0]
    }
    if not found:
        return Claim(words, "not measured", "No runs of a method with and without MaC-Cal.")
    parts = "; ".join(f"{titled(name)} {shown(c)}" for name, c in found.items())
    missing = {name.removesuffix("+maccal") for name in COMBINATIONS} - set(found)
    return Claim(
        words,
        judged(found, len(COMBINATIONS)),
        f"Change of ECE: {parts}." + tally(found) + absent(missing),
    )


def accuracy_kept(book: Book) -> Claim:
    """An equivalence: the whole interval must lie above what may be lost."""
    words = f"MaC-Cal keeps accuracy: it loses at most {100 * KEPT:.0f} point."
    ours, vanilla = both(book, "maccal", "vanilla", "accuracy")
    found = contrast(ours, vanilla, "accuracy")
    if found is None:
        return Claim(words, "not measured", "No runs of MaC-Cal and of vanilla on the same data.")
    evidence = f"{points(average(ours, 'accuracy'))} % against {points(average(vanilla, 'accuracy'))} % ({shown(found)})."
    return Claim(words, within(-found.high, -found.low, KEPT), evidence)


def within(low: float, high: float, most: float) -> Verdict:
    """Whether what lies somewhere between low and high is at most so much."""
    return "holds" if high <= most else "does not hold" if low > most else "cannot be told"


def cheap(book: Book) -> Claim:
    words = f"The second stage costs little: at most {100 * CHEAP:.0f} % of the first."
    ours, first = both(book, "maccal", "vanilla", "trained.seconds")
    times = [
        (a.values("trained.seconds"), b.values("trained.seconds"))
        for a, b in zip(ours, first, strict=True)
    ]
    shares = [
        a[seed] / b[seed] for a, b in times for seed in sorted(set(a) & set(b)) if b[seed] > 0
    ]
    if not shares:
        return Claim(words, "not measured", "No timed runs of MaC-Cal and its first stage.")
    evidence = f"It took {100 * fmean(shares):.1f} % of the first stage's time on average over {counted(len(shares), 'run')}"
    if (found := paired(shares)) is None:
        return Claim(words, "cannot be told", evidence + "; one run says nothing of others.")
    reach = f", 95 % interval {100 * found.low:.1f} to {100 * found.high:.1f} %."
    return Claim(words, within(found.low, found.high, CHEAP), evidence + reach)


def ablated(book: Book, setting: Setting, name: str) -> Line | None:
    """The line of a row of Table 5; the paper's first row is the network as trained."""
    if name == "vanilla":
        return book.get(setting, "vanilla")
    wanted = asdict(Stage2.ablation(name))
    lines = (line for line in book.lines if line.setting == setting and line.method == "maccal")
    held_out = (line for line in lines if head_of(line).get("feedback") in (None, "held-out"))
    return next((line for line in held_out if head_of(line).get("stage2") == wanted), None)


def head_of(line: Line) -> Row:
    """What the line's runs say of themselves; they differ in the seed alone."""
    run: Row = next(iter(line.runs.values()))["run"]
    return run


def steps(book: Book) -> Claim:
    words, names = "Every step of the ablation lowers ECE.", list(ABLATION)
    found: dict[str, Contrast | None] = {}
    for before, after in pairwise(names):
        pairs = [(ablated(book, s, after), ablated(book, s, before)) for s in book.settings]
        there = [(a, b) for a, b in pairs if a and b]
        if there:
            found[after] = contrast([a for a, _ in there], [b for _, b in there])
    if not found:
        return Claim(words, "not measured", "No runs of the ablation.")
    parts = "; ".join(f"{name} {shown(c)}" for name, c in found.items())
    return Claim(words, judged(found, len(names) - 1), f"Change of ECE with each: {parts}.")


def gammas(book: Book) -> dict[float, Line]:
    """The lines of the gamma figure: feedback from the training rows, where alone gamma matters."""
    lines = [
        line
        for line in book.lines
        if line.method == "maccal" and head_of(line).get("feedback") == "training"
    ]
    found = {(head_of(line).get("stage2") or {}).get("gamma"): line for line in lines}
    return dict(
        sorted(
            (gamma, line)
            for gamma, line in found.items()
            if gamma is not None and line.values("ece")
        )
    )


def better_at_every_gamma(book: Book) -> Claim:
    words, lines = (
        "Without held-out labels, MaC-Cal lowers vanilla's ECE over a wide range of gamma.",
        gammas(book),
    )
    pairs = {
        f"{gamma:g}": (line, book.get(line.setting, "vanilla")) for gamma, line in lines.items()
    }
    found = {name: contrast([line], [other]) for name, (line, other) in pairs.items() if other}
    if len(found) < 3:
        return Claim(words, "not measured", "Fewer than three values of gamma.")
    parts = "; ".join(f"{name} {shown(c)}" for name, c in found.items())
    return Claim(words, judged(found, 3), f"Change of ECE at gamma {parts}.")


def steady_in_gamma(book: Book) -> Claim:
    words, lines = (
        f"MaC-Cal is hardly sensitive to gamma: ECE moves by at most {100 * STEADY:.0f} point.",
        gammas(book),
    )
    if len(lines) < 3:
        return Claim(words, "not measured", "Fewer than three values of gamma.")
    order = sorted(lines, key=lambda gamma: lines[gamma].mean("ece"))
    found = contrast([lines[order[-1]]], [lines[order[0]]])
    ends = [
        f"{points(lines[gamma].mean('ece'))} % at gamma {gamma:g}"
        for gamma in (order[0], order[-1])
    ]
    verdict = within(found.low, found.high, STEADY) if found else "not measured"
    return Claim(
        words,
        verdict,
        f"{len(lines)} values: lowest {ends[0]}, highest {ends[1]} ({shown(found)}).",
    )


def shown(found: Contrast | None) -> str:
    """A difference in points and its test."""
    if found is None:
        return "no seed in common"
    note = ", both within the band of a calibrated model" if found.alike else ""
    return (
        f"{points(found.difference, sign=True)} points, {chance(found.p_value)}, {found.how}{note}"
    )


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def tally(found: Found) -> str:
    low, high = (
        sum(1 for c in found.values() if c and c.real and c.difference * sign > 0)
        for sign in (-1, 1)
    )
    return (
        f" Really lower in {low} of {counted(len(found), 'comparison')}, really higher in {high}."
    )


def absent(names: set[str]) -> str:
    listed = [titled(name) for name in TITLES if name in names]
    return f" Not measured everywhere: {', '.join(listed)}." if listed else ""


def standing(rows: Sequence[Row]) -> dict[str, Any]:
    """Mean ECE (a fraction) and mean rank of every method measured wherever MaC-Cal is, and the
    paper's on the same data sets.

    `temperature` is the mean ECE of the yardstick, which has no rank.

    The paper's are of the same networks where it has them, else of its own networks on these data
    sets; None where there is none."""
    book = Book.of(rows)
    there = field(book, "ece")
    if not there:
        return dict.fromkeys(("ece", "rank", "paper_ece", "paper_rank", "temperature")) | {
            "settings": [],
            "eces": {},
            "ranks": {},
        }
    settings = [line.setting for line in there["maccal"]]
    eces, placed = (
        {name: average(lines, "ece") for name, lines in there.items()},
        ranks(there, lambda line: line.mean("ece")),
    )
    scaled = temperatures(book, there["maccal"], "ece")
    yard = average(scaled, "ece") if scaled else None
    ours = {
        "temperature": yard,
        "ece": eces["maccal"],
        "rank": placed["maccal"],
        "settings": settings,
        "eces": eces,
        "ranks": placed,
    }
    return ours | published(settings)


def published(settings: Sequence[Setting]) -> dict[str, float | None]:
    """The paper's mean ECE and mean rank of MaC-Cal in these settings."""
    table, exact = paper.table("table1"), {(s.data, s.model) for s in settings}
    cells = [r for r in table if (r["data"], r["model"]) in exact] or [
        r for r in table if r["data"] in {d for d, _ in exact}
    ]
    places = dict.fromkeys((r["data"], r["model"]) for r in cells)
    columns = [
        {r["method"]: r["ece"] / 100 for r in cells if (r["data"], r["model"]) == place}
        for place in places
    ]
    if not columns:
        return {"paper_ece": None, "paper_rank": None}
    placed = [
        dict(zip(column, rankdata(list(column.values())), strict=True))["maccal"]
        for column in columns
    ]
    return {
        "paper_ece": fmean(column["maccal"] for column in columns),
        "paper_rank": fmean(map(float, placed)),
    }
