"""Does the confidence stay right when images get worse?

    shift(network, test, pixels)         accuracy, ECE and NLL under 15 corruptions at 5 severities,
                                         made here
    published_shift(network, 10, ...)    the same from the published CIFAR-10-C and CIFAR-100-C

ECE has 15 bins throughout, and each mean over corruptions is divided by their number.
Cost: 75 times the prediction of the test images, and up to five seconds for each 10,000 to corrupt,
which a cache saves all networks but the first.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from maccal.data import Split
from maccal.data.corruptions import CORRUPTIONS, Corrupt, folder_of, stored
from maccal.data.download import data_root
from maccal.data.pixels import Pixels
from maccal.data.readers import FOLDERS, SEVERITIES, one_severity, open_cifar_c
from maccal.data.split import subset
from maccal.distributed import my_rank
from maccal.io import FileError
from maccal.metrics import Bins, nll, top_label
from maccal.progress import track
from maccal.training import predict

Cell = tuple[str, int]  # a corruption and its severity
Images = Iterator[tuple[Cell, Split]]


def shift(
    network: nn.Module,
    split: Split,
    pixels: Pixels,
    *,
    kinds: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 1,
    limit: int | None = None,
    cache: Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Accuracy, ECE and NLL of a network under corruptions of these images, made here.

    `accuracy`, `ece` and `nll` are tables of kinds x severities. For each severity: `ece_mean`, the
    mean over corruptions (as in the paper's figure), and `ece_pooled`, that of all their rows
    together. `overall` has the means of the tables, `ece_pooled`, which is the ECE of all rows, and
    `ece_pooled_mean`, the mean of ece_pooled over severities. `limit` keeps so many images, every
    class in its share. `cache` is a folder where the corrupted images are kept for other networks.
    """
    names, levels = checked(kinds, severities)
    chosen = split.rows(subset(split.labels.numpy(), limit))
    images = made(chosen, names, levels, seed, cache)
    numbers = measured(network, images, pixels, names, levels, progress)
    return {"source": "made", "seed": seed} | numbers


def made(
    split: Split, kinds: list[str], severities: list[int], seed: int, cache: Path | None
) -> Images:
    """The images under one corruption and severity at a time."""
    images = split.images.expand(-1, 3, -1, -1)  # one channel is shown three times, as Pixels does
    folder = None if cache is None else folder_of(images, cache)
    for kind, level in product(kinds, severities):
        corrupt = Corrupt(kind, level, seed)
        worse = corrupt(images) if folder is None else stored(corrupt, images, folder)
        yield (kind, level), Split(worse, split.labels)


def published_shift(
    network: nn.Module,
    classes: int,
    root: Path | str | None,
    pixels: Pixels,
    *,
    kinds: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    limit: int | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """The same numbers from the published files of CIFAR-10-C or CIFAR-100-C below root.

    All files are checked before the first is read. `limit` keeps so many images of each corruption
    and severity. FileError where the file of a corruption is missing.
    """
    names, levels = checked(kinds, severities)
    if classes not in FOLDERS:
        problem = f"no published corruptions of a data set of {classes} classes"
        raise ValueError(f"{problem}; only of cifar10 and cifar100")
    files, labels = open_cifar_c(classes, data_root(root))
    missing = [kind for kind in names if kind not in files]
    if missing:
        problem = f"no {missing[0]}.npy; download the set again, or choose other kinds"
        raise FileError(data_root(root) / FOLDERS[classes], problem)
    images = published(files, labels, names, levels, limit)
    return {"source": "published"} | measured(network, images, pixels, names, levels, progress)


def published(
    files: Mapping[str, np.ndarray],
    labels: np.ndarray,
    kinds: list[str],
    severities: list[int],
    limit: int | None,
) -> Images:
    """The images of one corruption and severity at a time."""
    for kind, level in product(kinds, severities):
        split = one_severity(files[kind], labels, level)
        yield (kind, level), split.rows(subset(split.labels.numpy(), limit))


def checked(kinds: Sequence[str] | None, severities: Sequence[int]) -> tuple[list[str], list[int]]:
    """Each kind and severity once, in the order given; by default all kinds.

    ValueError for one that is not known, before any image is touched.
    """
    names = list(dict.fromkeys(CORRUPTIONS if kinds is None else kinds))
    levels = list(dict.fromkeys(severities))
    if not names or not levels:
        raise ValueError(
            "no corruption or no severity; leave kinds and severities out for all of them"
        )
    for kind in names:
        Corrupt(kind, levels[0])
    for level in levels:
        Corrupt(names[0], level)
    return names, levels


def measured(
    network: nn.Module,
    images: Images,
    pixels: Pixels,
    kinds: list[str],
    severities: list[int],
    progress: bool,
) -> dict[str, Any]:
    """The numbers of every corruption and severity; of their rows only the sums are kept."""
    sums: dict[Cell, Bins] = {}
    losses: dict[Cell, float] = {}
    quiet = not progress or my_rank()[0] > 0
    total = len(kinds) * len(severities)
    for cell, split in track(images, "corruptions", total=total, disable=quiet):
        logits = predict(network, split.images, pixels)
        sums[cell] = Bins.of(*top_label(logits.double().softmax(1), split.labels))
        losses[cell] = nll(logits=logits, labels=split.labels)
    return pooled(sums, losses, kinds, severities)


def pooled(
    sums: Mapping[Cell, Bins],
    losses: Mapping[Cell, float],
    kinds: list[str],
    severities: list[int],
) -> dict[str, Any]:
    """The tables over kinds and severities, and what they come to together."""
    shape = (len(kinds), len(severities))
    order = list(product(kinds, severities))
    tables = {
        "accuracy": np.array([accuracy(sums[cell]) for cell in order]).reshape(shape),
        "ece": np.array([sums[cell].ece() for cell in order]).reshape(shape),
        "nll": np.array([losses[cell] for cell in order]).reshape(shape),
    }
    by_severity = []
    for level in severities:
        by_severity.append(together([sums[kind, level] for kind in kinds]))
    ece_pooled = np.array([bins.ece() for bins in by_severity])
    overall = {name: float(values.mean()) for name, values in tables.items()}
    overall["ece_pooled"] = together(by_severity).ece()
    overall["ece_pooled_mean"] = float(ece_pooled.mean())
    return {
        "n": by_severity[0].n // len(kinds),
        "kinds": kinds,
        "severities": severities,
        **tables,
        "ece_mean": tables["ece"].mean(0),
        "ece_pooled": ece_pooled,
        "overall": overall,
    }


def accuracy(sums: Bins) -> float:
    return float(sums.correct.sum() / sums.n)


def together(parts: Sequence[Bins]) -> Bins:
    """The sums of all rows of all parts."""
    return sum(parts, Bins.empty())
