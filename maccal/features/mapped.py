"""Features in an open file: read by position, or mapped where no other process can reach them.

    FeatureFile      rows of an open file, a span at a time: little memory, an error if it is cut
    own_copy         bytes as a tensor that no other process can change
    MAPPED           which file the numbers of a mapped tensor are in
    hidden           a new hidden file in a folder, to be written

A map of a file that another process cuts short ends this process (SIGBUS). So a file that has a
name is only ever read; mapped is only a file without a name, which nobody else can open.
"""

import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from maccal.features.fingerprints import raw
from maccal.io import FileError, new_part

IN_MEMORY = 1 << 28  # bytes of features that are held in memory; more are mapped


class FeatureFile:
    """Rows of features in an open file, which stays open as long as this object lives."""

    def __init__(
        self,
        handle: int,
        start: int,
        shape: tuple[int, int],
        dtype: torch.dtype,
        name: str,
    ) -> None:
        """`start` is the position of the first row, in bytes; `name` is for error messages."""
        self.handle = handle
        self.start = start
        self.shape = shape
        self.dtype = dtype
        self.name = name

    def __del__(self) -> None:
        os.close(self.handle)

    def read(self, spans: Iterable[tuple[int, int]]) -> Tensor:
        """The rows of these spans, one after the other; FileError where the file was cut."""
        spans = list(spans)
        width = self.shape[1]
        row_bytes = width * self.dtype.itemsize
        z = torch.empty(sum(stop - first for first, stop in spans), width, dtype=self.dtype)
        out = raw(z)
        done = 0
        for first, stop in spans:
            size = (stop - first) * row_bytes
            self.fill(out[done : done + size], self.start + first * row_bytes)
            done += size
        return z

    def fill(self, out: memoryview, position: int) -> None:
        """Read by position, not from where the last read ended: processes may share the file."""
        while len(out):
            count = os.preadv(self.handle, [out], position)
            if count == 0:
                raise FileError(self.name, "has become shorter while its rows were read")
            out = out[count:]
            position += count

    def map(self) -> Tensor:
        """All rows, as pages that are read when they are used; what is written there is not saved.

        Only for a file without a name, which nobody else can cut.
        """
        size = self.shape[0] * self.shape[1] * self.dtype.itemsize
        pages = mmap.mmap(self.handle, size, access=mmap.ACCESS_COPY)
        return torch.frombuffer(pages, dtype=self.dtype).reshape(self.shape)


class MappedTensors:
    """Remembers which file a tensor is mapped from, as long as the tensor lives.

    A caller gets a plain tensor from `extract` and hands it to `calibrate_head`. Whoever reads a
    large one in bounded memory wants its file, not its pages, which would stay in memory. The file
    is no attribute of the tensor, because copies and pickles of the tensor would carry it along.
    """

    def __init__(self) -> None:
        self._files = WeakTensorKeyDictionary()

    def add(self, file: FeatureFile) -> Tensor:
        """Map a file without a name, and remember it."""
        z = file.map()
        self._files[z] = file
        return z

    def file_of(self, z: Tensor) -> FeatureFile | None:
        """The file with the same numbers; None if there is none, or if z was written to since."""
        if z not in self._files or z._version > 0:
            return None
        return self._files[z]


MAPPED = MappedTensors()  # own_copy adds to it, table.py asks it, nobody else uses it


def own_copy(
    pieces: Iterable[memoryview],
    shape: tuple[int, int],
    dtype: torch.dtype,
    folder: Path,
) -> Tensor:
    """A tensor of these bytes that no other process can reach.

    In memory, or, if there are more than IN_MEMORY of them, mapped from a file without a name.
    """
    if shape[0] * shape[1] * dtype.itemsize <= IN_MEMORY:
        return held_copy(pieces, shape, dtype)
    with hidden(folder, "copy") as part:  # its name is gone after this block
        file = FeatureFile(open_part(part), 0, shape, dtype, str(part))
        for piece in pieces:
            write_all(file.handle, piece, folder)
    return MAPPED.add(file)


def held_copy(pieces: Iterable[memoryview], shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    z = torch.empty(shape, dtype=dtype)
    out = raw(z)
    done = 0
    for piece in pieces:
        out[done : done + len(piece)] = piece
        done += len(piece)
    return z


def open_part(part: Path) -> int:
    """Open the part for reading and writing; a link in its place is not followed."""
    return os.open(part, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))


def write_all(handle: int, data: memoryview | bytes, folder: Path) -> None:
    """Write without a buffer: a full disk is then noticed here and not when the file is closed."""
    rest = memoryview(data)
    try:
        while len(rest):
            rest = rest[os.write(handle, rest) :]
    except OSError as error:
        raise full(folder, error) from None


def full(folder: Path, error: OSError) -> FileError:
    why = f"features cannot be written there ({error.strerror})"
    return FileError(folder, f"{why}; make room, or take another folder")


@contextmanager
def hidden(folder: Path, name: str) -> Iterator[Path]:
    """A new hidden file in the folder, which is made if need be; FileError where that fails.

    It is deleted at the end, unless it was given another name.
    """
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part = stack.enter_context(new_part(folder, name))
        except OSError as error:
            raise full(folder, error) from None
        yield part
