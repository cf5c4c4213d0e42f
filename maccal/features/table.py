"""Features with their labels, N rows of D numbers: checked, standardised, drawn in random batches.

    FeatureTable     checked features and labels, and where the features are read from
    Standardised     the same rows as standardised float32, in order or in random batches

Up to a gibibyte of float32 is held in memory, and every epoch is a full shuffle. A larger set
(float16, bfloat16 or float32, as a rule mapped from a file) is read pool by pool: short runs of
neighbouring rows, chosen at random, and shuffled together. Memory then stays near 1 GB whatever the
size. The file behind a map is opened once and read by position: so no pages of the map stay in
memory, and a file that is cut meanwhile is a FileError.
"""

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from maccal.features.mapped import MAPPED, FeatureFile
from maccal.io import FileError, open_regular
from maccal.metrics.inputs import Array, as_tensor, check_labels, first

IN_MEMORY = 1 << 30  # bytes of float32 features that are held at once
POOL = 1 << 28  # bytes of one pool of a larger set
RUN = 64  # neighbouring rows that are read together
MOST_CLASSES = 1 << 24  # a head with more would not fit into any memory
CHUNK = (
    1024  # rows of one evaluation step: what a head makes of them stays in the processor's cache
)

Batches: TypeAlias = Iterator[tuple[Tensor, Tensor]]  # features and labels


@dataclass(frozen=True)
class Standard:
    """The mean of the features, in main memory, and one scale for all of them."""

    centre: Tensor
    scale: float

    def __call__(self, z: Tensor) -> Tensor:
        """The features, whatever their type, as standardised float32."""
        centre = self.centre.to(z.device)
        return z.to(torch.float32, copy=True).sub_(centre).div_(self.scale)


def exact_device(device: torch.device) -> torch.device:
    """The device, or the processor in place of one without float64, as Apple's GPUs are.

    >>> exact_device(torch.device("cuda")), exact_device(torch.device("mps"))
    (device(type='cuda'), device(type='cpu'))
    """
    return torch.device("cpu") if device.type == "mps" else device


