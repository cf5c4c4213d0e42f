"""Harder views of training rows, to stand in for unseen rows where no held-out labels are at hand.

mirror    left and right of an image exchanged
shift     an image moved by up to a sixteenth of its width, its edge repeated
mix       share x + (1 - share) x', where x' is another changed row; the label is that of x
swap      a fifth of a row's numbers taken from another row

A network has seen its training images too often to doubt them. Mixed with a part of another image
they are about as hard for it as images that it never saw, unless it knows them by heart: then they
must be mirrored or moved first, in a way that it was not trained with. Which one that is nobody
tells, so a family of views is looked at. Each names a confidence; the middle one is aimed at, and
how far the others are from it tells how sure that is (results/views.md).

    kind of input                          family     aimed at
    images                                 mirror     the middle of mirror + mix, shift + mix, both
    images that mirroring makes others     shift      the middle of mix, shift + mix, milder mix;
                                                      the user or the data set says so
    other floats                           swap       swap: a makeshift, and a warning says so
    integers: tokens                       none

Where a network does not know its training rows, every view is too hard. So unchanged rows are
looked at too: they are too easy, and the truth lies between. Cost: one pass over the loader for the
sample, and one of 3,000 rows through the network per view.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from maccal.features.sampling import CannotMix, Inputs, Sample, mixable, sample

SHARE = 0.7  # of the row itself
MILDER = 0.8  # the share of a view that is compared with
SWAPPED = 0.2  # of the numbers of a row of a table: the best worst case of nineteen ways
ROWS = 5000  # rows to mix: their accuracy is then known within half a point or so
ROWS_PER_VIEW = 3000  # where several views are looked at
REACH = 1 / 16  # of the width, how far an image is moved at most
SMALLEST = 8  # fewer pixels across are a table
CHANNELS = (1, 3, 4)

Own = Callable[[Any], Any]  # a batch of inputs -> a batch of inputs, which keeps the label
Name = Literal["mirror", "shift", "mix", "swap"]
Views = bool | str | Own | None


@dataclass(frozen=True)
class View:
    """A change of rows that keeps their labels; with a share below 1 they are mixed after it."""

    mirror: bool = False
    shift: bool = False
    own: Own | None = None
    share: float = 1.0
    swap: float = 0.0  # the share of the numbers that come from another row

    @property
    def name(self) -> str:
        """Its steps in order.

        >>> View(mirror=True, share=0.7).name
        'mirror + mix 0.7'
        """
        steps = []
        if self.mirror:
            steps.append("mirror")
        if self.shift:
            steps.append("shift")
        if self.own is not None:
            steps.append(getattr(self.own, "__name__", type(self.own).__name__))
        if self.share < 1:
            steps.append(f"mix {self.share:g}")
        if self.swap > 0:
            steps.append(f"swap {self.swap:g}")
        return " + ".join(steps) or "unchanged"


@dataclass(frozen=True)
class Family:
    """Views that are looked at together.

    The middle one of the candidates is aimed at; the witnesses only tell how sure that is.
    """

    name: str
    candidates: tuple[View, ...]
    witnesses: tuple[View, ...] = ()

    @property
    def all(self) -> tuple[View, ...]:
        return self.candidates + self.witnesses


FAMILIES: dict[str, Family] = {
    "mirror": Family(
        "mirror",
        (
            View(mirror=True, share=SHARE),
            View(shift=True, share=SHARE),
            View(mirror=True, shift=True, share=SHARE),
        ),
    ),
    "shift": Family(
        "shift",
        (
            View(shift=True, share=SHARE),
            View(share=SHARE),
            View(shift=True, share=MILDER),
        ),
    ),
    "mix": Family("mix", (View(share=SHARE),), (View(share=MILDER),)),
    "swap": Family("swap", (View(swap=SWAPPED),), (View(share=SHARE),)),
}
UNCHANGED = View()


def check_views(views: Any) -> None:
    """ValueError for what names no view."""
    if views is None or isinstance(views, bool) or callable(views) or views in get_args(Name):
        return
    known = ", ".join(repr(name) for name in get_args(Name))
    own = "a function from a batch of inputs to a batch of inputs"
    raise ValueError(f"views is {views!r}; pass one of {known}, True, False, or {own}")


def is_image(x: Tensor) -> bool:
    """Whether these rows are N x C x H x W of floats or bytes, as images are.

    >>> is_image(torch.zeros(5, 3, 8, 8)), is_image(torch.zeros(5, 3, 8))
    (True, False)
    """
    if x.ndim != 4 or not mixable(x):
        return False
    return x.shape[1] in CHANNELS and min(x.shape[2:]) >= SMALLEST


def family_of(views: Views, inputs: Inputs) -> Family:
    """The views to look at; ValueError where images are asked for and there are none."""
    images = any(is_image(x) for x in inputs.values())
    if callable(views):
        return family_of_one(views, images)
    if isinstance(views, str):
        if views in ("mirror", "shift") and not images:
            expected = f"N x C x H x W with C in {CHANNELS}, H and W at least {SMALLEST}"
            raise ValueError(f"views={views!r} is for images ({expected}), and there are none")
        return FAMILIES[views]
    return FAMILIES["mirror" if images else "swap"]


def family_of_one(own: Own, images: bool) -> Family:
    """A function of one's own: images are mixed after it, other inputs are as it gives them."""
    if not images:
        return Family("own", (View(own=own),))
    return Family("own", (View(own=own, share=SHARE),), (View(own=own, share=MILDER),))


