"""The best temperature: where the mean NLL, or mean Brier score, of softmax(scores / T) is least.

A score and three derivatives cost one pass over the N x K numbers (softmaxes.py), and give a step
whose error is of the third order. Passes over all rows are expensive, so:

    1. find the optimum of a sample of rows, evenly spread    then 1 / sqrt(sample) from the goal
    2. one step on all rows in float32, if there are many     then about 1e-5 from it
    3. steps on all rows in float64 until the next would      usually one step
       change nothing

Only the last kind decides: the result is exact and does not depend on the sample. NLL and Brier
share every pass. Nothing is assumed about the size of the scores: the search starts from their
spread and goes as far as it must.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from maccal.metrics.inputs import blocks
from maccal.metrics.softmaxes import Rows, compiled, slopes

SAMPLE = 2048  # rows of the sample
SHARE = 64  # or one row in SHARE, if that is more
LARGE = 1 << 18  # numbers from which on a pass in float32 saves time
STRIDE = 2.0  # largest change of log(1 / T) in a step
EXACT = 1e-13  # a search for a temperature is over when its next step would be smaller than this
CLOSE = 1e-9  # the same for a score, which is flat at its least value: this leaves it exact
FEW = 8  # steps on all rows before asking whether there is an optimum at all
STEPS = 200  # at most
END = 5.0  # how far to go in log(1 / T) if a score falls for ever
SAFE = 70.0  # log of the spread: up to 1e30 and down to 1e-30 there is room for cubes


class Best(NamedTuple):
    """Where a score is least, and how low it is there."""

    log_scale: float  # log(1 / T)
    value: float


@dataclass
class Descent:
    """The way down one score: one step per evaluation, inside a shrinking bracket."""

    at: float  # log(1 / T)
    ends: tuple[float, float] = (-math.inf, math.inf)  # it goes no further
    enough: float = CLOSE
    low: float = -math.inf  # the bracket
    high: float = math.inf
    value: float = math.nan
    done: bool = False

    @property
    def scale(self) -> float:
        """1 / T for `slopes`, where 0 means that the score is not needed."""
        return 0.0 if self.done else math.exp(self.at)

    def step(self, value: float, first: float, second: float, third: float) -> None:
        """Go on from the score and its derivatives in x, where 1 / T is multiplied by 1 + x."""
        if first < 0:
            self.low = self.at
        else:
            self.high = self.at
        x = zero_of_slope(first, second, third)
        if second > 0 and abs(x) ** 3 * (1 + (third / second) ** 2) < self.enough:
            # What is left to go is so short that the Taylor series is exact
            self.value = value + x * (first + x * (second / 2 + x * third / 6))
            self.at += math.log1p(x)
            self.done = True
            return
        self.value = value
        target = self.at + (min(STRIDE, math.log1p(x)) if x > -0.8 else -STRIDE)
        if not self.low < target < self.high:
            target = (self.low + self.high) / 2
        target = min(max(target, self.ends[0]), self.ends[1])
        self.done = abs(target - self.at) < self.enough
        self.at = target


def zero_of_slope(first: float, second: float, third: float) -> float:
    """Halley's step, or Newton's if it is long; infinite, downhill, if the score is not convex."""
    if second <= 0:
        return math.copysign(math.inf, -first)
    newton = -first / second
    bend = 1 + newton * third / (2 * second)
    return newton / bend if abs(newton) < 0.5 and bend > 0.5 else newton


def search(rows: Rows, ways: list[Descent], steps: int, fine: bool = True) -> None:
    """Go down both scores together, one pass per step."""
    for _ in range(steps):
        if all(way.done for way in ways):
            return
        asked = [not way.done for way in ways]
        found = slopes(rows, ways[0].scale, ways[1].scale, fine)
        for way, numbers, wanted in zip(ways, found.tolist(), asked, strict=True):
            if wanted:
                way.step(*numbers)


def best(rows: Rows, nll: bool, brier: bool) -> tuple[Best | None, Best | None]:
    """Where NLL and Brier are least; None for one not asked for, or if the NLL has no least value.

    The Brier score may have several low points: this is the one downhill from the best NLL of the
    sample, within END of it.
    """
    rows, shift = normal_size(rows)
    ways = from_sample(thinned(rows), nll, brier)
    if rows.scores.numel() >= LARGE and compiled(rows):
        search(rows, ways, 1, fine=False)
    ways[0] = Descent(ways[0].at, enough=EXACT, done=not nll)
    ways[1] = Descent(ways[1].at, ways[1].ends, done=not brier)
    search(rows, ways, FEW)
    if not ways[0].done and runs_away(rows):
        nll = False
        ways[0].done = True
    search(rows, ways, STEPS)
    if not all(way.done for way in ways):
        hint = "are there logits of very different sizes among these rows?"
        raise ValueError(f"the best temperature was not found; {hint}")
    found = [Best(way.at + shift, way.value) for way in ways]
    return found[0] if nll else None, found[1] if brier else None


def from_sample(sample: Rows, nll: bool, brier: bool) -> list[Descent]:
    """Where to start on all rows: the sample's best NLL, and downhill from it the best Brier."""
    start = -log_spread(sample)
    first = Descent(start, (start - 2 * END, start + 2 * END))
    if bool(labels_scores(sample).isfinite().all()):
        search(sample, [first, Descent(0.0, done=True)], STEPS, fine=False)
    ends = first.at - END, first.at + END
    second = Descent(first.at, ends)
    if brier:
        search(sample, [Descent(0.0, done=True), second], STEPS, fine=False)
    return [
        Descent(first.at, first.ends, done=not nll),
        Descent(second.at, ends, done=not brier),
    ]


