"""File events of this process below a folder, counted; at one of them the process is killed, or the
power fails.

    Events(folder).watch()                       count them
    Events(folder, at=7).watch()                 SIGKILL just before the eighth
    Events(folder, at=7, power=True).watch()     the same; what was not yet flushed is half lost

An event is opening a file to write, renaming, removing, making a folder, linking, truncating, or
fsync. Between two events nothing on the disk changes but the contents of open files, so all of them
together are all moments that differ.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def absolute(path: str) -> str:
    """The name of the file itself, where it is a link: links are made and removed, too."""
    return os.path.normpath(Path.cwd() / path)


class Events:
    def __init__(self, folder: Path, at: int | None = None, power: bool = False) -> None:
        self.folder, self.at, self.power = os.path.realpath(folder), at, power
        self.count = 0
        self.unsafe: set[str] = set()  # files that a power cut would harm
        self.ending = False

    def watch(self) -> "Events":
        """From here on, for the rest of this process: Python has no way back from an audit hook."""
        sys.addaudithook(self.hook)
        flush = os.fsync

        def fsync(handle: Any) -> None:
            number = handle if isinstance(handle, int) else handle.fileno()
            path = str(Path(f"/proc/self/fd/{number}").readlink())
            self.happens(path)
            flush(handle)
            self.unsafe.discard(path)

        vars(os)["fsync"] = fsync
        return self

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if self.ending:
            return
        if event == "open" and isinstance(args[0], str | bytes | os.PathLike) and args[2] & WRITING:
            self.opened(os.fsdecode(args[0]))
        elif event in EVENTS:
            paths = [
                absolute(os.fsdecode(arg))
                for arg in args[:2]
                if isinstance(arg, str | bytes | os.PathLike)
            ]
            self.happens(*paths)
            if event == "os.rename":
                self.renamed(*paths)

    def opened(self, path: str) -> None:
        path = absolute(path)
        self.happens(path)
        if self.inside(path):
            self.unsafe.add(path)

    def renamed(self, old: str, new: str) -> None:
        self.unsafe.discard(new)
        if old in self.unsafe:
            self.unsafe.remove(old)
            self.unsafe.add(new)

    def inside(self, path: str) -> bool:
        return os.path.realpath(Path(path).parent).startswith(self.folder)

    def happens(self, *paths: str) -> None:
        if not any(self.inside(path) for path in paths):
            return
        if self.count == self.at:
            self.end()
        self.count += 1

    def end(self) -> None:
        self.ending = True
        for path in self.unsafe if self.power else ():
            if Path(path).is_file():
                os.truncate(path, Path(path).stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
