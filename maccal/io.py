"""Files are written whole or not at all, and say when they are damaged.

    write, write_with              a whole file or none: a hidden part, fsync, one rename
    write_all                      several files or none: no rename before all of them are on the disk
    write_json, read_json          one JSON object with its format and checksum inside: row.json, config.json
    write_sealed, read_sealed      any bytes behind a header line with format, size and checksum
    write_lines, read_lines        the same for JSON lines: history.jsonl
    write_tensors, read_tensors    safetensors, format and checksum in the metadata: networks, heads
    locked                         one process at a time works on a folder
    sweep                          removes the parts that killed processes left behind, and no others

What we read is a regular file, or it is refused: a fifo would hang. Everything that is wrong with a
file is a FileError, which names the file and the reason. Cost: one hash of the bytes, about a
second per gigabyte.
"""

import errno
import glob
import io
import json
import os
import secrets
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # torch takes seconds that whoever reads rows need not wait
    from torch import Tensor

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LARGEST_JSON = 1 << 26  # bytes; a row of ours has some thousand
SHORT = 50  # letters of a file's name that its part has too
HEADER = 4096  # bytes within which the header line of a sealed file ends
UNSHOWN = ("Cc", "Cs", "Zl", "Zp")  # control characters, half pairs, ends of lines
DAMAGED = "it is damaged, or was changed by another program"


class FileError(ValueError):
    """A file or folder that is not what it should be: which one, what is wrong, and what to do."""

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(readable(f"{path}: {problem}"))
        self.problem = problem


def readable(text: str) -> str:
    r"""Text that every page and console can show: control characters, and bytes of a name that are
    not UTF-8, as escapes.

    >>> readable("naïve \x1b[31m"), readable("caf\udce9")
    ('naïve \\x1b[31m', 'caf\\udce9')
    """
    if text.isprintable():  # as nearly all are: quick
        return text
    return "".join(
        escaped(letter) if unicodedata.category(letter) in UNSHOWN else letter for letter in text
    )


def escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


# Whole files or none


def write(path: Path, data: str | bytes) -> Path:
    """Write beside the target, then rename.

    A reader never sees half a file, and a crash leaves the old one.
    """
    return write_with(
        path, lambda part: part.write_bytes(data.encode() if isinstance(data, str) else data)
    )


def write_with(path: Path, writer: Callable[[Path], object]) -> Path:
    """The same for whoever writes by path.

    `writer` is given the temporary one, which exists and is empty.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with new_part(path.parent, path.name) as part:
            writer(part)
            flush(part)
            part.replace(path)
        flush(path.parent)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)  # a full disk does not say what it had no room for
        raise
    return path


def write_all(files: Mapping[Path, str | bytes]) -> None:
    """All of these files, or none where one cannot be written; FileError says which."""
    with ExitStack() as stack:
        parts: dict[Path, Path] = {}
        for path, data in files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                part = stack.enter_context(new_part(path.parent, path.name))
                part.write_bytes(data.encode() if isinstance(data, str) else data)
                flush(part)
            except OSError as error:
                raise FileError(path, f"cannot be written ({error.strerror or error})") from error
            if path.is_dir():
                raise FileError(path, "cannot be written: it is a folder")
            parts[path] = part
        for path, part in parts.items():
            part.replace(path)
    for folder in {path.parent for path in files}:
        flush(folder)


@contextmanager
def new_part(folder: Path, name: str) -> Iterator[Path]:
    """A new, empty, hidden file that nobody can have planted, locked while it is written.

    It is gone afterwards unless renamed. What killed writers of the same file left goes first.
    """
    sweep(folder, name)
    while True:
        part = folder / f".{name[:SHORT]}.{secrets.token_hex(8)}.part"
        handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        take_lock(handle, wait=True)
        if os.fstat(handle).st_nlink:  # else a sweep came between the two lines above
            break
        os.close(handle)
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)
        os.close(handle)


def flush(path: Path) -> None:
    """Wait until the file, or the names in the folder, are on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows has no such call for folders
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove the parts of processes that are no longer there: all, or those of one file.

    A part that is being written is locked, and stays. Where the file system has no locks, all stay.
    """
    own = "*" if name is None else f"{glob.escape(name[:SHORT])}.*"
    for part in folder.glob(f".{own}.part"):
        try:
            handle = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # gone meanwhile, or a link, which is not ours
            continue
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode) and abandoned(handle):
                part.unlink(missing_ok=True)
        finally:
            os.close(handle)


# One process at a time


def take_lock(handle: int, *, wait: bool) -> bool:
    """Lock an open file for this process alone; False where another holds it.

    A file system without locks grants all.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
    return True


def abandoned(handle: int) -> bool:
    """Whether it is sure that no process holds the lock of an open file."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by a writer, or a file system without locks
        return False
    return True


@contextmanager
def locked(folder: Path, *, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the folder's lock, which ends with the process however it ends.

    `waiting` is called if another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        if not take_lock(handle, wait=False):
            waiting()
            take_lock(handle, wait=True)
        yield
    finally:
        os.close(handle)


# Reading


def open_regular(path: Path) -> IO[bytes]:
    """The file, open for reading.

    FileError for what is not a regular file, before it can hang or run out.
    """
    try:
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
    except FileNotFoundError:
        raise FileError(path, "no such file") from None
    except (OSError, ValueError) as error:
        raise FileError(path, f"cannot be opened ({error})") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileError(path, "not a regular file")
    return os.fdopen(handle, "rb")


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """All bytes of a regular file; FileError where it has more than `most`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if most is not None and size > most:
            raise FileError(path, f"{size:,} bytes; expected at most {most:,}")
        return file.read()


