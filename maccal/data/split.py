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
    train: Split | None
    val: Split | None
    test: Split
    classes: tuple[str, ...]


def stratified(labels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Row numbers of about `count` rows in random order, every class in its share, as near as whole
    rows allow.
    """
    if not 1 <= count <= len(labels):
        raise ValueError(
            f"{count} of {len(labels)} images asked for; pass a number between 1 and {len(labels)}"
        )
    order = rng.permutation(len(labels))
    ranked = order[np.argsort(labels[order], kind="stable")]  # by class, random within
    sizes = np.bincount(labels)
    # how far down its class a row stands
    place = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes if size])
    return rng.permutation(ranked[np.argsort(place, kind="stable")[:count]])


def subset(labels: np.ndarray, limit: int | None) -> np.ndarray:
    """All rows, or `limit` of them, every class in its share: the same ones every time."""
    if limit is None:
        return np.arange(len(labels))
    return np.sort(stratified(labels, min(limit, len(labels)), np.random.default_rng(1)))
