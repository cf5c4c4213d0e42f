"""What a monitor is told, as it is kept: a batch of predictions, or labels of earlier rows.

An event never changes once it is there. It has a fingerprint of what was told, so that the same
batch is not counted twice; the moment at which this state recorded it, which orders the events; and
the fingerprint of the event before it, so that a lost file is noticed.

Of a batch are kept the exact sums of its rows (cells.py), and of rows that still wait for a label
their id, confidence and predicted class.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from maccal.io import DAMAGED, FileError, npz
from maccal.monitoring.cells import Cells

KIND = "monitor event 1"  # of the files


@dataclass(frozen=True)
class Stamp:
    """When an event was, when it was recorded, and what it is called."""

    time: str  # ISO 8601 in UTC: of the predictions, or when the labels came
    recorded: int  # nanoseconds since 1970
    fingerprint: str
    after: str  # the fingerprint of the event recorded before it; "" for the first
    name: str = ""

    @property
    def file(self) -> str:
        """The name of its file: events sort by it as they were recorded."""
        return f"{self.recorded:020d}-{self.fingerprint}.event"


@dataclass(frozen=True, eq=False)
class Batch:
    """Predictions of some rows, of which all, some or none have labels."""

    stamp: Stamp
    classes: int
    names: tuple[str, ...]  # of the classes, where there are any
    said: Cells  # all rows, as if none were right
    known: Cells  # those with a label
    ids: np.ndarray  # of the rows that wait for a label
    confidence: np.ndarray  # theirs
    predicted: np.ndarray


@dataclass(frozen=True, eq=False)
class Labels:
    """What was true of rows of earlier batches."""

    stamp: Stamp
    ids: np.ndarray
    labels: np.ndarray


Event = Batch | Labels


def packed(event: Event) -> bytes:
    """The event as the bytes of an .npz file."""
    about: dict[str, Any] = {**asdict(event.stamp), "kind": type(event).__name__}
    if isinstance(event, Labels):
        return npz(about=as_bytes(about), ids=event.ids, labels=event.labels)
    about |= {"classes": event.classes, "names": event.names}
    return npz(
        about=as_bytes(about),
        said_index=event.said.index,
        said_sums=event.said.sums,
        known_index=event.known.index,
        known_sums=event.known.sums,
        ids=event.ids,
        confidence=event.confidence,
        predicted=event.predicted,
    )


def as_bytes(about: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(json.dumps(about).encode(), np.uint8)


def unpacked(data: bytes, path: Path) -> Event:
    """From what `packed` gave; the bytes have been compared with their checksum."""
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        about = json.loads(bytes(arrays["about"]))
        kind = about.pop("kind")
        classes = about.pop("classes", 0)
        names = tuple(about.pop("names", ()))
        stamp = Stamp(**about)
        if stamp.file != path.name:
            raise FileError(path, f"it was written as {stamp.file}: {DAMAGED}")
        if kind == "Labels":
            return Labels(stamp, arrays["ids"], arrays["labels"])
        said = Cells(arrays["said_index"], arrays["said_sums"])
        known = Cells(arrays["known_index"], arrays["known_sums"])
        waiting = [arrays[key] for key in ("ids", "confidence", "predicted")]
        return Batch(stamp, classes, names, said, known, *waiting)


def check_distinct(events: Iterable[Event]) -> None:
    """ValueError if different batches wait for a label of one id."""
    seen: dict[str, str] = {}
    for event in events:
        own = event.stamp.fingerprint
        for id_ in event.ids.tolist() if isinstance(event, Batch) else ():
            if seen.setdefault(id_, own) != own:
                both = f"id {id_!r} is that of rows of two batches"
                raise ValueError(f"{both}; in states that merge every row needs its own id")
