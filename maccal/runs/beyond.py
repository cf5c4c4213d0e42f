"""Numbers of a run beyond its test images.

ood_run, shift_run    what evaluation.ood and evaluation.shift say of the folder of a run
extend_row            puts what they return into its row.json
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maccal.data import load
from maccal.data.download import data_root
from maccal.data.pixels import PIXELS
from maccal.data.readers import has_cifar_c
from maccal.data.split import subset
from maccal.distributed import held
from maccal.evaluation.ood import ood
from maccal.evaluation.row import PARTS, write_row
from maccal.evaluation.shift import published_shift, shift
from maccal.runs.folder import load_run, predictions_of, read_config, run_of
from maccal.training import predict

CIFARS = ("cifar10", "cifar100")  # whose corruptions are published


def ood_run(
    folder: Path | str,
    sets: Sequence[str],
    root: Path | str | None = None,
    *,
    limit: int | None = None,
    resamples: int = 1000,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> dict[str, dict[str, float]]:
    """What `ood` says of a run: its test images against those of other data sets.

    The others are normalised as its own are, must have their size, and have other classes. `limit`
    keeps so many test images of every set.
    """
    config = read_config(folder)
    choices = [name for name in PIXELS if name != config.data]
    for name in sets:
        if name not in choices:
            problem = f"{name} is not out of distribution for a run on {config.data}"
            raise ValueError(f"{problem}; choose among {', '.join(choices)}")
    own = load(config.data, root).test
    said = predictions_of(folder)
    inside = said.scores[subset(said.labels, limit)]
    network = load_run(folder, said.scores.shape[1]).to(device)
    outside = {name: other(name, root, own.images, limit) for name in sets}
    pixels = PIXELS[config.data]
    logits = {name: predict(network, images, pixels) for name, images in outside.items()}
    return ood(inside, logits, resamples=resamples, seed=seed)


def other(name: str, root: Path | str | None, own: Tensor, limit: int | None) -> Tensor:
    """The test images of a set, if a network for images like `own` can see them."""
    test = load(name, root).test
    if test.images.shape[1:] != own.shape[1:]:
        sizes = f"images of {name} are {size_of(test.images)}, those of the run {size_of(own)}"
        raise ValueError(f"{sizes}; choose a set of the same size")
    return test.rows(subset(test.labels.numpy(), limit)).images


def size_of(images: Tensor) -> str:
    return " x ".join(map(str, images.shape[1:]))


def shift_run(
    folder: Path | str,
    root: Path | str | None = None,
    *,
    published: bool | None = None,
    cache: Path | str | None = None,
    device: torch.device | str = "cpu",
    **choices: Any,
) -> dict[str, Any]:
    """What `shift` says of a run's test images, or `published_shift` of the published files.

    By default the published files are taken where their folder is; the numbers say which under
    `source`. `cache` is a folder for images that are made here. `choices` are those of both.
    """
    config = read_config(folder)
    data = load(config.data, root)
    pixels = PIXELS[config.data]
    network = load_run(folder, len(data.classes)).to(device)
    if published is None:
        published = config.data in CIFARS and has_cifar_c(len(data.classes), data_root(root))
    if not published:
        return shift(
            network, data.test, pixels, cache=None if cache is None else Path(cache), **choices
        )
    if config.data not in CIFARS:
        remedy = "leave published out to make them"
        raise ValueError(f"no published corruptions of {config.data}; {remedy}")
    return published_shift(network, len(data.classes), root, pixels, **choices)


def extend_row(folder: Path | str, **parts: Mapping[str, Any]) -> Path:
    """Put "ood" and "shift" numbers into the run's row.json, which keeps all else.

    A part that is there is replaced whole.
    """
    for name in parts:
        if name not in PARTS:
            raise ValueError(f"no part {name!r} of a row; the parts are {', '.join(PARTS)}")
    folder = Path(folder)
    with held(folder):
        row = replace(run_of(folder)[1], **plain_parts(parts))
        return write_row(folder / "row.json", row)


def plain_parts(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of a row as JSON has them, arrays as lists."""
    return dict(json.loads(json.dumps(parts, allow_nan=False, default=np.ndarray.tolist)))
