"""CIFAR-10 and CIFAR-100 in the publisher's python pickles or binary files.

Pickles are not unpickled: pickles.py reads the few instructions they need, and refuses all others.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from maccal.data.download.verified import verify
from maccal.data.readers.pickles import LARGEST, read_pickle
from maccal.data.split import DataSet, Split
from maccal.io import FileError, read_bytes

SIZE = 3 * 32 * 32
LONGEST = 100  # bytes of the name of a class
FILES = {
    10: ("cifar-10-batches-py", [f"data_batch_{i}" for i in range(1, 6)], "test_batch", b"labels"),
    100: ("cifar-100-python", ["train"], "test", b"fine_labels"),
}
BINARY = {
    10: (
        "cifar-10-batches-bin",
        [f"data_batch_{i}.bin" for i in range(1, 6)],
        "test_batch.bin",
        "batches.meta.txt",
    ),
    100: ("cifar-100-binary", ["train.bin"], "test.bin", "fine_label_names.txt"),
}
NAMES = {10: ("batches.meta", b"label_names"), 100: ("meta", b"fine_label_names")}


def read_cifar(classes: int, root: Path) -> DataSet:
    folder, binary = root / FILES[classes][0], root / BINARY[classes][0]
    if folder.is_dir():
        _, train, test, key = FILES[classes]
        parts = [from_pickle(folder / name, key, classes) for name in (*train, test)]
        file, field = NAMES[classes]
        names = names_in(folder / file, field)
    elif binary.is_dir():
        _, train, test, meta = BINARY[classes]
        parts = [from_binary(binary / name, classes) for name in (*train, test)]
        names = listed_in(binary / meta) if (binary / meta).is_file() else ()
    else:
        wanted = f"no folder {folder.name} or {binary.name}; point root at the folder that holds it"
        raise FileError(root, f"{wanted}, or `maccal data get cifar{classes}`")
    if len(names) != classes:
        raise FileError(
            folder if folder.is_dir() else binary, f"{len(names)} class names; expected {classes}"
        )
    whole = Split(
        torch.cat([p.images for p in parts[:-1]]), torch.cat([p.labels for p in parts[:-1]])
    )
    held, kept = published_split(len(whole))
    return DataSet(whole.rows(kept), whole.rows(held), parts[-1], names)


def published_split(count: int, held: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """Rows for validation and for training, as the paper's code base draws them.

    Numpy's legacy shuffle, seed 1.
    """
    order = np.arange(count)
    np.random.RandomState(1).shuffle(order)
    return order[:held], order[held:]


def unpickled(path: Path) -> dict[Any, Any]:
    """What the file holds, if it is the publisher's or of another size than that."""
    if not path.exists():
        raise FileError(path, "no such file; the set is incomplete")
    verify(path, path.parent.name)
    return read_pickle(path)


def names_in(path: Path, field: bytes) -> tuple[str, ...]:
    """The class names in a pickle."""
    names = unpickled(path).get(field, [])
    if type(names) is not list or any(
        type(name) is not bytes or len(name) > LONGEST for name in names
    ):
        raise FileError(path, f"no list of names {field.decode()}; download it again")
    return tuple(decoded(path, name) for name in names)


def listed_in(path: Path) -> tuple[str, ...]:
    """The class names in a text file."""
    return tuple(decoded(path, read_bytes(path, LONGEST * 100)).split())


def decoded(path: Path, names: bytes) -> str:
    try:
        return names.decode()
    except UnicodeDecodeError as error:
        raise FileError(path, f"names that are no text ({error}); download it again") from None


def from_pickle(path: Path, key: bytes, classes: int) -> Split:
    content = unpickled(path)
    data, labels = content.get(b"data"), content.get(key)
    if (
        not isinstance(data, np.ndarray)
        or data.dtype != np.uint8
        or data.ndim != 2
        or data.shape[1] != SIZE
    ):
        raise FileError(path, f"no uint8 array 'data' of rows of {SIZE}; download it again")
    if type(labels) is not list or len(labels) != len(data):
        raise FileError(
            path, f"{len(data)} images but not as many {key.decode()}; download it again"
        )
    if any(type(label) is not int or not 0 <= label < classes for label in labels):
        raise FileError(path, outside(classes))
    return split_of(data, np.array(labels))


def from_binary(path: Path, classes: int) -> Split:
    """Rows of one label byte (for CIFAR-100 two, the fine one second) and 3,072 bytes of pixels."""
    if not path.exists():
        raise FileError(path, "no such file; the set is incomplete")
    ahead = 1 if classes == 10 else 2
    data = np.frombuffer(read_bytes(path, LARGEST), np.uint8)
    if not len(data) or len(data) % (ahead + SIZE):
        raise FileError(
            path,
            f"{len(data)} bytes, not a whole number of rows of {ahead + SIZE}; download it again",
        )
    rows = data.reshape(-1, ahead + SIZE)
    labels = rows[:, ahead - 1]
    if labels.max() >= classes:
        raise FileError(path, outside(classes))
    return split_of(rows[:, ahead:], labels)


def outside(classes: int) -> str:
    return f"labels outside 0 .. {classes - 1}; is this another data set?"


def split_of(data: np.ndarray, labels: np.ndarray) -> Split:
    """Copies of both: a tensor may be written to, and the bytes of a file may not."""
    images = torch.from_numpy(np.array(data, order="C")).view(-1, 3, 32, 32)
    return Split(images, torch.from_numpy(labels.astype(np.int64)))
