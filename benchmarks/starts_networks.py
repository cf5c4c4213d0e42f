"""The image networks that starts.py measures: public ones, and small ones trained here to differ.

    python benchmarks/starts_networks.py DATA FOLDER [NETWORK ...]

trains those whose weights are not in FOLDER yet. DATA holds the data sets as published. Stops and
resumes anywhere. About 25 minutes of one core that has bf16 arithmetic, all together; the DenseNet
and the WRN take half of it.

The defaults of MaC-Cal are chosen on the networks whose role is "tuned"; all others are only
reported on. "By heart" is training without augmentation until the training images are known: such
networks are the most overconfident. Mixup and label smoothing make underconfident ones. All train
with Recipe's rate and decay, and a cosine.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from networks import channels_last

from maccal.data import DataSet, Pixels, Split, load
from maccal.data.pixels import IMAGENET, PIXELS
from maccal.data.split import stratified
from maccal.io import write_with
from maccal.methods import METHODS
from maccal.methods.registry import settings_of
from maccal.models import Net, build, load_public
from maccal.training import fit, precise
from maccal.training.recipe import Recipe

Role = Literal["tuned", "reported"]
CPU = torch.device("cpu")
DIGITS_FOR_TRAINING = 6000  # of the 10,000 test digits of SVHN, the only ones that are at hand


@dataclass(frozen=True)
class Trained:
    """A network trained here: on what, for how long, and how."""

    role: Role
    data: str
    limit: int | None
    epochs: int
    model: str = "resnet10"
    padding: int = 0
    flip: bool = False
    method: str = "vanilla"
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 1

    @property
    def recipe(self) -> Recipe:
        return Recipe(
            epochs=self.epochs,
            schedule="cosine",
            padding=self.padding,
            flip=self.flip,
            watch=self.epochs,
        )

    @property
    def about(self) -> str:
        """In words, for the page."""
        seen = "all" if self.limit is None else f"{self.limit:,}"
        changes = [name for name, used in (("crops", self.padding), ("flips", self.flip)) if used]
        augmented = " and ".join(changes) if changes else "no augmentation"
        settings = "".join(f" {key} {value}" for key, value in self.settings.items())
        method = "" if self.method == "vanilla" else f", {self.method}{settings}"
        return f"{self.model}, {self.data}, {seen} training images, {augmented}{method}"


PUBLIC: Mapping[str, tuple[Role, str]] = {
    "resnet20": ("tuned", "resnet20-12fca82f.th"),
    "resnet56": ("tuned", "resnet56-4bfd9763.th"),
    "resnet32": ("reported", "resnet32-d509ac18.th"),
    "resnet44": ("reported", "resnet44-014dd654.th"),
}
TRAINED: Mapping[str, Trained] = {
    "c10-heart": Trained("tuned", "cifar10", 10_000, 9),
    "c10-mixup": Trained("tuned", "cifar10", 10_000, 9, method="mixup", settings={"alpha": 5.0}),
    "c100-heart": Trained("tuned", "cifar100", 20_000, 13),
    "svhn": Trained("reported", "svhn", DIGITS_FOR_TRAINING, 12),
    "c100-heart-2": Trained("reported", "cifar100", 30_000, 12, seed=2),
    "c10-smooth": Trained(
        "reported", "cifar10", None, 6, padding=4, flip=True, method="ls", settings={"alpha": 0.2}
    ),
    "c10-augmented": Trained("reported", "cifar10", None, 12, padding=4, flip=True),
    "tiny-40": Trained("reported", "tiny-imagenet", None, 20),
    "densenet": Trained("reported", "cifar10", 8_000, 9, model="densenet40", flip=True),
    "wrn": Trained("reported", "cifar100", 15_000, 8, model="wrn16_2", padding=4, flip=True),
}
NETWORKS = (*PUBLIC, *TRAINED)


@cache
def images_of(data: str, root: Path, limit: int | None) -> DataSet:
    """Training images, and images that were never trained on.

    Of Tiny-ImageNet, 100 images of each of 40 classes are at hand: all are trained on.
    """
    if data == "svhn":
        return split_digits(load("svhn", root), limit or DIGITS_FOR_TRAINING)
    found = load(data, root, limit=limit)
    if data != "tiny-imagenet" or found.train is None or found.val is None:
        return found
    images = torch.cat([found.train.images, found.val.images])
    labels = torch.cat([found.train.labels, found.val.labels])
    order = np.random.default_rng(1).permutation(len(found.test))
    return DataSet(Split(images, labels), None, found.test.rows(order), found.classes)


def split_digits(found: DataSet, count: int) -> DataSet:
    """The published test digits, in two parts that have nothing in common."""
    chosen = stratified(found.test.labels.numpy(), count, np.random.default_rng(1))
    others = np.setdiff1d(np.arange(len(found.test)), chosen)
    order = np.random.default_rng(2).permutation(others)
    return DataSet(found.test.rows(chosen), None, found.test.rows(order), found.classes)


def public_network(shared: Path, name: str) -> Net:
    return channels_last(load_public(build(name, 10), shared / "data" / "nets" / PUBLIC[name][1]))


def trained_network(name: str, root: Path, folder: Path) -> Net:
    """A network in eval mode, trained now or read from the folder."""
    row = TRAINED[name]
    file = folder / f"{name}.pt"
    data = images_of(row.data, root, row.limit)
    torch.manual_seed(row.seed)
    network = channels_last(build(row.model, len(data.classes)))
    if not file.exists():
        train(network, row, data, folder / f"{name}.checkpoint")
        write_with(file, lambda part: torch.save(network.state_dict(), part))
    network.load_state_dict(torch.load(file, weights_only=True))
    return network.eval()


def train(network: Net, row: Trained, data: DataSet, checkpoint: Path) -> None:
    objective = METHODS[row.method].objective
    assert objective is not None
    assert data.train is not None
    settings = settings_of(row.method, row.data, row.model, row.settings)
    fit(
        network,
        data.train,
        precise(row.recipe, CPU),
        pixels=PIXELS[row.data],
        objective=objective(network, **settings),
        seed=row.seed,
        checkpoint=checkpoint,
        log=lambda history: print(checkpoint.stem, history[-1], flush=True),
    )


def network_of(name: str, root: Path, shared: Path, folder: Path) -> tuple[Net, DataSet, Pixels]:
    """A network, its images, and how it sees their pixels."""
    if name in PUBLIC:
        return public_network(shared, name), images_of("cifar10", root, None), IMAGENET
    row = TRAINED[name]
    network = trained_network(name, root, folder)
    return network, images_of(row.data, root, row.limit), PIXELS[row.data]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[3:] or TRAINED:
        trained_network(name, Path(sys.argv[1]), Path(sys.argv[2]))
