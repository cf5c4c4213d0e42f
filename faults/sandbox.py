"""Trials in forked processes, so that a crash, a hang or a greedy allocation costs one trial and
not the run.

    trials(tasks, work, ...)    work(task) of every task, some processes side by side; what they
                                died of is an outcome
    forked(work)                one function in a process of its own: the process id
    waited(pid, seconds)        how it ended; a hang is killed

The parent imports everything once (`warm`), which takes seconds; a fork takes ten milliseconds.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from faults.tally import Outcome

MEMORY = 3 << 30  # bytes that a trial may take beyond what its process has
SECONDS = 60.0  # that a trial may take


def warm() -> None:
    """Import what the commands import, once, with one thread.

    A process that has threads should not fork.
    """
    import matplotlib as mpl
    import sklearn.datasets
    import sklearn.linear_model  # noqa: F401
    import torch
    import torch._dynamo  # which every optimiser imports

    from maccal.cli.verbs import VERBS

    for verb in VERBS.values():
        import_module(verb.home.partition(":")[0])

    mpl.use("agg")
    torch.set_num_threads(1)


def workspace() -> Path:
    """A new folder, in memory where there is such a place: thousands of small files."""
    memory = Path("/dev/shm")
    folder = Path(
        tempfile.mkdtemp(
            prefix="maccal-faults-", dir=memory if os.access(memory, os.W_OK) else None
        )
    )
    # what is remembered of data sets is not ours to touch
    os.environ["MACCAL_CACHE"] = str(folder / "cache of the user")
    return folder


def forked(work: Callable[[], object], quiet: bool = True) -> int:
    """Start it in a new process, which exits with what it returns: 0 for None, 1 for an error."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent()
        if quiet:
            silence()
        result = work()
        code = result if isinstance(result, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def die_with_parent() -> None:
    """Linux kills this process when the one that started it has ended.

    Nothing of the harness stays behind.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def waited(pid: int, seconds: float = SECONDS) -> int | None:
    """The exit code, minus the signal that ended it, or None for a process that hung and was
    killed.
    """
    end = time.monotonic() + seconds
    pause = 0.001
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def limit_memory(more: int) -> None:
    """Allow so many bytes beyond those that the process has mapped."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def processor_time(pid: int) -> float:
    """Seconds that a process and its ended children have worked."""
    try:
        fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


# Many trials


Work = Callable[[Any], Sequence[Outcome]]
Name = Callable[[Any], tuple[str, str]]


class Lane:
    """A process that works on its tasks one by one, and what the parent knows of it."""

    def __init__(self, tasks: Sequence[Any], work: Work, memory: int | None) -> None:
        self.tasks, self.work, self.memory = tasks, work, memory
        self.done = 0  # tasks that are behind it
        self.pid, self.pipe, self.began, self.spent, self.heard = 0, -1, 0.0, 0.0, b""

    @property
    def open(self) -> bool:
        return self.done < len(self.tasks)

    def start(self) -> None:
        reading, writing = os.pipe()
        self.pid = forked(lambda: self.walk(writing))
        os.close(writing)
        self.pipe, self.heard = reading, b""
        self.begin()

    def begin(self) -> None:
        """The clocks of the next task."""
        self.began, self.spent = time.monotonic(), processor_time(self.pid)

    def late(self, seconds: float) -> bool:
        """Whether it has worked for longer than that.

        Where others have the processor, it may wait some more.
        """
        waiting = time.monotonic() - self.began
        return waiting > seconds and (
            waiting > 5 * seconds or processor_time(self.pid) - self.spent > seconds
        )

    def walk(self, pipe: int) -> None:
        """In the child: one line of JSON per task."""
        os.setpgid(0, 0)
        if self.memory is not None:
            limit_memory(self.memory)
        for task in self.tasks[self.done :]:
            try:
                line: Any = [vars(outcome) for outcome in self.work(task)]
            # work judges whatever the package raises, so this is a mistake of ours
            except BaseException:
                line = traceback.format_exc()
            os.write(pipe, json.dumps(line).encode() + b"\n")

    def read(self) -> Iterator[Outcome] | None:
        """The outcomes that have arrived; None when there will be no more."""
        data = os.read(self.pipe, 1 << 16)
        if not data:
            return None
        *lines, self.heard = (self.heard + data).split(b"\n")
        self.done += len(lines)
        if lines:
            self.begin()
        return (outcome for line in lines for outcome in parsed(line))

    def end(self, patience: float) -> str:
        """Take leave of the process and of what it started; how it ended."""
        os.close(self.pipe)
        code = waited(self.pid, patience)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.pid, self.pipe = 0, -1
        if code is None:
            return "did not end"
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def lost(self, name: Name, how: str) -> Outcome:
        """The task that it was at is given up."""
        group, about = name(self.tasks[self.done])
        self.done += 1
        return Outcome(group, "crash", f"{about}: its process {how}")


def parsed(line: bytes) -> list[Outcome]:
    found = json.loads(line)
    if isinstance(found, str):
        raise RuntimeError(f"the harness itself failed:\n{found}")
    return [Outcome(**outcome) for outcome in found]


def trials(
    tasks: Sequence[Any],
    work: Work,
    *,
    name: Name,
    jobs: int | None = None,
    seconds: float = SECONDS,
    memory: int | None = MEMORY,
) -> Iterator[Outcome]:
    """The outcomes of work(task) for every task, of several processes side by side.

    `name` gives group and description of a task whose process died or was late.
    """
    number = min(jobs or os.cpu_count() or 1, len(tasks))
    lanes = [Lane(tasks[first::number], work, memory) for first in range(number)]
    try:
        while any(lane.open for lane in lanes):
            for lane in lanes:
                if lane.open and not lane.pid:
                    lane.start()
            ready, _, _ = select.select([lane.pipe for lane in lanes if lane.pid], [], [], 1.0)
            for lane in lanes:
                if lane.pid:
                    yield from heard(lane, lane.pipe in ready, name, seconds)
    finally:
        for lane in lanes:
            if lane.pid:
                lane.end(0 if lane.open else 5)


def heard(lane: Lane, ready: bool, name: Name, seconds: float) -> Iterator[Outcome]:
    """What a lane has to say.

    One that died or is late goes on with its next task in a new process.
    """
    outcomes = lane.read() if ready else iter(())
    if outcomes is not None:
        yield from outcomes
        if not lane.open or not lane.late(seconds):
            return
    how = lane.end(5 if outcomes is None else 0)
    if lane.open:
        yield lane.lost(name, how if outcomes is None else f"had no end within {seconds:.0f} s")
