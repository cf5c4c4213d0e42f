"""Features of a trained classifier: what goes into its last linear layer, for every row of a loader.

find_head      the name of that layer (from classifiers.py)
extract        one frozen pass over a loader (and one batch more, which finds or checks the head): z (N x D) and labels;
               kept on disk with cache="folder" (cache.py), shared out between the processes of torchrun (batches.py)
replace_head   another module in its place (from classifiers.py)

The model comes back as it was: the mode of every submodule and every buffer to the bit, no hook left, also after an error.
Cost: the model's forward pass; with a cache also a hash of every input, about a second per gigabyte.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from rich.progress import Progress
from torch import Tensor, nn

from maccal import cache as disk
from maccal.batches import Batch, Part, walk
from maccal.classifiers import Run, close, find_head, frozen, locate, named, place, replace_head, unwrap
from maccal.metrics.inputs import first
from maccal.parallel import everywhere, my_rank

__all__ = ["Features", "extract", "find_head", "replace_head"]

BASE, DIGITS = 256, 4  # a token's position in digits: whole numbers that float16 and bfloat16 hold exactly


class Features(NamedTuple):
    """What goes into a classifier's head, N x D, and the N labels (int64), both on the CPU."""

    z: Tensor
    y: Tensor


def check_range(y: Tensor, classes: int, start: int, least: int) -> None:
    """Raise for a label outside 0 .. classes - 1; `start` is the row of the first, `least` the least label before it."""
    wrong = (y < 0) | (y >= classes)
    if bool(wrong.any()):
        row, one = first(wrong), min(least, int(y.min())) >= 1 and int(y.max()) == classes
        hint = "; the labels seem to count from 1: subtract 1" if one else f": the head has {classes} outputs"
        raise ValueError(f"label {int(y[row])} in row {start + row} is outside 0 .. {classes - 1}{hint}")


