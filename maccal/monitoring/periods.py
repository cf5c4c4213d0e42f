"""The course over time: batches in order of their time, gathered into at most so many periods.

Cost: about 50 ms per period, for the interval of its ECE.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from maccal.monitoring.cells import total
from maccal.monitoring.expected import Expected
from maccal.monitoring.measured import Measured, measured
from maccal.monitoring.replay import Known, Replay
from maccal.monitoring.settings import Settings
from maccal.monitoring.standing import of_unlabelled

MOST = 60


@dataclass(frozen=True)
class Period:
    """Some batches that follow each other."""

    since: str  # the times of the first and the last
    until: str
    batches: int
    rows: int
    known: Measured | None  # of the rows with labels
    expected: Expected | None  # of the others


def periods(replay: Replay, settings: Settings, most: int = MOST) -> list[Period]:
    """Of equally many batches each, give or take one."""
    ordered = sorted(replay.batches, key=lambda batch: batch.stamp.time)
    if not ordered:
        return []
    cuts = np.linspace(0, len(ordered), min(most, len(ordered)) + 1).astype(int)
    return [period(ordered[start:stop], settings) for start, stop in pairwise(cuts)]


def period(batches: list[Known], settings: Settings) -> Period:
    said = total([batch.said for batch in batches], settings.bins)
    known = total([batch.known for batch in batches], settings.bins)
    return Period(
        batches[0].stamp.time,
        batches[-1].stamp.time,
        len(batches),
        said.n,
        measured(known, settings.bins) if known.n else None,
        of_unlabelled(said, known, settings),
    )
