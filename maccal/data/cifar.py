"""CIFAR-10 and CIFAR-100 in the publisher's python pickles or binary files.

Pickles are opened by an unpickler that admits arrays and plain values and nothing else: a file that asks for more is refused.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maccal.data.split import DataSet, Split
from maccal.io import FileError

SIZE = 3 * 32 * 32
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
FILES = {
    10: ("cifar-10-batches-py", [f"data_batch_{i}" for i in range(1, 6)], "test_batch", b"labels"),
    100: ("cifar-100-python", ["train"], "test", b"fine_labels"),
}
BINARY = {
    10: ("cifar-10-batches-bin", [f"data_batch_{i}.bin" for i in range(1, 6)], "test_batch.bin", "batches.meta.txt"),
    100: ("cifar-100-binary", ["train.bin"], "test.bin", "fine_label_names.txt"),
}
NAMES = {10: ("batches.meta", b"label_names"), 100: ("meta", b"fine_label_names")}


def read_cifar(classes: int, root: Path) -> DataSet:
    folder, binary = root / FILES[classes][0], root / BINARY[classes][0]
    if folder.is_dir():
        _, train, test, key = FILES[classes]
        parts = [from_pickle(folder / name, key, classes) for name in (*train, test)]
        file, field = NAMES[classes]
        names = tuple(name.decode() for name in unpickled(folder / file).get(field, []))
    elif binary.is_dir():
        _, train, test, meta = BINARY[classes]
        parts = [from_binary(binary / name, classes) for name in (*train, test)]
        names = tuple((binary / meta).read_text().split()) if (binary / meta).is_file() else ()
    else:
        wanted = f"no folder {folder.name} or {binary.name}; point root at the folder that holds it"
        raise FileError(root, f"{wanted}, or `maccal data get cifar{classes}`")
    if len(names) != classes:
        raise FileError(folder if folder.is_dir() else binary, f"{len(names)} class names; expected {classes}")
    whole = Split(torch.cat([p.images for p in parts[:-1]]), torch.cat([p.labels for p in parts[:-1]]))
    held, kept = published_split(len(whole))
    return DataSet(whole.rows(kept), whole.rows(held), parts[-1], names)


def published_split(count: int, held: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """Rows for validation and for training, as the paper's code base draws them: numpy's legacy shuffle, seed 1."""
    order = np.arange(count)
    np.random.RandomState(1).shuffle(order)
    return order[:held], order[held:]


class Arrays(pickle.Unpickler):
    """Arrays and plain values only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no file of images needs")
        return super().find_class(module, name)


def unpickled(path: Path) -> dict[bytes, Any]:
    if not path.is_file():
        raise FileError(path, "no such file; the set is incomplete")
    try:
        content = Arrays(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise FileError(path, f"not a CIFAR pickle ({error}); download it again") from error
    if not isinstance(content, dict):
        raise FileError(path, f"a pickle of {type(content).__name__}; expected a dict")
    return content


def from_pickle(path: Path, key: bytes, classes: int) -> Split:
    content = unpickled(path)
    data, labels = content.get(b"data"), content.get(key)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != SIZE:
        raise FileError(path, f"no uint8 array 'data' of rows of {SIZE}; download it again")
    if not isinstance(labels, list) or len(labels) != len(data):
        raise FileError(path, f"{len(data)} images but no as many {key.decode()}; download it again")
    return checked(path, data, np.array(labels), classes)


def from_binary(path: Path, classes: int) -> Split:
    """Rows of one label byte (for CIFAR-100 two, the fine one second) and 3,072 bytes of pixels."""
    if not path.is_file():
        raise FileError(path, "no such file; the set is incomplete")
    ahead = 1 if classes == 10 else 2
    data = np.fromfile(path, np.uint8)
    if not len(data) or len(data) % (ahead + SIZE):
        raise FileError(path, f"{len(data)} bytes, not a whole number of rows of {ahead + SIZE}; download it again")
    rows = data.reshape(-1, ahead + SIZE)
    return checked(path, rows[:, ahead:], rows[:, ahead - 1], classes)


def checked(path: Path, data: np.ndarray, labels: np.ndarray, classes: int) -> Split:
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes:
        raise FileError(path, f"labels outside 0 .. {classes - 1}; is this another data set?")
    images = torch.from_numpy(np.ascontiguousarray(data)).view(-1, 3, 32, 32)
    return Split(images, torch.from_numpy(labels.astype(np.int64)))
