"""How a claim is judged: by real differences, never by bare ones.

A claim about several comparisons holds where each of them is real, and does not hold where one is
real in the other direction, at a level divided by their number. It is "not judged" while runs are
missing that could refute it, and the evidence says which.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from maccal.bench.contrasts import LEVEL, Contrast
from maccal.bench.lines import Line
from maccal.bench.paper import TITLES
from maccal.bench.titles import chance, counted, points, title

Verdict = Literal["holds", "does not hold", "cannot be told", "not judged"]
ORDER: tuple[Verdict, ...] = ("does not hold", "not judged", "cannot be told", "holds")
NAMED = 3  # settings, beyond which they are counted
Found = Mapping[str, Contrast | None]


@dataclass(frozen=True)
class Claim:
    """What the paper says, whether it holds here, and by which numbers."""

    words: str
    verdict: Verdict
    evidence: str


def judged(found: Found, wanted: int, better: int = -1) -> Verdict:
    """All of these differences real and in the direction of `better`.

    `wanted` is how many there should be.
    """
    real = [one for one in found.values() if one and one.real]
    against = [one for one in real if one.difference * better < 0]
    if any(one.p_value <= LEVEL / len(found) for one in against):
        return "does not hold"
    if len(found) < wanted or not found:
        return "not judged"
    return "holds" if len(real) == len(found) and not against else "cannot be told"


def within(low: float, high: float, most: float) -> Verdict:
    """Whether what lies somewhere between low and high is at most so much."""
    if high <= most:
        return "holds"
    return "does not hold" if low > most else "cannot be told"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Of several that must all hold.

    >>> worst(["holds", "cannot be told"]), worst(["does not hold", "not judged"]), worst([])
    ('cannot be told', 'does not hold', 'not judged')
    """
    found = set(verdicts)
    for verdict in ORDER:
        if verdict in found:
            return verdict
    return "not judged"


def unrefuted(verdict: Verdict, missing: str) -> Verdict:
    """Not judged while runs are missing that could refute it."""
    return "not judged" if missing and verdict != "does not hold" else verdict


def shown(found: Contrast | None) -> str:
    """A difference in points and its test."""
    if found is None:
        return "no seed in common, or not on the same images"
    note = ", both within the band of a calibrated model" if found.alike else ""
    size = points(found.difference, sign=True)
    return f"{size} points, {chance(found.p_value)}, {found.how}{note}"


def each_shown(found: Found) -> str:
    return "; ".join(f"{name} {shown(one)}" for name, one in found.items())


def tally(found: Found) -> str:
    real = [one.difference for one in found.values() if one and one.real]
    low = sum(1 for difference in real if difference < 0)
    high = sum(1 for difference in real if difference > 0)
    compared = counted(len(found), "comparison")
    said = f" Really lower in {low} of {compared}, really higher in {high}."
    single = sum(1 for one in found.values() if one and one.seeds == 1)
    if 0 < single < len(found):
        said += f" {single} by the intervals of one seed alone."
    return said


def where(lines: Sequence[Line]) -> str:
    """The data sets that a mean is over; of many, or of several networks on one, their number."""
    names = list(dict.fromkeys(line.setting.title for line in lines))
    if len(names) < len(lines) or len(names) > NAMED:
        return counted(len(lines), "setting")
    return " and ".join(names)


def absent(names: Iterable[str]) -> str:
    missing = set(names)
    listed = [title(name) for name in TITLES if name in missing]
    return f" Not measured everywhere: {', '.join(listed)}." if listed else ""
