"""Whole data sets: download what is missing, check what is there, list both.

    get(name, root)            download what is not there
    check(name, root, reader)  the problems of what is there; none if all is well
    listing(root)              one entry per set: from where, how large, whether it is there

The registry of sets is SOURCES, in sources.py.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from maccal.data.download.archives import unpack
from maccal.data.download.sources import SOURCES, Known, Source
from maccal.data.download.transfer import PAUSES, fetch, length, need_space, part_of, wrong
from maccal.io import FileError
from maccal.progress import bars

State = Literal["yes", "partly", "no"]


@dataclass(frozen=True)
class Listed:
    """A set in the list of those that can be downloaded."""

    name: str
    host: str  # its publisher's server
    size: int | None  # bytes to download, if known
    here: State
    where: Path  # where it is or would be


def data_root(root: Path | str | None = None) -> Path:
    """The folder of all data sets.

    The argument, else $MACCAL_DATA, else maccal's folder in the user's cache.
    """
    chosen = root or os.environ.get("MACCAL_DATA") or Path.home() / ".cache" / "maccal"
    return Path(chosen).expanduser()


# Downloading


def get(
    name: str,
    root: Path | str | None = None,
    *,
    progress: bool = True,
    keep: bool = False,
    pauses: Sequence[float] = PAUSES,
) -> Path:
    """Download the files of a set that are not there, and return its folder.

    An archive that is already in root is verified and used. Archives are deleted once unpacked,
    unless `keep`. Files that are there with the right size are left alone; others with their names
    are never overwritten: FileError says to move them away. An interrupted download goes on where
    it stopped.
    """
    folder = data_root(root)
    sources = sources_of(name)
    missing = [source for source in sources if not complete(source, folder)]
    for source in missing:
        refuse_remains(source, folder)
    need_space(folder, sum(space(source, folder) for source in missing))
    with progress_bars(progress) as lines:
        for source in missing:
            fetch_source(source, folder, lines, pauses)
            if source.is_archive and not keep:
                target_of(source, folder).unlink()
    return folder / sources[0].folder


def sources_of(name: str) -> tuple[Source, ...]:
    if name not in SOURCES:
        raise ValueError(f"no data set {name!r} to download; there are {', '.join(SOURCES)}")
    return SOURCES[name]


def fetch_source(source: Source, root: Path, bars: Progress, pauses: Sequence[float]) -> None:
    """Fetch one file, or verify the one that is there; unpack it if it is an archive."""
    task = bars.add_task(source.file, total=source.size)
    target = target_of(source, root)
    known = Known(source.size, source.checksum)

    def report(done: int, total: int | None) -> None:
        bars.update(task, completed=done, total=total)

    if not target.exists():
        fetch(source.url, target, known, pauses=pauses, report=report)
    else:
        problem = wrong(target, known)
        if problem:
            raise FileError(target, f"{problem}; delete it to download it again")
    if source.is_archive:
        bars.update(task, description=f"unpacking {source.file}")
        unpack(target, root, source.folder, limit=source.unpacked, expected=source.files)


def target_of(source: Source, root: Path) -> Path:
    """Where the download goes: archives to the root, plain files to their folder."""
    folder = root if source.is_archive else root / source.folder
    return folder / source.file


def refuse_remains(source: Source, root: Path) -> None:
    """FileError for files that are there and not as expected.

    They may be somebody's own, and are not ours to overwrite.
    """
    there = root / source.folder if source.is_archive else target_of(source, root)
    if there.exists():
        problem = first_problem(source, root) or "not a folder"
        why = f"is there but not as published ({problem})"
        raise FileError(there, f"{why}; move it away and try again")


def space(source: Source, root: Path) -> int:
    """Bytes still to be written, as far as they are known."""
    target = target_of(source, root)
    there = max(length(target), length(part_of(target)))
    size = source.size or 0
    download = max(size - there, 0)
    if not source.is_archive:
        return download
    inside = sum(file.size or 0 for file in source.files.values())
    return download + (inside or size)


def progress_bars(shown: bool) -> Progress:
    """One line per file on stderr: bytes, rate, time left; nothing if stderr is no terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    return bars(*columns, shown=shown)


# Checking


def check(
    name: str, root: Path | str | None = None, reader: Callable[[Path], object] | None = None
) -> list[str]:
    """What is wrong with a set: each file that is absent or not the publisher's.

    Files whose checksums are not known must only exist. If all files are right, or none is there in
    the published layout, `reader` loads the set, and what it says is the problem.
    """
    folder = data_root(root)
    sources = sources_of(name)
    there = any((folder / source.folder).is_dir() for source in sources)
    if there:
        found: list[str] = []
        for source in sources:
            found += problems(source, folder)
        if found:
            return found
    if reader is not None:
        return reading_problems(reader, folder)
    if there:
        return []
    missing = folder / sources[0].folder
    return [f"{missing}: no such folder; `maccal data get {name}` downloads it"]


def reading_problems(reader: Callable[[Path], object], folder: Path) -> list[str]:
    try:
        reader(folder)
    except (ValueError, OSError) as error:
        return [str(error)]
    return []


def problems(source: Source, root: Path, *, hashed: bool = True) -> Iterator[str]:
    """What is wrong with each file of a source; without `hashed` by size alone, which is quick."""
    for name, known in source.contents.items():
        problem = wrong(root / source.folder / name, known, hashed=hashed)
        if problem:
            yield f"{source.folder}/{name}: {problem}"


def first_problem(source: Source, root: Path) -> str | None:
    return next(problems(source, root, hashed=False), None)


def complete(source: Source, root: Path) -> bool:
    """Whether all its files are there, by size alone."""
    return first_problem(source, root) is None and (root / source.folder).is_dir()


# Listing


def listing(root: Path | str | None = None) -> list[Listed]:
    """The sets that can be downloaded, and which of them are in root, by the sizes of files."""
    folder = data_root(root)
    return [listed(name, sources, folder) for name, sources in SOURCES.items()]


def listed(name: str, sources: tuple[Source, ...], root: Path) -> Listed:
    sizes = [source.size for source in sources if source.size is not None]
    size = sum(sizes) if len(sizes) == len(sources) else None
    return Listed(name, sources[0].host, size, state(sources, root), root / sources[0].folder)


def state(sources: tuple[Source, ...], root: Path) -> State:
    if all(complete(source, root) for source in sources):
        return "yes"
    return "partly" if any(begun(source, root) for source in sources) else "no"


def begun(source: Source, root: Path) -> bool:
    """Whether anything of the source is there: its folder, its download, or a part of that."""
    target = target_of(source, root)
    return any(path.exists() for path in (root / source.folder, target, part_of(target)))
