"""Files of features, checked.

features.npz    arrays z, y; optional val_z, val_y (held-out labels), unlabelled_z, test_z, test_y
                (measured before and after), weight, bias (the classifier as trained)
"""

from pathlib import Path

import numpy as np

from maccal.evaluation.arrays import load_npz, npz_names
from maccal.io import FileError

PAIRS = (("z", "y"), ("val_z", "val_y"), ("test_z", "test_y"), ("weight", "bias"))


# more than any labels mean, unless there are as many rows or a classifier of as many classes
CLASSES = 1 << 16


def load_features(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of features.

    Of the right types and of sizes that go together, or FileError.
    """
    arrays = load_npz(path, [*(name for pair in PAIRS for name in pair), "unlabelled_z"])
    for first, second in PAIRS:
        if (first in arrays) != (second in arrays):
            raise FileError(
                path, f"{first} and {second} belong together; found {', '.join(arrays)}"
            )
    if "z" not in arrays:
        found = ", ".join(npz_names(path)[:20]) or "nothing"
        raise FileError(
            path, f"no z and y; found {found}; expected features z (rows x dimensions) and labels y"
        )
    for name in ("z", "val_z", "unlabelled_z", "test_z", "weight"):
        if name in arrays:
            arrays[name] = checked_matrix(path, name, arrays[name], width=arrays["z"].shape[-1:])
    classes = len(arrays["weight"]) if "weight" in arrays else None
    for rows, name in PAIRS[:3]:
        if name in arrays:
            arrays[name] = checked_labels(path, name, arrays[name], len(arrays[rows]), classes)
        if classes is None and name == "val_y":  # what the labels of the test must not go beyond
            classes = 1 + max(
                int(arrays[known].max()) for known in ("y", "val_y") if known in arrays
            )
    if "bias" in arrays:
        arrays["bias"] = checked_bias(path, arrays["bias"], len(arrays["weight"]))
    return arrays


def checked_matrix(path: Path, name: str, array: np.ndarray, width: tuple[int, ...]) -> np.ndarray:
    """Floating-point rows as wide as those of z."""
    if array.dtype.kind != "f" or array.dtype.itemsize > 8 or array.ndim != 2 or not array.size:
        raise FileError(
            path, f"{name} is {described(array)}; expected floating-point rows x dimensions"
        )
    if array.shape[1:] != width:
        raise FileError(
            path,
            f"z has {width[0]} features and {name} {array.shape[1]}; they must be of one network",
        )
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def checked_bias(path: Path, array: np.ndarray, classes: int) -> np.ndarray:
    if array.dtype.kind != "f" or array.dtype.itemsize > 8 or array.shape != (classes,):
        raise FileError(
            path,
            f"bias is {described(array)}; expected {classes} floats, one for each row of weight",
        )
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def checked_labels(
    path: Path, name: str, array: np.ndarray, rows: int, classes: int | None
) -> np.ndarray:
    """Class indices as int64, one for each row, of as many classes as are known or can be meant."""
    if array.dtype.kind not in "iu" or array.shape != (rows,):
        raise FileError(
            path, f"{name} is {described(array)}; expected {rows} whole numbers, one for each row"
        )
    low, high = int(array.min()), int(array.max())
    if low >= 0 and classes is not None and high >= classes:
        raise FileError(
            path,
            f"label {high} in {name} is outside 0 .. {classes - 1}; do the labels count from 1?",
        )
    if low < 0 or (classes is None and high >= max(CLASSES, rows)):
        problem = f"{name} has labels from {low} to {high}"
        raise FileError(
            path,
            f"{problem}; expected class indices 0, 1, ... (for more classes pass weight and bias)",
        )
    return array.astype(np.int64)


def described(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"
