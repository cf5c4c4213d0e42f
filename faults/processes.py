"""The processes that a process has started, from /proc."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def table() -> dict[int, tuple[int, str]]:
    """Parent and state of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with suppress(OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            found[int(entry.name)] = int(parent), state
    return found


def below(pid: int) -> list[int]:
    """All that live and descend from this process, without itself; parents before children."""
    known = table()
    found = [pid]
    for one in found:
        found += [child for child, (parent, _) in known.items() if parent == one]
    return [one for one in found[1:] if known[one][1] not in "ZX"]


def title(pid: int) -> str:
    with suppress(OSError):
        return (
            (Path("/proc") / str(pid) / "cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
        )
    return ""


def alive(pid: int) -> bool:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[
            0
        ] not in "ZX"
    return False


def kill(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def gone(pids: list[int], seconds: float) -> bool:
    """Whether all of them have ended within so many seconds."""
    end = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
