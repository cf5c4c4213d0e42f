"""The stored features that a model would compute now: found by weights, by all rows, by a probe.

    1. candidates    the entries of the same weights and layers (fingerprints.py), for every linear
                     layer that may be the head
    2. a walk        over the loader hashes every row: an entry must hold these rows and no others.
                     The walk ends as soon as no entry is left
    3. a probe       during the walk the model runs on some of the batches. An entry is taken only
                     if it holds what came out, from the same head, up to rounding

Weights do not say what a forward pass makes of them: another activation, a hook or an edited class
shows only in the probe. The probe has about 1,024 rows in at least four batches; they are chosen by
their hashes, so that they are spread over the data whatever its order. A smaller set is probed
whole. A change that shows in one row of a hundred is missed three times in 100,000, and one that
shows in none of the probe's rows is not seen. Cost: those batches, one more that finds the head,
and a hash of every input, about a second per gigabyte.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from maccal.distributed import everywhere
from maccal.features import cache as disk
from maccal.features.batches import Batch, Part, Work, joined
from maccal.features.fingerprints import data_key, row_hashes

PROBE = 1024  # rows of a probe; 0.99 ** 1024 is 3e-5
BATCHES = 4  # of a probe, at least

# How far two passes over the same rows may be apart, as a share of the feature's largest value.
# float32: other batch sizes and numbers of threads moved features of ResNets and of a transformer
# by at most 1e-6, a tenth of the limit; an approximate GELU instead of the exact one moves them by
# 2e-4. float16 and bfloat16: four and two units in the last place. A device that rounds more
# coarsely than its dtype (TF32) may be refused a hit: that costs time, and is never wrong.
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 8e-3}


def alike(live: Tensor, stored: Tensor, rounding: float) -> bool:
    """Whether two passes over the same rows gave the same features, but for rounding.

    Each feature has its own scale, so that a huge one does not hide the others; but at least that
    of the median feature, so that one that is nearly zero everywhere need not be exact.
    """
    a = live.double()
    b = stored.double()
    largest = a.abs().amax(0)
    some = largest[largest > 0]
    scale = largest.clamp(min=float(some.median())) if len(some) else largest
    return bool(((a - b).abs() <= rounding * scale).all())


class Model(Protocol):
    """What runs the model on a batch: the Extractor of extraction.py."""

    head: str | None
    rounding: float

    def live(self, batch: Batch, start: int) -> Tensor: ...


class Probe:
    """Hashes the rows of batches, and runs the model on those that hold the chosen rows."""

    def __init__(self, model: Model, entries: list[disk.Entry]) -> None:
        self.model = model
        self.entries = entries
        self.chosen: Tensor | None = None  # hashes of rows; known once a batch's size is
        self.hashes: list[Tensor] = []  # of the rows that the model ran on
        self.features: list[Tensor] = []  # what came out

    def __call__(self, batch: Batch, start: int) -> Part:
        part = hashed(batch)
        if self.chosen is None:
            self.chosen = torch.cat([lowest(e.hashes, len(batch.y)) for e in self.entries])
        if bool(torch.isin(part.hashes, self.chosen).any()):
            self.features.append(self.model.live(batch, start))
            self.hashes.append(part.hashes)
        return part

    def agrees(self, z: Tensor, hashes: Tensor, head: str) -> bool:
        """Whether these features of these rows are what the model gave; True if it did not run."""
        if not self.hashes:
            return True
        live = torch.cat(self.features)
        ordered = hashes.sort()
        at = ordered.indices[torch.searchsorted(ordered.values, torch.cat(self.hashes))]
        return self.model.head == head and alike(live, z[at], self.model.rounding)


def lowest(hashes: Tensor, size: int) -> Tensor:
    """The lowest hashes, one for each batch of this size that a probe needs; all of a small set."""
    if len(hashes) <= PROBE:
        return hashes
    return hashes.sort().values[: max(BATCHES, math.ceil(PROBE / max(1, size)))]


def hashed(batch: Batch) -> Part:
    """The rows of a batch without their features: the model does not run."""
    hashes = row_hashes((batch.args, batch.kwargs), batch.y)
    return Part(torch.empty(len(batch.y), 0), batch.y, hashes)


def holds(ordered: Tensor, some: Tensor) -> bool:
    """Whether all of some hashes are among these, which are in order."""
    at = torch.searchsorted(ordered, some).clamp_(max=len(ordered) - 1)
    return torch.equal(ordered[at], some)


def matching(entries: list[disk.Entry], parts: Iterator[Part]) -> tuple[list[str], Part]:
    """The names of the entries that hold these rows and no others, and the rows."""
    left = [(entry.name, entry.hashes.sort().values) for entry in entries]
    seen = []
    for part in parts:
        seen.append(part)
        left = [(name, hashes) for name, hashes in left if holds(hashes, part.hashes)]
        if not left:
            break
    if not left or not seen:
        return [], Part(torch.empty(0), torch.empty(0), torch.empty(0))
    found = joined(seen)
    ordered = found.hashes.sort().values
    return [name for name, hashes in left if torch.equal(hashes, ordered)], found


# A pass over the loader: takes its title, and what is to be done with a batch.
Walk = Callable[[str, Work], Iterator[Part]]


def stored(
    model: Model,
    heads: dict[str, tuple[str, int]],
    folder: Path,
    walked: Walk,
) -> tuple[Tensor, Tensor] | None:
    """The features on disk of the loader's rows, in its order, and their labels; None without any.

    `heads` is keyed by the fingerprint of what is in front of a layer that may be the head, and
    holds that layer's name and number of inputs. All ranks must come to the same answer, so only
    entries that all of them see are looked at.
    """
    # 1. Candidates
    found = {}
    head_of = {}
    for weights, (head, width) in heads.items():
        for entry in disk.entries(folder, weights):
            if entry.width == width:
                found[entry.name] = entry
                head_of[entry.name] = head
    common = sorted(set.intersection(*everywhere(set(found))))
    if not common:
        return None
    # 2. The walk, and 3. the probe, which runs along with it
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
    hashes: Tensor,
    rounding: float,
) -> bool:
    """Whether one of these entries holds the same features of the same rows, in whatever order."""
    key = data_key(hashes)
    for entry in entries:
        if data_key(entry.hashes) != key:
            continue
        loaded = disk.load(folder / entry.name, hashes)
        if loaded is not None and all_alike(z, loaded[0], rounding):
            return True
    return False


def all_alike(z: Tensor, other: Tensor, rounding: float) -> bool:
    """Whether every part of them is alike; in parts, so that large sets are not copied."""
    parts = zip(torch.split(z, PROBE), torch.split(other, PROBE), strict=True)
    return all(alike(a, b, rounding) for a, b in parts)
