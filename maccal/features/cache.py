"""Features on disk: one file for each model and set of rows, in the safetensors format.

    <weights>-<rows>-<content>.safetensors    z (N x D), y (N), rows (N hashes of input and label)

A file never changes. It is written under a hidden name as the rows come, so that N x D never has to
fit in memory. It gets its own name last, when it is on the disk. That name ends in a hash of all
that the file holds, the order of the rows included: so processes that write at the same time cannot
replace each other's files.

A reader takes header, labels, hashes and features through one descriptor, verifies them all, and
works on a copy of its own: in memory or, for a large set, in a file without a name. So nobody can
change, replace or cut the features while they are in use. A damaged file is deleted, with a
warning. What is not a file (a fifo, a folder, a link) is left alone.

Cost: one read of the file, about a second per gigabyte, and for a large set its size on the disk
once more, twice while its rows are put in order.
"""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import IO, NamedTuple

import torch
from torch import Tensor

from maccal.features.fingerprints import data_key, raw
from maccal.features.mapped import full, hidden, open_part, own_copy, write_all
from maccal.io import DAMAGED, FileError, checksum, flush, open_regular, parse_json

FORMAT = "maccal features 2"
START = 4096  # bytes for the length and the header; z begins on a page
CHUNK = 1 << 24  # bytes per step of a checksum or a copy
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


# The format


class Entry(NamedTuple):
    """What a file holds beside its features; it was sound when it was read."""

    y: Tensor
    hashes: Tensor  # of the rows; they are called "rows" in the file
    width: int
    dtype: torch.dtype
    name: str
    checksum: str  # of z

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.y), self.width


def header(count: int, width: int, dtype: torch.dtype, notes: dict[str, str]) -> bytes:
    """The first START bytes; these values alone decide them, so that a reader can compare."""
    z_end = count * width * dtype.itemsize
    y_end = z_end + 8 * count
    rows_end = y_end + 8 * count
    values = {
        "__metadata__": {"maccal": json.dumps(notes, sort_keys=True)},
        "z": {"dtype": DTYPES[dtype], "shape": [count, width], "data_offsets": [0, z_end]},
        "y": {"dtype": "I64", "shape": [count], "data_offsets": [z_end, y_end]},
        "rows": {"dtype": "I64", "shape": [count], "data_offsets": [y_end, rows_end]},
    }
    text = json.dumps(values, sort_keys=True).encode()
    if len(text) > START - 8:
        raise ValueError(f"the head's name has {len(notes['head'])} letters; that is too long")
    return (START - 8).to_bytes(8, "little") + text.ljust(START - 8)


def entry_name(weights: str, hashes: Tensor, check: str) -> str:
    return f"{weights}-{data_key(hashes)}-{check}.safetensors"


def read_header(top: bytes, path: Path) -> tuple[int, int, torch.dtype, dict[str, str]]:
    """Rows, columns, dtype and notes; FileError unless they explain every byte of the header."""
    values = parse_json(top[8:], path, "header: ")
    try:
        count, width = values["z"]["shape"]
        dtype = next(dtype for dtype, name in DTYPES.items() if name == values["z"]["dtype"])
        notes = parse_json(values["__metadata__"]["maccal"], path, "metadata: ")
        sound = notes["format"] == FORMAT and min(count, width) > 0
        sound = sound and header(count, width, dtype, notes) == top
    except (KeyError, TypeError, ValueError, StopIteration):
        sound = False
    if not sound:
        raise FileError(path, f"its header is wrong: {DAMAGED}")
    return count, width, dtype, notes


def read(file: IO[bytes], path: Path) -> Entry:
    """The entry in an open file; FileError if it is damaged, except for z, which is not read."""
    count, width, dtype, notes = read_header(file.read(START), path)
    end = START + count * width * dtype.itemsize
    if os.fstat(file.fileno()).st_size != end + 16 * count:
        raise FileError(path, f"its size is wrong: {DAMAGED}")
    file.seek(end)
    tail = file.read(16 * count)
    check = notes.pop("check", "")
    if check != checksum(header(count, width, dtype, notes), tail):
        raise FileError(path, f"its checksum is wrong: {DAMAGED}")
    y, hashes = torch.frombuffer(bytearray(tail), dtype=torch.int64).reshape(2, count)
    name = entry_name(notes["weights"], hashes, check)
    return Entry(y, hashes, width, dtype, name, notes["z"])


def read_features(file: IO[bytes], entry: Entry, path: Path) -> Tensor:
    """A copy of z, in the order of the file; FileError unless it is what was written."""
    total = blake2b(digest_size=16)

    def pieces() -> Iterator[memoryview]:
        left = entry.shape[0] * entry.width * entry.dtype.itemsize
        file.seek(START)
        while left > 0:
            data = file.read(min(CHUNK, left))
            if not data:
                raise FileError(path, f"its size is wrong: {DAMAGED}")
            total.update(data)
            left -= len(data)
            yield memoryview(data)

    z = own_copy(pieces(), entry.shape, entry.dtype, path.parent)
    if total.hexdigest() != entry.checksum:
        raise FileError(path, f"the checksum of its features is wrong: {DAMAGED}")
    return z


# Reading a folder


