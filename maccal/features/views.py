"""Harder views of training rows, to stand in for unseen rows where no held-out labels are at hand.

mixed    share x + (1 - share) x', where x' is another row; the label is that of x

A network has seen its training images too often to doubt them. Mixed with a part of another image,
they are about as hard for it as images that it never saw, on the networks measured so far
(results/real_networks.md). So the gap between confidence and accuracy on the mixed images stands
for the gap on unseen images. Cost: one pass over the loader, and up to a gigabyte for the rows that
are mixed.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from maccal.features.batches import Batch, as_batch

SHARE = 0.7  # of the row itself
ROWS = 5000  # rows to mix: their accuracy is then known within half a point or so
BYTES = 1 << 30  # fewer rows where these would be more than a gigabyte
Inputs = dict[int | str, Tensor]  # by position or by name


class CannotMix(ValueError):
    """The loader's inputs have no meaning between two rows."""


def mixed(
    loader: Iterable[Any], share: float = SHARE, *, rows: int = ROWS, seed: int = 0
) -> list[Any]:
    """Batches of rows that are sampled from the loader and mixed, each with another of them.

    CannotMix unless every input is a tensor with a row for each label, and at least one of them is
    of floats or bytes.

    >>> x, y = mixed([(torch.tensor([[0.0], [4.0]]), torch.tensor([0, 1]))], share=0.75)[0]
    >>> sorted(zip(x.flatten().tolist(), y.tolist()))
    [(1.0, 0), (3.0, 1)]
    """
    inputs, y, size = sample(loader, rows, torch.Generator().manual_seed(seed))
    named = all(isinstance(key, str) for key in inputs)
    partner = torch.roll(torch.arange(len(y)), 1)  # the sample is in random order
    batches: list[Any] = []
    for part in torch.split(torch.arange(len(y)), size):
        blended = {key: blend(x, part, partner[part], share) for key, x in inputs.items()}
        if named:
            batches.append({**blended, "labels": y[part]})
        else:
            batches.append((*blended.values(), y[part]))
    return batches


def mixable(x: Tensor) -> bool:
    """Floats, and bytes, which are pixels; other integers are names of things."""
    return x.is_floating_point() or x.dtype == torch.uint8


def blend(x: Tensor, rows: Tensor, partners: Tensor, share: float) -> Tensor:
    """These rows of x mixed with their partners; as they are, if they cannot be mixed."""
    if not mixable(x):
        return x[rows]
    both = share * x[rows] + (1 - share) * x[partners]
    return both if x.is_floating_point() else both.round().to(x.dtype)


class Reservoir:
    """Up to `most` rows of a stream of unknown length, each row of it as likely as any other."""

    def __init__(self, most: int, generator: torch.Generator) -> None:
        self.most = most
        self.generator = generator
        self.seen = 0
        self.inputs: Inputs = {}
        self.y = torch.empty(0, dtype=torch.int64)

    def make_room(self, inputs: Inputs) -> None:
        """For fewer rows where they would take more than BYTES."""
        row_bytes = sum(x[:1].nbytes for x in inputs.values())
        self.most = min(self.most, max(2, BYTES // row_bytes))
        self.inputs = {key: x.new_empty(self.most, *x.shape[1:]) for key, x in inputs.items()}
        self.y = torch.empty(self.most, dtype=torch.int64)

    def add(self, inputs: Inputs, y: Tensor) -> None:
        """Vitter's algorithm R: row t of the stream goes to a random one of slots 0 .. t.

        The first rows fill the slots; later a slot that does not exist drops the row.
        """
        numbers = torch.arange(self.seen, self.seen + len(y))
        drawn = (torch.rand(len(y), generator=self.generator) * (numbers + 1)).long()
        slots = torch.where(numbers < self.most, numbers, drawn)
        for row in (slots < self.most).nonzero()[:, 0].tolist():
            for key, x in inputs.items():
                self.inputs[key][slots[row]] = x[row]
            self.y[slots[row]] = y[row]
        self.seen += len(y)

    def shuffled(self) -> tuple[Inputs, Tensor]:
        """The rows and labels that were kept, in random order."""
        order = torch.randperm(min(self.most, self.seen), generator=self.generator)
        inputs = {key: x[order.to(x.device)] for key, x in self.inputs.items()}
        return inputs, self.y[order]


def sample(
    loader: Iterable[Any], rows: int, generator: torch.Generator
) -> tuple[Inputs, Tensor, int]:
    """Inputs and labels of up to `rows` rows of the loader, in random order, and its batch size."""
    reservoir = Reservoir(rows, generator)
    size = 1
    for batch in map(as_batch, loader):
        inputs = tensors(batch)
        if not reservoir.inputs:
            reservoir.make_room(inputs)
            size = len(batch.y)
        reservoir.add(inputs, batch.y)
    if reservoir.seen < 2:
        raise ValueError(f"the loader gave {reservoir.seen} rows; mixing needs at least two")
    return *reservoir.shuffled(), size


def tensors(batch: Batch) -> Inputs:
    """The inputs of a batch by position or by name; CannotMix unless they can be mixed."""
    inputs: dict[Any, Tensor] = {**dict(enumerate(batch.args)), **batch.kwargs}
    can_be = all(is_table(x, len(batch.y)) for x in inputs.values())
    if not can_be or not any(mixable(x) for x in inputs.values()):
        raise CannotMix(
            "the inputs cannot be mixed: expected tensors with a row for each label, "
            "one of them of floats or bytes"
        )
    return inputs


def is_table(x: Any, rows: int) -> bool:
    """Whether it is a tensor with so many rows."""
    return isinstance(x, Tensor) and x.ndim > 0 and len(x) == rows
