"""Files that know their format and their checksum, so that damage is noticed when they are read.

format      "maccal row 1": what kind of file this is, and which version of that kind
checksum    BLAKE2b, 128 bits, over the kind and the contents
"""

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from maccal.io.errors import FileError
from maccal.io.files import open_regular, read_bytes, write, write_with

if TYPE_CHECKING:  # importing torch takes seconds, which readers of rows need not wait for
    from torch import Tensor

LARGEST_JSON = 1 << 26  # bytes; one of our rows has a few thousand
HEADER = 4096  # bytes within which the header line of a sealed file ends
DAMAGED = "it is damaged, or was changed by another program"


def checksum(*parts: bytes | memoryview) -> str:
    """A hash of the parts, each with its length, so that no two lists of parts hash the same."""
    total = blake2b(digest_size=16)
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


def canonical(values: Mapping[str, Any]) -> bytes:
    """The one spelling of an object that is hashed."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def check_format(found: object, kind: str, path: Path | str, where: str = "") -> None:
    if found == f"maccal {kind}":
        return
    said = "no format" if found is None else f"format {str(found)[:60]!r}"
    why = "another kind of file, another version's, or damaged"
    raise FileError(path, f"{where}{said}; expected 'maccal {kind}': {why}")


# One JSON object


def parse_json(text: str | bytes, path: Path | str, where: str = "") -> dict[str, Any]:
    """One JSON object; FileError for anything else, nesting too deep and doubled keys included."""
    try:
        values = json.loads(text, object_pairs_hook=distinct)
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"{where}not JSON ({error}); {DAMAGED}") from None
    if not isinstance(values, dict):
        raise FileError(path, f"{where}{type(values).__name__} instead of a JSON object; {DAMAGED}")
    return values


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The dict of these pairs; ValueError if a key comes twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key comes twice")
    return values


def sealed(values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The object with its format ("row 1") and the checksum of all its values in front.

    >>> sealed({"ece": 0.5}, "row 1")
    {'format': 'maccal row 1', 'checksum': '63818dff635ea316c5681ecb4c1ccc7b', 'ece': 0.5}
    """
    # As a reader will see it: lists instead of tuples, and only text as keys
    plain = json.loads(json.dumps(values, allow_nan=False))
    total = checksum(kind.encode(), canonical(plain))
    return {"format": f"maccal {kind}", "checksum": total, **plain}


def unsealed(
    values: Mapping[str, Any], kind: str, path: Path | str, where: str = ""
) -> dict[str, Any]:
    """The values of a sealed object; FileError unless format and checksum are right."""
    rest = dict(values)
    check_format(rest.pop("format", None), kind, path, where)
    if rest.pop("checksum", None) != checksum(kind.encode(), canonical(rest)):
        raise FileError(path, f"{where}its checksum is wrong: {DAMAGED}")
    return rest


def write_json(path: Path | str, kind: str, values: Mapping[str, Any]) -> Path:
    """Write a sealed JSON object; ValueError for numbers that JSON does not have, such as NaN."""
    return write(path, json.dumps(sealed(values, kind), indent=1, allow_nan=False) + "\n")


def read_json(path: Path | str, kind: str) -> dict[str, Any]:
    """What write_json wrote; FileError otherwise."""
    return unsealed(parse_json(read_bytes(path, LARGEST_JSON), path), kind, path)


# Bytes, and JSON lines, behind a header line


def write_sealed(path: Path | str, kind: str, data: bytes | memoryview) -> Path:
    """Write any bytes behind a header line."""
    header = {
        "format": f"maccal {kind}",
        "bytes": len(data),
        "checksum": checksum(kind.encode(), data),
    }

    def header_and_data(part: Path) -> None:
        with part.open("wb") as file:
            file.write(json.dumps(header).encode() + b"\n")
            file.write(data)

    return write_with(path, header_and_data)


def read_sealed(path: Path | str, kind: str) -> bytes:
    """What write_sealed wrote; FileError otherwise."""
    with open_regular(path) as file:
        line = file.readline(HEADER)
        header = parse_json(line, path, "header: ")
        check_format(header.get("format"), kind, path)
        if header.get("bytes") != os.fstat(file.fileno()).st_size - len(line):
            raise FileError(path, f"its size is wrong: {DAMAGED}")
        data = file.read()
    if header.get("checksum") != checksum(kind.encode(), data):
        raise FileError(path, f"its checksum is wrong: {DAMAGED}")
    return data


def write_lines(path: Path | str, kind: str, records: list[dict[str, Any]]) -> Path:
    """Write JSON lines behind a header line: one object per line."""
    lines = [json.dumps(record, allow_nan=False) + "\n" for record in records]
    return write_sealed(path, kind, "".join(lines).encode())


def read_lines(path: Path | str, kind: str) -> list[dict[str, Any]]:
    """What write_lines wrote; FileError otherwise."""
    lines = read_sealed(path, kind).decode().splitlines()
    return [parse_json(line, path, f"line {number}: ") for number, line in enumerate(lines, 2)]


# Tensors and arrays


def write_tensors(
    path: Path | str, kind: str, tensors: Mapping[str, "Tensor"], **notes: Any
) -> Path:
    """Write named tensors as a safetensors file.

    All notes are one entry of its metadata, as several entries would have no fixed order.
    """
    import safetensors.torch

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    about = {"format": f"maccal {kind}", "checksum": tensors_checksum(kind, plain, notes), **notes}
    return write(path, safetensors.torch.save(plain, {"maccal": json.dumps(about)}))


def read_tensors(path: Path | str, kind: str) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
    """The tensors and notes that write_tensors wrote; FileError otherwise."""
    import safetensors.torch

    data = read_bytes(path)
    try:
        tensors = safetensors.torch.load(data)
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__", {})
    except (
        safetensors.SafetensorError,
        ValueError,
        RecursionError,
        TypeError,
        AttributeError,
        KeyError,
    ) as error:
        raise FileError(path, f"not a readable safetensors file ({error}); {DAMAGED}") from None
    notes = parse_json(metadata.get("maccal", "{}"), path, "metadata: ")
    check_format(notes.pop("format", None), kind, path)
    if notes.pop("checksum", None) != tensors_checksum(kind, tensors, notes):
        raise FileError(path, f"its checksum is wrong: {DAMAGED}")
    return tensors, notes


def read_notes(path: Path | str, kind: str) -> dict[str, Any]:
    """The notes that write_tensors wrote, without the tensors and so without their checksum.

    FileError where there are none.
    """
    with open_regular(path) as file:
        size = min(int.from_bytes(file.read(8), "little"), LARGEST_JSON)
        header = parse_json(file.read(size), path, "header: ")
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict):
        raise FileError(path, f"not a safetensors file with notes; {DAMAGED}")
    notes = parse_json(str(metadata.get("maccal", "{}")), path, "metadata: ")
    check_format(notes.pop("format", None), kind, path)
    return notes


def tensors_checksum(kind: str, tensors: Mapping[str, "Tensor"], notes: Mapping[str, Any]) -> str:
    """The checksum of the notes, and of the tensors' names, types, shapes and bytes."""
    import torch

    parts: list[bytes | memoryview] = [kind.encode(), canonical(notes)]
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        parts.append(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        array: Any = tensor.reshape(-1).view(torch.uint8).numpy()
        parts.append(memoryview(array))
    return checksum(*parts)


def npz(**arrays: Any) -> bytes:
    """The bytes of an .npz file of these arrays."""
    buffer = BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
