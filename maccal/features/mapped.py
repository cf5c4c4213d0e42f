"""Rows of features in an open file: read by position, or mapped where nobody else can reach it.

    FeatureFile      rows of an open file, a span at a time: little memory, an error if the file is cut
    own_copy     bytes as a tensor that no other process can change: in memory, or a nameless file
    hidden       a new part in a folder, for whoever writes

A map of a file that another process cuts would end this one (SIGBUS). So files with a name are
read, and only those without one are mapped.
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

# The file behind a mapped tensor, for who reads it span by span, in little memory (table.py). A
# table, not an attribute of the tensor: copies and pickles of that must not carry the descriptor.
BEHIND = WeakTensorKeyDictionary()


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
        self.handle, self.start, self.name = handle, start, name
        self.shape, self.dtype = shape, dtype

    def __del__(self) -> None:
        os.close(self.handle)

    def read(self, spans: Iterable[tuple[int, int]]) -> Tensor:
        """The rows of these spans, one after the other; FileError where the file was cut."""
        spans, width = list(spans), self.shape[1]
        z = torch.empty(sum(stop - first for first, stop in spans), width, dtype=self.dtype)
        out, done = raw(z), 0
        for first, stop in spans:
            size = (stop - first) * width * self.dtype.itemsize
            place = self.start + first * width * self.dtype.itemsize
            self.fill(out[done : done + size], place)
            done += size
        return z

    def fill(self, out: memoryview, place: int) -> None:
        """By position: two processes may share the descriptor."""
        while len(out):
            count = os.preadv(self.handle, [out], place)
            if count == 0:
                raise FileError(self.name, "has become shorter while its rows were read")
            out, place = out[count:], place + count

    def map(self) -> Tensor:
        """All rows, as pages that are read when they are used; what is written there is not saved.

        Only for a file without a name, which nobody else can cut.
        """
        size = self.shape[0] * self.shape[1] * self.dtype.itemsize
        pages = mmap.mmap(self.handle, size, access=mmap.ACCESS_COPY)
        return torch.frombuffer(pages, dtype=self.dtype).reshape(self.shape)


def own_copy(
    pieces: Iterable[memoryview],
    shape: tuple[int, int],
    dtype: torch.dtype,
    folder: Path,
) -> Tensor:
    """A tensor of these bytes that no other process can reach."""
    if shape[0] * shape[1] * dtype.itemsize <= IN_MEMORY:
        z, done = torch.empty(shape, dtype=dtype), 0
        out = raw(z)
        for piece in pieces:
            out[done : done + len(piece)] = piece
            done += len(piece)
        return z
    with hidden(folder, "copy") as part:  # gone from the folder after this block
        file = FeatureFile(open_part(part), 0, shape, dtype, str(part))
        for piece in pieces:
            write_all(file.handle, piece, folder)
    z = file.map()
    BEHIND[z] = file
    return z


def open_part(part: Path) -> int:
    """Open the part for reading and writing; a link in its place is not followed."""
    return os.open(part, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))


def write_all(handle: int, data: memoryview | bytes, folder: Path) -> None:
    """Without a buffer, which a full disk would leave to be written when the file is closed."""
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
    """A new part in the folder, which is made; FileError where that cannot be."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part = stack.enter_context(new_part(folder, name))
        except OSError as error:
            raise full(folder, error) from None
        yield part
