"""Features on disk: one file for each pair of weights and data, in the safetensors format, read through a memory map.

    <weights>-<data>.safetensors    z (N x D), y (N) and rows (N hashes of input and label); metadata: version, head, checksums

Written as the rows come, so N x D never has to fit in memory, into a hidden file that gets its header last and its name after
that: what was interrupted has neither. Reading checks the size and y, rows and header at once, and z (one read of the file,
about a second per gigabyte) when the entry is the one that is asked for. A damaged file is deleted, with a warning.
"""

import json
import os
import uuid
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

VERSION = "1"
START = 4096  # bytes for the length and the header; z begins on a page
CHUNK = 1 << 24  # bytes per step of a checksum or a copy
REOPEN = WeakTensorKeyDictionary()  # of a mapped tensor: a function that maps its file once more
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def raw(tensor: Tensor) -> memoryview:
    """The tensor's bytes, not copied if they are on the CPU and in order."""
    array: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def mapped(path: Path, start: int, rows: int, width: int, dtype: torch.dtype) -> Tensor:
    """A rows x width tensor over the bytes of a file from `start` on; what is written to it does not reach the file."""
    storage: Any = torch.UntypedStorage.from_file(str(path), False, start + rows * width * dtype.itemsize)
    return torch.empty(0, dtype=dtype).set_(storage, start // dtype.itemsize, (rows, width), (width, 1))


def digest(parts: Iterable[Any]) -> str:
    """A hash of the parts, each with its length, so that no two lists of parts read the same."""
    total = blake2b(digest_size=10)
    for part in parts:
        data = part if isinstance(part, memoryview) else str(part).encode()
        total.update(len(data).to_bytes(8, "little") + b":")
        total.update(data)
    return total.hexdigest()


def weights_key(model: nn.Module, settings: object) -> Callable[[str], str]:
    """A function of a head's name: the fingerprint of everything in front of that head, parameters, buffers and layers."""
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    tensors = chain(model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False))
    parts = [(name, digest([name, tuple(t.shape), t.dtype, raw(t)])) for name, t in tensors]
    parts += [(name, digest([name, type(m).__qualname__, m.extra_repr()])) for name, m in model.named_modules()]

    def key(head: str) -> str:
        front = (part for name, part in parts if name != head and not name.startswith(f"{head}."))
        return digest([VERSION, kind, settings, head, *front])

    return key


def data_key(rows: Tensor) -> str:
    """The fingerprint of a set of rows, in whatever order they come."""
    return digest([raw(rows.sort().values)])


