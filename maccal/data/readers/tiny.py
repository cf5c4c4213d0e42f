"""Tiny-ImageNet: 64 x 64 JPEGs in a folder a class, and a published validation set with a list of
its labels.

Whichever classes of wnids.txt have a training folder are read, in the order of that file.
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
HELD = 50  # training images of each class that are held out for validation


def read_tiny(root: Path) -> DataSet:
    folder = root / "tiny-imagenet-200"
    listed = lines(folder / "wnids.txt")
    ids = [name for name in (line[0] for line in listed) if (folder / "train" / name).is_dir()]
    if len(ids) < 2:
        raise FileError(
            folder / "train",
            f"{len(ids)} of the {len(listed)} classes have a folder; expected at least two",
        )
    if len(set(ids)) < len(ids):
        raise FileError(folder / "wnids.txt", "a class comes twice; download it again")
    words = {
        line[0]: line[1].split(",")[0] for line in lines(folder / "words.txt") if len(line) > 1
    }
    train, val, rng = [], [], np.random.default_rng(1)
    for label, name in enumerate(ids):
        files = sorted(
            (folder / "train" / name).rglob("*.JPEG"), key=lambda file: (len(file.name), file.name)
        )
        order = rng.permutation(len(files))
        val += [(files[i], label) for i in sorted(order[:HELD])]
        train += [(files[i], label) for i in sorted(order[HELD:])]
    index = {name: label for label, name in enumerate(ids)}
    listed = lines(folder / "val" / "val_annotations.txt")
    test = [
        (folder / "val" / "images" / line[0], index[line[1]])
        for line in listed
        if len(line) > 1 and line[1] in index
    ]
    names = tuple(words.get(name, name) for name in ids)
    return DataSet(pictures(train, folder), pictures(val, folder), pictures(test, folder), names)


def lines(path: Path) -> list[list[str]]:
    """The columns of each line of a list. The first one is a name that becomes part of a path.

    It stays in its folder.
    """
    if not path.exists():
        raise FileError(
            path,
            "no such file; point root at the folder that holds tiny-imagenet-200; `maccal data get tiny-imagenet` downloads it",
        )
    try:
        text = read_bytes(path, LARGEST).decode()
    except UnicodeDecodeError as error:
        raise FileError(path, f"not a list of names ({error}); download it again") from None
    rows = [line.split("\t") for line in text.splitlines() if line.strip()]
    for row in rows:
        if not NAME.fullmatch(row[0]):
            raise FileError(
                path, f"{row[0][:100]!r} is not the name of a class or a picture; download it again"
            )
    return rows


def pictures(files: list[tuple[Path, int]], folder: Path) -> Split:
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
