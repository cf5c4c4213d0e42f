"""A Split is images and labels; a DataSet is three of them and the names of the classes."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Images, uint8 N x C x H x W, and their labels, int64."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, which: np.ndarray) -> "Split":
        """The rows with these numbers, in this order."""
        chosen = torch.from_numpy(np.asarray(which, np.int64))
        return Split(self.images[chosen], self.labels[chosen])


@dataclass(frozen=True)
class DataSet:
    """What is trained on, what is held out, what is measured on; None if it is not there."""

    train: Split | None
    val: Split | None
    test: Split
    classes: tuple[str, ...]


def stratified(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The numbers of `count` rows in random order, with every class in its share.

    The shares are as equal as whole rows allow.
    """
    if not 1 <= count <= len(labels):
        asked = f"{count} of {len(labels)} images asked for"
        raise ValueError(f"{asked}; pass a number between 1 and {len(labels)}")
    order = rng.permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]  # random within a class
    # How far down its class each row stands, from 0 to 1; those that stand highest are taken
    depths = [(np.arange(size) + 0.5) / size for size in np.bincount(labels) if size]
    highest = np.argsort(np.concatenate(depths), kind="stable")[:count]
    return rng.permutation(by_class[highest])


def subset(labels: np.ndarray, limit: int | None) -> np.ndarray:
    """All rows, or `limit` of them with every class in its share: the same ones every time."""
    if limit is None:
        return np.arange(len(labels))
    return np.sort(stratified(labels, min(limit, len(labels)), np.random.default_rng(1)))
