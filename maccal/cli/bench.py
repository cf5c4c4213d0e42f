"""The verb `maccal bench`: a table or figure of the paper as a grid of runs.

Stops and goes on anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.table import Table

from maccal.bench.executors import Local, Ray, work
from maccal.bench.grids import GRIDS, Job, Rows, State, collect, jobs, plan, remaining
from maccal.bench.origins import origins
from maccal.bench.scales import SCALES
from maccal.cli.flags import refuse
from maccal.cli.output import answer, note, tell
from maccal.distributed import held, joined
from maccal.evaluation.row import read_row, read_rows, write_rows
from maccal.io import FileError
from maccal.runs import extend_row, make_run, motivation_run, ood_run, shift_run

CORRUPTED = ".corrupted"  # beside the runs: images that all of them are shown
STATES: tuple[State, ...] = ("done", "failed", "missing")
OUTSIDE = {"cifar10": ("svhn", "cifar100"), "cifar100": ("svhn", "cifar10")}


@dataclass(frozen=True)
class Place:
    """Where runs and data are, and how many images are corrupted for the shift."""

    runs: Path
    root: Path | None
    shifted: int | None


def make_job(job: Job, place: Place) -> None:
    """A run of the grid and what else is measured of it; what is there already is left alone."""
    with joined() as device:
        folder = make_run(job.config, runs=place.runs, root=place.root, device=device)
    missing = job.extras - read_row(folder / "row.json").parts
    if "ood" in missing:
        sets = OUTSIDE[job.config.data]
        extend_row(folder, ood=ood_run(folder, sets, place.root, device=device))
    if "shift" in missing:
        cache = place.runs / CORRUPTED / job.config.data
        limit = place.shifted
        shifted = shift_run(folder, place.root, cache=cache, limit=limit, device=device)
        extend_row(folder, shift=shifted)
    if "motivation" in missing:
        extend_row(folder, motivation=motivation_run(folder, place.root))


def bench(
    grids: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="GRID ...")],
    scale: str = "paper",
    seeds: tuple[int, ...] = (1, 2, 3),
    only: tuple[str, ...] = (),
    data: tuple[str, ...] = (),
    show_plan: Annotated[bool, tyro.conf.arg(name="plan")] = False,
    executor: Literal["local", "ray"] = "local",
    workers: int | None = None,
    address: str | None = None,
    gpus: float = 0,
    runs: Path = Path("runs"),
    root: Path | None = None,
    results: Path = Path("results"),
) -> None:
    """Make the runs of tables and figures of the paper, and write their rows to
    <results>/bench-<scale>.jsonl.

    Args:
        grids: table1, ood, combine, cost, ablation, shift, mixup, gamma, sparsity, motivation,
            networks, or all.
        scale: paper is the paper's protocol; full the same grid with a small network, trained on
            all images for minutes; cpu on subsets, with the recorded rows' earlier settings.
        seeds: numbers; every run is made with each; a scale may have methods with the first alone.
        only: methods, such as vanilla mixup+maccal: of the grids the runs of these alone, in every
            reading, and the stage I that they need. By default all.
        data: data sets, such as cifar10, likewise.
        show_plan: say what is there, what is missing and what it will cost, and make nothing.
        executor: processes on this machine, or a Ray cluster.
        workers: number of processes at a time on this machine, which share its cores; by default 1.
        address: where the Ray cluster is, such as auto; else one is started here.
        gpus: number of GPUs that a run takes on the Ray cluster; may be a part of one.
        runs: folder for the runs.
        root: folder with the data sets.
        results: folder for the rows; runs whose rows it has are not made again.
    """
    if executor == "local":
        refuse("runs on this machine, only to --executor ray", address=address, gpus=gpus or None)
    else:
        refuse("a Ray cluster, only to --executor local", workers=workers)
    if not grids:
        raise ValueError(f"no table or figure; name one or more of {', '.join(GRIDS)}, or all")
    chosen = partial(jobs, scale=scale, seeds=seeds, only=only, data=data)
    wanted = chosen(grids)
    if (only or data) and not wanted:
        raise ValueError(f"{' and '.join(grids)} at --scale {scale} has no such runs; see --plan")
    file = results / f"bench-{scale}.jsonl"
    recorded = read(file)
    if show_plan:
        show(scale, chosen, runs, recorded, grids)
        return
    place = Place(runs.absolute(), root and root.absolute(), SCALES[scale].shifted)
    who = Local(workers or 1) if executor == "local" else Ray(address, gpus=gpus)
    todo = remaining(wanted, runs, recorded)
    for number, (job, error) in enumerate(work(todo, partial(make_job, place=place), runs, who), 1):
        note(f"{number} of {len(todo)}  {job.config.name}  {error or 'done'}")
        save(wanted, runs, file)
    save(wanted, runs, file)
    found = plan(wanted, runs, recorded)
    failures = found.count("failed")
    tell(f"{found.count('done')} of {len(found.states)} runs are done")
    counts = {str(state): found.count(state) for state in STATES}
    answer({"rows": file, **counts})
    note(f"rows: {file}")
    if failures:
        reasons = "their error.json says why, and the same command tries them again"
        raise ValueError(f"{failures} runs failed; {reasons}")


def save(wanted: list[Job], runs: Path, file: Path) -> Path:
    """The rows of these runs, and those of other grids that the file has already, or that another
    process adds.
    """
    with held(file.parent):
        rows = {**read(file), **{row.name: row for row in collect(wanted, runs)}}
        return write_rows(file, [rows[name] for name in sorted(rows)])


def read(file: Path) -> Rows:
    """The rows recorded so far, by name."""
    if not file.exists():
        return {}
    try:
        return {row.name: row for row in read_rows(file)}
    except FileError as error:
        again = "or delete it: rows whose runs are there are collected again"
        raise FileError(file, f"{error.problem}; restore it, {again}") from None


def show(
    scale: str,
    chosen: Callable[[str], list[Job]],
    runs: Path,
    recorded: Rows,
    grids: tuple[str, ...],
) -> None:
    table = Table("", "runs", "done", "failed", "missing", "hours left", box=None)
    names = [*GRIDS, "all"] if "all" in grids else grids
    grids_found = []
    for name in names:
        found = plan(chosen(name), runs, recorded)
        hours = (
            "unknown until one like it is done"
            if found.seconds is None
            else f"{found.seconds / 3600:.1f}"
        )
        counts = [len(found.states), *(found.count(state) for state in STATES)]
        table.add_row(name, *(str(count) for count in counts), hours)
        values = dict(zip(("runs", *STATES), counts, strict=True))
        grids_found.append({"grid": name, **values, "seconds_left": found.seconds})
    tell(table)
    stand = origins(recorded.values())
    if stand.elsewhere:
        note(f"{stand.words} They count as missing.")
    answer({"scale": scale, "grids": grids_found})
