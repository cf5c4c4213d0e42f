"""Arrays from .npz and .npy files: only those that are asked for, in bounded memory, and whole.

    load_npz(path, names)    the arrays of these names that the file holds
    load_npy(path)           the one array of the file

No pickles are opened. An array is read only when the size in its header is that of its bytes, and
is acceptable: see `check_size`. Every byte of an array in an .npz is covered by the checksum
(CRC-32) that the format has, and it is compared. Whatever is wrong is a FileError.
"""

import math
import os
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from maccal.io import FileError, open_regular

ALWAYS = 10**9  # bytes that any file may become in memory
TIMES = 100  # a larger file may become so many times its own size
VARIABLE = "MACCAL_LARGEST"  # of the environment: bytes that any file may become instead
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # numpy's own two


def load_npz(path: Path, names: Collection[str]) -> dict[str, np.ndarray]:
    """Those of the named arrays that the file holds; the others are not looked at."""
    with (
        reading(path, "a readable .npz file"),
        open_regular(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        found: dict[str, np.ndarray] = {}
        for info in members:
            name = info.filename.removesuffix(".npy")
            if name in found:
                raise FileError(path, f"{name} comes twice")
            if name in names:
                found[name] = member(path, archive, info, name)
        return found


def npz_names(path: Path) -> list[str]:
    """The names of all arrays of the file, for a message."""
    with (
        reading(path, "a readable .npz file"),
        open_regular(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        return [name.removesuffix(".npy") for name in archive.namelist()]


def load_npy(path: Path) -> np.ndarray:
    """The one array of the file."""
    with reading(path, "a readable .npy file"), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_header(path, "the array", file, size, size)
        file.seek(0)
        return npy.read_array(file, allow_pickle=False)


def member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> np.ndarray:
    """One array, after a look at its header."""
    if info.flag_bits & 1 or info.compress_type not in METHODS:
        problem = f"{name} is encrypted, or compressed in an unknown way"
        raise FileError(path, f"{problem}; save it with np.savez")
    with archive.open(info) as file:
        stored = min(info.compress_size, path.stat().st_size)
        check_header(path, name, file, info.file_size, stored)
    with archive.open(info) as file:
        array = npy.read_array(file, allow_pickle=False)
        if file.read(1):  # reading on to the end is also what compares the checksum
            raise FileError(path, f"{name} has more bytes than its shape needs")
    return array


def check_header(path: Path, name: str, file: IO[bytes], size: int, stored: int) -> None:
    """FileError unless the array has as many bytes as its header declares, and not too many."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise FileError(path, f"{name} has version {version} of the format; expected 1.0 or 2.0")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, kind = read(file)
    if kind.hasobject:
        raise FileError(path, f"{name} holds Python objects, which could run code; save numbers")
    needed = math.prod(shape) * kind.itemsize
    present = size - file.tell()
    if any(length < 0 for length in shape) or needed != present:
        problem = f"{name}: {present:,} bytes for an array of {needed:,}"
        raise FileError(path, f"{problem}; it is damaged")
    check_size(path, name, needed, stored)


def check_size(path: Path, name: str, needed: int, stored: int) -> None:
    """FileError for what would need far more memory than the file has bytes.

    For a kilobyte can unpack to gigabytes. A gigabyte is always granted, and more to a file that is
    not much smaller itself, as files of predictions are: 200 million rows of ten probabilities have
    8 GB and take up as much on the disk. $MACCAL_LARGEST, in bytes, grants more.
    """
    most = max(granted(), TIMES * stored)
    if needed > most:
        problem = f"{name} would need {needed:,} bytes of memory, and has {stored:,} in the file"
        remedy = f"save it uncompressed, or set {VARIABLE} to that many bytes"
        raise FileError(path, f"{problem}; if that is right, {remedy}")


def granted() -> int:
    """Bytes of memory that any file may take."""
    word = os.environ.get(VARIABLE, str(ALWAYS))
    try:
        return int(word)
    except ValueError:
        expected = f"a number of bytes, such as {ALWAYS}"
        raise ValueError(f"{VARIABLE} is {word!r}; expected {expected}") from None


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Whatever a reader of a damaged or hostile file raises is a FileError."""
    try:
        yield
    except FileError:
        raise
    except Exception as error:  # zlib, struct, tokenize, ...: they have no class in common
        if isinstance(error.__cause__, FileError):  # ours, as np.loadtxt passes it on
            raise error.__cause__ from None
        said = str(error) or type(error).__name__
        raise FileError(path, f"not {what} ({said[:300]})") from error