def open_entry(path: Path) -> IO[bytes] | None:
    """The open file; None, with a warning, where there is something else under its name."""
    try:
        if path.is_symlink():
            raise FileError(path, "is a link")
        return open_regular(path)
    except FileError as error:
        if os.path.lexists(path):  # else another process has just deleted it
            warnings.warn(f"{error}; it is left alone, and not read", stacklevel=4)
        return None


def checked(file: IO[bytes], path: Path) -> Entry | None:
    """The entry in an open file; None, with a warning, where it is damaged."""
    try:
        entry = read(file, path)
        if entry.name != path.name:
            raise FileError(path, f"its name is wrong: {DAMAGED}")
    except FileError as error:
        discard(path, error)
        return None
    return entry


def discard(path: Path, why: FileError) -> None:
    warnings.warn(f"{why}; it is deleted, and the features are extracted again", stacklevel=4)
    with suppress(OSError):  # gone already, or a folder that is not ours to change
        path.unlink()


def entries(folder: Path, start: str) -> list[Entry]:
    """The entries whose names start so: of the same weights, or of the same weights and rows."""
    found = []
    for path in sorted(folder.glob(f"{start}-*.safetensors")):
        file = open_entry(path)
        if file is None:
            continue
        with file:
            entry = checked(file, path)
        if entry is not None:
            found.append(entry)
    return found


def heads(folder: Path) -> set[str]:
    """The names of the heads that the files in this folder are of; damaged ones are passed over."""
    found = set()
    for path in folder.glob("*.safetensors"):
        if path.is_symlink():
            continue
        with suppress(FileError), open_regular(path) as file:
            found.add(read_header(file.read(START), path)[3]["head"])
    return found


def load(path: Path, hashes: Tensor) -> tuple[Tensor, Tensor] | None:
    """Features and labels of an entry, its rows in the order of these hashes.

    None where the entry holds other rows or, with a warning, is damaged. Rows with the same hash
    are the same input with the same label, so it does not matter which of them comes first.
    """
    file = open_entry(path)
    if file is None:
        return None
    with file:
        entry = checked(file, path)
        if entry is None or not torch.equal(entry.hashes.sort().values, hashes.sort().values):
            return None
        try:
            z = read_features(file, entry, path)
        except FileError as error:
            discard(path, error)
            return None
    order = torch.empty_like(hashes)
    order[hashes.argsort(stable=True)] = entry.hashes.argsort(stable=True)
    return reordered(z, order, path.parent), entry.y[order]


def reordered(z: Tensor, order: Tensor, folder: Path) -> Tensor:
    """The rows in this order, as a copy of our own, or z itself if that is its order already."""
    if bool((order.diff() == 1).all()):
        return z
    step = 1 + CHUNK // (z.shape[1] * z.dtype.itemsize)
    pieces = (raw(z[part]) for part in torch.split(order, step))
    return own_copy(pieces, (len(z), z.shape[1]), z.dtype, folder)


# Writing


class Writer:
    """Appends rows to a hidden file; `finish` completes it, `publish` gives it its name."""

    def __init__(self, part: Path) -> None:
        self.part = part
        self.handle = open_part(part)
        os.lseek(self.handle, START, os.SEEK_SET)
        self.total = blake2b(digest_size=16)
        self.width = 0
        self.dtype = torch.float32
        # Not lists of tensors: small blocks that stay alive would keep the allocator from giving
        # back the large ones between them.
        self.y = bytearray()
        self.hashes = bytearray()

    def add(self, z: Tensor, y: Tensor, hashes: Tensor) -> None:
        data = raw(z)
        write_all(self.handle, data, self.part.parent)
        self.total.update(data)
        self.width = z.shape[1]
        self.dtype = z.dtype
        self.y += raw(y)
        self.hashes += raw(hashes)

    def finish(self, weights: str, head: str) -> Entry:
        """Write labels, hashes and header: now the file is complete and on the disk, but hidden."""
        tail = bytes(self.y + self.hashes)
        count = len(self.y) // 8
        notes = {"format": FORMAT, "head": head, "weights": weights, "z": self.total.hexdigest()}
        check = checksum(header(count, self.width, self.dtype, notes), tail)
        write_all(self.handle, tail, self.part.parent)
        os.lseek(self.handle, 0, os.SEEK_SET)
        top = header(count, self.width, self.dtype, {**notes, "check": check})
        write_all(self.handle, top, self.part.parent)
        try:
            os.fsync(self.handle)
        except OSError as error:  # some file systems say only now that they are full
            raise full(self.part.parent, error) from None
        with self.reader() as file:
            return read(file, self.part)

    def reader(self) -> IO[bytes]:
        """The same open file, from its beginning."""
        os.lseek(self.handle, 0, os.SEEK_SET)
        return os.fdopen(os.dup(self.handle), "rb")

    def features(self, entry: Entry) -> Tensor:
        """The features, read back and verified."""
        with self.reader() as file:
            return read_features(file, entry, self.part)

    def publish(self, entry: Entry) -> None:
        """Give the file its name, unless that is taken: the same name is the same content."""
        target = self.part.with_name(entry.name)
        try:
            os.link(self.part, target)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            if not os.path.lexists(target):
                self.part.replace(target)
        flush(self.part.parent)


@contextmanager
def writing(folder: Path) -> Iterator[Writer]:
    """A writer into this folder; without `publish` nothing of it remains."""
    with hidden(folder, "features") as part:
        writer = Writer(part)
        try:
            yield writer
        finally:
            os.close(writer.handle)
