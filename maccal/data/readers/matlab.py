"""Arrays of numbers from MATLAB files (MAT 5, little-endian, compressed or not), in bounded memory.

    read_mat(path, {"X": 10**9, "y": 10**7})    those arrays, each of at most so many bytes

SVHN comes in such files. Only the named arrays are unpacked, and none before its declared size is
known to be acceptable and to agree with its shape. Anything else is a FileError.
"""

import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from maccal.io import FileError, read_bytes

LARGEST = 1 << 31  # bytes of a file
MATRIX, COMPRESSED = 14, 15
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
FRONT = 1024  # bytes within which an array's shape and name end


class Refused(ValueError):
    """What is wrong with the file."""


def read_mat(path: Path, limits: Mapping[str, int]) -> dict[str, np.ndarray]:
    """The named arrays that the file holds; FileError where one is larger than its limit."""
    data = memoryview(read_bytes(path, LARGEST))
    found: dict[str, np.ndarray] = {}
    try:
        for packed, body in elements(data):
            name, array = matrix(packed, body, limits)
            if name in found:
                raise Refused(f"{name} comes twice")
            if array is not None:
                found[name] = array
    except (Refused, struct.error, zlib.error, UnicodeError, ValueError, MemoryError) as error:
        raise FileError(path, f"not a readable .mat file ({error}); download it again") from None
    return found


def elements(data: memoryview) -> Iterator[tuple[bool, memoryview]]:
    """Of each variable whether it is compressed, and its bytes, which then begin with MATRIX and a
    size.
    """
    if len(data) < 128 or bytes(data[124:128]) != b"\x00\x01IM":
        raise Refused("no header of a little-endian MAT 5 file")
    place = 128
    while place < len(data):
        kind, size = struct.unpack_from("<II", data, place)
        if kind not in (MATRIX, COMPRESSED) or size > len(data) - place - 8:
            raise Refused(f"an unknown or unfinished part at byte {place}")
        end = place + 8 + size
        if kind == COMPRESSED:
            yield True, data[place + 8 : end]
        else:
            yield False, data[place:end]
        place = end


def matrix(
    packed: bool, body: memoryview, limits: Mapping[str, int]
) -> tuple[str, np.ndarray | None]:
    """An array and its name; without the array if it is not wanted."""
    front = zlib.decompressobj().decompress(body, FRONT) if packed else bytes(body[:FRONT])
    if front[:4] != MATRIX.to_bytes(4, "little"):
        raise Refused("a variable that is no array")
    _, flags, place = part(front, 8)
    _, sizes, place = part(front, place)
    _, letters, place = part(front, place)
    name = letters.decode("ascii")
    if name not in limits:
        return name, None
    shape = struct.unpack(f"<{len(sizes) // 4}i", sizes)
    if len(flags) != 8 or flags[0] not in CLASSES or flags[1] & 0x08 or not 2 <= len(shape) <= 8:
        raise Refused(f"{name} is no array of real numbers")
    if any(size < 1 for size in shape) or math.prod(shape) > limits[name]:
        raise Refused(
            f"{name} has {' x '.join(map(str, shape))} numbers; expected 1 to {limits[name]:,}"
        )
    return name, numbers(packed, body, front, place, shape, np.dtype(CLASSES[flags[0]]))


def part(data: bytes, place: int) -> tuple[int, bytes, int]:
    """Type and bytes of the element at that place, and where the next one is.

    Short ones are packed tight.
    """
    kind, size = struct.unpack_from("<II", data, place)
    if kind >> 16:  # at most four bytes, within the eight
        size, kind, start, end = kind >> 16, kind & 0xFFFF, place + 4, place + 8
    else:
        start = place + 8
        end = start + -(-size // 8) * 8
    if size > len(data) - start or end - start < size:
        raise Refused("an array whose front is cut off")
    return kind, data[start : start + size], end


def unpacked(body: memoryview, size: int) -> bytes:
    """The first bytes of a compressed variable.

    Zlib.error where its checksum, right behind them, is wrong.
    """
    stream = zlib.decompressobj()
    data = stream.decompress(body, size)
    stream.decompress(stream.unconsumed_tail, 64)
    return data


def numbers(
    packed: bool, body: memoryview, front: bytes, place: int, shape: tuple[int, ...], kind: np.dtype
) -> np.ndarray:
    """The values, stored as any type of number, as many as the shape says."""
    stored, size = struct.unpack_from("<II", front, place)
    start = place + 8
    if stored >> 16:
        stored, size, start = stored & 0xFFFF, stored >> 16, place + 4
    if stored not in TYPES or size != math.prod(shape) * np.dtype(TYPES[stored]).itemsize:
        raise Refused(f"{size:,} bytes for an array of another size")
    data = unpacked(body, start + size) if packed else bytes(body[: start + size])
    if len(data) != start + size:
        raise Refused("an array that ends early")
    values = np.frombuffer(data, TYPES[stored], offset=start)
    return values.astype(kind, copy=False).reshape(shape, order="F")
