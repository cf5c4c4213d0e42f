"""Files that a publisher gave a checksum are compared with it when they are first read.

    verify(path, folder)    the publisher's own file, or FileError; `folder` is its folder as published

A file of the published size and another checksum is damaged: a flipped bit in a picture is nothing
that a reader could notice. A file of another size is somebody's own, such as a part of the set. It
is read, and that is said once, as a warning of the logger "maccal": a record for people, which a
program that turns Python's warnings into errors does not stumble over.

What was right is remembered in verified.json in the user's cache folder ($MACCAL_CACHE, else
$XDG_CACHE_HOME/maccal, else ~/.cache/maccal), never beside the data, by path, size, times and
inode, so that it costs nothing the next time. The memory holds nothing that cannot be found out
again: lost, damaged or not writable, it means to verify anew. Cost: two seconds per gigabyte, once.
What changes on the disk without a write, `maccal data check` finds.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

from maccal.data.download.sources import SOURCES, Known
from maccal.data.download.transfer import wrong
from maccal.io import FileError, read_json, write_json

KIND = "verified 1"
said: set[Path] = set()  # files of another size that a warning was given of


def verify(path: Path, folder: str) -> None:
    """FileError where the file has the published size and another checksum.

    Nothing where none is known.
    """
    known = published(folder, path.name)
    if known is None or not path.is_file():
        return
    place = path.resolve()
    size = place.stat().st_size
    if size != known.size:
        if place not in said:
            message = (
                "%s: %s bytes, not the %s of the published file; it is read as it is, unverified"
            )
            logging.getLogger("maccal").warning(message, path, f"{size:,}", f"{known.size:,}")
        said.add(place)
        return
    if recalled().get(str(place)) == mark(place, known):
        return
    before = mark(place, known)
    if problem := wrong(place, known):
        raise FileError(path, f"{problem}: it is damaged; delete it and download it again")
    remember(place, before)


def published(folder: str, name: str) -> Known | None:
    """What is known of a file, if both its size and its checksum are."""
    for sources in SOURCES.values():
        for source in sources:
            known = source.contents.get(name) if source.folder == folder else None
            if known is not None and known.checksum is not None and known.size is not None:
                return known
    return None


def mark(path: Path, known: Known) -> list[str | int]:
    """What tells this file from another, or from itself after a change, and the checksum it had."""
    state = path.stat()
    times = [state.st_mtime_ns, state.st_ctime_ns]
    return [known.checksum or "", state.st_size, *times, state.st_ino, state.st_dev]


def memory() -> Path:
    own, shared = os.environ.get("MACCAL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    folder = Path(own) if own else Path(shared or Path.home() / ".cache") / "maccal"
    return folder / "verified.json"


def recalled() -> dict[str, object]:
    """The marks of verified files, by path; empty where they cannot be read."""
    with suppress(ValueError, OSError, RuntimeError):  # RuntimeError: there is no home
        files = read_json(memory(), KIND).get("files")
        return files if isinstance(files, dict) else {}
    return {}


def remember(path: Path, seen: list[str | int]) -> None:
    """Add one file to the memory, and drop those that are gone."""
    with suppress(ValueError, OSError, RuntimeError):
        there = {name: old for name, old in recalled().items() if Path(name).is_file()}
        write_json(memory(), KIND, {"files": {**there, str(path): seen}})
