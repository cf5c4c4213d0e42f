"""Fills a small disk while commands write to it.

    disk(seed, count, tally)    about `count` trials, shared out over COMMANDS

The disk is a tmpfs of a few megabytes where mounting is allowed; elsewhere no file may grow beyond
a limit (RLIMIT_FSIZE). Room is left for a random part of what the command writes. It must say so in
one line with exit code 2, leave the files that were there whole, leave no part behind, and succeed
when there is room again, with the bits of a run that never ran out. Outcomes: same, wrong, silent,
crash; enough room (nothing to be seen)."""

import os
import random
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from faults import kills
from faults.commands import Said, run, snapshot
from faults.kills import RUN, TRAIN, nothing, with_model, with_run
from faults.sandbox import forked, waited, workspace
from faults.tally import Outcome, Tally
from maccal.evaluation.row import read_rows, write_rows

SIZE = 8 << 20  # bytes of the small disk
PATIENCE = 240.0


def with_rows(folder: Path) -> None:
    """Some rows of a benchmark, as its file has them."""
    write_rows(folder / "rows.jsonl", read_rows(kills.ROOT / "results" / "bench-cpu.jsonl")[:20])


def download(folder: Path) -> Said:
    """`maccal data get` of a set that this machine serves."""
    from faults.server import served

    with served(folder):
        return run(["data", "get", "svhn", "--root", "sets"], folder)


@dataclass(frozen=True)
class Command:
    name: str
    run: Callable[[Path], Said]
    prepare: Callable[[Path], None] = nothing
    kept: tuple[str, ...] = ()  # parts that stay on purpose: the same command goes on from them


def maccal_command(*words: str) -> Callable[[Path], Said]:
    return lambda folder: run(list(words), folder)


CACHED = ("calibrate", "mine.py:build", "--cache", "cache", "--epochs", "2", "--out", "out")
COMMANDS = (
    Command(
        "train", maccal_command(*TRAIN), kept=("checkpoint.pt", "config.json", "history.jsonl")
    ),
    Command("calibrate with a cache", maccal_command(*CACHED), with_model),
    Command("evaluate", maccal_command("evaluate", RUN, "--resamples", "20"), with_run),
    Command("report", maccal_command("report", "rows.jsonl", "--out", "report.html"), with_rows),
    Command("data get", download, kept=("test_32x32.mat.part", "train_32x32.mat.part")),
)


# The small disk


def mounted(folder: Path) -> bool:
    """Put a small disk there, if this user may."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    return (
        shutil.which("mount") is not None
        and subprocess.run(words, capture_output=True, check=False).returncode == 0
    )


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    folder.mkdir(parents=True)
    there = mounted(folder)
    try:
        yield there
    finally:
        if there:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, room: int) -> Path:
    """A file that leaves so many bytes of the disk."""
    ballast = folder / "ballast"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free - room))
    return ballast


def limited(command: Command, folder: Path, room: int | None) -> int:
    """Run the command where, without a small disk, no file may have more than `room` bytes."""

    def work() -> int:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        said = command.run(folder)
        if room is not None:
            resource.setrlimit(
                resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
        (folder.parent / "said").write_text(said.err)
        return said.code

    return forked(work)


# A trial


@dataclass(frozen=True)
class Alone:
    """What the command leaves where there is room, and how many bytes that takes."""

    before: dict[str, str]
    after: dict[str, str]
    bytes: int


def alone(command: Command, place: Path) -> Alone:
    ready = place / "ready" / "work"
    ready.mkdir(parents=True)
    command.prepare(ready)
    folder = place / "alone" / "work"
    shutil.copytree(ready, folder)
    before, size = snapshot(folder), used(folder)
    code = waited(limited(command, folder, None), PATIENCE)
    if code != 0:
        raise RuntimeError(
            f"{command.name}, with room enough, ended with {code}: {kills.said(folder)}"
        )
    return Alone(before, snapshot(folder), used(folder) - size)


def used(folder: Path) -> int:
    return sum(
        -(-path.stat().st_size // 4096) * 4096 for path in folder.rglob("*") if path.is_file()
    )


def tried(command: Command, good: Alone, share: float, place: Path) -> Outcome:
    """Leave room for this share of what the command writes."""
    folder = place / "work"
    about = f"room for {share:.0%} of what it writes"
    with small_disk(folder) as real:
        shutil.copytree(place.parent / "ready" / "work", folder, dirs_exist_ok=True)
        room = int(share * good.bytes)
        ballast = fill(folder, room) if real else None
        code = waited(limited(command, folder, None if real else room), PATIENCE)
        if ballast is not None:
            ballast.unlink()
        if code == 0:
            return Outcome(command.name, "enough room", about)
        if problem := complaint(command, good, code, folder):
            return Outcome(command.name, "crash" if code != 2 else "wrong", f"{about}: {problem}")
        again = waited(limited(command, folder, None), PATIENCE)
        word, why = kills.judged(again, snapshot(folder), good.after)
        return Outcome(
            command.name,
            word,
            f"{about}, then room: {why}; it said: {kills.said(folder)}" if why else about,
        )


def complaint(command: Command, good: Alone, code: int | None, folder: Path) -> str:
    """What is wrong with how it ended on the full disk."""
    words = (folder.parent / "said").read_text().strip() if code is not None else ""
    if code != 2:
        return f"exit code {code}: {words[-200:]}"
    if "\n" in words or not words:
        return f"not one line: {words[:200]}"
    found = snapshot(folder)
    left = [
        name for name in found if name.endswith(".part") and Path(name).name not in command.kept
    ]
    if left:
        return f"left over {', '.join(left)}"
    torn = [
        name
        for name, old in good.before.items()
        if found.get(name) not in (old, good.after.get(name))
    ]
    return f"not whole: {', '.join(torn)}" if torn else ""


def disk(seed: int, count: int, tally: Tally, commands: tuple[Command, ...] = COMMANDS) -> None:
    rng = random.Random(seed)
    for command in commands:
        top = workspace()
        try:
            good = alone(command, top)
            each = max(1, count // len(commands))
            for number in range(each):
                share = (number + rng.random()) / each * 0.98
                tally.add(tried(command, good, share, top / f"{number}"))
        finally:
            shutil.rmtree(top, ignore_errors=True)
