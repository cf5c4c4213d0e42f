"""Corrupted images that are made once and kept on disk for every network that is shown them.

    stored(Corrupt("fog", 3), images, folder)     read if they are there, else made and written

A file holds one corruption at one severity of one set of images, whole, with its checksum; the
folder of a set of images is named by their checksum, so that no others can be mistaken for them.
A damaged file is made again. Of several processes that want the same file one makes it, and the
others wait for it.
Cost: 3 KB of disk per image of 32 x 32 and corruption, 460 MB for all 75 of 2,000 images.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from maccal.data.corruptions.registry import Corrupt, check
from maccal.io import FileError, checksum, locked, read_sealed, write_sealed

KIND = "corrupted images 1"  # the number rises when a corruption gives other images than before


def stored(corrupt: Corrupt, images: Tensor, folder: Path) -> Tensor:
    """What corrupt(images) is, from the folder of these images where it is there."""
    file = folder / f"{corrupt.kind}-{corrupt.severity}-s{corrupt.seed}.images"
    found = read(file, images)
    if found is not None:
        return found
    with locked(folder):
        found = read(file, images)  # another process may have made it meanwhile
        if found is None:
            found = corrupt(images)
            write_sealed(file, KIND, found.numpy(force=True).tobytes())
    return found


def folder_of(images: Tensor, cache: Path) -> Path:
    """Where the corruptions of these images are kept: named by every one of their bytes."""
    check(images)
    pixels = np.ascontiguousarray(images.numpy(force=True))
    return cache / checksum(str(pixels.shape).encode(), pixels.tobytes())[:16]


def read(file: Path, images: Tensor) -> Tensor | None:
    """The images of a file, on the device of those given; None where it is missing or damaged."""
    try:
        data = read_sealed(file, KIND)
    except FileError:
        return None
    if len(data) != images.numel():
        return None
    pixels = np.frombuffer(data, np.uint8).reshape(tuple(images.shape)).copy()
    return torch.from_numpy(pixels).to(images.device)
