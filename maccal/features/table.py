"""Features with their labels, N rows of D numbers: checked, standardised, and drawn in random
batches.

Up to a gibibyte of float32 stays in memory, and every epoch is a full shuffle. Larger sets
(float16, bfloat16 or float32, as a rule mapped from a file) are read pool by pool: short runs of
neighbouring rows, chosen at random, shuffled together. Memory then stays near 1 GB whatever the
size: the file behind a map is opened once and read by position, so that no pages of the map stay in
memory, and a file that is cut meanwhile is a FileError."""

import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from maccal.features.mapped import BEHIND, FeatureFile
from maccal.io import FileError, open_regular
from maccal.metrics.inputs import Array, as_tensor, check_labels, first

IN_MEMORY = 1 << 30  # bytes of float32 features that are held at once
POOL = 1 << 28  # bytes of one pool of a larger set
RUN = 64  # neighbouring rows read together
MOST_CLASSES = 1 << 24  # a head of more would not fit into any memory
CHUNK = 1024  # rows of one evaluation step: what a head makes of them stays in cache


@dataclass(frozen=True)
class Standard:
    """The mean of the features and one scale for all of them."""

    centre: Tensor
    scale: float

    def __call__(self, z: Tensor) -> Tensor:
        """The features, whatever their type, as standardised float32."""
        return z.to(torch.float32, copy=True).sub_(self.centre).div_(self.scale)