class Changed:
    """A loader of the sample's rows under a view; every pass gives the same bits.

    A function of one's own sees torch's generator seeded for each batch, and the generator is as
    it was afterwards.
    """

    def __init__(self, rows: Sample, view: View, seed: int = 0) -> None:
        self.rows = rows
        self.view = view
        self.seed = seed
        self.partner = torch.roll(torch.arange(len(rows.y)), 1)  # the sample is in random order
        self.steps = torch.rand(len(rows.y), 2, generator=torch.Generator().manual_seed(seed))

    def __len__(self) -> int:
        return -(-len(self.rows.y) // self.rows.size)

    def __iter__(self) -> Iterator[Any]:
        for number, part in enumerate(torch.split(torch.arange(len(self.rows.y)), self.rows.size)):
            inputs = self._changed(part, 2 * number)
            if self.view.share < 1 or self.view.swap > 0:
                others = self._changed(self.partner[part], 2 * number + 1)
                inputs = {key: self._joined(x, others[key], number) for key, x in inputs.items()}
            yield as_given(inputs, self.rows.y[part])

    def _joined(self, x: Tensor, other: Tensor, number: int) -> Tensor:
        """Mixed or swapped with the partners; as they are, if they cannot be."""
        if not mixable(x):
            return x
        if self.view.swap > 0:
            generator = torch.Generator().manual_seed(self.seed + number)
            taken = torch.rand(x.shape, generator=generator) < self.view.swap
            return torch.where(taken.to(x.device), other, x)
        return blend(x, other, self.view.share)

    def _changed(self, part: Tensor, number: int) -> Inputs:
        """Mirrored, shifted, and given to the function of one's own."""
        inputs = {}
        for key, whole in self.rows.inputs.items():
            x = whole[part.to(whole.device)]
            if self.view.mirror and is_image(x):
                x = x.flip(-1)
            if self.view.shift and is_image(x):
                x = shifted(x, self.steps[part])
            inputs[key] = x
        if self.view.own is None:
            return inputs
        state = torch.get_rng_state()
        torch.default_generator.manual_seed(self.seed + number)
        try:
            return by_own(self.view.own, inputs)
        finally:
            torch.set_rng_state(state)


def as_given(inputs: Inputs, y: Tensor) -> Any:
    """A batch as loaders give it: a mapping where the inputs have names, else a tuple."""
    if all(isinstance(key, str) for key in inputs):
        return {**inputs, "labels": y}
    return (*inputs.values(), y)


def blend(x: Tensor, other: Tensor, share: float) -> Tensor:
    """The rows of x mixed with those of the other; bytes stay bytes."""
    both = share * x + (1 - share) * other
    return both if x.is_floating_point() else both.round().to(x.dtype)


def shifted(images: Tensor, steps: Tensor) -> Tensor:
    """Each image moved by what its two numbers of 0 to 1 say; the edge is repeated.

    By at least one pixel, so that no image stays where it was.
    """
    count, _, height, width = images.shape
    reach = max(1, round(width * REACH))
    moves = (steps * (2 * reach + 1)).long().clamp(max=2 * reach) - reach
    moves[(moves == 0).all(1), 1] = reach
    down, right = torch.split(moves.to(images.device), 1, dim=1)
    lines = (torch.arange(height, device=images.device) + down).clamp(0, height - 1)
    columns = (torch.arange(width, device=images.device) + right).clamp(0, width - 1)
    rows = torch.arange(count, device=images.device)[:, None, None]
    return images[rows, :, lines[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def by_own(own: Own, inputs: Inputs) -> Inputs:
    """What the function makes of one input, or of the tuple or mapping of several.

    ValueError unless shapes and dtypes stay, and numbers are finite.
    """
    named = all(isinstance(key, str) for key in inputs)
    before: Any = dict(inputs) if named else tuple(inputs.values())
    if len(inputs) == 1:
        before = next(iter(inputs.values()))
    given = own(before)
    if len(inputs) == 1:
        given = {next(iter(inputs)): given}
    elif not named and isinstance(given, tuple | list):
        given = dict(enumerate(given))
    if not isinstance(given, dict) or given.keys() != inputs.keys():
        kind = type(given).__name__
        raise ValueError(
            f"views: the function returned a {kind}; expected {len(inputs)} inputs as it was given"
        )
    for key, x in inputs.items():
        check_own(x, given[key])
    return given


def check_own(before: Tensor, after: Any) -> None:
    """ValueError unless one input is still what the network takes."""
    expected = f"expected a tensor of shape {tuple(before.shape)} and {before.dtype}, as given"
    if not isinstance(after, Tensor):
        raise ValueError(f"views: the function returned a {type(after).__name__}; {expected}")
    if after.shape != before.shape or after.dtype != before.dtype:
        found = f"shape {tuple(after.shape)} and {after.dtype}"
        raise ValueError(f"views: the function returned {found}; {expected}")
    if after.is_floating_point() and not bool(after.isfinite().all()):
        raise ValueError("views: the function returned numbers that are not finite")


def sample_for(views: Views, loader: Iterable[Any], seed: int = 0) -> Sample:
    """The rows that the views are made of; CannotMix where no view can be."""
    generator = torch.Generator().manual_seed(seed)
    return sample(loader, ROWS_PER_VIEW, generator, any_dtype=callable(views))


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
    drawn = sample(loader, rows, torch.Generator().manual_seed(seed))
    return list(Changed(drawn, View(share=share), seed))


__all__ = ["FAMILIES", "CannotMix", "Changed", "Family", "View", "family_of", "mixed", "sample_for"]
