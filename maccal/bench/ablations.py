"""The ablation, Table 5, judged by each reading of what a mask does.

ablated(book, setting, row, reading)    the line of a row of Table 5
steps(book, reading)                    whether every step lowers ECE

forward: a mask multiplies the weights in the forward pass, and heads start afresh. regrow: a mask
zeroes the weights when it is drawn, and they grow again, from the trained classifier on.
"""

from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise

from maccal.bench.contrasts import Contrast, contrast
from maccal.bench.judging import Claim, each_shown, judged, where
from maccal.bench.lines import Book, Line, Setting
from maccal.bench.standing import OURS
from maccal.calibration.stage2 import ABLATION, Stage2

READINGS: Mapping[str, str] = {
    "forward": "masks multiply the weights in the forward pass",
    "regrow": "masks zero the weights when they are drawn, and these grow again",
}


def ablated(book: Book, setting: Setting, row: str, reading: str = "forward") -> Line | None:
    """The line of a row of Table 5; the paper's first row is the network as trained."""
    if row == "vanilla":
        return book.get(setting, "vanilla")
    wanted = asdict(Stage2.ablation(row, reading))
    for line in book.lines:
        ran = line.ran
        ours = line.setting == setting and ran.method == OURS
        # a choice that did not exist when the row was made has its default
        said = ran.calibration and {**wanted, **ran.calibration} == wanted
        if ours and ran.feedback in (None, "held-out") and said:
            return line
    return None


def steps(book: Book, reading: str) -> Claim:
    words = f"Every step of the ablation lowers ECE, if {READINGS[reading]}."
    names = list(ABLATION)
    found: dict[str, Contrast | None] = {}
    places: set[str] = set()
    for before, after in pairwise(names):
        first, second = [], []
        for setting in book.settings:
            one = ablated(book, setting, after, reading)
            two = ablated(book, setting, before, reading)
            if one and two:
                first.append(one)
                second.append(two)
        if first:
            found[after] = contrast(first, second)
            places.add(where(first))
    if not found:
        nothing = "No runs of the ablation by this reading; run `maccal bench ablation`."
        return Claim(words, "not judged", nothing)
    over = f", over {places.pop()}" if len(places) == 1 else ", over the data sets that have both"
    evidence = f"Change of ECE with each{over}: {each_shown(found)}."
    missing = [name for name in names[1:] if name not in found]
    if missing:
        evidence += f" Not measured with the step before: {', '.join(missing)}."
    return Claim(words, judged(found, len(names) - 1), evidence)
