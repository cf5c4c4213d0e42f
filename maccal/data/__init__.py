"""Data sets in their publishers' formats, as whole tensors.

    load(name, root)    a DataSet: .train .val .test, each a Split of images (uint8 N x C x H x W)
                        and labels (int64), and .classes

cifar10, cifar100   python pickles or binary files; 5,000 of the training images are .val, split as
                    in the paper (legacy numpy shuffle, seed 1), and never augmented
tiny-imagenet       folders of JPEGs, any subset of the classes; 50 training images of each class
                    are .val, the published validation set is .test
svhn                .mat files; .train and .val are None if train_32x32.mat is not there
cifar10-c           .npy files of 15 corruptions at 5 severities, test images only;
cifar100-c          readers.shifts goes through them one by one, and corruptions.Corrupt makes
                    the same kinds of any images
digits              scikit-learn's 8 x 8 digits, embedded: no file needed
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from maccal.data.download import data_root
from maccal.data.pixels import PIXELS, Pixels
from maccal.data.readers import read_cifar, read_cifar_c, read_digits, read_svhn, read_tiny
from maccal.data.split import DataSet, Split, stratified
from maccal.plugins import check_name

__all__ = ["DATASETS", "DataSet", "Pixels", "Split", "load", "register"]

DATASETS: dict[str, Callable[[Path], DataSet]] = {
    "cifar10": partial(read_cifar, 10),
    "cifar100": partial(read_cifar, 100),
    "tiny-imagenet": read_tiny,
    "svhn": read_svhn,
    "cifar10-c": partial(read_cifar_c, 10),
    "cifar100-c": partial(read_cifar_c, 100),
    "digits": lambda _: read_digits(),
}


def register(name: str, reader: Callable[[Path], DataSet], pixels: Pixels) -> None:
    """Add a data set of one's own: how it is read from the root folder, and its normalisation."""
    check_name(name, DATASETS, "data set")
    DATASETS[name] = reader
    PIXELS[name] = pixels


def load(
    name: str, root: Path | str | None = None, *, limit: int | None = None, seed: int = 1
) -> DataSet:
    """A data set from the files below a root folder.

    The root is the argument, else $MACCAL_DATA, else maccal's folder in the user's cache. `limit`
    keeps that many training images, the same share of every class, drawn with the seed.
    """
    if name not in DATASETS:
        raise ValueError(f"no data set {name!r}; the data sets are {', '.join(DATASETS)}")
    data = DATASETS[name](data_root(root))
    if limit is None:
        return data
    if data.train is None:
        raise ValueError(f"{name} has no training images here, so none can be limited")
    chosen = stratified(data.train.labels.numpy(), limit, np.random.default_rng(seed))
    return replace(data, train=data.train.rows(chosen))
