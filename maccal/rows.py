"""Features with their labels, N rows of D numbers: checked, standardised, and drawn in random batches.

Up to a gibibyte of float32 stays in memory, and every epoch is a full shuffle. Larger sets (float16, bfloat16 or float32, as a rule
mapped from a file) are read pool by pool: short runs of neighbouring rows, chosen at random, shuffled together. Memory then stays
near 1 GB whatever the size: a mapped file is opened anew for every pool, so that the pages of the last one are given back.
"""

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maccal.cache import REOPEN
from maccal.metrics.inputs import Array, as_tensor, check_labels, first

IN_MEMORY = 1 << 30  # bytes of float32 features that are held at once
POOL = 1 << 28  # bytes of one pool of a larger set
RUN = 64  # neighbouring rows read together
CHUNK = 1024  # rows of one evaluation step: what a head makes of them stays in cache


@dataclass(frozen=True)
class Standard:
    """The mean of the features and one scale for all of them."""

    centre: Tensor
    scale: float

    def __call__(self, z: Tensor) -> Tensor:
        """The features, whatever their type, as standardised float32."""
        return z.to(torch.float32, copy=True).sub_(self.centre).div_(self.scale)


class Rows:
    """Checked features and labels; `standard` must be set before rows are drawn."""

    def __init__(self, z: Array, y: Array | None, name: str, *, in_memory: int = IN_MEMORY, pool: int = POOL) -> None:
        """ValueError for what is not a finite N x D array with one class index a row; y may be None, for rows without labels."""
        features = as_tensor(z, name)
        if features.ndim != 2 or not features.is_floating_point() or 0 in features.shape:
            shape, kind = tuple(features.shape), str(features.dtype).removeprefix("torch.")
            raise ValueError(f"{name} has shape {shape} and dtype {kind}; expected floating-point features, rows x dimensions")
        self.count, self.width = features.shape
        self.y = check_classes(y, self.count, name) if y is not None else torch.zeros(self.count, dtype=torch.int64)
        self.classes = int(self.y.max()) + 1
        self.resident: Tensor | None = None
        self.fits = 4 * features.numel() <= in_memory
        self.pool = max(1, pool // (4 * self.width * RUN)) * RUN
        self.open = opener(z, features)
        self.measured = measure(self, name)

    def use(self, standard: Standard) -> "Rows":
        """From here on the rows come standardised."""
        self.standard = standard
        if self.fits:
            self.resident = standard(self.open())
        return self

    def steps(self, batch_size: int) -> int:
        """Batches of an epoch."""
        sizes = [self.count] if self.fits else [min(self.pool, self.count - start) for start in range(0, self.count, self.pool)]
        return sum(-(-size // batch_size) for size in sizes)

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All rows in order."""
        for start in range(0, self.count, CHUNK):
            rows = slice(start, start + CHUNK)
            yield self.resident[rows] if self.resident is not None else self.standard(self.open()[rows]), self.y[rows]

    def epoch(self, generators: list[torch.Generator], batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every row once for each of B heads, each in its own random order: batches B x n x D, and labels B x n."""
        if self.resident is None:
            return (
                (torch.stack([x for x, _ in parts]), torch.stack([y for _, y in parts]))
                for parts in zip(*(self._pools(g, batch_size) for g in generators), strict=True)
            )
        orders = torch.stack([torch.randperm(self.count, generator=g) for g in generators])
        return (self._gather(self.resident, rows) for rows in torch.split(orders, batch_size, 1))

    def _gather(self, z: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        chosen = rows.flatten()
        return z.index_select(0, chosen).view(*rows.shape, self.width), self.y.index_select(0, chosen).view(rows.shape)

    def _pools(self, generator: torch.Generator, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        runs = torch.randperm(-(-self.count // RUN), generator=generator)
        if self.count % RUN:  # the short run comes last, so that every pool but the last is full
            runs = torch.cat([runs[runs != len(runs) - 1], torch.tensor([len(runs) - 1])])
        for part in torch.split(runs, self.pool // RUN):
            rows = (part[:, None] * RUN + torch.arange(RUN)).flatten()
            rows = rows[rows < self.count]
            x, y = self.standard(self.open().index_select(0, rows)), self.y[rows]
            for order in torch.split(torch.randperm(len(rows), generator=generator), batch_size):
                yield x[order], y[order]


def opener(source: Array, features: Tensor) -> Callable[[], Tensor]:
    """A function that gives the features, through a new mapping each time where the file they are mapped from is known."""
    base: Any = getattr(source, "base", None)
    if isinstance(source, np.memmap) and isinstance(base, mmap.mmap):  # a view of a map does not know its own offset
        place: Any = source.filename, source.dtype, "r", source.offset, source.shape
        return lambda: as_tensor(np.memmap(*place), "")
    if isinstance(source, Tensor) and source in REOPEN:
        mapped: Callable[[], Tensor] = REOPEN[source]
        return mapped
    held = features.cpu()
    return lambda: held


def measure(rows: Rows, name: str) -> Standard:
    """One pass over the features: all finite, their mean, and their common scale."""
    total, squares = torch.zeros(rows.width, dtype=torch.float64), torch.zeros(rows.width, dtype=torch.float64)
    shift = rows.open()[0].float().double()  # sums of differences from a row: no cancellation where the mean is far from zero
    for start in range(0, rows.count, CHUNK):
        part = rows.open()[start : start + CHUNK].float().double() - shift
        if not bool(part.isfinite().all()):
            row = start + first(~rows.open()[start : start + CHUNK].isfinite().all(1)) if bool(shift.isfinite().all()) else 0
            raise ValueError(f"{name} row {row} holds a value that is not finite; the features must be numbers")
        total += part.sum(0)
        squares += part.square_().sum(0)
    centre = total / rows.count
    scale = float((squares / rows.count - centre.square()).mean().clamp(min=0).sqrt())
    return Standard((centre + shift).float(), scale if scale > 0 else 1.0)


def check_classes(y: Array, rows: int, name: str) -> Tensor:
    """Class indices as int64, one a row, of at least two classes."""
    labels = as_tensor(y, "labels")
    classes = int(labels.max()) + 1 if labels.numel() and not labels.is_floating_point() else 2
    labels = check_labels(y, torch.empty(1, 1).expand(rows, max(2, classes)))
    if bool((labels == labels[0]).all()):
        raise ValueError(f"all labels of {name} are {int(labels[0])}; a classifier needs at least two classes")
    return labels.cpu()
