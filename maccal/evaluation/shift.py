"""Does the confidence stay right when images get worse?

    shift(network, test, pixels)         accuracy, ECE and NLL under 15 corruptions at 5 severities, made here
    published_shift(network, 10, ...)    the same of the published CIFAR-10-C and CIFAR-100-C

ECE has 15 bins throughout, and each mean over corruptions is divided by their number.
Cost: 75 times the prediction of the test images, and up to five seconds for each 10,000 to corrupt.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from torch import nn

from maccal.data import Split
from maccal.data.corruptions import CORRUPTIONS, Corrupt
from maccal.data.download import data_root
from maccal.data.pixels import Pixels
from maccal.data.readers import FOLDERS, SEVERITIES, one_severity, open_cifar_c
from maccal.data.split import subset
from maccal.distributed import my_rank
from maccal.io import FileError
from maccal.metrics import Bins, nll, top_label
from maccal.training import predict

Cells = Iterator[tuple[str, int, Split]]


def shift(
    network: nn.Module, split: Split, pixels: Pixels, *, kinds: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES, seed: int = 1, limit: int | None = None, progress: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Accuracy, ECE and NLL of a network under corruptions of these images, made here, one
    corruption and severity at a time.

    `accuracy`, `ece` and `nll` are kinds x severities. Over severities: `ece_mean`, the mean over
    corruptions (as the paper's figure), and `ece_pooled`, that of all their rows together.
    `overall` has the means of the cells and, `ece_pooled`, the ECE of all rows; `ece_pooled_mean`
    is the mean of ece_pooled over severities. `limit` keeps so many images, every class in its
    share."""
    names, levels = checked(kinds, severities)
    chosen = split.rows(subset(split.labels.numpy(), limit))
    images = chosen.images.expand(-1, 3, -1, -1)  # one channel is shown three times, as Pixels does
    cells = (
        (kind, level, Split(Corrupt(kind, level, seed)(images), chosen.labels))
        for kind in names
        for level in levels
    )
    return {"source": "made", "seed": seed} | measured(
        network, cells, pixels, names, levels, progress
    )


def published_shift(
    network: nn.Module, classes: int, root: Path | str | None, pixels: Pixels, *, kinds: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES, limit: int | None = None, progress: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The same numbers from the published files of CIFAR-10-C or CIFAR-100-C below root, all
    checked before the first is read.

    `limit` keeps so many images of each corruption and severity. FileError where the file of a
    corruption is missing."""
    names, levels = checked(kinds, severities)
    if classes not in FOLDERS:
        raise ValueError(
            f"no published corruptions of a data set of {classes} classes; only of cifar10 and cifar100"
        )
    files, labels = open_cifar_c(classes, data_root(root))
    if missing := [kind for kind in names if kind not in files]:
        raise FileError(
            data_root(root) / FOLDERS[classes],
            f"no {missing[0]}.npy; download the set again, or choose other kinds",
        )
    whole = (
        (kind, level, one_severity(files[kind], labels, level))
        for kind in names
        for level in levels
    )
    cells = (
        (kind, level, split.rows(subset(split.labels.numpy(), limit)))
        for kind, level, split in whole
    )
    return {"source": "published"} | measured(network, cells, pixels, names, levels, progress)


def checked(kinds: Sequence[str] | None, severities: Sequence[int]) -> tuple[list[str], list[int]]:
    """Each once, in the order given; ValueError for what is not known, before any image is touched."""
    names, levels = (
        list(dict.fromkeys(CORRUPTIONS if kinds is None else kinds)),
        list(dict.fromkeys(severities)),
    )
    if not names or not levels:
        raise ValueError(
            "no corruption or no severity; leave kinds and severities out for all of them"
        )
    for kind, level in [(kind, levels[0]) for kind in names] + [
        (names[0], level) for level in levels
    ]:
        Corrupt(kind, level)
    return names, levels


def measured(
    network: nn.Module,
    cells: Cells,
    pixels: Pixels,
    kinds: list[str],
    severities: list[int],
    progress: bool,
) -> dict[str, Any]:
    """The numbers of every cell; what is kept of its rows are their sums."""
    sums: dict[tuple[str, int], Bins] = {}
    losses: dict[tuple[str, int], float] = {}
    quiet = not progress or my_rank()[0] > 0
    for kind, level, split in track(
        cells, "corruptions", total=len(kinds) * len(severities), disable=quiet, transient=True
    ):
        logits = predict(network, split.images, pixels)
        sums[kind, level] = Bins.of(*top_label(logits.double().softmax(1), split.labels))
        losses[kind, level] = nll(logits=logits, labels=split.labels)
    return pooled(sums, losses, kinds, severities)


def pooled(
    sums: Mapping[tuple[str, int], Bins],
    losses: Mapping[tuple[str, int], float],
    kinds: list[str],
    severities: list[int],
) -> dict[str, Any]:
    def table(value: Callable[[tuple[str, int]], float]) -> np.ndarray:
        return np.array([[value((kind, level)) for level in severities] for kind in kinds])

    cells = {
        "accuracy": table(lambda cell: float(sums[cell].correct.sum() / sums[cell].n)),
        "ece": table(lambda cell: sums[cell].ece()),
        "nll": table(lambda cell: losses[cell]),
    }
    by_severity = [sum((sums[kind, level] for kind in kinds), Bins.empty()) for level in severities]
    together = np.array([bins.ece() for bins in by_severity])
    overall = {name: float(values.mean()) for name, values in cells.items()}
    overall |= {
        "ece_pooled": sum(by_severity, Bins.empty()).ece(),
        "ece_pooled_mean": float(together.mean()),
    }
    about = {"n": by_severity[0].n // len(kinds), "kinds": kinds, "severities": severities}
    return (
        about
        | cells
        | {"ece_mean": cells["ece"].mean(0), "ece_pooled": together, "overall": overall}
    )
