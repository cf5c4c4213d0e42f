"""Street View House Numbers, cropped digits: train_32x32.mat and test_32x32.mat. The publisher calls the digit 0 class 10."""

from pathlib import Path

import numpy as np
import torch

from maccal.data.split import DataSet, Split, stratified
from maccal.io import FileError


def read_svhn(root: Path) -> DataSet:
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
    from scipy.io import loadmat

    if not path.is_file():
        raise FileError(
            path, "no such file; point root at the folder that holds it, or a folder svhn; `maccal data get svhn` downloads it"
        )
    try:
        content = loadmat(path)
        images, labels = content["X"], content["y"].reshape(-1)
    except Exception as error:  # scipy raises many kinds for a damaged file
        raise FileError(path, f"not an SVHN .mat file ({error}); download it again") from error
    if images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3) or images.shape[-1] != len(labels):
        raise FileError(path, f"images of shape {images.shape} and {len(labels)} labels; expected 32 x 32 x 3 x N bytes")
    if labels.min() < 1 or labels.max() > 10:
        raise FileError(path, "labels outside 1 .. 10; is this another data set?")
    return Split(
        torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1))), torch.from_numpy(labels.astype(np.int64) % 10)
    )
