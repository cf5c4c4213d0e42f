"""Who makes the runs of a grid: processes on this machine, or a Ray cluster.

    work(jobs, make, Local(workers=2))                one process per run; they share the cores
    work(jobs, make, Ray(address="auto", gpus=1))     one Ray task per run, tried again when it dies

A run waits for its stage I. One that fails leaves its error in error.json and does not stop the
others, except those that build on it. What is done already is not made again, so a grid that was
stopped, or had failures, goes on with the same command. Under Ray all nodes must see the same runs
and data folders.
"""

import contextlib
import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from maccal.bench.grids import ERROR, Job, read_error
from maccal.io import write_json
from maccal.plugins import load_plugins

# makes a run; it must be importable by its name, for other processes call it
Make = Callable[[Job], object]


@dataclass(frozen=True)
class Local:
    """Processes on this machine; each gets its share of the cores."""

    workers: int = 1


@dataclass(frozen=True)
class Ray:
    """A Ray cluster; a run takes so many of its processors and GPUs."""

    address: str | None = None  # None starts one on this machine
    cpus: float = 1
    gpus: float = 0
    retries: int = 3  # when a worker dies


def attempt(make: Make, job: Job, runs: Path, threads: int) -> str | None:
    """Make a run in this process; its error, if it has one, is also left in its folder."""
    torch.set_num_threads(threads)
    load_plugins()
    error_file = runs / job.config.name / "error.json"
    try:
        error_file.unlink(missing_ok=True)
        make(job)
    except Exception as error:  # whatever it is, the other runs go on
        return failed(error_file, f"{type(error).__name__}: {error}", traceback.format_exc())
    return None


def failed(file: Path, error: str, trace: str = "") -> str:
    """Leave the error in its file, if the disk has room for it."""
    with contextlib.suppress(OSError):
        write_json(file, ERROR, {"error": error, "traceback": trace})
    return error


def work(
    jobs: Sequence[Job], make: Make, runs: Path, executor: Local | Ray
) -> Iterator[tuple[Job, str | None]]:
    """Make the runs that are not done; gives each with its error, or None, as it ends."""
    todo = [job for job in jobs if job.state(runs) != "done"]
    return (
        locally(todo, make, runs, executor)
        if isinstance(executor, Local)
        else on_ray(todo, make, runs, executor)
    )


def needed(job: Job, names: Sequence[str]) -> str | None:
    """The run that must be there first, if it is still to be made."""
    first = job.first.name
    return first if first != job.config.name and first in names else None


def next_of(todo: Sequence[Job], running: Sequence[Job]) -> Job | None:
    """The first run that waits for no other.

    Preferably one whose stage I no process works on: two second stages of one network would wait
    for each other's features.
    """
    open_names = [job.config.name for job in (*todo, *running)]
    ready = [job for job in todo if needed(job, open_names) is None]
    busy = {job.first.name for job in running}
    return min(ready, key=lambda job: job.first.name in busy, default=None)


def child(make: Make, job: Job, runs: Path, threads: int) -> None:
    threading.Thread(target=leave_with_parent, daemon=True).start()
    raise SystemExit(attempt(make, job, runs, threads) is not None)


def leave_with_parent() -> None:
    """A run whose grid was killed must not go on: the grid, started again, makes the same run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def locally(
    todo: list[Job], make: Make, runs: Path, executor: Local
) -> Iterator[tuple[Job, str | None]]:
    """As many processes at a time as there are workers; the first that is ready comes first."""
    context = processes(make)
    threads = max(1, (os.cpu_count() or 1) // executor.workers)
    running: dict[BaseProcess, Job] = {}
    broken: set[str] = set()
    try:
        while todo or running:
            while len(running) < executor.workers:
                job = next_of(todo, list(running.values()))
                if job is None:
                    break
                todo.remove(job)
                if job.first.name in broken:
                    broken.add(job.config.name)
                    yield (
                        job,
                        failed(
                            runs / job.config.name / "error.json",
                            f"its stage I, {job.first.name}, failed",
                        ),
                    )
                    continue
                started = context.Process(target=child, args=(make, job, runs, threads))
                started.start()
                running[started] = job
            for process in ended(running):
                job = running.pop(process)
                error = outcome(process, runs / job.config.name / "error.json")
                broken |= {job.config.name} if error else set()
                yield job, error
    finally:
        for left in running:
            left.kill()


def processes(make: Make) -> Any:
    """Processes that begin with all imported: a server imports it once, and forks.

    Where there is no fork, each imports it.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["maccal.runs.making", getattr(make, "func", make).__module__])
    return context


def ended(running: dict[BaseProcess, Job]) -> list[BaseProcess]:
    sentinels = {process.sentinel: process for process in running}
    if not sentinels:
        return []
    return [sentinels[sentinel] for sentinel in wait(list(sentinels))]  # type: ignore[index]


def outcome(process: BaseProcess, error_file: Path) -> str | None:
    """The error of a process that has ended; one that was killed could not write it down itself."""
    process.join()
    code = process.exitcode or 0
    if code < 0:
        return failed(error_file, f"killed by signal {-code}")
    return read_error(error_file) if code else None


def on_ray(
    todo: list[Job], make: Make, runs: Path, executor: Ray
) -> Iterator[tuple[Job, str | None]]:
    """One task per run.

    A task of stage II takes the outcome of its stage I, so Ray starts it afterwards.
    """
    try:
        import ray
    except ImportError as error:
        raise ValueError("the executor ray needs the package: pip install 'maccal[ray]'") from error
    with cluster(ray, executor.address):
        task = ray.remote(remote).options(
            num_cpus=executor.cpus, num_gpus=executor.gpus, max_retries=executor.retries
        )
        names = [job.config.name for job in todo]
        refs: dict[str, Any] = {}
        jobs = {}
        for job in todo:  # stage I stands before what builds on it
            before = refs.get(needed(job, names) or "")
            refs[job.config.name] = task.remote(
                make, job, runs.absolute(), max(1, int(executor.cpus)), before
            )
            jobs[refs[job.config.name]] = job
        yield from as_they_end(ray, jobs, runs)


def remote(make: Make, job: Job, runs: Path, threads: int, before: str | None) -> str | None:
    if before is not None:
        return failed(
            runs / job.config.name / "error.json", f"its stage I, {job.first.name}, failed"
        )
    return attempt(make, job, runs, threads)


def as_they_end(ray: Any, jobs: dict[Any, Job], runs: Path) -> Iterator[tuple[Job, str | None]]:
    waiting = list(jobs)
    while waiting:
        (ref,), waiting = ray.wait(waiting, num_returns=1)
        try:
            yield jobs[ref], ray.get(ref)
        except ray.exceptions.RayError as error:  # the worker died once too often
            yield (
                jobs[ref],
                failed(runs / jobs[ref].config.name / "error.json", str(error).splitlines()[0]),
            )


@contextlib.contextmanager
def cluster(ray: Any, address: str | None) -> Iterator[None]:
    """Joined, or started here; one that was already joined stays so."""
    if ray.is_initialized():
        yield
        return
    ray.init(
        address=address, log_to_driver=False, include_dashboard=False if address is None else None
    )
    try:
        yield
    finally:
        ray.shutdown()
