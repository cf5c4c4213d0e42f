"""The best temperature: where the mean NLL, or the mean Brier score, of softmax(scores / T) is
least.

A score and three derivatives cost one pass over the N x K numbers (softmaxes.py), and give a step
whose error is of the third order. Passes over all rows are dear, so:

    1. find the optimum of a sample of rows, evenly spread            about 1 / sqrt(rows of the sample) from the goal
    2. one step on all rows in float32, where there are many          about 1e-5 from it
    3. steps on all rows in float64 until the next would not count    as a rule one

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

SAMPLE, SHARE = 2048, 64  # rows of the sample: so many, or one in SHARE where that is more
LARGE = 1 << 18  # numbers from which a pass in float32 pays
STRIDE = 2.0  # largest change of log(1 / T) in a step
# a search is over when its next step would be below this; CLOSE leaves the score itself exact
EXACT, CLOSE = 1e-13, 1e-9
FEW, STEPS = 8, 200  # after FEW steps on all rows it is time to ask whether there is an optimum
END = 5.0  # how far to go in log(1 / T) where a score falls for ever
SAFE = 70.0  # logs of spreads up to 1e30 and down to 1e-30 leave room for cubes


class Best(NamedTuple):
    """Where a score is least, and how low it is there."""

    log_scale: float  # log(1 / T)
    value: float


@dataclass
class Descent:
    """The way down one score, in log(1 / T).

    A step for each evaluation, inside a shrinking bracket.
    """

    place: float
    ends: tuple[float, float] = (-math.inf, math.inf)
    enough: float = CLOSE
    low: float = -math.inf
    high: float = math.inf
    value: float = math.nan
    done: bool = False

    @property
    def scale(self) -> float:
        """For slopes: 0 is not asked for."""
        return 0.0 if self.done else math.exp(self.place)

    def step(self, value: float, first: float, second: float, third: float) -> None:
        """Go on from the score at this place and its derivatives in x, where 1 / T is multiplied by
        1 + x.
        """
        self.low, self.high = (self.place, self.high) if first < 0 else (self.low, self.place)
        x = zero_of_slope(first, second, third)
        if second > 0 and abs(x) ** 3 * (1 + (third / second) ** 2) < self.enough:
            self.value = value + x * (first + x * (second / 2 + x * third / 6))
            self.place += math.log1p(x)
            self.done = True
            return
        self.value = value
        target = self.place + (min(STRIDE, math.log1p(x)) if x > -0.8 else -STRIDE)
        if not self.low < target < self.high:
            target = (self.low + self.high) / 2
        target = min(max(target, self.ends[0]), self.ends[1])
        self.done = abs(target - self.place) < self.enough
        self.place = target


def zero_of_slope(first: float, second: float, third: float) -> float:
    """Halley's step, or Newton's where it is long.

    Infinite, downhill, where the score is not convex.
    """
    if second <= 0:
        return math.copysign(math.inf, -first)
    newton = -first / second
    bend = 1 + newton * third / (2 * second)
    return newton / bend if abs(newton) < 0.5 and bend > 0.5 else newton


def search(rows: Rows, ways: list[Descent], steps: int, fine: bool = True) -> None:
    """Go down both scores together, one pass a step."""
    for _ in range(steps):
        if all(way.done for way in ways):
            return
        asked = [not way.done for way in ways]
        found = slopes(rows, ways[0].scale, ways[1].scale, fine)
        for way, numbers, wanted in zip(ways, found.tolist(), asked, strict=True):
            if wanted:
                way.step(*numbers)


def best(rows: Rows, nll: bool, brier: bool) -> tuple[Best | None, Best | None]:
    """Where NLL and Brier are least, of those asked for; None also where the NLL has no least
    value.

    The Brier score may have several low points: this is the one downhill from the best NLL of the
    sample, within END of it."""
    rows, shift = normal_size(rows)
    ways = from_sample(thinned(rows), nll, brier)
    if rows.scores.numel() >= LARGE and compiled(rows):
        search(rows, ways, 1, fine=False)
    ways[0] = Descent(ways[0].place, enough=EXACT, done=not nll)
    ways[1] = Descent(ways[1].place, ways[1].ends, done=not brier)
    search(rows, ways, FEW)
    if not ways[0].done and runs_away(rows):
        nll, ways[0].done = False, True
    search(rows, ways, STEPS)
    if not all(way.done for way in ways):
        raise ValueError(
            "the best temperature was not found; are there logits of very different sizes among these rows?"
        )
    found = [Best(way.place + shift, way.value) for way in ways]
    return found[0] if nll else None, found[1] if brier else None


def from_sample(sample: Rows, nll: bool, brier: bool) -> list[Descent]:
    """Where to start on all rows.

    The sample's best NLL, and downhill from there its best Brier score.
    """
    start = -log_spread(sample)
    first = Descent(start, (start - 2 * END, start + 2 * END))
    if bool(labels_scores(sample).isfinite().all()):
        search(sample, [first, Descent(0.0, done=True)], STEPS, fine=False)
    ends = first.place - END, first.place + END
    second = Descent(first.place, ends)
    if brier:
        search(sample, [Descent(0.0, done=True), second], STEPS, fine=False)
    return [
        Descent(first.place, first.ends, done=not nll),
        Descent(second.place, ends, done=not brier),
    ]


def thinned(rows: Rows) -> Rows:
    """A sample of the rows, evenly spread."""
    n = len(rows.scores)
    step = max(1, min(n // SAMPLE, SHARE))
    return rows if step == 1 else Rows.of(rows.scores[::step], rows.labels[::step])


def log_spread(rows: Rows) -> float:
    """Log of how far the largest score of a row is above the mean of its finite ones, in the middle
    of some rows; else 0.

    The middle, as a few rows may be of another size. Counted in units of the largest, as
    differences might overflow."""
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
    """Scores whose cubes fit in float32, and the log of what they were multiplied by.

    A power of two, so nothing is rounded.
    """
    size = log_spread(rows)
    if abs(size) < SAFE:
        return rows, 0.0
    power = max(-1000, min(1000, -round(size / math.log(2))))
    return Rows.of(rows.scores.double() * 2.0**power, rows.labels), power * math.log(2)


def labels_scores(rows: Rows) -> Tensor:
    return rows.scores.gather(1, rows.labels[:, None]).squeeze(1)


def runs_away(rows: Rows) -> Literal["", "T to 0", "T to infinity"]:
    """Where the NLL falls for ever: if every label has the largest score, or if the labels' scores
    are no better than the mean.

    The NLL is convex in 1 / T, with slope mean(mean score - label's score) at 0 and mean(largest -
    label's) at infinity."""
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
    """A place in log(1 / T) from where on a score that falls for ever hardly falls.

    END beyond 1 and beyond the spread's.
    """
    rows, shift = normal_size(rows)
    start = -log_spread(rows) + shift
    return max(END, start + END) if runs_away(rows) == "T to 0" else min(-END, start - END)
