"""CIFAR-10-C and CIFAR-100-C in the publishers' files.

<corruption>.npy has five severities in order, and labels.npy the labels of all of them.

    for corruption, severity, split in shifts(10, root): ...    one severity at a time, 30 MB each
    read_cifar_c(10, root, "fog", 3).test                       the rows asked for, or all of them

Files are memory-mapped, and all of them are checked before the first image is read. Those of the
published size are compared with the published checksums, once. A pickle inside a file is refused.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from maccal.data.corruptions import CORRUPTIONS
from maccal.data.download import verify
from maccal.data.readers.cifar import BINARIES, PICKLES, listed_names, pickled_names
from maccal.data.split import DataSet, Split
from maccal.io import FileError, open_regular

FOLDERS = {10: "CIFAR-10-C", 100: "CIFAR-100-C"}
TEN = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SEVERITIES = range(1, 6)


def read_cifar_c(
    classes: int, root: Path, corruption: str | None = None, severity: int | None = None
) -> DataSet:
    """The chosen corruption and severity as .test, or all there are; .train and .val are None.

    Rows go by corruption, in the order of CORRUPTIONS, then by severity. The whole published set is
    750,000 images, 2.3 GB of memory: `shifts` reads the same in bounded memory.
    """
    if corruption is not None and corruption not in CORRUPTIONS:
        known = ", ".join(CORRUPTIONS)
        raise ValueError(f"no corruption {corruption!r}; the corruptions are {known}")
    if severity is not None and severity not in SEVERITIES:
        raise ValueError(f"severity {severity!r}; pass a whole number from 1 to 5")
    files, labels = open_cifar_c(classes, root, corruption)
    chosen = list(SEVERITIES) if severity is None else [severity]
    return DataSet(None, None, pooled(files, labels, chosen), class_names(classes, root))


def shifts(classes: int, root: Path) -> Iterator[tuple[str, int, Split]]:
    """(corruption, severity, Split) of every corruption there is, one Split in memory at a time.

    In the order of CORRUPTIONS. All files are checked now, before the first is asked for.
    """
    return every_severity(*open_cifar_c(classes, root))


def every_severity(
    files: Mapping[str, np.ndarray], labels: np.ndarray
) -> Iterator[tuple[str, int, Split]]:
    for kind, images in files.items():
        for severity in SEVERITIES:
            yield kind, severity, one_severity(images, labels, severity)


def one_severity(images: np.ndarray, labels: np.ndarray, severity: int) -> Split:
    """The rows of one severity, read from the memory map."""
    size = len(images) // 5
    rows = slice((severity - 1) * size, severity * size)
    pixels = np.ascontiguousarray(images[rows].transpose(0, 3, 1, 2))
    return Split(torch.from_numpy(pixels), torch.from_numpy(labels[rows].astype(np.int64)))


def pooled(files: Mapping[str, np.ndarray], labels: np.ndarray, severities: list[int]) -> Split:
    """The rows of all these files and severities, one after the other.

    They are filled in place: joining a list of parts would need the memory twice.
    """
    size = len(labels) // 5
    count = len(files) * len(severities) * size
    all_images = torch.empty((count, 3, 32, 32), dtype=torch.uint8)
    all_labels = torch.empty(count, dtype=torch.int64)
    start = 0
    for images in files.values():
        for severity in severities:
            split = one_severity(images, labels, severity)
            all_images[start : start + size] = split.images
            all_labels[start : start + size] = split.labels
            start += size
    return Split(all_images, all_labels)


def has_cifar_c(classes: int, root: Path) -> bool:
    """Whether the folder of the published files is there; what lacks in it is said when it is read.

    >>> has_cifar_c(10, Path("nowhere"))
    False
    """
    return (root / FOLDERS[classes]).is_dir()


def open_cifar_c(
    classes: int, root: Path, corruption: str | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Memory maps of the files by corruption, all or one, checked; and their labels."""
    folder = root / FOLDERS[classes]
    if not folder.is_dir():
        wanted = f"no folder {folder.name}; point root at the folder that holds it"
        raise FileError(root, f"{wanted}; `maccal data get cifar{classes}-c` downloads it")
    kinds = [corruption] if corruption is not None else present(folder)
    if not kinds:
        raise FileError(folder, "no file of a corruption, such as fog.npy; the set is incomplete")
    labels = labels_of(folder / "labels.npy", classes)
    return {kind: images_of(folder / f"{kind}.npy", len(labels)) for kind in kinds}, labels


def present(folder: Path) -> list[str]:
    return [kind for kind in CORRUPTIONS if (folder / f"{kind}.npy").is_file()]


def labels_of(path: Path, classes: int) -> np.ndarray:
    labels = array(path)
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or not len(labels) or len(labels) % 5:
        expected = "expected whole numbers in one row, five severities of them"
        raise FileError(path, f"{described(labels)}; {expected}")
    if labels.min() < 0 or labels.max() >= classes:
        raise FileError(path, f"labels outside 0 .. {classes - 1}; is this another data set?")
    return labels


def images_of(path: Path, count: int) -> np.ndarray:
    images = array(path)
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3):
        expected = "expected uint8 of N x 32 x 32 x 3"
        raise FileError(path, f"{described(images)}; {expected}: download it again")
    if len(images) != count:
        problem = f"{len(images)} images, but labels.npy has {count} labels"
        raise FileError(path, f"{problem}; download both again")
    return images


def array(path: Path) -> np.ndarray:
    """The array in an .npy file, memory-mapped."""
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
    """The names of the classes, which CIFAR-C does not have.

    The ten are known. The hundred are in the CIFAR-100 folder beside it, or else they are numbers.
    """
    if classes == 10:
        return TEN
    pickled = root / PICKLES[100].folder / PICKLES[100].names
    listed = root / BINARIES[100].folder / BINARIES[100].names
    if pickled.is_file():
        file = pickled
        names = pickled_names(pickled, PICKLES[100].names_key)
    elif listed.is_file():
        file = listed
        names = listed_names(listed)
    else:
        return tuple(map(str, range(100)))
    if len(names) != classes:
        raise FileError(file, f"{len(names)} class names; expected {classes}")
    return names