def parse_json(text: str | bytes, path: Path, where: str = "") -> dict[str, Any]:
    """One JSON object.

    FileError for anything else, nesting that is too deep and doubled keys included.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            raise ValueError("a key comes twice")
        return values

    try:
        values = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"{where}not JSON ({error}); {DAMAGED}") from None
    if not isinstance(values, dict):
        raise FileError(path, f"{where}{type(values).__name__} instead of a JSON object; {DAMAGED}")
    return values


# Files that know their format and their checksum


def checksum(*parts: bytes | memoryview) -> str:
    """A hash of the parts, each with its length, so that no two lists of parts read the same."""
    total = blake2b(digest_size=16)
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


def canonical(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def sealed(values: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The object with its format ("row 1") and the checksum of all its values in front.

    >>> sealed({"ece": 0.5}, "row 1")
    {'format': 'maccal row 1', 'checksum': '63818dff635ea316c5681ecb4c1ccc7b', 'ece': 0.5}
    """
    # as a reader will see it: no tuples, text as keys
    plain = json.loads(json.dumps(values, allow_nan=False))
    return {
        "format": f"maccal {kind}",
        "checksum": checksum(kind.encode(), canonical(plain)),
        **plain,
    }


def unsealed(values: Mapping[str, Any], kind: str, path: Path, where: str = "") -> dict[str, Any]:
    """The values of a sealed object; FileError unless format and checksum are right."""
    found, values = (
        values.get("format"),
        {key: value for key, value in values.items() if key != "format"},
    )
    check_format(found, kind, path, where)
    if values.pop("checksum", None) != checksum(kind.encode(), canonical(values)):
        raise FileError(path, f"{where}its checksum is wrong: {DAMAGED}")
    return values


def check_format(found: object, kind: str, path: Path, where: str = "") -> None:
    if found != f"maccal {kind}":
        said = "no format" if found is None else f"format {str(found)[:60]!r}"
        raise FileError(
            path,
            f"{where}{said}; expected 'maccal {kind}': another kind of file, another version's, or damaged",
        )


def write_json(path: Path, kind: str, values: Mapping[str, Any]) -> Path:
    """A sealed JSON object; ValueError for numbers that JSON cannot say."""
    return write(path, json.dumps(sealed(values, kind), indent=1, allow_nan=False) + "\n")


def read_json(path: Path, kind: str) -> dict[str, Any]:
    """What write_json wrote; FileError otherwise."""
    return unsealed(parse_json(read_bytes(path, LARGEST_JSON), path), kind, path)


def write_sealed(path: Path, kind: str, data: bytes | memoryview) -> Path:
    """Any bytes behind a header line."""
    header = {
        "format": f"maccal {kind}",
        "bytes": len(data),
        "checksum": checksum(kind.encode(), data),
    }

    def both(part: Path) -> None:
        with part.open("wb") as file:
            file.write(json.dumps(header).encode() + b"\n")
            file.write(data)

    return write_with(path, both)


def read_sealed(path: Path, kind: str) -> bytes:
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


def write_lines(path: Path, kind: str, records: list[dict[str, Any]]) -> Path:
    """JSON lines behind a header line: one object per line."""
    return write_sealed(
        path,
        kind,
        "".join(json.dumps(record, allow_nan=False) + "\n" for record in records).encode(),
    )


def read_lines(path: Path, kind: str) -> list[dict[str, Any]]:
    """What write_lines wrote; FileError otherwise."""
    lines = read_sealed(path, kind).decode().splitlines()
    return [parse_json(line, path, f"line {number}: ") for number, line in enumerate(lines, 2)]


def tensors_checksum(kind: str, tensors: Mapping[str, "Tensor"], notes: Mapping[str, Any]) -> str:
    """Of names, types, shapes and bytes of the tensors, and of the notes."""
    import torch

    parts: list[bytes | memoryview] = [kind.encode(), canonical(notes)]
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        parts.append(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        array: Any = tensor.reshape(-1).view(torch.uint8).numpy()
        parts.append(memoryview(array))
    return checksum(*parts)


def write_tensors(path: Path, kind: str, tensors: Mapping[str, "Tensor"], **notes: Any) -> Path:
    """Named tensors as a safetensors file. All notes are one entry of its metadata.

    Several would have no fixed order.
    """
    import safetensors.torch

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    about = {"format": f"maccal {kind}", "checksum": tensors_checksum(kind, plain, notes), **notes}
    return write(path, safetensors.torch.save(plain, {"maccal": json.dumps(about)}))


def read_tensors(path: Path, kind: str) -> tuple[dict[str, "Tensor"], dict[str, Any]]:
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


def npz(**arrays: Any) -> bytes:
    """The bytes of an .npz file of these arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()