def thinned(rows: Rows) -> Rows:
    """A sample of the rows, evenly spread."""
    n = len(rows.scores)
    step = max(1, min(n // SAMPLE, SHARE))
    return rows if step == 1 else Rows.of(rows.scores[::step], rows.labels[::step])


def log_spread(rows: Rows) -> float:
    """The log of how far the largest score of a row is above the mean of its finite scores.

    It is the median over some rows, as a few rows may be of another size; 0 if all scores of every
    row are equal. Scores are divided by a power of two first, as differences might overflow.
    """
    some = rows.scores[:: max(1, len(rows.scores) // 256)].double()
    finite = some.isfinite()
    some = some.where(finite, 0.0)
    power = math.frexp(float(some.abs().max()))[1]
    some = some * 2.0 ** -(power // 2) * 2.0 ** -(power - power // 2)
    top = some.where(finite, -math.inf).amax(1)
    above = top - some.sum(1) / finite.sum(1)
    above = above[above > 0]
    return math.log(float(above.median())) + power * math.log(2) if len(above) else 0.0


def normal_size(rows: Rows) -> tuple[Rows, float]:
    """Scores whose cubes fit in float32, and the log of the factor they were multiplied by.

    The factor is a power of two, so nothing is rounded.
    """
    size = log_spread(rows)
    if abs(size) < SAFE:
        return rows, 0.0
    power = max(-1000, min(1000, -round(size / math.log(2))))
    return Rows.of(rows.scores.double() * 2.0**power, rows.labels), power * math.log(2)


def labels_scores(rows: Rows) -> Tensor:
    """The score of each row's label."""
    return rows.scores.gather(1, rows.labels[:, None]).squeeze(1)


def runs_away(rows: Rows) -> Literal["", "T to 0", "T to infinity"]:
    """In which direction the NLL falls for ever, if it does.

    The NLL is convex in 1 / T. Its slope is mean(mean score - label's score) at 0, and mean(largest
    score - label's score) at infinity. So it falls for ever towards T = 0 if every label has the
    largest score, and towards infinity if the labels' scores are no better than the mean.
    """
    own = labels_scores(rows)
    if bool((own == rows.most).all()):
        return "T to 0"
    slope = 0.0
    for part in blocks(*rows.scores.shape):
        below = rows.scores[part].double() - rows.most[part].double()[:, None]
        finite = below.isfinite()
        mean = below.where(finite, 0.0).sum(1) / finite.sum(1)
        slope += float((mean - (own[part].double() - rows.most[part].double())).sum())
    return "T to infinity" if slope >= 0 else ""


def end_of(rows: Rows) -> float:
    """The log(1 / T) beyond which a score that falls for ever hardly falls.

    It is END beyond T = 1, and beyond the T that the spread of the scores suggests.
    """
    rows, shift = normal_size(rows)
    start = -log_spread(rows) + shift
    return max(END, start + END) if runs_away(rows) == "T to 0" else min(-END, start - END)
