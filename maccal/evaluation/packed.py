"""The bytes of a text file, unpacked where its name ends in .gz, in bounded memory.

A kilobyte of gzip can unpack to a gigabyte. As with other files (`arrays.check_size`), a gigabyte
of text is always granted, and a hundred times the file's own size; $MACCAL_LARGEST, in bytes,
grants more. Damage is noticed by the checksum that gzip has, at the end.
"""

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from maccal.evaluation.arrays import TIMES, VARIABLE, granted
from maccal.io import FileError, open_regular


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file, open for reading; unpacked as it is read if its name ends in .gz."""
    with open_regular(path) as file:
        if path.suffix.lower() != ".gz":
            yield file
            return
        most = max(granted(), TIMES * os.fstat(file.fileno()).st_size)
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield io.BufferedReader(Bounded(path, unpacked, most), 1 << 16)


class Bounded(io.RawIOBase):
    """A reader that refuses to read more than so many bytes."""

    def __init__(self, path: Path, source: gzip.GzipFile, most: int) -> None:
        self.path = path
        self.source = source
        self.most = most
        self.seen = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self.source.readinto(buffer)
        self.seen += count
        if self.seen > self.most:
            problem = f"it unpacks to more than {self.most:,} bytes"
            remedy = f"unpack it, or set {VARIABLE} to as many bytes as are right"
            raise FileError(self.path, f"{problem}; if that is meant, {remedy}")
        return count
