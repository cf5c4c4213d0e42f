"""What a loader gives, batch by batch: the model's arguments and the labels; and the loader shared
out between processes.

A batch is (inputs, labels), (input, input, ..., labels), or a mapping of inputs with the labels
under one of LABELS. Under torchrun every rank gets all rows in the loader's order, for one gather
of each round of batches."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data.distributed import DistributedSampler

from maccal.distributed import everywhere, my_rank
from maccal.metrics.inputs import as_tensor

LABELS = ("labels", "label", "y", "target", "targets")  # keys of a batch that is a mapping


class Batch(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    y: Tensor


class Part(NamedTuple):
    """A part of the rows.

    Features (no columns when only hashes are asked for), labels and hashes (no rows without a
    cache).
    """

    z: Tensor
    y: Tensor
    hashes: Tensor


def split(batch: Any) -> Batch:
    """A loader's batch as the model's arguments and the labels."""
    if isinstance(batch, Mapping):
        key = next((key for key in LABELS if key in batch), None)
        if key is None:
            raise ValueError(
                f"the batch has the keys {list(batch)}; name the labels one of {', '.join(LABELS)}"
            )
        return Batch((), {k: v for k, v in batch.items() if k != key}, labels_of(batch[key]))
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        return Batch(tuple(batch[:-1]), {}, labels_of(batch[-1]))
    seen = (
        f"{type(batch).__name__} of length {len(batch)}"
        if isinstance(batch, tuple | list)
        else type(batch).__name__
    )
    raise ValueError(
        f"the loader gave a {seen}; expected (inputs, labels), or a mapping of inputs with a key labels"
    )


def labels_of(labels: Any) -> Tensor:
    y = as_tensor(labels, "labels")
    if y.ndim != 1:
        raise ValueError(
            f"labels have shape {tuple(y.shape)}; expected one class index per row (of one-hot rows: argmax(1))"
        )
    if y.is_floating_point() or y.dtype == torch.bool:
        raise ValueError(f"labels have dtype {y.dtype}; expected integer class indices")
    return y.to("cpu", torch.int64)


def move(value: Any, device: torch.device) -> Any:
    """The same nest of tuples, lists and mappings with its tensors on the device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, Mapping):
        return {key: move(item, device) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move(item, device) for item in value))
    return (
        type(value)(move(item, device) for item in value) if type(value) in (tuple, list) else value
    )


def deal(
    loader: Iterable[Any], rank: int, world: int
) -> Iterator[tuple[Batch | None, list[Tensor]]]:
    """Rounds of up to `world` batches.

    This rank's own, None when the loader ran out before it, and the labels of all.
    """
    batches = map(split, loader)
    while True:
        own, labels = None, []
        for i, batch in enumerate(islice(batches, world)):
            labels.append(batch.y)
            own = batch if i == rank else own
        if not labels:
            return
        yield own, labels


Work = Callable[[Batch, int], Part]  # of a batch and the number of rows before it


def shared_out(loader: Iterable[Any], work: Work) -> Iterator[Part]:
    """Each rank works on every world-size-th batch; all of them must see the same batches."""
    (rank, world), start = my_rank(), 0
    # a last round in which no rank may have anything left
    for own, labels in chain(deal(loader, rank, world), [(None, [])]):
        mine = work(own, start + sum(map(len, labels[:rank]))) if own else None
        parts = everywhere((mine, [y.tolist() for y in labels]))
        if any(seen != parts[0][1] for _, seen in parts):
            raise ValueError(
                "the ranks see the loader in different orders; seed it alike on all, or use a DistributedSampler"
            )
        start += sum(map(len, labels))
        if labels:  # cat also copies: a loader may fill the same tensors again
            yield Part(
                *map(torch.cat, zip(*(rows for rows, _ in parts if rows is not None), strict=True))
            )


def dealt_out(loader: Iterable[Any], work: Work, total: int) -> Iterator[Part]:
    """A DistributedSampler gives each rank every world-size-th row, and repeats some at the end to
    make the ranks equal.
    """
    start = 0
    for own, labels in deal(loader, 0, 1):
        assert own is not None
        parts = everywhere(work(own, start))
        start += len(labels[0])
        rows = Part(*(torch.stack(column, 1).flatten(0, 1) for column in zip(*parts, strict=True)))
        yield Part(*(column[:total] for column in rows))
        total -= len(rows.y)


def walk(loader: Iterable[Any], sampler: Any, work: Work) -> Iterator[Part]:
    """What `work` makes of the loader's batches, in its order, on every rank.

    Each batch is worked on by one rank.
    """
    if my_rank()[1] > 1 and isinstance(sampler, DistributedSampler):
        return dealt_out(loader, work, len(sampler.dataset))  # type: ignore[arg-type]
    return shared_out(loader, work)
