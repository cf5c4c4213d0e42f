"""Training rows made harder, to stand in for unseen ones where no held-out labels are at hand.

mixed    share x + (1 - share) x', with x' another row and the label of x

A network has seen its training images too often to doubt them. Mixed with a part of another image
they are about as hard for it as images that it never saw, on the networks measured so far
(results/real_networks.md): the gap between confidence and accuracy there stands for the gap on
unseen images. Cost: one pass over the loader, and up to a gigabyte for the rows that are mixed."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from maccal.features.batches import Batch, split

SHARE = 0.7  # of the row itself
ROWS = 5000  # rows to mix: their accuracy is then known within half a point or so
BYTES = 1 << 30  # fewer rows where these would be more than a gigabyte
Inputs = dict[int | str, Tensor]  # by position or by name


class CannotMix(ValueError):
    """The loader's inputs have no meaning between two rows."""


def mixed(
    loader: Iterable[Any], share: float = SHARE, *, rows: int = ROWS, seed: int = 0
) -> list[Any]:
    """Batches of rows sampled from the loader, each mixed with another of them.

    CannotMix if they cannot be: every input must be a tensor with a row for each label, at least
    one of them of floats or bytes.

    >>> x, y = mixed([(torch.tensor([[0.0], [4.0]]), torch.tensor([0, 1]))], share=0.75)[0]
    >>> sorted(zip(x.flatten().tolist(), y.tolist()))
    [(1.0, 0), (3.0, 1)]
    """
    inputs, y, size = sample(loader, rows, torch.Generator().manual_seed(seed))
    partner = torch.roll(torch.arange(len(y)), 1)  # the sample is in random order
    batches = []
    for part in torch.split(torch.arange(len(y)), size):
        blended = {
            key: blend(x[part], x[partner[part]], share) if mixable(x) else x[part]
            for key, x in inputs.items()
        }
        named = all(isinstance(key, str) for key in inputs)
        batches.append({**blended, "labels": y[part]} if named else (*blended.values(), y[part]))
    return batches


def mixable(x: Tensor) -> bool:
    """Floats, and bytes, which are pixels; other integers are names of things."""
    return x.is_floating_point() or x.dtype == torch.uint8


def blend(x: Tensor, other: Tensor, share: float) -> Tensor:
    both = share * x + (1 - share) * other
    return both if x.is_floating_point() else both.round().to(x.dtype)


def sample(
    loader: Iterable[Any], rows: int, generator: torch.Generator
) -> tuple[Inputs, Tensor, int]:
    """Up to `rows` rows, each of the loader's as likely as any other, in random order.

    And the size of a batch.
    """
    kept: Inputs = {}
    y, seen, size = torch.zeros(0, dtype=torch.int64), 0, 1
    for batch in map(split, loader):
        inputs = tensors(batch)
        if not kept:
            rows, size = (
                min(rows, max(2, BYTES // sum(x[:1].nbytes for x in inputs.values()))),
                len(batch.y),
            )
            kept, y = (
                {key: x.new_empty(rows, *x.shape[1:]) for key, x in inputs.items()},
                torch.empty(rows, dtype=torch.int64),
            )
        # Vitter's algorithm R: row t takes a random place out of t + 1
        numbers = torch.arange(seen, seen + len(batch.y))
        places = torch.where(
            numbers < rows,
            numbers,
            (torch.rand(len(numbers), generator=generator) * (numbers + 1)).long(),
        )
        for row in (places < rows).nonzero()[:, 0].tolist():
            for key, x in inputs.items():
                kept[key][places[row]] = x[row]
            y[places[row]] = batch.y[row]
        seen += len(batch.y)
    if seen < 2:
        raise ValueError(f"the loader gave {seen} rows; mixing needs at least two")
    order = torch.randperm(min(rows, seen), generator=generator)
    return {key: x[order.to(x.device)] for key, x in kept.items()}, y[order], size


def tensors(batch: Batch) -> Inputs:
    inputs: dict[Any, Any] = {**dict(enumerate(batch.args)), **batch.kwargs}
    whole = all(
        isinstance(x, Tensor) and x.ndim and len(x) == len(batch.y) for x in inputs.values()
    )
    if not whole or not any(mixable(x) for x in inputs.values()):
        raise CannotMix(
            "the inputs cannot be mixed: expected tensors with a row for each label, one of them of floats or bytes"
        )
    return inputs
