"""Files of features, checked.

features.npz    arrays z, y; optional val_z, val_y (held-out labels), unlabelled_z, test_z, test_y
                (measured before and after), weight, bias (the classifier as trained)
"""

from itertools import chain
from pathlib import Path

import numpy as np

from maccal.evaluation.arrays import load_npz, npz_names
from maccal.io import FileError

PAIRS = (("z", "y"), ("val_z", "val_y"), ("test_z", "test_y"), ("weight", "bias"))
LABELLED = PAIRS[:3]  # features and their labels
MATRICES = ("z", "val_z", "unlabelled_z", "test_z", "weight")
NAMES = (*chain.from_iterable(PAIRS), "unlabelled_z")

# more than any labels mean, unless there are as many rows or a classifier of as many classes
CLASSES = 1 << 16


def load_features(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of features, by their names.

    FileError unless they have the right types, and sizes that go together.
    """
    arrays = load_npz(path, NAMES)
    check_names(path, arrays)
    width = arrays["z"].shape[-1:]
    for name in MATRICES:
        if name in arrays:
            arrays[name] = checked_matrix(path, name, arrays[name], width)
    classes = len(arrays["weight"]) if "weight" in arrays else None
    for rows, name in LABELLED:
        if name == "test_y" and classes is None:  # the labels of the test must not go beyond these
            classes = classes_of(arrays)
        if name in arrays:
            arrays[name] = checked_labels(path, name, arrays[name], len(arrays[rows]), classes)
    if "bias" in arrays:
        arrays["bias"] = checked_bias(path, arrays["bias"], len(arrays["weight"]))
    return arrays


def check_names(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """FileError where z and y are missing, or one array of a pair."""
    for first, second in PAIRS:
        if (first in arrays) != (second in arrays):
            found = ", ".join(arrays)
            raise FileError(path, f"{first} and {second} belong together; found {found}")
    if "z" not in arrays:
        found = ", ".join(npz_names(path)[:20]) or "nothing"
        expected = "features z (rows x dimensions) and labels y"
        raise FileError(path, f"no z and y; found {found}; expected {expected}")


def classes_of(arrays: dict[str, np.ndarray]) -> int:
    """How many classes the labels for training and feedback speak of."""
    known = [arrays[name] for name in ("y", "val_y") if name in arrays]
    return 1 + max(int(labels.max()) for labels in known)


def checked_matrix(path: Path, name: str, array: np.ndarray, width: tuple[int, ...]) -> np.ndarray:
    """Floating-point rows as wide as those of z."""
    if array.dtype.kind != "f" or array.dtype.itemsize > 8 or array.ndim != 2 or not array.size:
        problem = f"{name} is {described(array)}"
        raise FileError(path, f"{problem}; expected floating-point rows x dimensions")
    if array.shape[1:] != width:
        problem = f"z has {width[0]} features and {name} {array.shape[1]}"
        raise FileError(path, f"{problem}; they must be of one network")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def checked_bias(path: Path, array: np.ndarray, classes: int) -> np.ndarray:
    """One float for each class."""
    if array.dtype.kind != "f" or array.dtype.itemsize > 8 or array.shape != (classes,):
        expected = f"{classes} floats, one for each row of weight"
        raise FileError(path, f"bias is {described(array)}; expected {expected}")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def checked_labels(
    path: Path, name: str, array: np.ndarray, rows: int, classes: int | None
) -> np.ndarray:
    """Class indices as int64, one for each row, of as many classes as are known or can be meant."""
    if array.dtype.kind not in "iu" or array.shape != (rows,):
        expected = f"{rows} whole numbers, one for each row"
        raise FileError(path, f"{name} is {described(array)}; expected {expected}")
    low, high = int(array.min()), int(array.max())
    if low >= 0 and classes is not None and high >= classes:
        problem = f"label {high} in {name} is outside 0 .. {classes - 1}"
        raise FileError(path, f"{problem}; do the labels count from 1?")
    if low < 0 or (classes is None and high >= max(CLASSES, rows)):
        problem = f"{name} has labels from {low} to {high}"
        expected = "class indices 0, 1, ... (for more classes pass weight and bias)"
        raise FileError(path, f"{problem}; expected {expected}")
    return array.astype(np.int64)


def described(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"
