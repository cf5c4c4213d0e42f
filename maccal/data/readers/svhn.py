"""Street View House Numbers, cropped digits: train_32x32.mat and test_32x32.mat.

The publisher calls the digit 0 class 10.
"""

from pathlib import Path

import numpy as np
import torch

from maccal.data.download import verify
from maccal.data.readers.matlab import read_mat
from maccal.data.split import DataSet, Split, stratified
from maccal.io import FileError

# How many numbers each array may have; the largest published file has 531,131 digits of 3,072
LIMITS = {"X": 2 * 10**9, "y": 10**6}


def read_svhn(root: Path) -> DataSet:
    """The digits in root/svhn, or in root; one in ten training images is held out as .val."""
    folder = root / "svhn" if (root / "svhn").is_dir() else root
    test = from_mat(folder / "test_32x32.mat")
    classes = tuple(str(digit) for digit in range(10))
    if not (folder / "train_32x32.mat").is_file():
        return DataSet(None, None, test, classes)
    whole = from_mat(folder / "train_32x32.mat")
    held = stratified(whole.labels.numpy(), len(whole) // 10, np.random.default_rng(1))
    kept = np.setdiff1d(np.arange(len(whole)), held)
    return DataSet(whole.rows(kept), whole.rows(held), test, classes)


def from_mat(path: Path) -> Split:
    if not path.exists():
        where = "point root at the folder that holds it, or a folder svhn"
        raise FileError(path, f"no such file; {where}; `maccal data get svhn` downloads it")
    verify(path, "svhn")
    content = read_mat(path, LIMITS)
    if set(content) != set(LIMITS):
        raise FileError(path, "not an SVHN .mat file: it holds no X and y; download it again")
    images = content["X"]
    labels = content["y"].reshape(-1)
    if images.dtype != np.uint8 or images.shape != (32, 32, 3, len(labels)):
        found = f"images of shape {images.shape} and {len(labels)} labels"
        raise FileError(path, f"{found}; expected 32 x 32 x 3 x N bytes")
    digits = labels.astype(np.int64)
    if (digits != labels).any() or digits.min() < 1 or digits.max() > 10:
        raise FileError(path, "labels outside 1 .. 10; is this another data set?")
    pixels = np.ascontiguousarray(images.transpose(3, 2, 0, 1))
    return Split(torch.from_numpy(pixels), torch.from_numpy(digits % 10))
