"""Small data sets in the place of the published ones: their checksums are known, and SVHN is served
on this machine.

recorded(folder)    remembers size and checksum of every file, once they are made
known(folder)       inside, these are the published ones
served(folder)      inside, `maccal data get svhn` finds files here
"""

import functools
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np


class QuietServer(http.server.ThreadingHTTPServer):
    """A client that stops reading is no news: its disk may be full."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


def recorded(folder: Path) -> None:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = path.stat().st_size, checksum(path)
    (folder / "published.json").write_text(json.dumps(found))


@contextmanager
def known(folder: Path) -> Iterator[None]:
    from maccal.data.download import SOURCES

    files = json.loads((folder / "published.json").read_text())
    table: Any = SOURCES
    before = dict(table)
    for name, sources in before.items():
        table[name] = tuple(as_recorded(source, files) for source in sources)
    try:
        yield
    finally:
        table.update(before)


def as_recorded(source: Any, files: dict[str, tuple[int, str]]) -> Any:
    """A source with the sizes and checksums of the files that are recorded."""
    mine = {
        name: files[f"{source.folder}/{name}"]
        for name in source.contents
        if f"{source.folder}/{name}" in files
    }
    if source.is_archive:
        return replace(
            source,
            files={
                name: replace(source.files[name], size=size, checksum=sum)
                for name, (size, sum) in mine.items()
            },
        )
    return (
        replace(source, size=mine[source.file][0], checksum=mine[source.file][1])
        if mine
        else source
    )


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """Inside, the publisher's files are those that are made here, beside the folder."""
    from maccal.data.download import SOURCES

    files = folder.parent / "server"
    if not files.is_dir():
        make(files)
    handler = functools.partial(Quiet, directory=str(files))
    with QuietServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        before = SOURCES["svhn"]
        table: Any = SOURCES
        table["svhn"] = tuple(offered(source, files, server.server_address[1]) for source in before)
        try:
            yield
        finally:
            table["svhn"] = before
            server.shutdown()


def offered(source: Any, files: Path, port: int) -> Any:
    # no size: where it is known, room is asked for before the first byte, and the disk never fills
    return replace(
        source,
        url=f"http://127.0.0.1:{port}/{source.file}",
        size=None,
        checksum=checksum(files / source.file),
    )


def checksum(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def make(files: Path) -> None:
    from scipy.io import savemat

    files.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("train_32x32.mat", "test_32x32.mat"):
        images = rng.integers(0, 256, (32, 32, 3, 100), np.uint8)
        savemat(files / name, {"X": images, "y": rng.integers(1, 11, (100, 1)).astype(np.uint8)})
        data = (files / name).read_bytes()
        # without the date
        (files / name).write_bytes(b"MATLAB 5.0 MAT-file".ljust(116) + data[116:])
