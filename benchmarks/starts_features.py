"""What starts.py needs of each network, extracted once: two .npz files per network.

    python benchmarks/starts_features.py DATA SHARED NETWORKS FEATURES [NETWORK ...]

DATA holds the data sets as published, SHARED the public networks (data/nets), NETWORKS the weights
that starts_networks.py trained, and text.npz. What is in FEATURES is not made again. Half a minute
to four minutes per image network on one core.

weight, bias            the trained classifier
train_z, train_y        features of the training rows, and labels
test_z, test_y          of rows that were never trained on
corrupt_z               for images: 15 corruptions x 5 severities x 2 halves x rows x features
corrupt_y               2 halves x rows: the labels of the test images that were corrupted

and in NETWORK.views.npz, so that other views can be tried without the rest:

<view>                  features of 3,000 training rows, changed as the view's name says
y                       and their labels
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import torch
from starts_networks import NETWORKS, PUBLIC, TRAINED, images_of, network_of
from starts_tables import WIDTHS, Table, table_network
from torch import Tensor, nn

from maccal.data import DataSet, Pixels, Split
from maccal.data.corruptions import CORRUPTIONS, Corrupt
from maccal.features.views import FAMILIES, SHARE, UNCHANGED, Changed, Family, View, sample_for
from maccal.io import write_with
from maccal.models import Net

Arrays = dict[str, np.ndarray]
Batch = tuple[Tensor, Tensor]
Body = Callable[[Tensor], Tensor]
CORRUPTED = 300  # test images of each half
SEVERITIES = range(1, 6)
MIRRORLESS = ("svhn", "digits")  # mirrored, these are other digits, or none


def family_of(name: str, images: bool) -> Family:
    """The views that `calibrate` looks at for such inputs."""
    if not images:
        return FAMILIES["swap"]
    return FAMILIES["shift" if name in MIRRORLESS else "mirror"]


@torch.inference_mode()
def view_arrays(body: Body, loader: Iterator[Batch], family: Family) -> Arrays:
    """Features of the rows that `calibrate` would look at, and of mixed ones."""
    rows = sample_for(None, loader)
    views = {view.name: view for view in (*family.all, UNCHANGED, View(share=SHARE))}
    found = {"y": rows.y.numpy()}
    for name, view in views.items():
        found[name] = torch.cat([body(x) for x, _ in Changed(rows, view)]).numpy()
    return found


def batches(split: Split, pixels: Pixels) -> Iterator[Batch]:
    for images, labels in zip(split.images.split(250), split.labels.split(250), strict=True):
        yield pixels(images), labels


@torch.inference_mode()
def features(network: Net, images: Tensor, pixels: Pixels) -> np.ndarray:
    """The inputs of the head."""
    return torch.cat([network.features(pixels(part)) for part in images.split(250)]).numpy()


@cache
def corrupted(data: str, root: Path) -> tuple[list[Tensor], Tensor]:
    """The first images of both halves under each corruption and severity, and their labels."""
    test = images_of(data, root, None).test
    size = len(test) // 2
    rows = np.concatenate([np.arange(CORRUPTED), size + np.arange(CORRUPTED)])
    some = test.rows(rows)
    cells = product(CORRUPTIONS, SEVERITIES)
    images = [Corrupt(kind, severity, 1)(some.images) for kind, severity in cells]
    return images, some.labels.reshape(2, CORRUPTED)


def image_arrays(name: str, network: Net, data: DataSet, pixels: Pixels, root: Path) -> Arrays:
    assert data.train is not None
    found = {
        "weight": network.head.weight.detach().numpy(),
        "bias": network.head.bias.detach().numpy(),
        "train_z": features(network, data.train.images, pixels),
        "train_y": data.train.labels.numpy(),
        "test_z": features(network, data.test.images, pixels),
        "test_y": data.test.labels.numpy(),
    }
    source = "cifar10" if name in PUBLIC else TRAINED[name].data
    worse, labels = corrupted(source, root)
    rows = [features(network, images, pixels) for images in worse]
    shape = (len(CORRUPTIONS), len(SEVERITIES), 2, CORRUPTED, -1)
    found["corrupt_z"] = np.stack(rows).reshape(shape)
    found["corrupt_y"] = labels.numpy()
    return found


@torch.inference_mode()
def table_arrays(network: nn.Sequential, table: Table) -> Arrays:
    body, head = network[:-1], network[-1]
    assert isinstance(head, nn.Linear)
    return {
        "weight": head.weight.numpy(),
        "bias": head.bias.numpy(),
        "train_z": body(table.train[0]).numpy(),
        "train_y": table.train[1].numpy(),
        "test_z": body(table.test[0]).numpy(),
        "test_y": table.test[1].numpy(),
    }


def save(file: Path, arrays: Arrays) -> None:
    with file.open("wb") as opened:
        np.savez(opened, **arrays)  # type: ignore[arg-type]


def add(file: Path, make: Callable[[], Arrays]) -> None:
    """Make a file, unless it is there."""
    if not file.exists():
        arrays = make()
        write_with(file, lambda part: save(part, arrays))
        print(file.name, {key: value.shape for key, value in arrays.items()}, flush=True)


def add_images(name: str, root: Path, shared: Path, folder: Path, out: Path) -> None:
    network, data, pixels = network_of(name, root, shared, folder)
    train = data.train
    assert train is not None
    family = family_of(name, images=True)
    add(out / f"{name}.npz", lambda: image_arrays(name, network, data, pixels, root))
    views = out / f"{name}.views.npz"
    add(views, lambda: view_arrays(network.features, batches(train, pixels), family))


def add_table(name: str, folder: Path, out: Path) -> None:
    network, table = table_network(name, folder)
    x, y = table.train
    loader = zip(x.split(250), y.split(250), strict=True)
    add(out / f"{name}.npz", lambda: table_arrays(network, table))
    views = out / f"{name}.views.npz"
    add(views, lambda: view_arrays(network[:-1], loader, family_of(name, images=False)))


def main(root: Path, shared: Path, folder: Path, out: Path, names: list[str]) -> None:
    for name in names or [*NETWORKS, *WIDTHS]:
        if (out / f"{name}.npz").exists() and (out / f"{name}.views.npz").exists():
            continue
        if name in WIDTHS:
            add_table(name, folder, out)
        else:
            add_images(name, root, shared, folder, out)


if __name__ == "__main__":
    torch.set_num_threads(1)
    data, shared, networks, features_folder = map(Path, sys.argv[1:5])
    main(data, shared, networks, features_folder, sys.argv[5:])
