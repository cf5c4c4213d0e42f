"""The networks of starts.py that see no images: a text classifier on sentence embeddings, and three
tables of scikit-learn. Small perceptrons, trained until they know their rows by heart.

    networks_of_tables()    names
    table_network(name)     the trained network and its data, about ten seconds each

text            the section of a Debian package from its description, 512 numbers (starts_text.py)
digits          8 x 8 pixels, ten digits
breast-cancer   30 measurements, two diagnoses
patches         5 x 5 pixels of scikit-learn's two photographs, which of their eight quarters
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer, load_digits, load_sample_images
from torch import Tensor, nn

EPOCHS = 40
PATCH = 5


class Table(NamedTuple):
    """Standardised rows and labels, for training and never trained on."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def halved(x: np.ndarray, y: np.ndarray, most: int = 10_000) -> Table:
    """One half of the rows for training, at most so many; the rest to test, at most so many."""
    order = np.random.default_rng(1).permutation(len(y))
    size = min(most, len(y) // 2)
    train, test = order[:size], order[size : size + most]
    mean, std = x[train].mean(0), x[train].std(0)
    std[std == 0] = 1  # some pixels of the digits are always white
    scaled = torch.from_numpy(((x - mean) / std).astype(np.float32))
    labels = torch.from_numpy(y.astype(np.int64))
    return Table((scaled[train], labels[train]), (scaled[test], labels[test]))


def patches(count: int = 12_000) -> tuple[np.ndarray, np.ndarray]:
    """Patches of pixels, each with the number of its photograph's quarter."""
    rng = np.random.default_rng(1)
    rows, labels = [], []
    for number, image in enumerate(load_sample_images().images):
        height, width, _ = image.shape
        tops = rng.integers(height - PATCH, size=count // 2)
        lefts = rng.integers(width - PATCH, size=count // 2)
        for top, left in zip(tops, lefts, strict=True):
            rows.append(image[top : top + PATCH, left : left + PATCH].reshape(-1))
            labels.append(4 * number + 2 * (2 * top // height) + 2 * left // width)
    return np.stack(rows).astype(np.float64), np.array(labels)


def text(file: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(file) as found:
        return found["x"], found["y"]


def perceptron(table: Table, width: int, seed: int = 1) -> nn.Sequential:
    """Two hidden layers and a classifier, trained by Adam without decay."""
    torch.manual_seed(seed)
    x, y = table.train
    layers = [nn.Linear(x.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(width, int(y.max()) + 1))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y)).split(32):
            loss = F.cross_entropy(network(x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network.eval()


ABOUT: Mapping[str, str] = {
    "text": "perceptron on sentence embeddings, section of a Debian package from its description",
    "digits": "perceptron, scikit-learn's digits",
    "breast-cancer": "perceptron, scikit-learn's breast cancer",
    "patches": "perceptron, patches of scikit-learn's photographs",
}
WIDTHS: Mapping[str, int] = {"text": 128, "digits": 64, "breast-cancer": 32, "patches": 128}


def readers(folder: Path) -> Mapping[str, Callable[[], tuple[np.ndarray, np.ndarray]]]:
    return {
        "text": partial(text, folder / "text.npz"),
        "digits": partial(load_digits, return_X_y=True),
        "breast-cancer": partial(load_breast_cancer, return_X_y=True),
        "patches": patches,
    }


def table_network(name: str, folder: Path) -> tuple[nn.Sequential, Table]:
    """The network trained now, and its data; text.npz is in the folder."""
    table = halved(*readers(folder)[name]())
    return perceptron(table, WIDTHS[name]), table
