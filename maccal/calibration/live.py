"""Rows whose features are made anew in every step, by a body that runs in train mode.

    LiveTable     images of a run in the place of a FeatureTable
    LiveRows      the same in the place of its Standardised rows
    live_tables   those of a run's images, checked
    kept_mode     the network is left in the mode that it came in

An epoch's images are cropped and mirrored, and the body runs without gradients. So its weights
stay, but BatchNorm takes the statistics of the batch and goes on updating its running ones: the
network's BatchNorm buffers are changed in place. Rows that are only looked at are neither augmented
nor seen in train mode. Cost: a pass of the body per epoch, where cached features cost one in all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor

from maccal.data.augment import crop_and_flip
from maccal.data.pixels import Pixels
from maccal.data.split import Split
from maccal.features.extraction import check_range
from maccal.features.table import Batches, FeatureTable, Standard, Standardised
from maccal.models import Net
from maccal.training.steps import batch_ranges

LOOK = 500  # images of one pass in eval mode


@dataclass(frozen=True)
class Images:
    """The images of a run, for choices that run the network's body in every step."""

    network: Any  # a models.Net
    train: Split
    val: Split | None
    pixels: Pixels
    padding: int
    flip: bool
    seed: int = 1
    progress: bool = False


@dataclass(frozen=True)
class LiveTable:
    """The images of a split, as the network sees them."""

    network: Net
    split: Split
    pixels: Pixels
    padding: int
    flip: bool

    @property
    def count(self) -> int:
        return len(self.split)

    @property
    def width(self) -> int:
        return self.network.num_features

    @property
    def classes(self) -> int:
        return self.network.head.out_features

    @property
    def y(self) -> Tensor:
        return self.split.labels

    @property
    def fits(self) -> bool:
        """Never: a body has the BatchNorm of one head, so that heads cannot train side by side."""
        return False

    @cached_property
    def measured(self) -> Standard:
        """Of the features as they are before the first step."""
        parts = [self.raw(start, LOOK) for start in range(0, self.count, LOOK)]
        return FeatureTable(torch.cat(parts), self.y, "train").measured

    def standardised(self, standard: Standard, device: torch.device | str = "cpu") -> "LiveRows":
        return LiveRows(self, standard, torch.device(device))

    def raw(self, start: int, count: int = 1024) -> Tensor:
        """Features of the next images from `start` on, from eval mode."""
        self.network.eval()
        return self.seen(self.split.images[start : start + count])

    def seen(self, images: Tensor) -> Tensor:
        """Features of these images, in whatever mode the network is."""
        there = images.to(self.network.head.weight.device)
        with torch.no_grad():
            z: Tensor = self.network.features(self.pixels(there))
        return z


@dataclass(frozen=True)
class LiveRows:
    """Batches of standardised features on a device, where the network is too."""

    table: LiveTable
    standard: Standard
    device: torch.device

    @property
    def count(self) -> int:
        return self.table.count

    def steps(self, batch_size: int) -> int:
        """The number of batches in an epoch."""
        return len(batch_ranges(self.count, batch_size, 1))

    def chunks(self) -> Batches:
        """All rows in their order, from eval mode."""
        for start in range(0, self.count, LOOK):
            labels = self.table.y[start : start + LOOK].to(self.device)
            yield self.standard(self.table.raw(start, LOOK)), labels

    def epoch(self, generators: list[torch.Generator], batch_size: int) -> Batches:
        """Every image once, changed anew, in a random order: 1 x n x D, their labels 1 x n."""
        (generator,) = generators
        table = self.table
        table.network.train()
        order = torch.randperm(self.count, generator=generator)
        for first, last in batch_ranges(self.count, batch_size, 1):
            rows = order[first:last]
            images = table.split.images[rows].to(self.device)
            z = table.seen(crop_and_flip(images, generator, table.padding, table.flip))
            yield self.standard(z)[None], table.y[rows].to(self.device)[None]


# features as they were cached, or as they are made
Table: TypeAlias = FeatureTable | LiveTable
Rows: TypeAlias = Standardised | LiveRows


def is_live(config: Any) -> bool:
    """Whether these choices, Stage2 or TwoStage, have the body run in every step."""
    return bool(config.batchnorm == "train")


def check_images(name: str, split: Split, classes: int) -> None:
    """ValueError for no images, or for labels that the head has no output for."""
    if not len(split):
        remedy = "pass at least one" if name == "train" else "pass at least one, or None"
        raise ValueError(f"{name} has no images; {remedy}")
    check_range(split.labels, classes, 0, 1 << 62)


@contextmanager
def kept_mode(network: Net, device: torch.device | str) -> Iterator[None]:
    """The network on the device, in the layout that is fastest, and afterwards in its old mode."""
    mode = network.training
    network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        yield
    finally:
        network.train(mode)


def live_tables(images: Images) -> tuple[LiveTable, LiveTable | None]:
    """The images to train on and those held out, if any; ValueError where they do not fit."""
    network = images.network
    found = []
    for name, split in (("train", images.train), ("val", images.val)):
        if split is not None:
            check_images(name, split, network.head.out_features)
            found.append(LiveTable(network, split, images.pixels, images.padding, images.flip))
    return found[0], found[1] if len(found) > 1 else None
