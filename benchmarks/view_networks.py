"""The networks on which views of training images are measured: public ones and small ones.

    python benchmarks/view_networks.py SHARED DATA FOLDER

trains the small ones, one to six minutes each on one core, into FOLDER. SHARED holds data/nets,
DATA the data sets. They differ in what makes a view mislead: whether a network knows its images by
heart, which changes of an image it met in training (none, mirrored, cropped, both), and whether it
is too sure or not sure enough (mixup, smoothed labels). The views, how the middle one is taken, and
when a warning is due were chosen on CHOSEN_ON; the other networks are only reported on. OTHERS are
networks of starts_networks.py, if their weights are in FOLDER/starts.
"""

import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maccal.data import DataSet, load
from maccal.data.pixels import IMAGENET, PIXELS, Pixels
from maccal.data.split import stratified
from maccal.io import write_with
from maccal.methods import METHODS
from maccal.models import build, load_public
from maccal.training import fit, precise
from maccal.training.recipe import Recipe

PLAIN = Recipe(epochs=9, schedule="cosine", padding=0, flip=False, watch=100)
AUGMENTED = replace(PLAIN, epochs=18, padding=4, flip=True)


@dataclass(frozen=True)
class Trained:
    """A network trained here: what it saw and how."""

    data: str
    recipe: Recipe = PLAIN
    method: str = "vanilla"
    alpha: float | None = None
    limit: int = 10_000
    model: str = "resnet10"
    seed: int = 1


TRAINED = {
    "c10-heart": Trained("cifar10"),
    "c10-mixup": Trained("cifar10", method="mixup", alpha=5.0),
    "c10-augmented": Trained("cifar10", AUGMENTED),
    "c10-flips": Trained("cifar10", replace(PLAIN, flip=True, epochs=12)),
    "svhn-heart": Trained("svhn"),
    "svhn-crops": Trained("svhn", replace(PLAIN, padding=4, epochs=12)),
    "c10-smoothed": Trained("cifar10", AUGMENTED, "ls", 0.3),
    "c100-heart": Trained("cifar100", replace(PLAIN, epochs=13), limit=20_000),
    "c10-crops": Trained("cifar10", replace(PLAIN, padding=4, epochs=14)),
    "c10-smoothed-heart": Trained("cifar10", method="ls", alpha=0.2),
    "c10-mixup-augmented": Trained("cifar10", AUGMENTED, "mixup", 5.0),
    "svhn-mixup": Trained("svhn", method="mixup", alpha=5.0),
    "digits": Trained("digits", Recipe(epochs=20, padding=1, flip=False), limit=1_000),
    "c10-heart-2": Trained("cifar10", seed=2),
    "tiny-heart": Trained("tiny-imagenet", replace(PLAIN, epochs=12), limit=10_000),
}
PUBLIC = {f"resnet{depth}": depth for depth in (20, 32, 44, 56)}
OTHERS = {  # by their names there
    "densenet": "densenet",
    "wrn": "wrn",
    "c100-heart-2": "c100-heart-2",
    "c10-smooth-all": "c10-smooth",
    "c10-augmented-all": "c10-augmented",
    "tiny-40": "tiny-40",
    "svhn-6000": "svhn",
}
CHOSEN_ON = (
    "resnet20",
    "resnet32",
    "c10-heart",
    "c10-mixup",
    "c10-augmented",
    "c10-flips",
    "c10-crops",
    "c10-smoothed",
    "c100-heart",
    "svhn-heart",
    "svhn-crops",
)


def data_of(name: str, root: Path) -> DataSet:
    """The data set; of SVHN, where only the test file is at hand, half of it to train on."""
    data = load(name, root)
    if data.train is not None:
        return data
    labels = data.test.labels.numpy()
    chosen = stratified(labels, len(labels) // 2, np.random.default_rng(1))
    rest = np.setdiff1d(np.arange(len(labels)), chosen)
    return replace(data, train=data.test.rows(chosen), test=data.test.rows(rest))


def limited(data: DataSet, limit: int) -> DataSet:
    """With so many training images, every class in its share."""
    assert data.train is not None
    labels = data.train.labels.numpy()
    chosen = stratified(labels, min(limit, len(labels)), np.random.default_rng(1))
    return replace(data, train=data.train.rows(chosen))


def trained(name: str, root: Path, folder: Path) -> tuple[Any, DataSet, Pixels]:
    """The network in eval mode, trained now or read from the folder, with its data."""
    row = TRAINED[name]
    data = limited(data_of(row.data, root), row.limit)
    torch.manual_seed(row.seed)
    network = build(row.model, len(data.classes))
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    file = folder / f"{name}.pt"
    if not file.exists():
        assert data.train is not None
        objective = METHODS[row.method].objective
        assert objective is not None
        settings = {} if row.alpha is None else {"alpha": row.alpha}
        recipe = precise(row.recipe, torch.device("cpu"))
        history = fit(
            network,
            data.train,
            recipe,
            pixels=PIXELS[row.data],
            objective=objective(network, **settings),
            seed=row.seed,
        )
        print(name, history[-1], flush=True)
        write_with(file, lambda part: torch.save(network.state_dict(), part))
    network.load_state_dict(torch.load(file, weights_only=True))
    return network.eval(), data, PIXELS[row.data]


def network_of(name: str, shared: Path, root: Path, folder: Path) -> tuple[Any, DataSet, Pixels]:
    """A network by name, its data and its pixels."""
    if name in OTHERS:
        others = import_module("starts_networks")
        found: tuple[Any, DataSet, Pixels] = others.network_of(
            OTHERS[name], root, shared, folder / "starts"
        )
        return found
    if name in TRAINED:
        return trained(name, root, folder)
    file = next((shared / "data" / "nets").glob(f"resnet{PUBLIC[name]}-*.th"))
    network: Any = load_public(build(f"resnet{PUBLIC[name]}", 10), file)
    return network.to(memory_format=torch.channels_last).eval(), load("cifar10", root), IMAGENET


if __name__ == "__main__":
    for one in sys.argv[4:] or TRAINED:
        trained(one, Path(sys.argv[2]), Path(sys.argv[3]))
