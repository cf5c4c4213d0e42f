"""Tiny-ImageNet: 64 x 64 JPEGs in a folder a class, and a published validation set with a list of its labels.

Whichever classes of wnids.txt have a training folder are read, in the order of that file.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from maccal.data.split import DataSet, Split
from maccal.io import FileError

HELD = 50  # training images of each class that are held out for validation


def read_tiny(root: Path) -> DataSet:
    folder = root / "tiny-imagenet-200"
    listed = lines(folder / "wnids.txt")
    ids = [name for name in (line[0] for line in listed) if (folder / "train" / name).is_dir()]
    if len(ids) < 2:
        raise FileError(folder / "train", f"{len(ids)} of the {len(listed)} classes have a folder; expected at least two")
    words = {line[0]: line[1].split(",")[0] for line in lines(folder / "words.txt") if len(line) > 1}
    train, val, rng = [], [], np.random.default_rng(1)
    for label, name in enumerate(ids):
        files = sorted((folder / "train" / name).rglob("*.JPEG"), key=lambda file: (len(file.name), file.name))
        order = rng.permutation(len(files))
        val += [(files[i], label) for i in sorted(order[:HELD])]
        train += [(files[i], label) for i in sorted(order[HELD:])]
    index = {name: label for label, name in enumerate(ids)}
    listed = lines(folder / "val" / "val_annotations.txt")
    test = [(folder / "val" / "images" / line[0], index[line[1]]) for line in listed if len(line) > 1 and line[1] in index]
    names = tuple(words.get(name, name) for name in ids)
    return DataSet(pictures(train, folder), pictures(val, folder), pictures(test, folder), names)


def lines(path: Path) -> list[list[str]]:
    if not path.is_file():
        raise FileError(
            path,
            "no such file; point root at the folder that holds tiny-imagenet-200; `maccal data get tiny-imagenet` downloads it",
        )
    return [line.split("\t") for line in path.read_text().splitlines() if line.strip()]


def pictures(files: list[tuple[Path, int]], folder: Path) -> Split:
    if not files:
        raise FileError(folder, "a part of the set has no images; is it incomplete?")
    images = np.empty((len(files), 64, 64, 3), np.uint8)
    for row, (file, _) in enumerate(files):
        try:
            with Image.open(file) as picture:
                pixels = np.asarray(picture.convert("RGB"))
        except (OSError, UnidentifiedImageError) as error:
            raise FileError(file, f"not a readable JPEG ({error}); download it again") from error
        if pixels.shape != (64, 64, 3):
            raise FileError(file, f"{pixels.shape[1]} x {pixels.shape[0]} pixels; expected 64 x 64")
        images[row] = pixels
    labels = torch.tensor([label for _, label in files])
    return Split(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), labels)
