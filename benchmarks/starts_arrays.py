"""A network as stage II sees it, read from the .npz that starts_features.py made."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from starts_networks import NETWORKS, PUBLIC, TRAINED
from starts_tables import WIDTHS
from torch import Tensor, nn

from maccal.features import Features

ORDER = (*NETWORKS, *WIDTHS)
TUNED = (
    *(name for name, (role, _) in PUBLIC.items() if role == "tuned"),
    *(name for name, row in TRAINED.items() if row.role == "tuned"),
)


@dataclass(frozen=True)
class Network:
    """A trained network: its classifier, and the features of everything that is measured."""

    name: str
    start: tuple[Tensor, Tensor]  # weight and bias of the trained classifier
    train: Features
    test: Features
    views: Mapping[str, Features]  # training rows, changed; by the name of the view
    # corruptions x severities x halves x rows x features, and halves x rows; images only
    corrupted: Features | None

    @property
    def head(self) -> nn.Linear:
        weight, bias = self.start
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": bias})
        return layer.eval().requires_grad_(False)

    def half(self, which: int) -> Features:
        size = len(self.test.y) // 2
        return Features(*(t[which * size :][:size] for t in self.test))

    def labelled(self, which: int, count: int, seed: int) -> Features:
        """So many rows of a half; all in their order if there are no more, else drawn."""
        z, y = self.half(which)
        if count >= len(y):
            return Features(z, y)
        rows = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))[:count]
        return Features(z[rows], y[rows])


def read_network(file: Path) -> Network:
    with np.load(file) as found:
        arrays = {key: torch.from_numpy(found[key]) for key in found.files}
    with np.load(file.with_suffix(".views.npz")) as changed:
        y = torch.from_numpy(changed["y"])
        seen = {key: Features(torch.from_numpy(changed[key]), y) for key in changed.files}
    views = {key: rows for key, rows in seen.items() if key != "y"}
    corrupted = None
    if "corrupt_z" in arrays:
        corrupted = Features(arrays["corrupt_z"], arrays["corrupt_y"])
    return Network(
        file.stem,
        (arrays["weight"], arrays["bias"]),
        Features(arrays["train_z"], arrays["train_y"]),
        Features(arrays["test_z"], arrays["test_y"]),
        views,
        corrupted,
    )


def networks_in(folder: Path) -> list[Path]:
    """The files that are there, in the order of the page."""
    files = [folder / f"{name}.npz" for name in ORDER]
    return [file for file in files if file.exists()]
