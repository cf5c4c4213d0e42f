"""Fingerprints of what is in front of a model's head, and of the rows that go in.

    weights_key    of parameters, buffers, layers and their printed settings; what the forward pass
                   makes of them is found out by a probe (lookup.py)
    row_hashes     64 bits for every row, of its inputs and its label
    data_key       of a set of such rows, in whatever order they come

Cost: one hash of the bytes, about a second per gigabyte.
"""

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

VERSION = "2"  # of the keys: what was stored under another version is not found


def raw(tensor: Tensor) -> memoryview:
    """The tensor's bytes, not copied if they are on the CPU and in order."""
    array: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def digest(parts: Iterable[Any]) -> str:
    """A hash of the parts, each with its length, so that no two lists of parts read the same."""
    total = blake2b(digest_size=10)
    for part in parts:
        data = part if isinstance(part, memoryview) else str(part).encode()
        total.update(len(data).to_bytes(8, "little") + b":")
        total.update(data)
    return total.hexdigest()


def weights_key(model: nn.Module, settings: object) -> Callable[[str, tuple[str, ...]], str]:
    """A function of a head's name and its layers': the fingerprint of all that is in front of it.

    That is all parameters, buffers and layers but the head's own.
    """
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    tensors = chain(
        model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)
    )
    parts = []
    for name, tensor in tensors:
        parts.append((name, digest([name, tuple(tensor.shape), tensor.dtype, raw(tensor)])))
    for name, module in model.named_modules():
        parts.append((name, digest([name, type(module).__qualname__, module.extra_repr()])))

    def key(head: str, layers: tuple[str, ...]) -> str:
        inside = tuple(f"{layer}." for layer in layers)
        front = []
        for name, part in parts:
            if name not in layers and not name.startswith(inside):
                front.append(part)
        return digest([VERSION, kind, settings, head, *front])

    return key


def data_key(hashes: Tensor) -> str:
    """The fingerprint of a set of rows, in whatever order their hashes come."""
    return digest([raw(hashes.sort().values)])


def leaves(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """The tensors and plain values inside nested tuples, lists and mappings, with their paths."""
    if isinstance(value, Mapping):
        return chain.from_iterable(leaves(value[key], f"{path}/{key}") for key in sorted(value))
    if isinstance(value, tuple | list):
        return chain.from_iterable(leaves(item, f"{path}/{i}") for i, item in enumerate(value))
    return [(path, torch.from_numpy(value) if isinstance(value, np.ndarray) else value)]


def row_hashes(inputs: Any, y: Tensor) -> Tensor:
    """An int64 hash of each row of a batch.

    It covers the row's part of every tensor that has len(y) rows, its label, and all other values,
    which belong to every row of the batch.
    """
    common = blake2b(digest_size=8)
    columns = []
    for path, leaf in leaves([inputs, y]):
        if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == len(y):
            common.update(f"{path} {leaf.dtype} {tuple(leaf.shape[1:])};".encode())
            columns.append(np.asarray(raw(leaf)).reshape(len(y), -1))
        elif isinstance(leaf, Tensor):
            content = digest([raw(leaf)])
            common.update(f"{path} {leaf.dtype} {tuple(leaf.shape)} {content};".encode())
        elif isinstance(leaf, str | bytes | int | float | None):
            common.update(f"{path} {leaf!r};".encode())
        else:
            raise ValueError(
                f"inputs of type {type(leaf).__name__} have no fingerprint; "
                "let the loader give tensors, or pass cache=None"
            )
    hashes = np.empty(len(y), np.int64)
    for i in range(len(y)):
        row = common.copy()
        for column in columns:
            row.update(column[i].data)
        hashes[i] = int.from_bytes(row.digest(), "little", signed=True)
    return torch.from_numpy(hashes)