class FeatureTable:
    """Checked features and labels; `standard` must be set before rows are drawn."""

    def __init__(
        self,
        z: Array,
        y: Array,
        name: str,
        *,
        labelled: bool = True,
        in_memory: int = IN_MEMORY,
        pool: int = POOL,
    ) -> None:
        """ValueError for what is not a finite N x D array with one class index a row.

        Without labels y is not looked at, and all classes are 0.
        """
        features = as_tensor(z, name)
        if features.ndim != 2 or not features.is_floating_point() or 0 in features.shape:
            shape, kind = tuple(features.shape), str(features.dtype).removeprefix("torch.")
            raise ValueError(
                f"{name} has shape {shape} and dtype {kind}; expected floating-point features, rows x dimensions"
            )
        self.count, self.width = features.shape
        none = torch.zeros(self.count, dtype=torch.int64)
        self.y = check_classes(y, self.count, name) if labelled else none
        self.classes = int(self.y.max()) + 1
        self.resident: Tensor | None = None
        self.fits = 4 * features.numel() <= in_memory
        self.pool = max(1, pool // (4 * self.width * RUN)) * RUN
        self.source = source_of(z, features)
        self.measured = measure(self, name)

    def use(self, standard: Standard) -> "FeatureTable":
        """From here on the rows come standardised."""
        self.standard = standard
        if self.fits:
            self.resident = torch.empty(self.count, self.width)
            for start in range(0, self.count, CHUNK):
                self.resident[start : start + CHUNK] = standard(self.raw(start))
        return self

    def raw(self, start: int) -> Tensor:
        """The next CHUNK rows, as they came."""
        return self.source.read([(start, min(start + CHUNK, self.count))])

    def steps(self, batch_size: int) -> int:
        """Batches of an epoch."""
        sizes = (
            [self.count]
            if self.fits
            else [min(self.pool, self.count - start) for start in range(0, self.count, self.pool)]
        )
        return sum(-(-size // batch_size) for size in sizes)

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """All rows in order."""
        for start in range(0, self.count, CHUNK):
            rows = slice(start, start + CHUNK)
            x = self.standard(self.raw(start)) if self.resident is None else self.resident[rows]
            yield x, self.y[rows]

    def epoch(
        self, generators: list[torch.Generator], batch_size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Every row once for each of B heads, each in its own random order.

        Batches B x n x D, and labels B x n.
        """
        if self.resident is None:
            return (
                (torch.stack([x for x, _ in parts]), torch.stack([y for _, y in parts]))
                for parts in zip(*(self._pools(g, batch_size) for g in generators), strict=True)
            )
        orders = torch.stack([torch.randperm(self.count, generator=g) for g in generators])
        return (self._gather(self.resident, rows) for rows in torch.split(orders, batch_size, 1))

    def _gather(self, z: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        chosen = rows.flatten()
        return z.index_select(0, chosen).view(*rows.shape, self.width), self.y.index_select(
            0, chosen
        ).view(rows.shape)

    def _pools(
        self, generator: torch.Generator, batch_size: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        runs = torch.randperm(-(-self.count // RUN), generator=generator)
        if self.count % RUN:  # the short run comes last, so that every pool but the last is full
            runs = torch.cat([runs[runs != len(runs) - 1], torch.tensor([len(runs) - 1])])
        for part in torch.split(runs, self.pool // RUN):
            rows = (part[:, None] * RUN + torch.arange(RUN)).flatten()
            rows = rows[rows < self.count]
            spans = [(first, min(first + RUN, self.count)) for first in (part * RUN).tolist()]
            x, y = self.standard(self.source.read(spans)), self.y[rows]
            for order in torch.split(torch.randperm(len(rows), generator=generator), batch_size):
                yield x[order], y[order]


class Source(Protocol):
    """Where rows come from."""

    def read(self, spans: Iterable[tuple[int, int]]) -> Tensor: ...


@dataclass(frozen=True)
class Held:
    """Rows of a tensor."""

    z: Tensor

    def read(self, spans: Iterable[tuple[int, int]]) -> Tensor:
        parts = [self.z[start:stop] for start, stop in spans]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def source_of(given: Array, features: Tensor) -> Source:
    """The file that they are mapped from, if that is known and has the same numbers; else they."""
    behind: FeatureFile | None = None
    if isinstance(given, np.memmap):
        behind = file_of(given, features)
    elif isinstance(given, Tensor) and given in BEHIND and not given._version:  # not written to
        behind = BEHIND[given]
    if behind is None or not hasattr(os, "preadv"):  # Windows cannot read by position
        return Held(features.cpu())
    return behind


def file_of(given: np.memmap[Any, Any], features: Tensor) -> FeatureFile | None:
    """The file of numpy's map; None where its numbers, or their place in it, may be others."""
    base: Any = given.base  # of a view, which does not know its own offset, it is another array
    if not isinstance(base, mmap.mmap) or given.filename is None:
        return None
    if given.mode == "c" or not given.flags.c_contiguous or not given.dtype.isnative:
        return None
    if base.size() < given.offset + given.nbytes:
        raise FileError(given.filename, "has become shorter since it was mapped")
    try:
        with open_regular(Path(given.filename)) as file:
            handle = os.dup(file.fileno())
    except FileError:  # gone: the map is all there is
        return None
    shape = (features.shape[0], features.shape[1])
    found = FeatureFile(handle, given.offset, shape, features.dtype, str(given.filename))
    # another file may have got the name since: look at rows all over it
    some = torch.linspace(0, shape[0] - 1, 64).long()
    same = torch.equal(found.read([(row, row + 1) for row in some.tolist()]), features[some])
    return found if same else None


def measure(rows: FeatureTable, name: str) -> Standard:
    """One pass over the features: all finite, their mean, and their common scale."""
    total, squares = (
        torch.zeros(rows.width, dtype=torch.float64),
        torch.zeros(rows.width, dtype=torch.float64),
    )
    # sums of differences from a row: no cancellation where the mean is far from zero
    shift = rows.raw(0)[0].float().double()
    for start in range(0, rows.count, CHUNK):
        part = rows.raw(start).float().double() - shift
        if not bool(part.isfinite().all()):
            known = bool(shift.isfinite().all())
            row = start + first(~rows.raw(start).isfinite().all(1)) if known else 0
            raise ValueError(
                f"{name} row {row} holds a value that is not finite; the features must be numbers"
            )
        total += part.sum(0)
        squares += part.square_().sum(0)
    centre = total / rows.count
    scale = float((squares / rows.count - centre.square()).mean().clamp(min=0).sqrt())
    return Standard((centre + shift).float(), scale if scale > 0 else 1.0)


def check_classes(y: Array, rows: int, name: str) -> Tensor:
    """Class indices as int64, one a row, of at least two classes."""
    if y is None:
        raise ValueError(f"the labels of {name} are None; pass a class index for each row: {rows}")
    labels = as_tensor(y, "labels")
    classes = int(labels.max()) + 1 if labels.numel() and not labels.is_floating_point() else 2
    if classes > MOST_CLASSES:
        raise ValueError(
            f"label {classes - 1:,} of {name} is no class index: they count from 0, and a head has at most {MOST_CLASSES:,} classes"
        )
    labels = check_labels(y, torch.empty(1, 1).expand(rows, max(2, classes)))
    if bool((labels == labels[0]).all()):
        raise ValueError(
            f"all labels of {name} are {int(labels[0])}; a classifier needs at least two classes"
        )
    return labels.cpu()


def check_pair(val: Any) -> tuple[Array, Array]:
    """Features and labels; ValueError for anything else, such as features alone."""
    if not isinstance(val, tuple | list):
        raise ValueError(f"val is a {type(val).__name__}; expected features and labels: val=(z, y)")
    if len(val) != 2:
        raise ValueError(f"val has {len(val)} parts; expected features and labels: val=(z, y)")
    if val[1] is None:
        without = "accuracy= and unlabelled=z where there are no labels"
        raise ValueError(f"the labels of val are None; pass val=(z, y), or {without}")
    return val[0], val[1]
