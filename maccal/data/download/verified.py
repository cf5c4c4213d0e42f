"""Files whose checksum the publisher gives are compared with it when they are first read.

    verify(path, folder)    the publisher's own file, or FileError; `folder` as published

A file of the published size and another checksum is damaged: no reader could notice a flipped bit
in a picture. A file of another size is somebody's own, such as a part of the set. It is read, with
one warning of the logger "maccal": a record for people, which does not stop a program that turns
Python's warnings into errors.

Files found right are remembered in verified.json in the user's cache folder ($MACCAL_CACHE, else
$XDG_CACHE_HOME/maccal, else ~/.cache/maccal), never beside the data, by path, size, times and
inode, so that the next time costs nothing. The memory holds nothing that cannot be found out again:
if it is lost, damaged or not writable, files are verified anew. Cost: two seconds per gigabyte,
once. What changes on the disk without a write, `maccal data check` finds.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

from maccal.data.download.sources import SOURCES, Known
from maccal.data.download.transfer import wrong
from maccal.io import FileError, read_json, write_json

KIND = "verified 1"

warned: set[Path] = set()  # files of another size that this process has warned about


def verify(path: Path, folder: str) -> None:
    """FileError if the file has the published size and another checksum.

    Does nothing for a file that no checksum is known for.
    """
    known = published(folder, path.name)
    if known is None or not path.is_file():
        return
    real = path.resolve()
    size = real.stat().st_size
    if size != known.size:
        warn_once(path, real, f"{size:,} bytes, not the {known.size:,} of the published file")
        return
    before = fingerprint(real, known)
    if recalled().get(str(real)) == before:
        return
    problem = wrong(real, known)
    if problem:
        raise FileError(path, f"{problem}: it is damaged; delete it and download it again")
    remember(real, before)


def warn_once(path: Path, real: Path, why: str) -> None:
    if real not in warned:
        message = "%s: %s; it is read as it is, unverified"
        logging.getLogger("maccal").warning(message, path, why)
    warned.add(real)


def published(folder: str, name: str) -> Known | None:
    """What is known about a file, if both its size and its checksum are."""
    for sources in SOURCES.values():
        for source in sources:
            known = source.contents.get(name) if source.folder == folder else None
            if known is not None and known.checksum is not None and known.size is not None:
                return known
    return None


def fingerprint(path: Path, known: Known) -> list[str | int]:
    """What tells this file from another, or from itself after a change, and its checksum."""
    state = path.stat()
    times = [state.st_mtime_ns, state.st_ctime_ns]
    return [known.checksum or "", state.st_size, *times, state.st_ino, state.st_dev]


def memory() -> Path:
    own = os.environ.get("MACCAL_CACHE")
    if own:
        return Path(own) / "verified.json"
    shared = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(shared) / "maccal" / "verified.json"


def recalled() -> dict[str, object]:
    """The fingerprints of verified files, by path; empty if they cannot be read."""
    with suppress(ValueError, OSError, RuntimeError):  # RuntimeError: there is no home
        files = read_json(memory(), KIND).get("files")
        return files if isinstance(files, dict) else {}
    return {}


def remember(path: Path, seen: list[str | int]) -> None:
    """Add one file to the memory, and drop those that are gone."""
    with suppress(ValueError, OSError, RuntimeError):
        there = {name: old for name, old in recalled().items() if Path(name).is_file()}
        write_json(memory(), KIND, {"files": {**there, str(path): seen}})
