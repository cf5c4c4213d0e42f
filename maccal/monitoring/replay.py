"""All events of a state, one after the other: the rows of each batch, and the money of each alarm.

A label that comes late counts for its batch where accuracy over time is shown, and for the alarms
at the moment when it came.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from maccal.monitoring.alarms import Calibration, alarms
from maccal.monitoring.cells import Cells
from maccal.monitoring.events import Event, Labels, Stamp
from maccal.monitoring.settings import Settings


@dataclass(frozen=True)
class Known:
    """A batch, and what is known of it by now."""

    stamp: Stamp
    said: Cells
    known: Cells


class Place(NamedTuple):
    """A row that waits for its label."""

    batch: int  # number of its batch
    confidence: float
    predicted: int


@dataclass(frozen=True)
class Money:
    """The log of an alarm's money after an event."""

    stamp: Stamp
    log: float
    rows: int  # that it was told of until then


class Replay:
    """What the events so far come to."""

    def __init__(self, settings: Settings) -> None:
        self.bins = settings.bins
        self.alarms = alarms(settings)
        self.batches: list[Known] = []
        self.waiting: dict[str, Place] = {}
        self.seen: set[str] = set()  # fingerprints
        self.classes = 0
        self.names: tuple[str, ...] = ()
        self.course: dict[str, list[Money]] = {name: [] for name in self.alarms}
        self.fired: dict[str, Money] = {}  # the first time that the money reached its threshold
        self.overconfident: bool | None = None  # which way, when the calibration alarm fired

    def add(self, event: Event) -> None:
        """The next event; one that was told twice, to two states, counts the first time."""
        if event.stamp.fingerprint in self.seen:
            return
        self.seen.add(event.stamp.fingerprint)
        if isinstance(event, Labels):
            self.bet(event.stamp, Cells.of([], [], self.bins), self.settled(event))
            return
        self.classes = self.classes or event.classes
        self.names = self.names or event.names
        number = len(self.batches)
        rows = zip(event.ids, event.confidence, event.predicted, strict=True)
        for id_, confidence, predicted in rows:
            self.waiting.setdefault(str(id_), Place(number, float(confidence), int(predicted)))
        self.batches.append(Known(event.stamp, event.said, event.known))
        self.bet(event.stamp, event.said, event.known)

    def settled(self, event: Labels) -> Cells:
        """The sums of rows that have a label now; each is added to its batch.

        A row that two merged states both have a label of counts once.
        """
        by_batch: dict[int, list[tuple[float, bool]]] = {}
        for id_, label in zip(event.ids, event.labels, strict=True):
            place = self.waiting.pop(str(id_), None)
            if place is not None:
                row = (place.confidence, place.predicted == int(label))
                by_batch.setdefault(place.batch, []).append(row)
        total = Cells.of([], [], self.bins)
        for number, rows in by_batch.items():
            confidence, correct = zip(*rows, strict=True)
            new = Cells.of(np.array(confidence), np.array(correct), self.bins)
            batch = self.batches[number]
            self.batches[number] = replace(batch, known=batch.known.plus(new, self.bins))
            total = total.plus(new, self.bins)
        return total

    def bet(self, stamp: Stamp, said: Cells, known: Cells) -> None:
        """Tell every alarm."""
        for name, alarm in self.alarms.items():
            rows = known if alarm.watches == "known" else said
            if not rows.rows:
                continue
            log = alarm.told(rows)
            before = self.course[name][-1].rows if self.course[name] else 0
            money = Money(stamp, log, before + rows.rows)
            self.course[name].append(money)
            if log >= alarm.threshold and name not in self.fired:
                self.fired[name] = money
                if isinstance(alarm, Calibration):
                    self.overconfident = alarm.overconfident()