class FeatureTable:
    """Checked features and labels. Rows are drawn from what `standardised` returns."""

    def __init__(
        self,
        z: Array,
        y: Array | None,
        name: str,
        *,
        labelled: bool = True,
        in_memory: int = IN_MEMORY,
        pool: int = POOL,
    ) -> None:
        """ValueError unless z is a finite N x D array and y has one class index per row.

        With labelled=False y is not looked at, and all classes are 0. `name` is what error messages
        call z.
        """
        features = check_features(z, name)
        self.count, self.width = features.shape
        if labelled:
            self.y = check_classes(y, self.count, name)
        else:
            self.y = torch.zeros(self.count, dtype=torch.int64)
        self.classes = int(self.y.max()) + 1
        self.fits = 4 * features.numel() <= in_memory
        self.pool = max(1, pool // (4 * self.width * RUN)) * RUN
        self.source = source_of(z, features)
        self.measured = measure(self, name)

    def standardised(
        self, standard: Standard, device: torch.device | str = "cpu"
    ) -> "Standardised":
        """The rows to draw from; they share the table's source and leave the table as it is."""
        return Standardised(self, standard, torch.device(device))

    def raw(self, start: int) -> Tensor:
        """The next CHUNK rows from `start` on, as they came."""
        return self.source.read([(start, min(start + CHUNK, self.count))])


class Standardised:
    """The rows of a table as standardised float32 on a device, held there where they fit."""

    def __init__(self, table: FeatureTable, standard: Standard, device: torch.device) -> None:
        self.table = table
        self.standard = standard
        self.device = device
        self.count = table.count
        self.width = table.width
        self.y = table.y.to(device)
        self.pool = table.count if table.fits else table.pool  # rows that are shuffled together
        self.held: Tensor | None = None
        if table.fits:
            self.held = torch.empty(table.count, table.width, device=device)
            for start in range(0, table.count, CHUNK):
                self.held[start : start + CHUNK] = standard(table.raw(start))

    def steps(self, batch_size: int) -> int:
        """The number of batches in an epoch."""
        pools, rest = divmod(self.count, self.pool)
        return pools * -(-self.pool // batch_size) + -(-rest // batch_size)

    def chunks(self) -> Batches:
        """All rows, in their order."""
        for start in range(0, self.count, CHUNK):
            rows = slice(start, start + CHUNK)
            if self.held is None:
                yield self.standard(self.table.raw(start)).to(self.device), self.y[rows]
            else:
                yield self.held[rows], self.y[rows]

    def epoch(self, generators: list[torch.Generator], batch_size: int) -> Batches:
        """Every row once for each of B heads, for each head in a random order of its own.

        Batches are B x n x D, their labels B x n.
        """
        if self.held is None:
            return stacked([self._pools(generator, batch_size) for generator in generators])
        orders = [torch.randperm(self.count, generator=generator) for generator in generators]
        # moved once for the whole epoch, not batch by batch
        batches = torch.split(torch.stack(orders).to(self.device), batch_size, 1)
        return map(self._gather, batches)

    def _gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Held features and labels of these rows, B x n."""
        assert self.held is not None
        chosen = rows.flatten()
        x = self.held.index_select(0, chosen).view(*rows.shape, self.width)
        y = self.y.index_select(0, chosen).view(rows.shape)
        return x, y

    def _pools(self, generator: torch.Generator, batch_size: int) -> Batches:
        """An epoch for one head: runs of rows in a random order, each pool of them shuffled."""
        runs = torch.randperm(-(-self.count // RUN), generator=generator)
        if self.count % RUN:  # the short run comes last, so that every pool but the last is full
            runs = torch.cat([runs[runs != len(runs) - 1], torch.tensor([len(runs) - 1])])
        for part in torch.split(runs, self.pool // RUN):
            rows = (part[:, None] * RUN + torch.arange(RUN)).flatten()
            rows = rows[rows < self.count]
            spans = [(start, min(start + RUN, self.count)) for start in (part * RUN).tolist()]
            x = self.standard(self.table.source.read(spans)).to(self.device)
            y = self.y[rows.to(self.device)]
            order = torch.randperm(len(rows), generator=generator).to(self.device)
            for chosen in torch.split(order, batch_size):
                yield x[chosen], y[chosen]


def stacked(streams: Sequence[Batches]) -> Batches:
    """The streams side by side: the batches of all heads as one."""
    for batches in zip(*streams, strict=True):
        features, labels = zip(*batches, strict=True)
        yield torch.stack(features), torch.stack(labels)


class Source(Protocol):
    """Where rows come from."""

    def read(self, spans: Iterable[tuple[int, int]]) -> Tensor: ...


@dataclass(frozen=True)
class Held:
    """Rows of a tensor, on whatever device it is."""

    z: Tensor

    def read(self, spans: Iterable[tuple[int, int]]) -> Tensor:
        parts = [self.z[start:stop] for start, stop in spans]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def source_of(given: Array, features: Tensor) -> Source:
    """The file that the features are mapped from, if it is known and has the same numbers.

    Otherwise the features themselves.
    """
    file: FeatureFile | None = None
    if isinstance(given, np.memmap):
        file = file_of(given, features)
    elif isinstance(given, Tensor):
        file = MAPPED.file_of(given)
    if file is None or not hasattr(os, "preadv"):  # Windows cannot read by position
        return Held(features.to(exact_device(features.device)))
    return file


def file_of(given: np.memmap[Any, Any], features: Tensor) -> FeatureFile | None:
    """The file of a numpy map; None where the numbers in it, or their position, may be others."""
    # a view of a map does not know its own offset in the file: its base is another array
    base: Any = given.base
    if not isinstance(base, mmap.mmap) or given.filename is None:
        return None
    if given.mode == "c" or not given.flags.c_contiguous or not given.dtype.isnative:
        return None
    if base.size() < given.offset + given.nbytes:
        raise FileError(given.filename, "has become shorter since it was mapped")
    try:
        with open_regular(Path(given.filename)) as file:
            handle = os.dup(file.fileno())
    except FileError:  # the file is gone, the map is all there is
        return None
    shape = (features.shape[0], features.shape[1])
    found = FeatureFile(handle, given.offset, shape, features.dtype, str(given.filename))
    # another file may have that name by now: compare rows from all over it
    some = torch.linspace(0, shape[0] - 1, 64).long()
    there = found.read([(row, row + 1) for row in some.tolist()])
    return found if torch.equal(there, features[some]) else None


def check_features(z: Array, name: str) -> Tensor:
    features = as_tensor(z, name)
    if features.ndim != 2 or not features.is_floating_point() or 0 in features.shape:
        shape = tuple(features.shape)
        kind = str(features.dtype).removeprefix("torch.")
        raise ValueError(
            f"{name} has shape {shape} and dtype {kind}; "
            "expected floating-point features, rows x dimensions"
        )
    return features


def measure(table: FeatureTable, name: str) -> Standard:
    """One pass over the features: all must be finite; their mean and their common scale."""
    # sums of differences from the first row: no cancellation where the mean is far from zero
    shift = table.raw(0)[0].float().double()
    total = torch.zeros_like(shift)
    squares = torch.zeros_like(shift)
    for start in range(0, table.count, CHUNK):
        part = table.raw(start).float().double() - shift
        if not bool(part.isfinite().all()):
            # a first row that is not finite spoils every difference, and is itself the culprit
            known = bool(shift.isfinite().all())
            row = start + first(~table.raw(start).isfinite().all(1)) if known else 0
            raise ValueError(
                f"{name} row {row} holds a value that is not finite; the features must be numbers"
            )
        total += part.sum(0)
        squares += part.square_().sum(0)
    centre = total / table.count
    scale = float((squares / table.count - centre.square()).mean().clamp(min=0).sqrt())
    return Standard((centre + shift).float().cpu(), scale if scale > 0 else 1.0)


def check_classes(y: Any, rows: int, name: str) -> Tensor:
    """Class indices as int64, one per row, of at least two classes."""
    if y is None:
        raise ValueError(f"the labels of {name} are None; pass a class index for each row: {rows}")
    labels = as_tensor(y, "labels")
    classes = int(labels.max()) + 1 if labels.numel() and not labels.is_floating_point() else 2
    if classes > MOST_CLASSES:
        raise ValueError(
            f"label {classes - 1:,} of {name} is no class index: they count from 0, "
            f"and a head has at most {MOST_CLASSES:,} classes"
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
