"""Features of a classifier: what goes into its last linear layer, for every row of a loader.

find_head      the name of that layer (from classifiers.py)
extract        one frozen pass over a loader: z (N x D) and labels; kept on disk with
               cache="folder" (cache.py), shared out between the processes of torchrun (batches.py)
replace_head   puts another module in its place (from classifiers.py)

The model comes back as it was, also after an error: every mode and every buffer to the bit, no hook
left. Cost: the model's forward pass, and one batch more, which finds or checks the head. With a
cache also a hash of every input, about a second per gigabyte, and one batch to see that the model
is not random. Features that are found in the cache cost the hash, and the pass of about a thousand
rows (lookup.py).
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.progress import Progress
from torch import Tensor, nn

from maccal import io
from maccal.distributed import everywhere, my_rank
from maccal.features import cache as disk
from maccal.features.batches import Batch, Part, Work, check_loader, walk
from maccal.features.classifiers import Classifier, put_head, replace_head
from maccal.features.finding import Found, find_head, locate, without_prefix
from maccal.features.fingerprints import weights_key
from maccal.features.layers import layers_of
from maccal.features.lookup import ROUNDING, Walk, alike, has_twin, hashed, stored
from maccal.features.running import Runner, device_of, frozen, unwrap
from maccal.features.taps import tapped
from maccal.metrics.inputs import first
from maccal.progress import bars

__all__ = ["Features", "extract", "find_head", "put_head", "replace_head"]

RANDOM = (
    "the features are not kept: the model gives others each time (dropout at work in eval mode?)"
)
NO_LABEL_YET = 1 << 62  # larger than any label


class Features(NamedTuple):
    """What goes into a classifier's head, N x D, and the N labels (int64), both on the CPU."""

    z: Tensor
    y: Tensor


def check_range(y: Tensor, classes: int, start: int, least: int) -> None:
    """Raise ValueError for a label outside 0 .. classes - 1.

    `start` is the number of the first row here, `least` the least label of the rows before it.
    """
    wrong = (y < 0) | (y >= classes)
    if not bool(wrong.any()):
        return
    row = first(wrong)
    hint = f": the head has {classes} outputs"
    if min(least, int(y.min())) >= 1 and int(y.max()) == classes:
        hint = "; the labels seem to count from 1: subtract 1"
    raise ValueError(
        f"label {int(y[row])} in row {start + row} is outside 0 .. {classes - 1}{hint}"
    )


class Extractor:
    """Makes rows of features out of batches.

    The first batch finds the head, or checks the one that is named.
    """

    def __init__(self, run: Runner, head: str | None, dtype: torch.dtype, cached: bool) -> None:
        self.run = run
        self.head = head
        self.dtype = dtype
        self.cached = cached
        self.found: Found | None = None
        self.least = NO_LABEL_YET
        self.rounding = max(ROUNDING[dtype], ROUNDING[run.autocast or dtype])
        self.steady = True  # whether the model gives the same features for the same rows each time

    def __call__(self, batch: Batch, start: int) -> Part:
        is_first = self.found is None
        z = self.live(batch, start)
        if len(z) != len(batch.y):
            raise ValueError(
                f"a batch of {len(z)} rows has {len(batch.y)} labels; they must match one to one"
            )
        assert self.found is not None
        check_range(batch.y, self.found.classifier.classes(self.run.model), start, self.least)
        self.least = min(self.least, int(batch.y.min()))
        if not self.cached:
            return Part(z, batch.y, batch.y[:0])
        if is_first:
            self.steady = alike(z, self.live(batch, start), self.rounding)
        return Part(z, batch.y, hashed(batch).hashes)

    def live(self, batch: Batch, start: int) -> Tensor:
        """The features of a batch on the CPU, in the dtype of storage."""
        if self.found is None:
            self.found = locate(self.run, batch, self.head)
            self.head = self.found.classifier.name
        x = tapped(self.run, self.found, batch).detach()
        self.rounding = max(self.rounding, ROUNDING[x.dtype])
        return self.stored(x, start)

    def stored(self, x: Tensor, start: int) -> Tensor:
        """The features in the dtype of storage; ValueError for a row that is not finite there."""
        z = x.to("cpu", self.dtype)
        if not bool(z.isfinite().all()):
            row = first(~z.isfinite().all(1))
            why = "not finite"
            if bool(x[row].isfinite().all()):
                why = f"too large for {self.dtype}: use bfloat16 or float32"
            raise ValueError(f"the features of row {start + row} are {why}")
        return z


def from_cache(work: Extractor, folder: Path, walked: Walk) -> Features:
    """The features on disk, or new ones that are left there for the next time."""
    io.sweep(folder)
    before = {path.name for path in folder.glob("*.safetensors")}
    key = keys_of(work)
    model = work.run.model
    heads = {}
    for one in possible_heads(work, folder):
        heads[key(one.name)] = (one.name, one.width(model))
    probe = Extractor(work.run, work.head, work.dtype, cached=True)
    found = stored(probe, heads, folder, walked)
    if found is None:
        return on_disk(work, folder, key, walked, before)
    head = next(name for name in everywhere(probe.head) if name is not None)
    check_range(found[1], Classifier.parse(head).classes(model), 0, NO_LABEL_YET)
    return Features(*found)


