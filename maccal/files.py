"""Files are written whole or not at all."""

import os
from pathlib import Path


def write(path: Path, data: str | bytes) -> Path:
    """Write beside the target, then rename: a reader never sees half a file, and a crash leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data.encode() if isinstance(data, str) else data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path