class Tap:
    """Forward hook that keeps the inputs of the head.

    A head that runs on every token gives the model the token's position, in digits, instead of its logits: what the model
    returns then says exactly which token it takes, even where rounding makes the logits of two tokens equal.
    """

    def __init__(self) -> None:
        self.x, self.out = torch.empty(0), torch.empty(0)

    def __call__(self, layer: nn.Linear, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Tensor | None:
        self.x, self.out = args[0] if args else kwargs["input"], output
        if output.ndim == 2:
            return None
        classes = output.shape[-1]
        token = torch.arange(output[0].numel() // classes, device=output.device)
        if len(token) > BASE ** min(classes, DIGITS):
            raise ValueError(f"the head runs on {len(token)} tokens a row, too many to tell apart; take the token before the head")
        digits = torch.stack([token // BASE**k % BASE for k in range(min(classes, DIGITS))], 1)
        self.out = F.pad(digits, (0, classes - digits.shape[1])).to(output.dtype)
        return self.out.expand(len(output), -1, -1).reshape(output.shape)

    def features(self, logits: Tensor) -> Tensor:
        """N x D: the inputs that gave these logits."""
        lost = not bool(logits.isfinite().all(1).any())  # nothing to compare; the features will say which row
        if self.x.ndim == 2 and (lost or close(self.out, logits)):
            return self.x
        if self.x.ndim > 2:
            token = torch.stack([logits[:, k].long() * BASE**k for k in range(min(logits.shape[1], DIGITS))]).sum(0)
            token = token.clamp(0, len(self.out) - 1)
            if torch.equal(self.out[token].double(), logits.double()):
                return self.x.flatten(1, -2)[torch.arange(len(token), device=token.device), token]
        raise ValueError("the head gave the logits of the first batch, but not of a later one; there is more than one way to them")


class Extractor:
    """Makes rows of features out of batches; the first of them finds the head, or checks the one that is named."""

    def __init__(self, run: Run, head: str | None, dtype: torch.dtype, hashed: bool) -> None:
        self.run, self.head, self.dtype, self.hashed = run, head, dtype, hashed
        self.layer: nn.Linear | None = None
        self.least = 1 << 62  # least label so far

    def __call__(self, batch: Batch, start: int) -> Part:
        if self.layer is None:
            self.head = locate(self.run, batch, self.head)
            self.layer = named(self.run.model, self.head, [])
        z = self.features(batch, self.layer)
        if len(z) != len(batch.y):
            raise ValueError(f"a batch of {len(z)} rows has {len(batch.y)} labels; they must match one to one")
        check_range(batch.y, self.layer.out_features, start, self.least)
        self.least = min(self.least, int(batch.y.min()))
        return Part(self.stored(z, start), batch.y, hashes(batch, start).hashes if self.hashed else batch.y[:0])

    def features(self, batch: Batch, layer: nn.Linear) -> Tensor:
        tap = Tap()
        handle = layer.register_forward_hook(tap, with_kwargs=True)
        try:
            return tap.features(self.run(batch)).detach()
        finally:
            handle.remove()

    def stored(self, x: Tensor, start: int) -> Tensor:
        """The features on the CPU, in the dtype of storage."""
        z = x.to("cpu", self.dtype)
        if not bool(z.isfinite().all()):
            row = first(~z.isfinite().all(1))
            why = f"too large for {self.dtype}: use bfloat16 or float32" if bool(x[row].isfinite().all()) else "not finite"
            raise ValueError(f"the features of row {start + row} are {why}")
        return z


def hashes(batch: Batch, start: int) -> Part:
    """The rows of a batch without their features: the model does not run."""
    return Part(torch.empty(len(batch.y), 0), batch.y, disk.row_hashes((batch.args, batch.kwargs), batch.y))


def lookup(entries: list[disk.Entry], parts: Iterator[Part]) -> tuple[disk.Entry, Part] | None:
    """The entry that holds these rows and no others, and the rows; the walk ends where no entry is left."""
    sorted_rows = [(entry, entry.rows.sort().values) for entry in entries]
    seen = []
    for part in parts:
        seen.append(part)
        at = [(e, rows, torch.searchsorted(rows, part.hashes).clamp_(max=len(rows) - 1)) for e, rows in sorted_rows]
        sorted_rows = [(e, rows) for e, rows, index in at if torch.equal(rows[index], part.hashes)]
        if not sorted_rows:
            return None
    if not seen:
        return None
    all_rows = Part(*map(torch.cat, zip(*seen, strict=True)))
    ordered = all_rows.hashes.sort().values
    return next(((e, all_rows) for e, rows in sorted_rows if torch.equal(rows, ordered)), None)


Walk = Callable[[str, Callable[[Batch, int], Part]], Iterator[Part]]  # a pass over the loader: its title, and what it does


def stored_features(layers: dict[str, nn.Linear], folder: Path, walked: Walk) -> Features | None:
    """The features on disk of these rows, in their order, for one of these weights; None if there are none.

    Every rank must come to the same answer: only entries that all of them see are looked at.
    """
    found = {(e.path.name, e.checksum): (e, layer) for key, layer in layers.items() for e in disk.entries(folder, key)}
    common = set.intersection(*everywhere({name for name, (e, layer) in found.items() if e.width == layer.in_features}))
    if not common:
        return None
    hit = lookup([found[name][0] for name in sorted(common)], walked("hashes", hashes))
    if hit is None:
        return None
    entry, rows = hit
    check_range(rows.y, found[entry.path.name, entry.checksum][1].out_features, 0, 1 << 62)
    sound = entry.sound()
    if not sound:
        disk.discard(entry.path, "its checksum is wrong")
    return Features(entry.ordered(rows.hashes), rows.y) if all(everywhere(sound)) else None


def on_disk(work: Extractor, folder: Path, key: Callable[[str], str], walked: Walk) -> Features:
    """Extract into a new entry of the folder; rank 0 keeps its file."""
    with disk.Writer(folder) as writer:
        for rows in walked("features", work):
            writer.add(*rows)
        entry = writer.finish(key(head := agreed(work.head, bool(writer.y))), head, keep=my_rank()[0] == 0)
        everywhere(None)  # no rank goes on, perhaps to look for the file, before it has its name
        return Features(entry.map(), entry.y)


def in_memory(work: Extractor, walked: Walk) -> Features:
    parts = [(rows.z, rows.y) for rows in walked("features", work)]
    agreed(work.head, bool(parts))
    return Features(*map(torch.cat, zip(*parts, strict=True)))


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

    Runs in eval mode where the model's parameters are, or with the inputs on `device`, under autocast if given a dtype.
    `dtype` is the one of storage. With `cache`, a folder, the same weights and the same rows are not run again, in whatever
    order they come, and z is a memory map of a file there. ValueError says what is wrong with the model, a batch or a row.

    >>> model = nn.Sequential(nn.ReLU(), nn.Linear(2, 3))
    >>> extract(model, [(torch.tensor([[1.0, -1.0]]), torch.tensor([2]))])
    Features(z=tensor([[1., 0.]]), y=tensor([2]))
    """
    if dtype not in disk.DTYPES:
        raise ValueError(f"dtype is {dtype}; features are stored as one of {', '.join(map(str, disk.DTYPES))}")
    if cache is not None and isinstance(loader, Iterator):
        raise ValueError("the loader is an iterator, which can be read once; with a cache pass a DataLoader or a list")
    inner, prefix = unwrap(model)
    run = Run(inner, place(inner) if device is None else torch.device(device), autocast)
    work = Extractor(run, head and head.removeprefix(prefix), dtype, hashed=cache is not None)
    with frozen(inner), Progress(disable=not progress or my_rank()[0] > 0) as bar:

        def walked(title: str, job: Callable[[Batch, int], Part]) -> Iterator[Part]:
            return walk(bar.track(loader, length(loader), description=title), getattr(loader, "sampler", None), job)

        if cache is None:
            return in_memory(work, walked)
        key = disk.weights_key(inner, (dtype, autocast))
        layers = {key(n): m for n, m in inner.named_modules() if isinstance(m, nn.Linear) and work.head in (None, n)}
        return stored_features(layers, Path(cache), walked) or on_disk(work, Path(cache), key, walked)
