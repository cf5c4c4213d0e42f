"""The networks of the benchmarks: public ResNets for CIFAR-10, and small ones trained here on
CIFAR-10 and CIFAR-100.

    python benchmarks/networks.py SHARED build/networks

trains the small ones, about ten minutes each on one core. SHARED holds data/unpack and data/nets.
The public networks err on 8.27, 7.37, 6.90 and 6.61 % of the CIFAR-10 test images. The small ones
are made to differ in how much worse they do on unseen images: subsets and whole sets, with and
without augmentation.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.data.augment import crop_and_flip
from maccal.data.readers.cifar import PICKLES, pickle_parts
from maccal.io import write_with
from maccal.models import Net, build, load_public

MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]
PUBLIC = (20, 32, 44, 56)


Network = TypeVar("Network", bound=nn.Module)


def channels_last(network: Network) -> Network:
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def public(shared: Path, depth: int) -> Net:
    """A public trained network, in eval mode."""
    file = next((shared / "data" / "nets").glob(f"resnet{depth}-*.th"))
    return channels_last(load_public(build(f"resnet{depth}", 10), file))


@cache
def cifar(
    shared: Path, folder: Path, classes: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and test images (uint8 N x 3 x 32 x 32) and labels of CIFAR-10 or CIFAR-100."""
    files = PICKLES[classes]
    if not (folder / files.folder).exists():
        command = [sys.executable, str(shared / "data" / "unpack"), str(folder), f"cifar{classes}"]
        subprocess.run(command, check=True, capture_output=True)
    *train, last = pickle_parts(folder / files.folder, classes)
    return (torch.cat([s.images for s in train]), torch.cat([s.labels for s in train])), (
        last.images,
        last.labels,
    )


def normalised(images: Tensor) -> Tensor:
    return ((images / 255 - MEAN) / STD).contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Trained:
    """A network trained here: the data it saw and for how long."""

    classes: int
    images: int
    epochs: int
    augment: bool
    width: int = 16


TRAINED = {
    "c10-10k": Trained(10, 10_000, 30, augment=True),
    "c100-20k": Trained(100, 20_000, 25, augment=True, width=24),
    "c100-plain": Trained(100, 10_000, 20, augment=False, width=24),
}


def small(classes: int, width: int) -> nn.Sequential:
    """Five convolutions with BatchNorm, 8 x width features."""
    layers: list[nn.Module] = []
    for before, after, stride in ((3, 1, 1), (1, 2, 2), (2, 4, 2), (4, 8, 1), (8, 8, 2)):
        conv = nn.Conv2d(
            3 if not layers else before * width, after * width, 3, stride, 1, bias=False
        )
        layers += [conv, nn.BatchNorm2d(after * width), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes)
    )


def training_set(shared: Path, folder: Path, row: Trained, seed: int) -> tuple[Tensor, Tensor]:
    (images, labels), _ = cifar(shared, folder, row.classes)
    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[
        : row.images
    ]
    return images[chosen], labels[chosen]


def batches(
    images: Tensor, labels: Tensor, augment: bool, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    for rows in torch.randperm(len(labels), generator=generator).split(128):
        x = crop_and_flip(images[rows], generator) if augment else images[rows]
        yield normalised(x), labels[rows]


def trained(shared: Path, folder: Path, name: str, seed: int = 1) -> nn.Sequential:
    """A small network in eval mode, trained now or read from the folder.

    Cosine rate from 0.1, momentum 0.9, decay 5e-4.
    """
    row = TRAINED[name]
    torch.manual_seed(seed)
    network = channels_last(small(row.classes, row.width))
    file = folder / f"{name}-s{seed}.pt"
    if not file.exists():
        images, labels = training_set(shared, folder, row, seed)
        generator = torch.Generator().manual_seed(seed)
        steps = row.epochs * -(-row.images // 128)
        optimiser = torch.optim.SGD(
            network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, 0.1, steps, pct_start=0.1, cycle_momentum=False
        )
        for epoch in range(row.epochs):
            right = 0
            for x, y in batches(images, labels, row.augment, generator):
                logits = network(x)
                loss = F.cross_entropy(logits, y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                right += int((logits.argmax(1) == y).sum())
            print(
                f"{name} seed {seed} epoch {epoch + 1}: training accuracy {right / row.images:.4f}",
                flush=True,
            )
        write_with(file, lambda part: torch.save(network.state_dict(), part))
    network.load_state_dict(torch.load(file, weights_only=True))
    return network.eval()


if __name__ == "__main__":
    for name in TRAINED:
        trained(Path(sys.argv[1]), Path(sys.argv[2]), name)
