"""Locks that end with the process that holds them, however it ends."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maccal.io.folders import make_folder

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # what a file system without locks answers
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)  # Windows does not have it


def take_lock(handle: int, *, wait: bool) -> bool:
    """Lock an open file for this process alone; False if another process holds it.

    A file system without locks grants every request.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def abandoned(handle: int) -> bool:
    """Whether it is certain that no process holds the lock of an open file."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by a writer, or a file system without locks
        return False
    return True


@contextmanager
def locked(folder: Path | str, *, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the folder's lock; `waiting` is called once if another process has it."""
    folder = make_folder(folder)
    handle = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR | NOFOLLOW, 0o666)
    try:
        if not take_lock(handle, wait=False):
            waiting()
            take_lock(handle, wait=True)
        yield
    finally:
        os.close(handle)
