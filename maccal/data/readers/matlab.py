"""Arrays of numbers from MATLAB files (MAT 5, little-endian, compressed or not), in bounded memory.

    read_mat(path, {"X": 10**9, "y": 10**7})    those arrays, each of at most so many numbers

SVHN comes in such files. Only the named arrays are unpacked, and none before its declared size is
known to be acceptable and to agree with its shape. Anything else is a FileError.

A file is a header of 128 bytes and then elements: type, number of bytes, and the bytes. An array is
an element that holds four others: flags, shape, name and values.
"""

import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from maccal.io import FileError, read_bytes

LARGEST = 1 << 31  # bytes of a file
FRONT = 1024  # bytes within which an array's shape and name end
MATRIX = 14  # the types of the elements that a file is made of
COMPRESSED = 15
COMPLEX = 0x08  # the flag of complex numbers
# numpy's name for each type of stored values, and for each class of arrays
TYPES = {
    1: "i1",
    2: "u1",
    3: "<i2",
    4: "<u2",
    5: "<i4",
    6: "<u4",
    7: "<f4",
    9: "<f8",
    12: "<i8",
    13: "<u8",
}
CLASSES = {
    6: "f8",
    7: "f4",
    8: "i1",
    9: "u1",
    10: "i2",
    11: "u2",
    12: "i4",
    13: "u4",
    14: "i8",
    15: "u8",
}


class Refused(ValueError):
    """What is wrong with the file."""


class Variable(NamedTuple):
    """The bytes of one array in the file: type and size, then its elements."""

    packed: bool
    body: memoryview

    def first(self, size: int) -> bytes:
        """Its first bytes, unpacked."""
        if not self.packed:
            return bytes(self.body[:size])
        return zlib.decompressobj().decompress(self.body, size)

    def whole(self, size: int) -> bytes:
        """The same; zlib.error if its checksum, right behind these bytes, is wrong."""
        if not self.packed:
            return bytes(self.body[:size])
        stream = zlib.decompressobj()
        data = stream.decompress(self.body, size)
        stream.decompress(stream.unconsumed_tail, 64)
        return data


class Element(NamedTuple):
    """Where the bytes of an element are, and where the next element starts."""

    kind: int
    size: int
    start: int
    end: int


def read_mat(path: Path, limits: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The named arrays that the file holds; FileError if one has more numbers than its limit."""
    data = memoryview(read_bytes(path, LARGEST))
    found: dict[str, np.ndarray] = {}
    try:
        for variable in variables(data):
            name, array = read_array(variable, limits)
            if name in found:
                raise Refused(f"{name} comes twice")
            if array is not None:
                found[name] = array
    except (Refused, struct.error, zlib.error, UnicodeError, ValueError, MemoryError) as error:
        raise FileError(path, f"not a readable .mat file ({error}); download it again") from None
    return found


def variables(data: memoryview) -> Iterator[Variable]:
    if len(data) < 128 or bytes(data[124:128]) != b"\x00\x01IM":
        raise Refused("no header of a little-endian MAT 5 file")
    start = 128
    while start < len(data):
        kind, size = struct.unpack_from("<II", data, start)
        if kind not in (MATRIX, COMPRESSED) or size > len(data) - start - 8:
            raise Refused(f"an unknown or unfinished part at byte {start}")
        end = start + 8 + size
        if kind == COMPRESSED:
            yield Variable(True, data[start + 8 : end])
        else:
            yield Variable(False, data[start:end])
        start = end


def read_array(variable: Variable, limits: Mapping[str, int]) -> tuple[str, np.ndarray | None]:
    """The name of an array, and the array if it is wanted."""
    front = variable.first(FRONT)
    if front[:4] != MATRIX.to_bytes(4, "little"):
        raise Refused("a variable that is no array")
    flags, start = contents(front, 8)
    sizes, start = contents(front, start)
    letters, start = contents(front, start)
    name = letters.decode("ascii")
    if name not in limits:
        return name, None
    shape = struct.unpack(f"<{len(sizes) // 4}i", sizes)
    real = len(flags) == 8 and flags[0] in CLASSES and not flags[1] & COMPLEX
    if not real or not 2 <= len(shape) <= 8:
        raise Refused(f"{name} is no array of real numbers")
    if any(size < 1 for size in shape) or math.prod(shape) > limits[name]:
        found = " x ".join(map(str, shape))
        raise Refused(f"{name} has {found} numbers; expected 1 to {limits[name]:,}")
    values = numbers(variable, element(front, start), shape)
    return name, values.astype(CLASSES[flags[0]], copy=False).reshape(shape, order="F")


def contents(data: bytes, start: int) -> tuple[bytes, int]:
    """The bytes of the element that starts there, and where the next one starts."""
    found = element(data, start)
    if found.size > len(data) - found.start or found.end - found.start < found.size:
        raise Refused("an array whose front is cut off")
    return data[found.start : found.start + found.size], found.end


def element(data: bytes, start: int) -> Element:
    """The element that starts there.

    One of at most four bytes is packed tight: size and type share the first four of eight bytes.
    """
    kind, size = struct.unpack_from("<II", data, start)
    if kind >> 16:
        return Element(kind & 0xFFFF, kind >> 16, start + 4, start + 8)
    padded = -(-size // 8) * 8
    return Element(kind, size, start + 8, start + 8 + padded)


def numbers(variable: Variable, values: Element, shape: tuple[int, ...]) -> np.ndarray:
    """The values in one row, stored as any type of number, as many as the shape says."""
    count = math.prod(shape)
    if values.kind not in TYPES or values.size != count * np.dtype(TYPES[values.kind]).itemsize:
        raise Refused(f"{values.size:,} bytes for an array of another size")
    end = values.start + values.size
    data = variable.whole(end)
    if len(data) != end:
        raise Refused("an array that ends early")
    return np.frombuffer(data, TYPES[values.kind], offset=values.start)
