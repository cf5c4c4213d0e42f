"""Data sets from their publishers' servers: fetched with resume, verified, unpacked safely, and
checked afterwards.

    get(name, root)            download what is not there
    check(name, root, reader)  problems of what is there, none if all is well
    listing(root)              a row a set: from where, how large, whether it is there

The registry is SOURCES, in maccal.data.download.sources.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
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
from maccal.data.download.transfer import PAUSES, fetch, length, need_space, wrong
from maccal.io import FileError

__all__ = ["SOURCES", "Row", "Source", "check", "data_root", "get", "listing"]

State = Literal["yes", "partly", "no"]


@dataclass(frozen=True)
class Row:
    """A set in the list: its publisher, bytes to download (None.

    Not known), whether it is there, and where it is or would be.
    """

    name: str
    host: str
    size: int | None
    here: State
    where: Path


def data_root(root: Path | str | None = None) -> Path:
    """The folder of all data sets.

    The argument, else $MACCAL_DATA, else maccal's folder in the user's cache.
    """
    return Path(
        root or os.environ.get("MACCAL_DATA") or Path.home() / ".cache" / "maccal"
    ).expanduser()


def get(
    name: str,
    root: Path | str | None = None,
    *,
    progress: bool = True,
    keep: bool = False,
    pauses: Sequence[float] = PAUSES,
) -> Path:
    """Download a set that is not there and return its folder; archives are deleted once unpacked
    unless `keep`.

    An archive that is already in root is verified and used. Files that are there with the right
    size are left alone; others with their names are never overwritten: FileError says to move them
    away. An interrupted download goes on where it stopped."""
    folder, sources = data_root(root), known(name)
    todo = [source for source in sources if not complete(source, folder)]
    for source in todo:
        refuse_remains(source, folder)
    need_space(folder, sum(space(source, folder) for source in todo))
    with bars(progress) as bar:
        for source in todo:
            one(source, folder, bar, keep, pauses)
    return folder / sources[0].folder


def known(name: str) -> tuple[Source, ...]:
    if name not in SOURCES:
        raise ValueError(f"no data set {name!r} to download; there are {', '.join(SOURCES)}")
    return SOURCES[name]


def one(source: Source, root: Path, bar: Progress, keep: bool, pauses: Sequence[float]) -> None:
    """Fetch one file and, if it is an archive, unpack it."""
    task = bar.add_task(source.file, total=source.size)
    target, whole = place(source, root), Known(source.size, source.checksum)
    if not target.exists():
        fetch(
            source.url,
            target,
            whole,
            pauses=pauses,
            report=lambda done, total: bar.update(task, completed=done, total=total),
        )
    elif problem := wrong(target, whole):
        raise FileError(target, f"{problem}; delete it to download it again")
    if source.is_archive:
        bar.update(task, description=f"unpacking {source.file}")
        unpack(target, root, source.folder, limit=source.unpacked, expected=source.files)
        if not keep:
            target.unlink()


def place(source: Source, root: Path) -> Path:
    """Where the download goes: archives to the root, plain files to their folder."""
    return (root if source.is_archive else root / source.folder) / source.file


def complete(source: Source, root: Path) -> bool:
    """Whether all its files are there, by size alone: quick."""
    return (
        next(problems(source, root, hashed=False), None) is None and (root / source.folder).is_dir()
    )


def refuse_remains(source: Source, root: Path) -> None:
    """Files that are there and not as expected may be somebody's own.

    They are not ours to overwrite.
    """
    there = root / source.folder if source.is_archive else place(source, root)
    if there.exists():
        problem = next(problems(source, root, hashed=False), "not a folder")
        raise FileError(
            there, f"is there but not as published ({problem}); move it away and try again"
        )


def space(source: Source, root: Path) -> int:
    """Bytes still to be written, as far as they are known."""
    target = place(source, root)
    there = max(length(target), length(target.with_name(f"{target.name}.part")))
    size = source.size or 0
    inside = sum(file.size or 0 for file in source.files.values()) or size
    return max(size - there, 0) + (inside if source.is_archive else 0)


def problems(source: Source, root: Path, *, hashed: bool = True) -> Iterator[str]:
    for name, file in source.contents.items():
        path = root / source.folder / name
        if problem := wrong(path, file, hashed=hashed):
            yield f"{source.folder}/{name}: {problem}"


def check(
    name: str, root: Path | str | None = None, reader: Callable[[Path], object] | None = None
) -> list[str]:
    """What is wrong with a set: each of its files that is absent or not the publisher's, else why
    `reader` cannot load it.

    Files whose checksums are not known must only exist. A set in another layout, without the
    published folder, is for the reader alone to judge."""
    folder, sources = data_root(root), known(name)
    there = any((folder / source.folder).is_dir() for source in sources)
    found = [problem for source in sources for problem in problems(source, folder)] if there else []
    if found:
        return found
    if reader is None:
        return (
            []
            if there
            else [
                f"{folder / sources[0].folder}: no such folder; `maccal data get {name}` downloads it"
            ]
        )
    try:
        reader(folder)
    except (ValueError, OSError) as error:
        return [str(error)]
    return []


def listing(root: Path | str | None = None) -> list[Row]:
    """The sets that can be downloaded, and which of them are in root (by the sizes of their files)."""
    folder = data_root(root)
    return [row(name, sources, folder) for name, sources in SOURCES.items()]


def row(name: str, sources: tuple[Source, ...], root: Path) -> Row:
    sizes = [source.size for source in sources if source.size is not None]
    size = sum(sizes) if len(sizes) == len(sources) else None
    return Row(name, sources[0].host, size, state(sources, root), root / sources[0].folder)


def state(sources: tuple[Source, ...], root: Path) -> State:
    if all(complete(source, root) for source in sources):
        return "yes"
    targets = [place(source, root) for source in sources]
    paths = [
        *(root / source.folder for source in sources),
        *targets,
        *(t.with_name(f"{t.name}.part") for t in targets),
    ]
    return "partly" if any(path.exists() for path in paths) else "no"


@contextmanager
def bars(shown: bool) -> Iterator[Progress]:
    """A line a file on stderr: bytes, rate, time left; nothing where stderr is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, disable=not (shown and console.is_terminal)
    ) as progress:
        yield progress
