"""CIFAR-10 and CIFAR-100 in the publisher's python pickles or binary files.

Pickles are not unpickled: pickles.py reads the few instructions they need, and refuses all others.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maccal.data.download import verify
from maccal.data.readers.pickles import LARGEST, read_pickle
from maccal.data.split import DataSet, Split
from maccal.io import FileError, read_bytes

SIZE = 3 * 32 * 32  # bytes of an image
LONGEST = 100  # bytes of the name of a class


@dataclass(frozen=True)
class Pickles:
    """The files of a set as pickles, and the keys of what is in them."""

    folder: str
    train: tuple[str, ...]
    test: str
    labels: bytes  # key of the labels
    names: str  # the file of class names
    names_key: bytes


@dataclass(frozen=True)
class Binaries:
    """The files of a set as plain bytes: each row is its labels, then its pixels."""

    folder: str
    train: tuple[str, ...]
    test: str
    names: str  # the file of class names
    label_bytes: int  # in front of each image; the last one counts


PICKLES = {
    10: Pickles(
        folder="cifar-10-batches-py",
        train=tuple(f"data_batch_{i}" for i in range(1, 6)),
        test="test_batch",
        labels=b"labels",
        names="batches.meta",
        names_key=b"label_names",
    ),
    100: Pickles(
        folder="cifar-100-python",
        train=("train",),
        test="test",
        labels=b"fine_labels",
        names="meta",
        names_key=b"fine_label_names",
    ),
}
BINARIES = {
    10: Binaries(
        folder="cifar-10-batches-bin",
        train=tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        test="test_batch.bin",
        names="batches.meta.txt",
        label_bytes=1,
    ),
    100: Binaries(
        folder="cifar-100-binary",
        train=("train.bin",),
        test="test.bin",
        names="fine_label_names.txt",
        label_bytes=2,  # the coarse label, then the fine one
    ),
}


def read_cifar(classes: int, root: Path) -> DataSet:
    """CIFAR-10 or CIFAR-100, from its folder of pickles or else of binary files below root."""
    pickled = root / PICKLES[classes].folder
    binary = root / BINARIES[classes].folder
    if pickled.is_dir():
        folder = pickled
        parts = pickle_parts(folder, classes)
        names = pickled_names(folder / PICKLES[classes].names, PICKLES[classes].names_key)
    elif binary.is_dir():
        folder = binary
        parts = binary_parts(folder, classes)
        meta = folder / BINARIES[classes].names
        names = listed_names(meta) if meta.is_file() else ()
    else:
        wanted = (
            f"no folder {pickled.name} or {binary.name}; point root at the folder that holds it"
        )
        raise FileError(root, f"{wanted}, or `maccal data get cifar{classes}`")
    if len(names) != classes:
        raise FileError(folder, f"{len(names)} class names; expected {classes}")
    *train, test = parts
    images = torch.cat([part.images for part in train])
    labels = torch.cat([part.labels for part in train])
    whole = Split(images, labels)
    held, kept = published_split(len(whole))
    return DataSet(whole.rows(kept), whole.rows(held), test, names)


def published_split(count: int, held: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """Rows for validation and for training, as the paper's code base draws them.

    That is numpy's legacy shuffle with seed 1.
    """
    order = np.arange(count)
    np.random.RandomState(1).shuffle(order)
    return order[:held], order[held:]


# Pickles


def pickle_parts(folder: Path, classes: int) -> list[Split]:
    """The training files, then the test file."""
    files = PICKLES[classes]
    return [
        from_pickle(folder / name, files.labels, classes) for name in (*files.train, files.test)
    ]


def from_pickle(path: Path, key: bytes, classes: int) -> Split:
    """The images and labels of one file; `key` is that of the labels."""
    content = unpickled(path)
    data = content.get(b"data")
    labels = content.get(key)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (SIZE,):
        raise FileError(path, f"no uint8 array 'data' of rows of {SIZE}; download it again")
    if type(labels) is not list or len(labels) != len(data):
        problem = f"{len(data)} images but not as many {key.decode()}"
        raise FileError(path, f"{problem}; download it again")
    if any(type(label) is not int or not 0 <= label < classes for label in labels):
        raise FileError(path, outside(classes))
    return split_of(data, np.array(labels))


def unpickled(path: Path) -> dict[Any, Any]:
    """What the file holds, if it is the publisher's or of another size than that."""
    if not path.exists():
        raise FileError(path, "no such file; the set is incomplete")
    verify(path, path.parent.name)
    return read_pickle(path)


def pickled_names(path: Path, key: bytes) -> tuple[str, ...]:
    """The class names in a pickle."""
    names = unpickled(path).get(key, [])
    if type(names) is not list or not all(is_name(name) for name in names):
        raise FileError(path, f"no list of names {key.decode()}; download it again")
    return tuple(decoded(path, name) for name in names)


def is_name(name: object) -> bool:
    return type(name) is bytes and len(name) <= LONGEST


# Binary files


def binary_parts(folder: Path, classes: int) -> list[Split]:
    """The training files, then the test file."""
    files = BINARIES[classes]
    return [from_binary(folder / name, classes) for name in (*files.train, files.test)]


def from_binary(path: Path, classes: int) -> Split:
    """The images and labels of one file."""
    if not path.exists():
        raise FileError(path, "no such file; the set is incomplete")
    ahead = BINARIES[classes].label_bytes
    data = np.frombuffer(read_bytes(path, LARGEST), np.uint8)
    if not len(data) or len(data) % (ahead + SIZE):
        problem = f"{len(data)} bytes, not a whole number of rows of {ahead + SIZE}"
        raise FileError(path, f"{problem}; download it again")
    rows = data.reshape(-1, ahead + SIZE)
    labels = rows[:, ahead - 1]
    if labels.max() >= classes:
        raise FileError(path, outside(classes))
    return split_of(rows[:, ahead:], labels)


def listed_names(path: Path) -> tuple[str, ...]:
    """The class names in a text file."""
    return tuple(decoded(path, read_bytes(path, LONGEST * 100)).split())


# Both


def decoded(path: Path, names: bytes) -> str:
    try:
        return names.decode()
    except UnicodeDecodeError as error:
        raise FileError(path, f"names that are no text ({error}); download it again") from None


def outside(classes: int) -> str:
    return f"labels outside 0 .. {classes - 1}; is this another data set?"


def split_of(data: np.ndarray, labels: np.ndarray) -> Split:
    """Copies of both: a tensor may be written to, and the bytes of a file may not."""
    images = torch.from_numpy(np.array(data, order="C")).view(-1, 3, 32, 32)
    return Split(images, torch.from_numpy(labels.astype(np.int64)))
