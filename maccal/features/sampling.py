"""A random sample of a loader's rows: inputs and labels, to be changed and looked at again.

Cost: one pass over the loader, and up to a gigabyte for the rows.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from maccal.features.batches import Batch, as_batch

BYTES = 1 << 30  # fewer rows where these would be more than a gigabyte
Inputs = dict[int | str, Tensor]  # by position or by name


class CannotMix(ValueError):
    """The loader's inputs have no meaning between two rows."""


class Sample(NamedTuple):
    """Inputs and labels in random order, and the loader's batch size."""

    inputs: Inputs
    y: Tensor
    size: int


def mixable(x: Tensor) -> bool:
    """Floats, and bytes, which are pixels; other integers are names of things."""
    return x.is_floating_point() or x.dtype == torch.uint8


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
    loader: Iterable[Any], rows: int, generator: torch.Generator, *, any_dtype: bool = False
) -> Sample:
    """Up to `rows` rows of the loader; CannotMix unless one input is of floats or bytes.

    With any_dtype the inputs need only be tensors: for changes other than mixing.
    """
    reservoir = Reservoir(rows, generator)
    size = 1
    for batch in map(as_batch, loader):
        inputs = tensors(batch, any_dtype)
        if not reservoir.inputs:
            reservoir.make_room(inputs)
            size = len(batch.y)
        reservoir.add(inputs, batch.y)
    if reservoir.seen < 2:
        raise ValueError(f"the loader gave {reservoir.seen} rows; mixing needs at least two")
    return Sample(*reservoir.shuffled(), size)


def tensors(batch: Batch, any_dtype: bool = False) -> Inputs:
    """The inputs of a batch by position or by name; CannotMix unless they can be changed."""
    inputs: dict[Any, Tensor] = {**dict(enumerate(batch.args)), **batch.kwargs}
    can_be = all(is_table(x, len(batch.y)) for x in inputs.values())
    if not can_be or not (any_dtype or any(mixable(x) for x in inputs.values())):
        raise CannotMix(
            "the inputs cannot be mixed: expected tensors with a row for each label, "
            "one of them of floats or bytes"
        )
    return inputs


def is_table(x: Any, rows: int) -> bool:
    """Whether it is a tensor with so many rows."""
    return isinstance(x, Tensor) and x.ndim > 0 and len(x) == rows
