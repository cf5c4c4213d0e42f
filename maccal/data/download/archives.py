"""Unpacking archives that are not trusted: all of it or nothing, and nothing outside the folder.

Only regular files and folders are taken; a link, a device, a path that leaves the folder, a name
that comes twice, or more bytes than agreed refuses the whole archive. Owners, dates and permissions
are not taken over. Memory: a few megabytes, whatever the archive says: its headers are metered as
its files are."""

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

BLOCK = 1 << 20
MEMBERS = 1_000_000  # Tiny ImageNet has more than a tenth of that
HEADERS = 1 << 16  # bytes of all headers of one file in a .tar; a usual one has 512
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others are unpacked without a limit


class Member(NamedTuple):
    name: str
    size: int
    kind: str  # "file", "folder", or what else it is
    open: Callable[[], IO[bytes] | None]


def unpack(
    archive: Path, root: Path, folder: str, *, limit: int, expected: Collection[str] = ()
) -> Path:
    """Unpack to root/folder, which must not exist, and return it.

    It appears whole, by one rename, after `expected` (paths below the folder) were found; what the
    archive holds beside the folder is dropped. FileError names the archive and the member."""
    target = root / folder
    if target.exists():
        raise FileError(target, f"is already there; move it away to unpack {archive.name}")
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{folder}.", dir=root, ignore_cleanup_errors=True
    ) as beside:
        extract(archive, Path(beside), limit)
        missing = [name for name in expected if not (Path(beside) / folder / name).is_file()]
        if missing or not (Path(beside) / folder).is_dir():
            raise FileError(
                archive,
                f"holds no {folder}/{missing[0] if missing else ''}; is it incomplete, or another set?",
            )
        (Path(beside) / folder).rename(target)
    return target


def extract(archive: Path, into: Path, limit: int) -> None:
    """Write the members below `into`, a new folder that nobody else writes to."""
    seen: set[PurePosixPath] = set()
    room, name = limit, "its beginning"
    try:
        with members_of(archive) as members:
            for member in members:
                name = member.name
                path = safe_path(archive, member)
                room -= member.size
                if room < 0 or len(seen) >= MEMBERS:
                    raise FileError(
                        archive,
                        f"{name}: more than {limit:,} bytes or {MEMBERS:,} files; is this an attack?",
                    )
                if path in seen and member.kind == "file":
                    raise FileError(archive, f"{name}: comes twice")
                seen.add(path)
                write(member, into / path)
    except FileError:
        raise
    except Exception as error:  # a damaged archive may raise anything
        raise FileError(
            archive, f"cannot be unpacked, at {name} ({error}); nothing was kept"
        ) from error


def write(member: Member, path: Path) -> None:
    """A file is made new ("x"), so nothing that is there is followed or overwritten."""
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
    """The member's path, which stays inside on every system.

    No drive letters and no backslashes either.
    """
    name, path = member.name, PurePosixPath(member.name)
    if (
        path.is_absolute()
        or "\\" in name
        or ":" in name
        or any(ord(letter) < 32 for letter in name)
    ):
        raise FileError(archive, f"{name!r}: not a relative path of plain names")
    if (not path.parts and member.kind != "folder") or any(
        not part.strip(". ") for part in path.parts
    ):
        raise FileError(archive, f"{name!r}: a path that leaves the folder")
    if member.kind not in ("file", "folder"):
        raise FileError(archive, f"{name!r}: {member.kind}; only files and folders are unpacked")
    if member.size < 0:
        raise FileError(archive, f"{name!r}: a size below zero")
    return path


@contextmanager
def members_of(archive: Path) -> Iterator[Iterator[Member]]:
    if not archive.name.endswith((".tar", ".tar.gz", ".zip")):
        raise FileError(archive, "not a .tar, .tar.gz or .zip file")
    with open_regular(archive) as file:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(file) as packed:
                yield (zip_member(packed, info) for info in packed.infolist())
        else:
            # streams are read once, front to back: no going back in compressed data
            meter = Metered(gzip.GzipFile(fileobj=file) if archive.name.endswith(".gz") else file)
            stream: Any = meter
            with tarfile.open(fileobj=stream, mode="r:") as tape:
                yield tar_members(tape, meter)


class Metered:
    """A file of which only so many bytes may be read as are left.

    Tarfile takes any size that a header asks for.
    """

    def __init__(self, file: Any) -> None:
        self.file = file
        self.left = HEADERS
        self.seek, self.tell = file.seek, file.tell

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
        kept: Any = tape
        kept.members.clear()  # tarfile keeps them all, a kilobyte each
        meter.left = max(0, info.size)
        yield tar_member(tape, info)


def tar_member(tape: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    if info.isreg() and not info.issparse():
        kind = "file"
    elif info.isdir():
        kind = "folder"
    else:
        kind = "a link" if info.issym() or info.islnk() else "a device, pipe or sparse file"
    return Member(info.name, info.size, kind, lambda: tape.extractfile(info))


def zip_member(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    # the name as stored: zipfile itself cuts it at a zero byte and, on Windows, turns backslashes
    name, mode = info.orig_filename, stat.S_IFMT(info.external_attr >> 16)
    if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        kind = "a link" if mode == stat.S_IFLNK else "a device or pipe"
    elif info.compress_type not in METHODS:
        kind = f"compressed by method {info.compress_type}"
    else:
        kind = "folder" if name.endswith("/") else "file"
    return Member(name, info.file_size, kind, lambda: packed.open(info))
