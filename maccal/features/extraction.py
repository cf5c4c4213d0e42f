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
import torch.nn.functional as F
from rich.progress import Progress
from torch import Tensor, nn

from maccal import io
from maccal.distributed import everywhere, my_rank
from maccal.features import cache as disk
from maccal.features.batches import Batch, Part, Work, walk
from maccal.features.classifiers import (
    Runner,
    close,
    device_of,
    find_head,
    frozen,
    linear_layers,
    locate,
    named,
    replace_head,
    unwrap,
    without_prefix,
)
from maccal.features.fingerprints import weights_key
from maccal.features.lookup import ROUNDING, Walk, alike, has_twin, hashed, stored
from maccal.metrics.inputs import first

__all__ = ["Features", "extract", "find_head", "replace_head"]

RANDOM = (
    "the features are not kept: the model gives others each time (dropout at work in eval mode?)"
)
# A token's position in digits of this base: whole numbers that float16 and bfloat16 hold exactly.
BASE = 256
DIGITS = 4
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


class Tap:
    """A forward hook that keeps the inputs of the head.

    Where the head runs on every token, the hook replaces each token's logits by the token's
    position, in digits. What the model then returns says exactly which token it takes, even where
    rounding makes the logits of two tokens equal.
    """

    def __init__(self) -> None:
        self.x = torch.empty(0)  # what went into the head
        self.out = torch.empty(0)  # what the model was given: logits, or positions in digits

    def __call__(
        self, layer: nn.Linear, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor
    ) -> Tensor | None:
        self.x = args[0] if args else kwargs["input"]
        self.out = output
        if output.ndim == 2:
            return None
        self.out = positions(output)
        return self.out.expand(len(output), -1, -1).reshape(output.shape)

    def features(self, logits: Tensor) -> Tensor:
        """N x D: the inputs that gave these logits."""
        # without a finite row there is nothing to compare; the features will say which row it is
        lost = not bool(logits.isfinite().all(1).any())
        if self.x.ndim == 2 and (lost or close(self.out, logits)):
            return self.x
        if self.x.ndim > 2:
            token = position_in(logits).clamp(0, len(self.out) - 1)
            if torch.equal(self.out[token].double(), logits.double()):
                return self.x.flatten(1, -2)[torch.arange(len(token), device=token.device), token]
        raise ValueError(
            "the head gave the logits of the first batch, but not of a later one; "
            "there is more than one way to them"
        )


def positions(output: Tensor) -> Tensor:
    """The position of every token of a row, tokens x classes: in digits, the lowest first."""
    classes = output.shape[-1]
    token = torch.arange(output[0].numel() // classes, device=output.device)
    count = min(classes, DIGITS)
    if len(token) > BASE**count:
        raise ValueError(
            f"the head runs on {len(token)} tokens per row, too many to tell apart; "
            "take the token before the head"
        )
    digits = torch.stack([token // BASE**k % BASE for k in range(count)], 1)
    return F.pad(digits, (0, classes - count)).to(output.dtype)


def position_in(logits: Tensor) -> Tensor:
    """The position that each row's digits say."""
    count = min(logits.shape[1], DIGITS)
    return torch.stack([logits[:, k].long() * BASE**k for k in range(count)]).sum(0)


class Extractor:
    """Makes rows of features out of batches.

    The first batch finds the head, or checks the one that is named.
    """

    def __init__(self, run: Runner, head: str | None, dtype: torch.dtype, cached: bool) -> None:
        self.run = run
        self.head = head
        self.dtype = dtype
        self.cached = cached
        self.layer: nn.Linear | None = None
        self.least = NO_LABEL_YET
        self.rounding = max(ROUNDING[dtype], ROUNDING[run.autocast or dtype])
        self.steady = True  # whether the model gives the same features for the same rows each time

    def __call__(self, batch: Batch, start: int) -> Part:
        is_first = self.layer is None
        z = self.live(batch, start)
        if len(z) != len(batch.y):
            raise ValueError(
                f"a batch of {len(z)} rows has {len(batch.y)} labels; they must match one to one"
            )
        assert self.layer is not None
        check_range(batch.y, self.layer.out_features, start, self.least)
        self.least = min(self.least, int(batch.y.min()))
        if not self.cached:
            return Part(z, batch.y, batch.y[:0])
        if is_first:
            self.steady = alike(z, self.live(batch, start), self.rounding)
        return Part(z, batch.y, hashed(batch).hashes)

    def live(self, batch: Batch, start: int) -> Tensor:
        """The features of a batch on the CPU, in the dtype of storage."""
        if self.layer is None:
            self.head = locate(self.run, batch, self.head)
            self.layer = named(self.run.model, self.head, [])
        tap = Tap()
        handle = self.layer.register_forward_hook(tap, with_kwargs=True)
        try:
            x = tap.features(self.run(batch)).detach()
        finally:
            handle.remove()
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
    key = weights_key(work.run.model, (work.dtype, work.run.autocast))
    layers = linear_layers(work.run.model)
    possible = [name for name in layers if work.head in (None, name)]
    heads = {key(name): (name, layers[name].in_features) for name in possible}
    probe = Extractor(work.run, work.head, work.dtype, cached=True)
    found = stored(probe, heads, folder, walked)
    if found is None:
        return on_disk(work, folder, key, walked, before)
    head = next(name for name in everywhere(probe.head) if name is not None)
    check_range(found[1], layers[head].out_features, 0, NO_LABEL_YET)
    return Features(*found)


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
    inner, prefix = unwrap(model)
    run = Runner(inner, device_of(inner) if device is None else torch.device(device), autocast)
    work = Extractor(run, without_prefix(head, prefix), dtype, cached=cache is not None)
    with frozen(inner), Progress(disable=not progress or my_rank()[0] > 0) as bar:
        walked = walks_of(loader, bar)
        if cache is None:
            return in_memory(work, walked)
        return from_cache(work, Path(cache), walked)
