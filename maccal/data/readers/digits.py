"""Scikit-learn's 1,797 handwritten digits, 8 x 8 pixels of 17 grey levels, scaled to bytes.

No file, no download.
"""

import numpy as np
import torch

from maccal.data.split import DataSet, Split, stratified


def read_digits() -> DataSet:
    """1,097 training, 200 validation and 500 test images, the same share of every class."""
    from sklearn.datasets import load_digits  # here, as importing it takes a second

    x, y = load_digits(return_X_y=True)
    pixels = np.round(x * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    whole = Split(torch.from_numpy(pixels), torch.from_numpy(y.astype(np.int64)))
    rng = np.random.default_rng(1)
    test = stratified(y, 500, rng)
    rest = np.setdiff1d(np.arange(len(y)), test)
    val = rest[stratified(y[rest], 200, rng)]
    train = np.setdiff1d(rest, val)
    classes = tuple(str(digit) for digit in range(10))
    return DataSet(whole.rows(train), whole.rows(val), whole.rows(test), classes)
