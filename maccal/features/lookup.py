"""The stored features that a model would compute now: found by weights, by all rows, by a probe.

    candidates    entries of the same weights and layers (fingerprints.py), of every linear layer
                  that may be the head
    a walk        over the loader hashes each row: an entry must hold these rows and no others. It
                  ends where no entry is left
    a probe       during the walk the model runs on some of the batches. An entry is taken only if
                  it holds what came out, from the same head, within the rounding of the arithmetic

Weights do not say what a forward pass makes of them: another activation, a hook or an edited class
shows in the probe. It is of about 1,024 rows in four batches or more, chosen by their hashes, so
that they are spread over the data whatever its order; or of all rows where there are no more. A
change that shows in one row of a hundred is missed three times in 100,000, and one that shows in
none of the probe's rows is not seen. Cost: those batches, one more that finds the head, and a hash
of every input, about a second per gigabyte.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from maccal.distributed import everywhere
from maccal.features import cache as disk
from maccal.features.batches import Batch, Part
from maccal.features.fingerprints import data_key, row_hashes

PROBE = 1024  # rows of a probe; 0.99 ** 1024 is 3e-5
BATCHES = 4  # of a probe, at least

# How far two passes over the same rows may be apart, as a share of the feature's largest value.
# Other batch sizes and numbers of threads moved float32 features of ResNets and of a transformer by
# at most 1e-6, and 1e-5 is ten times that; an approximate GELU for the exact one moves them by
# 2e-4. Of the short types it is four and two units in the last place. A device that rounds more
# coarsely than its dtype (TF32) may be refused a hit: that costs time, and is never wrong.
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 8e-3}


def alike(live: Tensor, stored: Tensor, rounding: float) -> bool:
    """Whether two passes over the same rows gave the same features, but for rounding.

    The scale is each feature's own, so that a huge one does not hide the others; but at least that
    of the median feature, so that one that is nearly zero everywhere need not be exact.
    """
    a, b = live.double(), stored.double()
    largest = a.abs().amax(0)
    some = largest[largest > 0]
    scale = largest.clamp(min=float(some.median())) if len(some) else largest
    return bool(((a - b).abs() <= rounding * scale).all())


class Model(Protocol):
    """What runs the model on a batch: features.Extractor."""

    head: str | None
    rounding: float

    def live(self, batch: Batch, start: int) -> Tensor: ...


class Probe:
    """Hashes the rows of batches, and runs the model on those that hold the chosen rows."""

    def __init__(self, model: Model, entries: list[disk.Entry]) -> None:
        self.model, self.entries = model, entries
        self.chosen: Tensor | None = None
        self.rows: list[Tensor] = []
        self.features: list[Tensor] = []

    def __call__(self, batch: Batch, start: int) -> Part:
        rows = hashes(batch, start)
        if self.chosen is None:
            self.chosen = torch.cat([lowest(e.rows, len(batch.y)) for e in self.entries])
        if bool(torch.isin(rows.hashes, self.chosen).any()):
            self.features.append(self.model.live(batch, start))
            self.rows.append(rows.hashes)
        return rows

    def agrees(self, z: Tensor, rows: Tensor, head: str) -> bool:
        """Whether these features of these rows are what the model gave; True if it did not run."""
        if not self.rows:
            return True
        live, ordered = torch.cat(self.features), rows.sort()
        at = ordered.indices[torch.searchsorted(ordered.values, torch.cat(self.rows))]
        return self.model.head == head and alike(live, z[at], self.model.rounding)


def lowest(rows: Tensor, size: int) -> Tensor:
    """The rows with the lowest hashes, as many as batches of this size make a probe."""
    if len(rows) <= PROBE:
        return rows
    return rows.sort().values[: max(BATCHES, math.ceil(PROBE / max(1, size)))]


def hashes(batch: Batch, start: int) -> Part:
    """The rows of a batch without their features: the model does not run."""
    rows = row_hashes((batch.args, batch.kwargs), batch.y)
    return Part(torch.empty(len(batch.y), 0), batch.y, rows)


def holds(ordered: Tensor, some: Tensor) -> bool:
    at = torch.searchsorted(ordered, some).clamp_(max=len(ordered) - 1)
    return torch.equal(ordered[at], some)


def matching(entries: list[disk.Entry], parts: Iterator[Part]) -> tuple[list[str], Part]:
    """The names of the entries that hold these rows and no others, and the rows."""
    left = [(entry.name, entry.rows.sort().values) for entry in entries]
    seen = []
    for part in parts:
        seen.append(part)
        left = [(name, rows) for name, rows in left if holds(rows, part.hashes)]
        if not left:
            break
    if not left or not seen:
        return [], Part(torch.empty(0), torch.empty(0), torch.empty(0))
    found = Part(*map(torch.cat, zip(*seen, strict=True)))
    ordered = found.hashes.sort().values
    return [name for name, rows in left if torch.equal(rows, ordered)], found


Walk = Callable[[str, Callable[[Batch, int], Part]], Iterator[Part]]
"""A pass over the loader: its title, and what it does with a batch."""


def stored(
    model: Model,
    heads: dict[str, tuple[str, int]],
    folder: Path,
    walked: Walk,
) -> tuple[Tensor, Tensor] | None:
    """Features on disk of the loader's rows, in its order, and their labels; None without any.

    `heads` has the name and the number of inputs of each layer that may be the head, by the
    fingerprint of what is in front of it. Every rank must come to the same answer: only what all of
    them see is looked at.
    """
    found, head_of = {}, {}
    for weights, (head, width) in heads.items():
        for entry in disk.entries(folder, weights):
            if entry.width == width:
                found[entry.name], head_of[entry.name] = entry, head
    common = sorted(set.intersection(*everywhere(set(found))))
    if not common:
        return None
    probe = Probe(model, [found[name] for name in common])
    names, rows = matching(probe.entries, walked("hashes", probe))
    for name in names:
        loaded = disk.load(folder / name, rows.hashes)
        same = loaded is not None and probe.agrees(loaded[0], rows.hashes, head_of[name])
        if all(everywhere(same)):
            return loaded
    return None


def has_twin(
    entries: list[disk.Entry],
    folder: Path,
    z: Tensor,
    rows: Tensor,
    rounding: float,
) -> bool:
    """Whether one of these entries holds the same features of the same rows, in whatever order."""
    key = data_key(rows)
    for name in (entry.name for entry in entries if data_key(entry.rows) == key):
        loaded = disk.load(folder / name, rows)
        if loaded is not None and all_alike(z, loaded[0], rounding):
            return True
    return False


def all_alike(z: Tensor, other: Tensor, rounding: float) -> bool:
    """In parts, so that large sets are not copied."""
    parts = zip(torch.split(z, PROBE), torch.split(other, PROBE), strict=True)
    return all(alike(a, b, rounding) for a, b in parts)
