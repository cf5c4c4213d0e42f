"""Kills commands with SIGKILL, at every file event and at random moments, and runs them again.

    kills(seed, count, tally)    at least `count` kills, shared out over WORKLOADS

The same command, run again, must end with the bits of an undisturbed run, times left out, and leave
no other file. About half of the kills at file events are power cuts: what was written and not
flushed is half lost. Outcomes: same, silent (another result), wrong (other files, or exit code 2),
crash (no end, a traceback)."""

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from faults import processes
from faults.commands import differences, run, snapshot
from faults.events import Events
from faults.sandbox import die_with_parent, forked, trials, waited, workspace
from faults.tally import Outcome, Tally

RUN = "runs/digits.100-resnet8,epochs=2-vanilla-s1"
TRAIN = [
    "train",
    "--data",
    "digits",
    "--model",
    "resnet8",
    "--limit",
    "100",
    "--epochs",
    "2",
    "--precision",
    "fp32",
]
ROOT = Path(__file__).parents[1]
ALONE = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

MODEL = """
import torch
from torch import nn

def rows(seed, n=100):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=g)
    return [(torch.randn(n, 4, generator=g) + y[:, None], y)]

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), rows(1), rows(2), rows(3)
"""


# What is run: each starts in a folder and gives the id of a process


def command(*words: str) -> Callable[[Path, Events | None], int]:
    """A command line of maccal in a forked process, which has everything imported."""

    def start(folder: Path, events: Events | None) -> int:
        def work() -> int:
            if events is not None:
                events.watch()
            said = run(list(words), folder)
            (folder.parent / "said").write_text(said.out + said.err)
            (folder.parent / "events").write_text(str(events.count if events is not None else 0))
            return said.code

        return forked(work)

    return start


def program(*words: str) -> Callable[[Path, Events | None], int]:
    """A new Python process."""

    def start(folder: Path, events: Events | None) -> int:
        assert events is None
        with (folder.parent / "said").open("wb") as said:
            return subprocess.Popen(
                [sys.executable, *words],
                cwd=folder,
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ALONE},
                start_new_session=True,
                preexec_fn=die_with_parent,
            ).pid

    return start


def nothing(folder: Path) -> None:
    pass


def with_run(folder: Path) -> None:
    ended = waited(command(*TRAIN)(folder, None), 120)
    if ended != 0:
        raise RuntimeError(f"the run to work on could not be made: {ended}")


def with_model(folder: Path) -> None:
    (folder / "mine.py").write_text(MODEL)


@dataclass(frozen=True)
class Workload:
    """Something that runs, what must be there before, which of its processes are killed, and its
    share of the kills.
    """

    name: str
    start: Callable[[Path, Events | None], int]
    prepare: Callable[[Path], None] = nothing
    events: bool = True
    victims: str = "itself"  # or "any" of its processes, or those whose title has the word
    share: float = 1.0


TORCHRUN = (
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "-m",
    "maccal",
    *TRAIN,
)
GRID = ("-m", "faults.grid", ".")
WORKLOADS = (
    Workload("train", command(*TRAIN), share=6),
    Workload("calibrate a run", command("calibrate", RUN, "--epochs", "2"), with_run, share=4),
    Workload(
        "calibrate a model with a cache",
        command("calibrate", "mine.py:build", "--cache", "cache", "--epochs", "2", "--out", "out"),
        with_model,
        share=4,
    ),
    Workload("evaluate a run", command("evaluate", RUN, "--resamples", "20"), with_run, share=3),
    Workload("bench, the grid", program(*GRID, "local"), events=False, share=0.5),
    Workload("bench, a worker", program(*GRID, "local"), events=False, victims="any", share=0.5),
    Workload("torchrun, all ranks", program(*TORCHRUN), events=False, victims="all", share=0.3),
    Workload(
        "torchrun, one rank", program(*TORCHRUN), events=False, victims="maccal train", share=0.3
    ),
    Workload("Ray, a worker", program(*GRID, "ray"), events=False, victims="ray::", share=0.3),
)
PATIENCE = 240.0  # seconds that a command may take
SAMPLE = 20  # kills of a workload below which not every file event can have one


# What happens to it


@dataclass(frozen=True)
class Trial:
    """One kill at a file event, or several one after the other at random moments."""

    workload: Workload
    number: int
    seed: int
    at: int | None = None
    power: bool = False

    @property
    def about(self) -> str:
        if self.at is None:
            return f"seed {self.seed}, trial {self.number}, at random moments"
        return f"{'power cut' if self.power else 'killed'} before file event {self.at}"


@dataclass(frozen=True)
class Undisturbed:
    """What a workload leaves behind when nobody kills it, how long it takes, and its number of file
    events.
    """

    files: dict[str, str]
    seconds: float
    events: int


def fresh(workload: Workload, place: Path) -> Path:
    """A new folder with what the workload needs."""
    shutil.rmtree(place, ignore_errors=True)
    folder = place / "work"
    folder.mkdir(parents=True)
    prepared = place.parent / f"prepared {workload.name}"
    if prepared.is_dir():
        shutil.copytree(prepared, folder, dirs_exist_ok=True)
    return folder


