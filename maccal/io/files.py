"""Whole files or none, and reading of regular files only.

A file is written as a hidden part beside its target, forced to the disk, and renamed. A reader
never sees half a file, and a crash leaves the old one. A part is locked while it is written:
so what a killed process left behind can be told from what is being written.
"""

import glob
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from maccal.io.errors import FileError
from maccal.io.folders import make_folder
from maccal.io.locks import NOFOLLOW, abandoned, take_lock

SHORT = 50  # letters of the file's name in the name of its part
NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)  # this and NOFOLLOW are not there on Windows
BINARY: int = getattr(os, "O_BINARY", 0)  # this is only there


# Writing


def write(path: Path | str, data: str | bytes) -> Path:
    """Write the whole file, or leave the old one as it was; folders are made as needed."""
    return write_with(path, lambda part: part.write_bytes(as_bytes(data)))


def write_with(path: Path | str, writer: Callable[[Path], object]) -> Path:
    """The same for a writer that needs a path: it is given the part, which exists and is empty."""
    path = Path(path)
    make_folder(path.parent)
    if path.is_dir():
        raise FileError(path, "a folder; pass the name of a file")
    try:
        with new_part(path.parent, path.name) as part:
            writer(part)
            flush(part)
            part.replace(path)
        flush(path.parent)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)  # a full disk does not say which file it had no room for
        raise
    return path


def write_all(files: Mapping[Any, str | bytes]) -> None:
    """Write all of these files, or none if one cannot be written; FileError says which one."""
    with ExitStack() as stack:
        parts: dict[Path, Path] = {}
        for name, data in files.items():
            path = Path(name)
            try:
                parts[path] = written_part(path, data, stack)
            except OSError as error:
                raise FileError(path, f"cannot be written ({error.strerror or error})") from error
            if path.is_dir():
                raise FileError(path, "cannot be written: it is a folder")
        for path, part in parts.items():
            part.replace(path)
    for folder in {path.parent for path in parts}:
        flush(folder)


def written_part(path: Path, data: str | bytes, stack: ExitStack) -> Path:
    """The part of a file, on the disk; it is gone when the stack closes, unless renamed."""
    make_folder(path.parent)
    part = stack.enter_context(new_part(path.parent, path.name))
    part.write_bytes(as_bytes(data))
    flush(part)
    return part


def as_bytes(data: str | bytes) -> bytes:
    return data.encode() if isinstance(data, str) else data


@contextmanager
def new_part(folder: Path | str, name: str) -> Iterator[Path]:
    """A new, empty, hidden file, locked while it is written.

    Its name is random, so nobody can have put a link there. It is gone afterwards unless renamed.
    What killed writers of the same file left behind is removed first.
    """
    folder = Path(folder)
    sweep(folder, name)
    while True:
        part = folder / f".{name[:SHORT]}.{secrets.token_hex(8)}.part"
        handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        take_lock(handle, wait=True)
        if os.fstat(handle).st_nlink:  # zero if a sweep came between the two lines above
            break
        os.close(handle)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
        os.close(handle)


def flush(path: Path | str) -> None:
    """Wait until the file, or the names in the folder, are on the disk."""
    if os.name == "nt" and Path(path).is_dir():
        return  # Windows has no such call for folders
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path | str, name: str | None = None) -> None:
    """Remove the parts of processes that no longer exist: all parts, or those of one file.

    A part that is being written is locked, and stays. If the file system has no locks, all stay.
    """
    stem = "*" if name is None else f"{glob.escape(name[:SHORT])}.*"
    for part in Path(folder).glob(f".{stem}.part"):
        try:
            handle = os.open(part, os.O_RDONLY | NOFOLLOW | NONBLOCK)
        except OSError:  # gone meanwhile, or a link, which is not ours
            continue
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode) and abandoned(handle):
                part.unlink(missing_ok=True)
        finally:
            os.close(handle)


# Reading


def open_regular(path: Path | str) -> IO[bytes]:
    """The file, open for reading; FileError if it is not a regular file, before it can hang."""
    try:
        handle = os.open(path, os.O_RDONLY | NONBLOCK | BINARY)
    except FileNotFoundError:
        raise FileError(path, "no such file") from None
    except (OSError, ValueError) as error:
        raise FileError(path, f"cannot be opened ({error})") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileError(path, "not a regular file")
    return os.fdopen(handle, "rb")


def read_bytes(path: Path | str, most: int | None = None) -> bytes:
    """All bytes of a regular file; FileError if it has more than `most`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise FileError(path, f"{size:,} bytes; expected at most {most:,}")
        return file.read()
