"""Files are written whole or not at all."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def write(path: Path, data: str | bytes) -> Path:
    """Write beside the target, then rename: a reader never sees half a file, and a crash leaves the old one."""
    return write_with(path, lambda part: part.write_bytes(data.encode() if isinstance(data, str) else data))


def write_with(path: Path, writer: Callable[[Path], object]) -> Path:
    """The same for whoever writes by path: `writer` is given the temporary one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        writer(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def npz(**arrays: Any) -> bytes:
    """The bytes of an .npz file of these arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