def undisturbed(workload: Workload, place: Path) -> Undisturbed:
    """Two runs without a kill, which must agree: otherwise no comparison could be made."""
    prepared = place / f"prepared {workload.name}"
    prepared.mkdir()
    workload.prepare(prepared)
    found = []
    seconds = 0.0
    for name in ("first", "second"):
        folder = fresh(workload, place / name)
        began = time.monotonic()
        ended = waited(workload.start(folder, None), PATIENCE)
        seconds = time.monotonic() - began
        if ended != 0:
            raise RuntimeError(f"{workload.name}, undisturbed, ended with {ended}: {said(folder)}")
        found.append(snapshot(folder))
    if different := differences(*found):
        raise RuntimeError(f"{workload.name}: two undisturbed runs differ: {different}")
    return Undisturbed(found[0], seconds, events_of(workload, place) if workload.events else 0)


def events_of(workload: Workload, place: Path) -> int:
    folder = fresh(workload, place / "counted")
    waited(workload.start(folder, Events(folder)), PATIENCE)
    return int((folder.parent / "events").read_text())


def said(folder: Path) -> str:
    file = folder.parent / "said"
    lines = file.read_text(errors="replace").strip().splitlines() if file.is_file() else []
    return lines[-1][:300] if lines else "nothing said"


def tried(trial: Trial, alone: Undisturbed, place: Path) -> Iterator[Outcome]:
    """Kill, perhaps kill again, then let it end, and compare."""
    name, rng = (
        trial.workload.name,
        random.Random(f"{trial.seed} {trial.workload.name} {trial.number}"),
    )
    folder = fresh(trial.workload, place)
    for _ in range(1 if trial.at is not None else rng.choice((1, 1, 2, 3))):
        killed, problem = disturbed(trial, folder, alone, rng)
        if problem:
            yield Outcome(name, "crash", f"{trial.about}: {problem}")
            return
        if killed:
            yield Outcome(name, "killed")  # counted apart: a trial may have several
    ended = waited(trial.workload.start(folder, None), PATIENCE)
    word, why = judged(ended, snapshot(folder), alone.files)
    yield Outcome(
        name, word, f"{trial.about}: {why}; it said: {said(folder)}" if why else trial.about
    )


def judged(ended: int | None, found: dict[str, str], wanted: dict[str, str]) -> tuple[str, str]:
    """The outcome of the command that was run again."""
    if ended is None or ended < 0 or ended == 1:
        return "crash", "it did not end" if ended is None else f"exit code {ended}"
    if ended != 0:
        return "wrong", f"exit code {ended}"
    different = differences(found, wanted)
    if "another" in different:
        return "silent", different
    return ("wrong", different) if different else ("same", "")


def disturbed(
    trial: Trial, folder: Path, alone: Undisturbed, rng: random.Random
) -> tuple[bool, str]:
    """Start it and kill it; whether that came in time, and what went wrong."""
    load = trial.workload
    if trial.at is not None:
        return waited(load.start(folder, Events(folder, trial.at, trial.power)), PATIENCE) == -9, ""
    pid = load.start(folder, None)
    time.sleep(rng.uniform(0.02, 0.95) * alone.seconds)
    started = processes.below(pid)
    victims = chosen(load.victims, pid, started, rng)
    processes.kill(*victims)
    if waited(pid, PATIENCE) is None:
        return True, f"killed {len(victims)} of its processes, and it did not end"
    if not processes.gone(started, 30):
        processes.kill(*started)
        return True, "processes that it had started went on without it"
    return bool(victims), ""


def chosen(victims: str, pid: int, started: list[int], rng: random.Random) -> list[int]:
    """Of a process and those that it has started, the ones to kill."""
    if victims == "itself":
        return [pid] if processes.alive(pid) else []
    if victims == "all":
        return [pid, *started]
    some = [one for one in started if victims == "any" or victims in processes.title(one)]
    return [rng.choice(some)] if some else []


# All of it


def plan(workload: Workload, alone: Undisturbed, seed: int, count: int) -> list[Trial]:
    """Every file event, killed or cut off by lot, and random moments; of a sample some of both."""
    rng = random.Random(f"{seed} {workload.name}")
    points = [(at, rng.random() < 0.5) for at in range(alone.events)]
    if count < SAMPLE:
        points = rng.sample(points, min(len(points), 3 * count // 4))
    found = [Trial(workload, number, seed, at, power) for number, (at, power) in enumerate(points)]
    left = max(1, count - len(found))
    return found + [Trial(workload, len(found) + number, seed) for number in range(left)]


def kills(seed: int, count: int, tally: Tally, workloads: tuple[Workload, ...] = WORKLOADS) -> None:
    total = sum(workload.share for workload in workloads)
    killed: dict[str, int] = tally.figures.setdefault("kills", {})
    for workload in workloads:
        place = workspace()
        try:
            alone = undisturbed(workload, place)
            number = max(1, round(count * workload.share / total))

            def work(
                trial: Trial, alone: Undisturbed = alone, place: Path = place
            ) -> list[Outcome]:
                return list(tried(trial, alone, place / f"lane{os.getpid()}"))

            todo = plan(workload, alone, seed, number)
            name = lambda trial: (trial.workload.name, trial.about)  # noqa: E731
            jobs = None if workload.events else 1
            for outcome in trials(
                todo, work, name=name, jobs=jobs, seconds=6 * PATIENCE, memory=None
            ):
                if outcome.word == "killed":
                    killed[workload.name] = killed.get(workload.name, 0) + 1
                else:
                    tally.add(outcome)
        finally:
            shutil.rmtree(place, ignore_errors=True)
