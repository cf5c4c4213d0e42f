"""Monitor: a deployed model watched, batch by batch, by any number of processes.

    watch = Monitor.create("state", probs=probs, labels=labels)  # of the reference
    watch = Monitor.open("state")                # later, elsewhere
    watch.add(probs=probs, labels=labels)        # labels now, ...
    watch.add(logits=logits, ids=ids)            # ... or later,
    watch.label(ids, labels)                     # in any order,
    watch.add(probs=probs)                       # ... or never
    watch.standing().fired

Events are kept in the order in which this state learnt of them, which never changes. To merge is to
learn of what another state knows: its events come after all that are here, each only once. So the
numbers do not depend on who is merged into whom or how often, and what a look has shown before a
merge is still there after it. That keeps the guarantee of the alarms: one for each state, over all
looks at that state.

Cost: to append 1,000 rows, five milliseconds, a file of about 50 kB, and the reading of events that
other processes have added meanwhile; to open, about a millisecond per event.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from time import time_ns
from typing import Any

import numpy as np

from maccal.io import FileError, checksum, locked
from maccal.metrics.arguments import Array, check_bins
from maccal.metrics.given import Classes
from maccal.monitoring import store
from maccal.monitoring.cells import Cells
from maccal.monitoring.events import Batch, Event, Labels, Stamp, check_distinct
from maccal.monitoring.replay import Replay
from maccal.monitoring.settings import Settings
from maccal.monitoring.standing import Standing, standing
from maccal.monitoring.told import UNKNOWN, Rows, check_ids, check_names, check_time, rows_told

Time = datetime | str | None
SHOWN = 8  # class names in a message


class Monitor:
    """A model that is being watched; in a folder, or in memory only.

    >>> watch = Monitor(Settings(tolerance=0.0))
    >>> rng = np.random.default_rng(0)
    >>> for day in range(1, 4):
    ...     p = rng.uniform(0.7, 1, 500)
    ...     wrong = rng.random(500) > p - 0.1  # it is right ten points less often than it says
    ...     watch.add(np.stack([p, 1 - p], 1), wrong.astype(int), time=f"2026-03-0{day}")
    >>> found = watch.standing()
    >>> found.fired, found.alarms[0].fired_at, found.overconfident
    (True, '2026-03-01T00:00:00+00:00', True)
    """

    def __init__(self, settings: Settings | None = None, folder: Path | str | None = None) -> None:
        self.settings = settings or Settings()
        self.folder = None if folder is None else Path(folder)
        self.events: dict[str, Event] = {}  # by the name of their file, as they were recorded
        self.replay = Replay(self.settings)

    def __repr__(self) -> str:
        kept = "in memory" if self.folder is None else f"in {self.folder}"
        events = "event" if len(self.events) == 1 else "events"
        return f"Monitor {kept}: {len(self.events):,} {events}; standing() has the numbers"

    def _repr_html_(self) -> str:
        return self.standing()._repr_html_()

    @classmethod
    def create(
        cls,
        folder: Path | str,
        *,
        probs: Array | None = None,
        labels: Array | None = None,
        logits: Array | None = None,
        alpha: float = Settings.alpha,
        tolerance: float = Settings.tolerance,
        least_accuracy: float | None = None,
        bins: int = Settings.bins,
    ) -> "Monitor":
        """A new state in a folder; ValueError if there is one.

        Probabilities or logits, with their labels, are the reference: rows from before the
        deployment, which the model was not trained on.
        """
        reference = None
        if probs is not None or logits is not None or labels is not None:
            reference = cls.reference(probs, labels, logits=logits, bins=bins)
        settings = Settings(alpha, tolerance, least_accuracy, bins, reference)
        folder = Path(folder)
        with locked(folder):
            store.create(folder, settings)
        return cls(settings, folder)

    @staticmethod
    def reference(
        probs: Array | None = None,
        labels: Array | None = None,
        *,
        logits: Array | None = None,
        bins: int = Settings.bins,
    ) -> Cells:
        """The sums of labelled rows, for Settings(reference=...) of a monitor in memory."""
        rows = rows_told(probs, labels, logits)
        if (rows.labels == UNKNOWN).any():
            raise ValueError("the reference needs a label for every row")
        return Cells.of(rows.confidence, rows.predicted == rows.labels, check_bins(bins))

    @classmethod
    def open(cls, folder: Path | str) -> "Monitor":
        """The state in a folder; FileError if there is none, or a damaged one."""
        folder = Path(folder)
        monitor = cls(store.read_settings(folder), folder)
        monitor.refresh()
        return monitor

    def add(
        self,
        probs: Array | None = None,
        labels: Array | None = None,
        *,
        logits: Array | None = None,
        ids: Any = None,
        time: Time = None,
        name: str = "",
        names: Classes = (),
    ) -> None:
        """A batch: probabilities or logits, and labels as far as they are known, else -1.

        Rows with an id can get their label later. `time` is when the predictions were made, else
        now; `names` are those of the classes, for labels that come as names. The same batch twice
        is a ValueError: one that is killed may be added again without being counted twice.
        """
        rows = rows_told(probs, labels, logits)
        texts = np.array([], np.str_) if ids is None else check_ids(ids, len(rows.confidence))
        parts = [array.tobytes() for array in rows[:3]] + [joined(texts)]
        called = check_names(names, rows.classes)

        def made(stamp: Stamp) -> Batch:
            self.check_classes(rows.classes, called)
            self.check_waiting(rows, texts)
            return batch_of(stamp, rows, texts, called, self.settings.bins)

        self.append("batch", parts, time, name, made)

    def label(self, ids: Any, labels: Array, *, time: Time = None, name: str = "") -> None:
        """Labels of rows of earlier batches, by their ids.

        ValueError if a row is not known, or has its label already: then none is taken.
        """
        given = np.asarray(labels)
        texts = check_ids(ids, len(given))
        if not len(texts):
            raise ValueError("there are no labels to add")
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise ValueError(f"labels have dtype {given.dtype}; expected one class index per id")

        def made(stamp: Stamp) -> Labels:
            self.check_late(texts, given)
            return Labels(stamp, texts, given.astype(np.int64))

        self.append("labels", [joined(texts), given.astype(np.int64).tobytes()], time, name, made)

    def merge(self, other: "Monitor") -> None:
        """Learn of the events of another state that are not here yet, in its order.

        ValueError if its settings or classes differ, or if both wait for a label of the same id.
        """
        if not isinstance(other, Monitor):
            raise ValueError(f"merge takes a Monitor; pass Monitor.open({other!r})")
        if self.settings.values() != other.settings.values():
            raise ValueError("the settings of the two monitors differ; only like states merge")
        with self.alone():
            self.check_classes(other.replay.classes, other.replay.names)
            here = self.replay.seen
            new = [event for event in other.events.values() if event.stamp.fingerprint not in here]
            check_distinct([*self.events.values(), *new])
            for event in new:  # the first of them are a state too, if this is interrupted
                recorded, after = self.next_place()
                stamp = replace(event.stamp, recorded=recorded, after=after)
                self.keep(replace(event, stamp=stamp))

    def standing(self) -> Standing:
        """All numbers, and which alarms have fired."""
        return standing(self.replay, self.settings)

    def refresh(self) -> None:
        """Read what other processes have added since."""
        if self.folder is None:
            return
        for last_look in (False, True):  # a listing may miss a file that comes meanwhile
            for event in self.unread(self.folder):
                self.take(event)
            lost = store.lost(self.events.values())
            if lost is None:
                return
            if last_look:
                raise FileError(self.folder, f"{lost}; restore its file from a copy")

    def unread(self, folder: Path | str) -> list[Event]:
        folder = Path(folder)
        files = [file for file in store.event_files(folder) if file not in self.events]
        return [store.read_event(folder, file) for file in files]

    # What the doors above share

    def append(
        self,
        kind: str,
        parts: list[bytes],
        time: Time,
        name: str,
        made: Callable[[Stamp], Event],
    ) -> None:
        """Make an event of what was told, and keep it."""
        if not isinstance(name, str):
            raise ValueError(f"name is {name!r}; expected a word")
        now = datetime.now(timezone.utc)
        moment = check_time(time, now)
        given = "" if time is None else moment
        fingerprint = checksum(kind.encode(), name.encode(), given.encode(), *parts)
        with self.alone():
            self.check_new(fingerprint, kind)
            recorded, after = self.next_place()
            self.keep(made(Stamp(moment, recorded, fingerprint, after, name)))

    def next_place(self) -> tuple[int, str]:
        """The moment of the next event, later than all that are here, and the one before it."""
        if not self.events:
            return time_ns(), ""
        last = next(reversed(self.events.values())).stamp
        return max(time_ns(), last.recorded + 1), last.fingerprint

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process appends meanwhile, and all that others appended is known."""
        if self.folder is None:
            yield
            return
        with locked(self.folder):
            self.refresh()
            yield

    def keep(self, event: Event) -> None:
        """In the folder first, then here."""
        if self.folder is not None:
            store.write_event(self.folder, event)
        self.take(event)

    def take(self, event: Event) -> None:
        """An event in its place; if it is not the last, all are replayed."""
        late = bool(self.events) and event.stamp.file < next(reversed(self.events))
        self.events[event.stamp.file] = event
        if not late:
            self.replay.add(event)
            return
        self.events = dict(sorted(self.events.items()))
        self.replay = Replay(self.settings)
        for one in self.events.values():
            self.replay.add(one)

    def check_new(self, fingerprint: str, kind: str) -> None:
        if fingerprint in self.replay.seen:
            what = "this very batch is" if kind == "batch" else "these very labels are"
            again = "if the same is meant to count again, give it another time or name"
            raise ValueError(f"{what} in the monitor already; {again}")

    def check_classes(self, classes: int, names: tuple[str, ...]) -> None:
        """Late labels are read by the names of the first batch: all must mean the same columns."""
        known = self.replay
        if classes and known.classes and classes != known.classes:
            raise ValueError(f"a batch of {classes} classes; the ones before had {known.classes}")
        if names and known.names and names != known.names:
            found = (
                f"the classes are {shown(names)}; those of the batches before {shown(known.names)}"
            )
            raise ValueError(f"{found}; name the same columns in the same order")

    def check_waiting(self, rows: Rows, ids: np.ndarray) -> None:
        for id_ in ids[rows.labels == UNKNOWN] if len(ids) else ():
            if str(id_) in self.replay.waiting:
                raise ValueError(f"id {str(id_)!r} waits for its label already, from another batch")

    def check_late(self, ids: np.ndarray, labels: np.ndarray) -> None:
        classes = self.replay.classes
        for id_, label in zip(ids, labels, strict=True):
            if str(id_) not in self.replay.waiting:
                why = "no batch has such a row, or it has its label"
                raise ValueError(f"id {str(id_)!r} does not wait for a label: {why}")
            if not 0 <= label < classes:
                raise ValueError(f"label {label} of id {str(id_)!r} is outside 0 .. {classes - 1}")


def batch_of(stamp: Stamp, rows: Rows, ids: np.ndarray, names: tuple[str, ...], bins: int) -> Batch:
    known = rows.labels != UNKNOWN
    correct = rows.predicted == rows.labels
    waiting = ~known if len(ids) else np.zeros(len(known), bool)
    return Batch(
        stamp,
        rows.classes,
        names,
        Cells.of(rows.confidence, np.zeros(len(known), bool), bins),
        Cells.of(rows.confidence[known], correct[known], bins),
        ids[waiting] if len(ids) else ids,
        rows.confidence[waiting],
        rows.predicted[waiting],
    )


def shown(names: tuple[str, ...]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def joined(ids: np.ndarray) -> bytes:
    """All ids, each with its length, so that no two lists are the same."""
    return "".join(f"{len(one)}:{one}" for one in ids.tolist()).encode()
