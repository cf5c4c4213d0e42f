"""Unpacking archives that are not trusted: all of it or nothing, and nothing outside the folder.

Only regular files and folders are unpacked. A link, a device, a path that leaves the folder, a name
that comes twice, or more bytes than agreed refuses the whole archive. Owners, dates and permissions
are not taken over. Memory: a few megabytes whatever the archive says, as its headers are limited
too.
"""

import gzip
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from maccal.io import FileError, open_regular

BLOCK = 1 << 20  # bytes read at a time
MEMBERS = 1_000_000  # at most; Tiny ImageNet has more than a tenth of that
HEADERS = 1 << 16  # bytes of all headers of one file in a .tar; usually there are 512
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile unpacks the others without a limit


class Member(NamedTuple):
    """One entry of an archive."""

    name: str
    size: int
    kind: str  # "file", "folder", or what else it is
    open: Callable[[], IO[bytes] | None]


def unpack(
    archive: Path, root: Path, folder: str, *, limit: int, expected: Collection[str] = ()
) -> Path:
    """Unpack to root/folder, which must not exist yet, and return it.

    The folder appears whole, by one rename, after all of `expected` (paths below it) were found.
    What the archive holds beside the folder is dropped. FileError names the archive and the member.
    """
    target = root / folder
    if target.exists():
        raise FileError(target, f"is already there; move it away to unpack {archive.name}")
    root.mkdir(parents=True, exist_ok=True)
    beside = tempfile.TemporaryDirectory(prefix=f".{folder}.", dir=root, ignore_cleanup_errors=True)
    with beside as name:
        unpacked = Path(name) / folder
        extract(archive, Path(name), limit)
        missing = [path for path in expected if not (unpacked / path).is_file()]
        if missing or not unpacked.is_dir():
            absent = f"{folder}/{missing[0] if missing else ''}"
            raise FileError(archive, f"holds no {absent}; is it incomplete, or another set?")
        unpacked.rename(target)
    return target


def extract(archive: Path, into: Path, limit: int) -> None:
    """Write the members below `into`, a new folder that nobody else writes to."""
    seen: set[PurePosixPath] = set()
    room = limit
    name = "its beginning"
    try:
        with members_of(archive) as members:
            for member in members:
                name = member.name
                path = safe_path(archive, member)
                room -= member.size
                if room < 0 or len(seen) >= MEMBERS:
                    most = f"more than {limit:,} bytes or {MEMBERS:,} files"
                    raise FileError(archive, f"{name}: {most}; is this an attack?")
                if path in seen and member.kind == "file":
                    raise FileError(archive, f"{name}: comes twice")
                seen.add(path)
                write(member, into / path)
    except FileError:
        raise
    except Exception as error:  # a damaged archive may raise anything
        problem = f"cannot be unpacked, at {name} ({error}); nothing was kept"
        raise FileError(archive, problem) from error


def write(member: Member, path: Path) -> None:
    """Write one member. A file is opened new ("x"): nothing is followed or overwritten."""
    if member.kind == "folder":
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    source = member.open()
    assert source is not None  # it is a regular file
    left = member.size
    with source, path.open("xb") as file:
        while block := source.read(BLOCK):
            file.write(block)
            left -= len(block)
    if left:
        raise EOFError(f"{abs(left)} bytes {'missing' if left > 0 else 'too many'}")


def safe_path(archive: Path, member: Member) -> PurePosixPath:
    """The member's path, which stays inside the folder on every system.

    Drive letters and backslashes are refused too.
    """
    name = member.name
    path = PurePosixPath(name)
    control = any(ord(letter) < 32 for letter in name)
    if path.is_absolute() or "\\" in name or ":" in name or control:
        raise FileError(archive, f"{name!r}: not a relative path of plain names")
    nameless = not path.parts and member.kind != "folder"
    dots = any(not part.strip(". ") for part in path.parts)
    if nameless or dots:
        raise FileError(archive, f"{name!r}: a path that leaves the folder")
    if member.kind not in ("file", "folder"):
        raise FileError(archive, f"{name!r}: {member.kind}; only files and folders are unpacked")
    if member.size < 0:
        raise FileError(archive, f"{name!r}: a size below zero")
    return path


@contextmanager
def members_of(archive: Path) -> Iterator[Iterator[Member]]:
    """The members of a .zip, .tar or .tar.gz, one after the other."""
    if not archive.name.endswith((".tar", ".tar.gz", ".zip")):
        raise FileError(archive, "not a .tar, .tar.gz or .zip file")
    with open_regular(archive) as file:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(file) as packed:
                yield (zip_member(packed, info) for info in packed.infolist())
        else:
            # A stream is read once, front to back: compressed data cannot be gone back in
            stream = gzip.GzipFile(fileobj=file) if archive.name.endswith(".gz") else file
            metered: Any = Metered(stream)
            with tarfile.open(fileobj=metered, mode="r:") as tape:
                yield tar_members(tape, metered)


class Metered:
    """A file from which only `left` more bytes may be read.

    tarfile would read as many as a header asks for.
    """

    def __init__(self, file: Any) -> None:
        self.file = file
        self.left = HEADERS
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self.left:
            raise tarfile.ReadError("a header that is too long")
        self.left -= size
        return bytes(self.file.read(size))


def tar_members(tape: tarfile.TarFile, meter: Metered) -> Iterator[Member]:
    while True:
        meter.left = HEADERS
        info = tape.next()
        if info is None:
            return
        untyped: Any = tape
        untyped.members.clear()  # tarfile keeps them all, a kilobyte each
        meter.left = max(0, info.size)
        yield tar_member(tape, info)


def tar_member(tape: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    if info.isreg() and not info.issparse():
        kind = "file"
    elif info.isdir():
        kind = "folder"
    elif info.issym() or info.islnk():
        kind = "a link"
    else:
        kind = "a device, pipe or sparse file"
    return Member(info.name, info.size, kind, lambda: tape.extractfile(info))


def zip_member(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    # The name as stored: zipfile itself cuts it at a zero byte and, on Windows, turns backslashes
    name = info.orig_filename
    mode = stat.S_IFMT(info.external_attr >> 16)
    if mode == stat.S_IFLNK:
        kind = "a link"
    elif mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        kind = "a device or pipe"
    elif info.compress_type not in METHODS:
        kind = f"compressed by method {info.compress_type}"
    else:
        kind = "folder" if name.endswith("/") else "file"
    return Member(name, info.file_size, kind, lambda: packed.open(info))
