"""CIFAR-10-C and CIFAR-100-C in the publishers' files: <corruption>.npy, five severities in order,
and labels.npy.

    for corruption, severity, split in shifts(10, root): ...    one severity at a time, 30 MB each
    read_cifar_c(10, root, "fog", 3).test                       the rows asked for, or all of them

Files are memory-mapped, and all of them are checked before the first image is read; those of the
published size are compared with the published checksums, once. A pickle inside a file is refused.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from maccal.data.corruptions.corrupt import CORRUPTIONS
from maccal.data.download.verified import verify
from maccal.data.readers.cifar import BINARY, FILES, NAMES, listed_in, names_in
from maccal.data.split import DataSet, Split
from maccal.io import FileError, open_regular

FOLDERS = {10: "CIFAR-10-C", 100: "CIFAR-100-C"}
TEN = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SEVERITIES = range(1, 6)


def read_cifar_c(
    classes: int, root: Path, corruption: str | None = None, severity: int | None = None
) -> DataSet:
    """The chosen corruption and severity as .test, or every one there is; .train and .val are None.

    Rows go by corruption, in the order of CORRUPTIONS, then by severity. The whole published set is
    750,000 images, 2.3 GB of memory: `shifts` reads the same in bounded memory."""
    if corruption is not None and corruption not in CORRUPTIONS:
        raise ValueError(
            f"no corruption {corruption!r}; the corruptions are {', '.join(CORRUPTIONS)}"
        )
    if severity is not None and severity not in SEVERITIES:
        raise ValueError(f"severity {severity!r}; pass a whole number from 1 to 5")
    files, labels = opened(classes, root, corruption)
    chosen = SEVERITIES if severity is None else [severity]
    return DataSet(None, None, pooled(files, labels, list(chosen)), class_names(classes, root))


def shifts(classes: int, root: Path) -> Iterator[tuple[str, int, Split]]:
    """(corruption, severity, Split) for every corruption there is, in the order of CORRUPTIONS, one
    Split in memory at a time.
    """
    files, labels = opened(classes, root, None)
    return (
        (kind, severity, part(images, labels, severity))
        for kind, images in files.items()
        for severity in SEVERITIES
    )


def part(images: np.ndarray, labels: np.ndarray, severity: int) -> Split:
    """One severity's rows, read from the map."""
    size = len(images) // 5
    rows = slice((severity - 1) * size, severity * size)
    pixels = np.ascontiguousarray(images[rows].transpose(0, 3, 1, 2))
    return Split(torch.from_numpy(pixels), torch.from_numpy(labels[rows].astype(np.int64)))


def pooled(files: Mapping[str, np.ndarray], labels: np.ndarray, severities: list[int]) -> Split:
    size = len(labels) // 5
    count = len(files) * len(severities) * size
    whole = Split(
        torch.empty((count, 3, 32, 32), dtype=torch.uint8), torch.empty(count, dtype=torch.int64)
    )
    pairs = ((images, severity) for images in files.values() for severity in severities)
    # filled in place: a list of parts to join would need the memory twice
    for place, (images, severity) in enumerate(pairs):
        rows, read = slice(place * size, (place + 1) * size), part(images, labels, severity)
        whole.images[rows], whole.labels[rows] = read.images, read.labels
    return whole


def opened(
    classes: int, root: Path, corruption: str | None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Maps of the files, checked, and their labels."""
    folder = root / FOLDERS[classes]
    if not folder.is_dir():
        raise FileError(
            root,
            f"no folder {folder.name}; point root at the folder that holds it; `maccal data get cifar{classes}-c` downloads it",
        )
    kinds = (
        [kind for kind in CORRUPTIONS if (folder / f"{kind}.npy").is_file()]
        if corruption is None
        else [corruption]
    )
    if not kinds:
        raise FileError(folder, "no file of a corruption, such as fog.npy; the set is incomplete")
    labels = labels_of(folder / "labels.npy", classes)
    return {kind: images_of(folder / f"{kind}.npy", len(labels)) for kind in kinds}, labels


def labels_of(path: Path, classes: int) -> np.ndarray:
    labels = array(path)
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or not len(labels) or len(labels) % 5:
        raise FileError(
            path, f"{described(labels)}; expected whole numbers in one row, five severities of them"
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise FileError(path, f"labels outside 0 .. {classes - 1}; is this another data set?")
    return labels


def images_of(path: Path, count: int) -> np.ndarray:
    images = array(path)
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3):
        raise FileError(
            path, f"{described(images)}; expected uint8 of N x 32 x 32 x 3: download it again"
        )
    if len(images) != count:
        raise FileError(
            path, f"{len(images)} images, but labels.npy has {count} labels; download both again"
        )
    return images


def array(path: Path) -> np.ndarray:
    if not path.exists():
        raise FileError(path, "no such file; the set is incomplete")
    open_regular(path).close()  # a fifo would hang
    verify(path, path.parent.name)
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # a damaged header may raise anything
        raise FileError(path, f"not a whole .npy file ({error}); download it again") from error


def described(found: np.ndarray) -> str:
    return f"{found.dtype} of {' x '.join(map(str, found.shape)) or 'no dimension'}"


def class_names(classes: int, root: Path) -> tuple[str, ...]:
    """CIFAR-C has none.

    The ten are known, the hundred are in the CIFAR-100 folder beside it, or else they are numbers.
    """
    if classes == 10:
        return TEN
    pickled, listed = root / FILES[100][0] / NAMES[100][0], root / BINARY[100][0] / BINARY[100][3]
    if pickled.is_file():
        names = names_in(pickled, NAMES[100][1])
    elif listed.is_file():
        names = listed_in(listed)
    else:
        return tuple(map(str, range(100)))
    if len(names) != classes:
        raise FileError(
            pickled if pickled.is_file() else listed,
            f"{len(names)} class names; expected {classes}",
        )
    return names