def keys_of(work: Extractor) -> Callable[[str], str]:
    """A function of a head's name: the fingerprint of what its features are made by."""
    key = weights_key(work.run.model, (work.dtype, work.run.autocast))

    def key_of(head: str) -> str:
        one = Classifier.parse(head)
        # features that are the logits are made by the head's own weights too
        return key(head, () if one.shares is None else one.names)

    return key_of


def possible_heads(work: Extractor, folder: Path) -> list[Classifier]:
    """What the head may be: one of the layers, or what a file in the folder says of its own."""
    layers = layers_of(work.run.model)
    possible = [Classifier((name,), (1.0,)) for name in layers]
    for name in sorted(disk.heads(folder)):
        one = Classifier.parse(name)
        if not one.alone and set(one.names) <= set(layers):
            possible.append(one)
    if work.head is None:
        return possible
    asked = Classifier.parse(work.head)
    # a layer that is named may turn out to be one that a factor passes through
    names = {asked.name, Classifier(asked.names, None).name}
    return [one for one in possible if one.name in names]


def on_disk(
    work: Extractor,
    folder: Path,
    key: Callable[[str], str],
    walked: Walk,
    before: set[str],
) -> Features:
    """Extract into a new entry of the folder.

    Rank 0 publishes its file, unless another process has published the same features meanwhile:
    `before` are the names that were there when this one began.
    """
    with disk.writing(folder) as writer:
        for rows in walked("features", work):
            writer.add(*rows)
        head = agreed(work.head, bool(writer.y))
        entry = writer.finish(key(head), head)
        steady = all(everywhere(work.steady))
        if not steady:
            warnings.warn(RANDOM, stacklevel=4)
        z = writer.features(entry)
        if steady and my_rank()[0] == 0:
            new = [e for e in disk.entries(folder, key(head)) if e.name not in before]
            if not has_twin(new, folder, z, entry.hashes, work.rounding):
                writer.publish(entry)
        everywhere(None)  # no rank goes on, perhaps to look for the file, before it has its name
        return Features(z, entry.y)


def in_memory(work: Extractor, walked: Walk) -> Features:
    parts = list(walked("features", work))
    agreed(work.head, bool(parts))
    return Features(torch.cat([part.z for part in parts]), torch.cat([part.y for part in parts]))


def agreed(head: str | None, some: bool) -> str:
    """The head that every rank found; a rank without a batch found none."""
    if not some:
        raise ValueError("the loader is empty: there is no batch to extract features from")
    names = {name for name in everywhere(head) if name is not None}
    if len(names) > 1:
        raise ValueError(f"the ranks found different heads, {sorted(names)}; name one with head=")
    return str(names.pop())


def length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # an iterator, or a DataLoader of an IterableDataset
        return None


def walks_of(loader: Iterable[Any], bar: Progress) -> Walk:
    """What walks over the loader, as often as it is called, with a bar on the terminal."""

    def walked(title: str, work: Work) -> Iterator[Part]:
        tracked = bar.track(loader, length(loader), description=title)
        return walk(tracked, getattr(loader, "sampler", None), work)

    return walked


def extract(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    head: str | None = None,
    cache: str | Path | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device | None = None,
    autocast: torch.dtype | None = None,
    progress: bool = False,
) -> Features:
    """The inputs of the model's head for every row of the loader, in its order, and the labels.

    The model runs in eval mode, under autocast if that is given a dtype; the inputs are moved to
    `device`, or else to where the model's parameters are. `dtype` is the type of the stored
    features.

    `cache` is a folder, which processes may share. With it the same model is not run on the same
    rows again, in whatever order they come, except for a probe of about a thousand rows, which must
    give what is stored. z is then a copy: in memory or, above 256 MB, mapped from a file without a
    name in that folder.

    ValueError says what is wrong with the model, a batch or a row; FileError, also a ValueError,
    what is wrong with the folder.

    >>> model = nn.Sequential(nn.ReLU(), nn.Linear(2, 3))
    >>> extract(model, [(torch.tensor([[1.0, -1.0]]), torch.tensor([2]))])
    Features(z=tensor([[1., 0.]]), y=tensor([2]))
    """
    if dtype not in disk.DTYPES:
        raise ValueError(
            f"dtype is {dtype}; features are stored as one of {', '.join(map(str, disk.DTYPES))}"
        )
    if cache is not None and isinstance(loader, Iterator):
        raise ValueError(
            "the loader is an iterator, which can be read once; "
            "with a cache pass a DataLoader or a list"
        )
    check_loader(loader, "the loader")
    inner, prefix = unwrap(model)
    run = Runner(inner, device_of(inner) if device is None else torch.device(device), autocast)
    work = Extractor(run, without_prefix(head, prefix), dtype, cached=cache is not None)
    with frozen(inner), bars(shown=progress and my_rank()[0] == 0, transient=True) as bar:
        walked = walks_of(loader, bar)
        if cache is None:
            return in_memory(work, walked)
        return from_cache(work, Path(cache), walked)