def leaves(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """The tensors and plain values inside nested tuples, lists and mappings, each with the path to it."""
    if isinstance(value, Mapping):
        return chain.from_iterable(leaves(value[key], f"{path}/{key}") for key in sorted(value))
    if isinstance(value, tuple | list):
        return chain.from_iterable(leaves(item, f"{path}/{i}") for i, item in enumerate(value))
    return [(path, torch.from_numpy(value) if isinstance(value, np.ndarray) else value)]


def row_hashes(inputs: Any, y: Tensor) -> Tensor:
    """An int64 hash of each row of a batch: of its slice of every tensor that has len(y) rows, of all the rest, of its label."""
    common, columns = blake2b(digest_size=8), []
    for path, leaf in leaves([inputs, y]):
        if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == len(y):
            common.update(f"{path} {leaf.dtype} {tuple(leaf.shape[1:])};".encode())
            columns.append(np.asarray(raw(leaf)).reshape(len(y), -1))
        elif isinstance(leaf, Tensor):
            common.update(f"{path} {leaf.dtype} {tuple(leaf.shape)} {digest([raw(leaf)])};".encode())
        elif isinstance(leaf, str | bytes | int | float | None):
            common.update(f"{path} {leaf!r};".encode())
        else:
            raise ValueError(
                f"inputs of type {type(leaf).__name__} have no fingerprint; let the loader give tensors, or cache=None"
            )
    hashes = np.empty(len(y), np.int64)
    for i in range(len(y)):
        row = common.copy()
        for column in columns:
            row.update(column[i].data)
        hashes[i] = int.from_bytes(row.digest(), "little", signed=True)
    return torch.from_numpy(hashes)


class Entry(NamedTuple):
    """A file of features whose header, y and rows are sound; z stays on disk."""

    path: Path
    y: Tensor
    rows: Tensor
    width: int
    dtype: torch.dtype
    checksum: str

    def map(self) -> Tensor:
        """z as pages of the file that are read when they are used; writing to them never reaches the file.

        A long reader who maps the file anew from time to time, through REOPEN, gives its memory back.
        """
        z = mapped(self.path, START, len(self.y), self.width, self.dtype)
        if not self.path.name.startswith("."):  # a hidden file is about to go
            REOPEN[z] = self.map
        return z

    def sound(self) -> bool:
        """Whether z is what was written."""
        left, crc = len(self.y) * self.width * self.dtype.itemsize, 0
        with self.path.open("rb") as file:
            file.seek(START)
            while left > 0 and (data := file.read(min(CHUNK, left))):
                crc, left = zlib.crc32(data, crc), left - len(data)
        return left == 0 and str(crc) == self.checksum

    def ordered(self, rows: Tensor) -> Tensor:
        """z with its rows in the order of these hashes, which are the entry's own in another order.

        A reordered copy is a mapped file too, without a name: it is gone when the tensor is.
        """
        order = torch.empty_like(rows)
        order[rows.argsort(stable=True)] = self.rows.argsort(stable=True)
        z = self.map()
        if bool((order.diff() == 1).all()):  # a permutation that only ever steps up by one is none
            return z
        part = self.path.with_name(f".{uuid.uuid4().hex}.part")
        try:
            step = 1 + CHUNK // (self.width * self.dtype.itemsize)
            with part.open("xb") as file:
                for start in range(0, len(z), step):
                    file.write(raw(z[order[start : start + step]]))
            return mapped(part, 0, len(z), self.width, self.dtype)
        finally:
            part.unlink(missing_ok=True)


def header(entries: dict[str, Any], metadata: dict[str, str]) -> bytes:
    text = json.dumps({"__metadata__": metadata, **entries}, sort_keys=True).encode()
    return (START - 8).to_bytes(8, "little") + text.ljust(START - 8)


def read(path: Path) -> Entry:
    """The entry in this file; ValueError, KeyError or TypeError if it is damaged."""
    with path.open("rb") as file:
        top = file.read(START)
        entries = json.loads(top[8:])
        file.seek(START + entries["y"]["data_offsets"][0])
        tail = file.read()
    metadata = entries.pop("__metadata__")
    check = metadata.pop("check")
    n, width = entries["z"]["shape"]
    if header(entries, {**metadata, "check": check}) != top or len(tail) != 16 * n:
        raise ValueError("its size is wrong")
    if check != str(zlib.crc32(header(entries, metadata), zlib.crc32(tail))):
        raise ValueError("its checksum is wrong")
    y, rows = torch.frombuffer(bytearray(tail), dtype=torch.int64).reshape(2, n)
    dtype = next(dtype for dtype, name in DTYPES.items() if name == entries["z"]["dtype"])
    return Entry(path, y, rows, width, dtype, metadata["checksum"])


def discard(path: Path, why: object) -> None:
    warnings.warn(f"{path} is damaged ({why}); it is deleted and the features are extracted again", stacklevel=2)
    path.unlink(missing_ok=True)


def entries(folder: Path, weights: str) -> list[Entry]:
    """The sound entries of these weights."""
    found = []
    for path in sorted(folder.glob(f"{weights}-*.safetensors")):
        try:
            found.append(read(path))
        except FileNotFoundError:  # another process has just deleted it
            continue
        except (ValueError, KeyError, TypeError) as error:
            discard(path, error)
    return found


class Writer:
    """Appends rows to a hidden file of a folder; without a `finish` nothing of it remains."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.part = folder / f".{uuid.uuid4().hex}.part"
        self.file = self.part.open("xb")
        self.file.write(bytes(START))
        self.crc, self.width, self.dtype = 0, 0, torch.float32
        self.y, self.rows = bytearray(), bytearray()  # not lists of tensors: small blocks that stay keep the large ones around them

    def add(self, z: Tensor, y: Tensor, rows: Tensor) -> None:
        data = raw(z)
        self.file.write(data)
        self.crc, self.width, self.dtype = zlib.crc32(data, self.crc), z.shape[1], z.dtype
        self.y += raw(y)
        self.rows += raw(rows)

    def finish(self, weights: str, head: str, keep: bool = True) -> Entry:
        """The entry, under its name if it is to be kept; otherwise its file goes with the writer, and a map of it stays good."""
        y, rows = (torch.frombuffer(part, dtype=torch.int64) for part in (self.y, self.rows))
        tail = self.y + self.rows
        a, b = (end := len(y) * self.width * self.dtype.itemsize) + 8 * len(y), end + 16 * len(y)
        table = {
            "z": {"dtype": DTYPES[self.dtype], "shape": [len(y), self.width], "data_offsets": [0, end]},
            "y": {"dtype": "I64", "shape": [len(y)], "data_offsets": [end, a]},
            "rows": {"dtype": "I64", "shape": [len(y)], "data_offsets": [a, b]},
        }
        metadata = {"version": VERSION, "head": head, "checksum": str(self.crc)}
        check = str(zlib.crc32(header(table, metadata), zlib.crc32(tail)))
        self.file.write(tail)
        self.file.seek(0)
        self.file.write(header(table, {**metadata, "check": check}))
        self.file.flush()
        os.fsync(self.file.fileno())
        path = self.part.replace(self.part.with_name(f"{weights}-{data_key(rows)}.safetensors")) if keep else self.part
        return Entry(path, y, rows, self.width, self.dtype, str(self.crc))

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.file.close()
        self.part.unlink(missing_ok=True)
