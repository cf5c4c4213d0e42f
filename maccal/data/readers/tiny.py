"""Tiny-ImageNet: 64 x 64 JPEGs, one folder per class.

The published validation set is one folder with a list of its labels. All classes of wnids.txt that
have a training folder are read, in the order of that file.
"""

import re
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from maccal.data.split import DataSet, Split
from maccal.io import FileError, open_regular, read_bytes

LARGEST = 1 << 26  # bytes of a list; words.txt has 2.7 million
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
HELD = 10  # one training image in so many of each class is held out: 50 of the published 500

Labelled = list[tuple[Path, int]]


def read_tiny(root: Path) -> DataSet:
    """The classes that are there; of each, a tenth of the training images are .val."""
    folder = root / "tiny-imagenet-200"
    ids = class_ids(folder)
    train, val = training_files(folder, ids)
    test = published_files(folder, ids)
    names = class_names(folder, ids)
    return DataSet(pictures(train, folder), pictures(val, folder), pictures(test, folder), names)


def class_ids(folder: Path) -> list[str]:
    """The classes of wnids.txt that have a training folder."""
    listed = [columns[0] for columns in lines(folder / "wnids.txt")]
    ids = [name for name in listed if (folder / "train" / name).is_dir()]
    if len(ids) < 2:
        found = f"{len(ids)} of the {len(listed)} classes have a folder"
        raise FileError(folder / "train", f"{found}; expected at least two")
    if len(set(ids)) < len(ids):
        raise FileError(folder / "wnids.txt", "a class comes twice; download it again")
    return ids


def class_names(folder: Path, ids: list[str]) -> tuple[str, ...]:
    """The first word for each class in words.txt, or its id."""
    words = {}
    for columns in lines(folder / "words.txt"):
        if len(columns) > 1:
            words[columns[0]] = columns[1].split(",")[0]
    return tuple(words.get(name, name) for name in ids)


def training_files(folder: Path, ids: list[str]) -> tuple[Labelled, Labelled]:
    """The files for training, and those held out, with their labels."""
    train: Labelled = []
    val: Labelled = []
    rng = np.random.default_rng(1)
    for label, name in enumerate(ids):
        found = (folder / "train" / name).rglob("*.JPEG")
        files = sorted(found, key=lambda file: (len(file.name), file.name))
        order = rng.permutation(len(files))
        held = -(-len(files) // HELD)
        val += [(files[i], label) for i in sorted(order[:held])]
        train += [(files[i], label) for i in sorted(order[held:])]
    return train, val


def published_files(folder: Path, ids: list[str]) -> Labelled:
    """The files of the published validation set whose classes are there."""
    label_of = {name: label for label, name in enumerate(ids)}
    files: Labelled = []
    for columns in lines(folder / "val" / "val_annotations.txt"):
        if len(columns) > 1 and columns[1] in label_of:
            files.append((folder / "val" / "images" / columns[0], label_of[columns[1]]))
    return files


def lines(path: Path) -> list[list[str]]:
    """The columns of each line of a list.

    The first column becomes part of a path: it must be a plain name, which stays in its folder.
    """
    if not path.exists():
        where = "point root at the folder that holds tiny-imagenet-200"
        get = "`maccal data get tiny-imagenet` downloads it"
        raise FileError(path, f"no such file; {where}; {get}")
    try:
        text = read_bytes(path, LARGEST).decode()
    except UnicodeDecodeError as error:
        raise FileError(path, f"not a list of names ({error}); download it again") from None
    table = [line.split("\t") for line in text.splitlines() if line.strip()]
    for columns in table:
        if not NAME.fullmatch(columns[0]):
            problem = f"{columns[0][:100]!r} is not the name of a class or a picture"
            raise FileError(path, f"{problem}; download it again")
    return table


def pictures(files: Labelled, folder: Path) -> Split:
    """The files as images and labels."""
    if not files:
        raise FileError(folder, "a part of the set has no images; is it incomplete?")
    images = np.empty((len(files), 64, 64, 3), np.uint8)
    for row, (file, _) in enumerate(files):
        images[row] = picture(file)
    labels = torch.tensor([label for _, label in files])
    return Split(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), labels)


def picture(file: Path) -> np.ndarray:
    """The pixels of a JPEG, 64 x 64 x 3; one that says it is larger is not unpacked."""
    try:
        with open_regular(file) as opened, Image.open(opened, formats=("JPEG",)) as found:
            if found.size != (64, 64):
                raise FileError(file, f"{found.size[0]} x {found.size[1]} pixels; expected 64 x 64")
            return np.asarray(found.convert("RGB"))
    except FileError:
        raise
    except Exception as error:  # a damaged picture may raise anything
        raise FileError(file, f"not a readable JPEG ({error}); download it again") from error
