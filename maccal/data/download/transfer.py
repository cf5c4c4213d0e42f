"""One file over HTTP.

It is resumed where it stopped, and gets its name only when its size and checksum are right.
"""

import hashlib
import http.client
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from maccal.data.download.sources import LIMIT, Known
from maccal.io import FileError

BLOCK = 1 << 18  # bytes read at a time
TIMEOUT = 30.0  # seconds without a byte
# Seconds before each new try; after a try that brought bytes, they start from the first again
PAUSES = (1.0, 2.0, 4.0, 8.0)
AGAIN = {408, 425, 429, 500, 502, 503, 504}  # HTTP errors that may be gone next time

Report = Callable[[int, int | None], object]  # of the bytes so far, and the bytes in all


class Dropped(Exception):
    """The transfer ended early; what arrived is in the .part file."""


def fetch(
    url: str,
    target: Path,
    known: Known,
    *,
    report: Report = lambda done, total: None,
    pauses: Sequence[float] = PAUSES,
) -> Path:
    """Download to `target` by way of target.part, which an interruption leaves for the next time.

    `report` is called with the bytes so far and the bytes in all. FileError if the server refuses,
    if the connection keeps dropping, or if the file is not what is known about it; in this case the
    wrong part is deleted.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise FileError(target, f"{url} is not an http or https address")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(target)
    if known.size is not None and length(part) > known.size:
        part.unlink()  # not the beginning of this file
    receive_all(url, part, known, report, pauses)
    problem = wrong(part, known)
    if problem:
        part.unlink(missing_ok=True)
        advice = f"try again, and if this stays so {url} is no longer the same file"
        raise FileError(part, f"{problem}; it is deleted: {advice}")
    return part.replace(target)


def part_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.part")


def receive_all(
    url: str, part: Path, known: Known, report: Report, pauses: Sequence[float]
) -> None:
    """Ask for what is missing until it is there, with a pause after each dropped transfer."""
    most = length(part)
    waits = iter(pauses)
    while known.size is None or length(part) < known.size:
        try:
            receive(url, part, known, report)
            return
        except Dropped as error:
            if length(part) > most:
                most = length(part)
                waits = iter(pauses)
            wait_or_give_up(url, part, waits, error)


def wait_or_give_up(url: str, part: Path, waits: Iterator[float], error: Dropped) -> None:
    pause = next(waits, None)
    if pause is not None:
        time.sleep(pause)
        return
    advice = "try again"
    if length(part):
        advice = f"{length(part):,} bytes are kept in {part.name}, try again to go on from there"
    raise FileError(part.with_suffix(""), f"{url} cannot be read ({error}); {advice}") from error


def receive(url: str, part: Path, known: Known, report: Report) -> None:
    """Make one request for what is missing, and append the answer to the part.

    A server may send the whole file all the same: then the part is written from its beginning.
    """
    have = length(part)
    with answer(url, have, part) as response:
        start, total = extent(response, have)
        if start not in (0, have):
            part.unlink(missing_ok=True)  # this server cannot resume: all of it, next time
            raise Dropped(f"asked for bytes from {have} on, it sends them from {start} on")
        if known.size is not None and total not in (None, known.size):
            offer = f"{url} offers {total:,} bytes, expected {known.size:,}"
            raise FileError(part.with_suffix(""), f"{offer}; is this a login page?")
        done = save(response, part, start, total or known.size, report)
    if done < (total or known.size or 0):
        raise Dropped(f"it stopped after {done:,} bytes")


def answer(url: str, have: int, part: Path) -> Any:
    """The open response; http and https only, even where the server redirects."""
    opener = urllib.request.OpenerDirector()
    for handler in ("Proxy", "Unknown", "HTTP", "HTTPS", "HTTPDefaultError", "HTTPRedirect"):
        opener.add_handler(getattr(urllib.request, f"{handler}Handler")())
    opener.add_handler(urllib.request.HTTPErrorProcessor())
    headers = {"User-Agent": "maccal"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        with drops():
            return opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        said = f"{error.code} {error.reason}"
        # 416: the part is no beginning of the file, or all of it, which only a checksum could tell
        if error.code == 416:
            part.unlink(missing_ok=True)
        elif error.code not in AGAIN:
            raise FileError(part.with_suffix(""), f"{url} answers {said}; has it moved?") from None
        raise Dropped(said) from error


@contextmanager
def drops() -> Iterator[None]:
    """Turn whatever goes wrong on the way into Dropped; an HTTP error is an answer, and passes."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise Dropped(str(getattr(error, "reason", "") or error or type(error).__name__)) from error


def extent(response: Any, have: int) -> tuple[int, int | None]:
    """Which byte the response starts with, and how many the whole file has, if it says so."""
    announced = response.headers.get("Content-Length", "")
    rest = int(announced) if announced.isdigit() else None
    if response.status != 206:
        return 0, rest
    content_range = response.headers.get("Content-Range", "").strip()
    told = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", content_range)
    start = int(told[1]) if told else have
    if told and told[2] != "*":
        return start, int(told[2])
    return start, None if rest is None else start + rest


def save(response: Any, part: Path, start: int, total: int | None, report: Report) -> int:
    """Write what comes, to the end or just past the total; return the size of the part then."""
    done = start
    with part.open("ab" if start else "wb") as file:
        report(done, total)
        while done <= (total or LIMIT):
            block = arrived(response)
            if not block:
                break
            done += file.write(block)
            report(done, total)
    return done


def arrived(response: Any) -> bytes:
    """The bytes that have arrived by now, so that a break loses none of them."""
    with drops():
        return bytes(response.read1(BLOCK))


def length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def wrong(path: Path, known: Known, *, hashed: bool = True) -> str | None:
    """What is not as known, or None.

    Without `hashed` only whether the file is there, and its size.
    """
    if not path.is_file():
        return "no such file"
    if known.size is not None and length(path) != known.size:
        return f"{length(path):,} bytes, expected {known.size:,}"
    if not hashed or known.checksum is None:
        return None
    algorithm, expected = known.checksum.split(":")
    found = digest(path, algorithm)
    return None if found == expected else f"{algorithm} {found}, expected {expected}"


def digest(path: Path, algorithm: str) -> str:
    total = hashlib.new(algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            total.update(block)
    return total.hexdigest()


def need_space(folder: Path, needed: int) -> None:
    """FileError if the folder's disk has less than that many bytes free."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        sizes = f"{needed / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free"
        raise FileError(folder, f"{sizes}; make room or choose another folder")
