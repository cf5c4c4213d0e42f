"""A small SVHN, served on this machine in the place of its publisher's server."""

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """Inside, the publisher's files are those that are made here, beside the folder."""
    from maccal.data.downloads import SOURCES

    files = folder.parent / "server"
    if not files.is_dir():
        make(files)
    handler = functools.partial(Quiet, directory=str(files))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        before = SOURCES["svhn"]
        table: Any = SOURCES
        table["svhn"] = tuple(known(source, files, server.server_address[1]) for source in before)
        try:
            yield
        finally:
            table["svhn"] = before
            server.shutdown()


def known(source: Any, files: Path, port: int) -> Any:
    data = (files / source.file).read_bytes()
    checksum = f"sha256:{hashlib.sha256(data).hexdigest()}"
    # no size: where it is known, room is asked for before the first byte, and the disk never fills
    return replace(source, url=f"http://127.0.0.1:{port}/{source.file}", size=None, checksum=checksum)


def make(files: Path) -> None:
    from scipy.io import savemat

    files.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("train_32x32.mat", "test_32x32.mat"):
        images = rng.integers(0, 256, (32, 32, 3, 100), np.uint8)
        savemat(files / name, {"X": images, "y": rng.integers(1, 11, (100, 1)).astype(np.uint8)})
        data = (files / name).read_bytes()
        (files / name).write_bytes(b"MATLAB 5.0 MAT-file".ljust(116) + data[116:])  # without the date
