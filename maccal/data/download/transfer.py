"""One file over HTTP.

Resumed where it stopped, and under its name only when size and checksum are right.
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

BLOCK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
# seconds before each new try; a try that brought bytes starts the row again
PAUSES = (1.0, 2.0, 4.0, 8.0)
AGAIN = {408, 425, 429, 500, 502, 503, 504}  # answers that may be better next time

Report = Callable[[int, int | None], object]


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
    """Download to target, by way of target.part, which stays there on an interruption and is gone
    on from next time.

    `report` is called with the bytes there are and the bytes there will be. FileError where the
    server refuses, the connection keeps dropping, or the file is not what is known of it; then the
    bad part is deleted."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise FileError(target, f"{url} is not an http or https address")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    if known.size is not None and length(part) > known.size:
        part.unlink()  # not the beginning of this file
    most, waits = length(part), iter(pauses)
    while known.size is None or length(part) < known.size:
        try:
            receive(url, part, known, report)
            break
        except Dropped as error:
            if length(part) > most:
                most, waits = length(part), iter(pauses)
            wait_or_give_up(url, part, waits, error)
    if problem := wrong(part, known):
        part.unlink(missing_ok=True)
        raise FileError(
            part,
            f"{problem}; it is deleted: try again, and if this stays so {url} is no longer the same file",
        )
    return part.replace(target)


def wait_or_give_up(url: str, part: Path, waits: Iterator[float], error: Dropped) -> None:
    pause = next(waits, None)
    if pause is None:
        kept = (
            f"; {length(part):,} bytes are kept in {part.name}, try again to go on from there"
            if length(part)
            else "; try again"
        )
        raise FileError(part.with_suffix(""), f"{url} cannot be read ({error}){kept}") from error
    time.sleep(pause)


def receive(url: str, part: Path, known: Known, report: Report) -> None:
    """One request for what is missing.

    Appended, or from the beginning where the server sends the whole file all the same.
    """
    have = length(part)
    with answer(url, have, part) as response:
        start, total = place(response, have)
        if start not in (0, have):
            part.unlink(missing_ok=True)  # this server cannot resume: all of it, next time
            raise Dropped(f"asked for bytes from {have} on, it sends them from {start} on")
        if known.size is not None and total not in (None, known.size):
            raise FileError(
                part.with_suffix(""),
                f"{url} offers {total:,} bytes, expected {known.size:,}; is this a login page?",
            )
        done = save(response, part, start, total or known.size, report)
    if done < (total or known.size or 0):
        raise Dropped(f"it stopped after {done:,} bytes")


def answer(url: str, have: int, part: Path) -> Any:
    """The open response; only http and https are spoken, wherever the server sends us."""
    opener = urllib.request.OpenerDirector()
    for handler in ("Proxy", "Unknown", "HTTP", "HTTPS", "HTTPDefaultError", "HTTPRedirect"):
        opener.add_handler(getattr(urllib.request, f"{handler}Handler")())
    opener.add_handler(urllib.request.HTTPErrorProcessor())
    headers = {"User-Agent": "maccal"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with network():
            return opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        # the part is no beginning of the file, or all of it, which only the checksum could tell
        if error.code == 416:
            part.unlink(missing_ok=True)
        elif error.code not in AGAIN:
            raise FileError(
                part.with_suffix(""), f"{url} answers {error.code} {error.reason}; has it moved?"
            ) from None
        raise Dropped(f"{error.code} {error.reason}") from error


@contextmanager
def network() -> Iterator[None]:
    """Whatever goes wrong on the way is a dropped transfer; an answer that is an error is not."""
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise Dropped(str(getattr(error, "reason", "") or error or type(error).__name__)) from error


def place(response: Any, have: int) -> tuple[int, int | None]:
    """Which byte the response starts with, and how many the whole file has, where it says so."""
    announced = response.headers.get("Content-Length", "")
    rest = int(announced) if announced.isdigit() else None
    if response.status != 206:
        return 0, rest
    told = re.fullmatch(
        r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip()
    )
    start = int(told[1]) if told else have
    if told and told[2] != "*":
        return start, int(told[2])
    return start, None if rest is None else start + rest


def save(response: Any, part: Path, start: int, total: int | None, report: Report) -> int:
    """Write what comes, to the end or just past the total; returns how many bytes the part now has."""
    done = start
    with part.open("ab" if start else "wb") as file:
        report(done, total)
        while done <= (total or LIMIT) and (block := some(response)):
            done += file.write(block)
            report(done, total)
    return done


def some(response: Any) -> bytes:
    with network():
        return bytes(response.read1(BLOCK))  # what has arrived, so that a break loses nothing


def length(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def wrong(path: Path, known: Known, *, hashed: bool = True) -> str | None:
    """What is not as known, or None; without `hashed` only whether it is there, and its size."""
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
    """FileError where the disk of the folder has less room than that."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FileError(
            folder,
            f"{needed / 1e9:.1f} GB needed, {free / 1e9:.1f} GB free; make room or choose another folder",
        )
