"""The batches of a loader as the model's arguments and the labels; the loader shared by processes.

A batch is (inputs, labels), (input, input, ..., labels), or a mapping of inputs with the labels
under one of LABELS. Under torchrun every rank gets all rows in the loader's order. That costs one
gather for each round of batches.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset
from torch.utils.data.distributed import DistributedSampler

from maccal.distributed import everywhere, my_rank
from maccal.metrics.inputs import as_tensor

LABELS = ("labels", "label", "y", "target", "targets")  # keys of a batch that is a mapping


class Batch(NamedTuple):
    """What the model is called with, and the labels on the CPU."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    y: Tensor


class Part(NamedTuple):
    """Some of the rows: their features, labels and hashes.

    The features have no columns where only hashes are asked for; there are no hashes without a
    cache.
    """

    z: Tensor
    y: Tensor
    hashes: Tensor


def check_loader(loader: Any, name: str) -> None:
    """ValueError for a data set of single rows, which many a script has beside its loader."""
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        kind = type(loader).__name__
        raise ValueError(
            f"{name} is a data set ({kind}); pass a loader: DataLoader(dataset, batch_size=256)"
        )


def as_batch(given: Any) -> Batch:
    """What a loader gave, as the model's arguments and the labels."""
    if isinstance(given, Mapping):
        return from_mapping(given)
    if isinstance(given, tuple | list) and len(given) >= 2:
        return Batch(tuple(given[:-1]), {}, labels_of(given[-1]))
    seen = type(given).__name__
    if isinstance(given, tuple | list):
        seen += f" of length {len(given)}"
    raise ValueError(
        f"the loader gave a {seen}; "
        "expected (inputs, labels), or a mapping of inputs with a key labels"
    )


def from_mapping(given: Mapping[str, Any]) -> Batch:
    key = next((key for key in LABELS if key in given), None)
    if key is None:
        raise ValueError(
            f"the batch has the keys {list(given)}; name the labels one of {', '.join(LABELS)}"
        )
    inputs = {name: value for name, value in given.items() if name != key}
    return Batch((), inputs, labels_of(given[key]))


def labels_of(labels: Any) -> Tensor:
    y = as_tensor(labels, "labels")
    if y.ndim == 0:
        raise ValueError(
            "the loader gives single rows, not batches; "
            "if it is a data set, pass DataLoader(dataset, batch_size=256)"
        )
    if y.ndim != 1:
        raise ValueError(
            f"labels have shape {tuple(y.shape)}; "
            "expected one class index per row (of one-hot rows: argmax(1))"
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
    if type(value) in (tuple, list):
        return type(value)(move(item, device) for item in value)
    return value


def deal(
    loader: Iterable[Any], rank: int, world: int
) -> Iterator[tuple[Batch | None, list[Tensor]]]:
    """Rounds of up to `world` batches: this rank's own, and the labels of all of them.

    This rank's own is None when the loader ran out before it.
    """
    batches = map(as_batch, loader)
    while True:
        own = None
        labels = []
        for i, batch in enumerate(islice(batches, world)):
            labels.append(batch.y)
            if i == rank:
                own = batch
        if not labels:
            return
        yield own, labels


Work = Callable[[Batch, int], Part]  # takes a batch and the number of rows before it


def joined(parts: Iterable[Part]) -> Part:
    """The parts one after the other, as a copy: a loader may fill the same tensors again."""
    z, y, hashes = zip(*parts, strict=True)
    return Part(torch.cat(z), torch.cat(y), torch.cat(hashes))


def interleaved(parts: Iterable[Part]) -> Part:
    """The first row of every part, then the second of every part, and so on."""
    return Part(*(torch.stack(column, 1).flatten(0, 1) for column in zip(*parts, strict=True)))


def shared_out(loader: Iterable[Any], work: Work) -> Iterator[Part]:
    """Each rank works on one batch of a round; all ranks must see the same batches."""
    rank, world = my_rank()
    start = 0
    # The last round is empty: a rank whose loader is longer than the others' is noticed there.
    for own, labels in chain(deal(loader, rank, world), [(None, [])]):
        before = start + sum(map(len, labels[:rank]))
        mine = work(own, before) if own is not None else None
        everyone = everywhere((mine, [y.tolist() for y in labels]))
        if any(seen != everyone[0][1] for _, seen in everyone):
            raise ValueError(
                "the ranks see the loader in different orders; "
                "seed it alike on all, or use a DistributedSampler"
            )
        start += sum(map(len, labels))
        if labels:
            yield joined(part for part, _ in everyone if part is not None)


def dealt_out(loader: Iterable[Any], work: Work, total: int) -> Iterator[Part]:
    """Each rank works on its own rows: a DistributedSampler has shared them out already.

    It gives a rank every world-size-th row. At the end it repeats some, so that all ranks have
    equally many: of `total` rows there are no more than that.
    """
    start = 0
    for batch in map(as_batch, loader):
        rows = interleaved(everywhere(work(batch, start)))
        start += len(batch.y)
        yield Part(*(column[:total] for column in rows))
        total -= len(rows.y)


def walk(loader: Iterable[Any], sampler: Any, work: Work) -> Iterator[Part]:
    """What `work` makes of the loader's batches, in its order, on every rank.

    Each batch is worked on by one rank.
    """
    if my_rank()[1] > 1 and isinstance(sampler, DistributedSampler):
        return dealt_out(loader, work, len(sampler.dataset))  # type: ignore[arg-type]
    return shared_out(loader, work)
