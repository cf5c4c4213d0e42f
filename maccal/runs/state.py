"""The folder of a run while it is made: what is there and sound, what is to be done, and the moment
when it is finished.

    state_of(folder, config)    "finished", or what is to be done: measure, predict, make
    opened(folder, config)      the same, after the folder has been put right: a killed process, or
                                damage, may have left anything
    measured(folder, config)    writes row.json: with it the run is finished

The files are written in this order: config.json; checkpoint.pt, and from it history.jsonl, after
every epoch; model.safetensors; test.npz; row.json. Then checkpoint.pt goes. So whatever the moment
of a kill, the same command has either a checkpoint to go on from, or all files of the run. A folder
is opened under its lock (distributed.held).
"""

import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from maccal.distributed import everywhere, my_rank
from maccal.evaluation.evaluated import measure
from maccal.evaluation.provenance import provenance
from maccal.evaluation.row import Row, read_row, write_row
from maccal.io import FileError, checksum, read_bytes, sweep, write_json
from maccal.runs.config import Config, is_of
from maccal.runs.folder import (
    CONFIG,
    FILES,
    MEASURED,
    check_file,
    described,
    read_config,
    read_history,
    read_weights,
    said,
)
from maccal.training.checkpoint import differing

State = Literal["finished", "measure", "predict", "make"]
ANEW = "delete the folder, and the same command makes the run anew"


def opened(folder: Path, config: Config) -> State:
    """What is left to do, after the folder has been put right.

    Swept, with its config.json, and measured if it only wants that.
    """
    for name in ("config.json", "checkpoint.pt", "row.json", *FILES):
        file = folder / name
        if file.exists() and not file.is_file():
            raise FileError(file, "not a regular file; delete it")
    written = has_config(folder, config)
    state = state_of(folder, config)
    everywhere(None)  # all processes have looked before the first one changes anything
    if my_rank()[0] == 0:
        sweep(folder)
        if not written:
            write_json(folder / "config.json", CONFIG, config.content)
        if state == "measure":
            measured(folder, config)
        if state in ("finished", "measure"):
            (folder / "checkpoint.pt").unlink(missing_ok=True)
    everywhere(None)
    return "finished" if state == "measure" else state


def has_config(folder: Path, config: Config) -> bool:
    """Whether the folder has its config.json; FileError where it has another run's."""
    if not (folder / "config.json").exists():
        return False
    try:
        there = read_config(folder)
    except FileError as error:
        tell(f"{error}")
        return False
    if there != config:
        refuse(folder, differing(flat(there), flat(config)))
    return True


def refuse(folder: Path, difference: str) -> None:
    raise FileError(folder, f"holds another run: {difference}; delete it, or pass another --runs")


def flat(config: Config) -> dict[str, Any]:
    values = asdict(config)
    return values | values.pop("recipe") | values.pop("settings") | (values.pop("stage2") or {})


def state_of(folder: Path, config: Config) -> State:
    """What is to be done.

    FileError where the run was finished, and is damaged beyond what its other files can mend.
    """
    resumable = (folder / "checkpoint.pt").exists()
    if not (folder / "row.json").exists():
        return "make" if resumable or unsound(folder, config) else "measure"
    row = sound_row(folder)
    if row is not None and not (row.ran and is_of(config, row.ran.about)):
        refuse(folder, "its row.json says so")
    wrong = unsound(folder, config, row)
    if not wrong:
        return "finished" if row is not None else "measure"
    if list(wrong) == ["test.npz"]:
        return "predict"
    if resumable:
        return "make"
    name, problem = next(iter(wrong.items()))
    raise FileError(folder / name, f"{problem}; {ANEW}")


def sound_row(folder: Path) -> Row | None:
    """The row of the folder; None where it is damaged."""
    try:
        return read_row(folder / "row.json")
    except FileError:
        return None


def unsound(folder: Path, config: Config, row: Row | None = None) -> dict[str, str]:
    """The files of the run that are missing, damaged, or not those of the row, each with its
    problem.
    """
    readers: dict[str, Callable[[Path], object]] = {
        "history.jsonl": read_history,
        "model.safetensors": partial(read_weights, config=config),
        "test.npz": said,
    }
    problems = {}
    for name, reader in readers.items():
        try:
            reader(folder)
            if row is not None:
                check_file(folder, name, row)
        except FileError as error:
            problems[name] = error.problem
    return problems


def measured(folder: Path, config: Config) -> Path:
    """Measure the run and write its row, with the checksums of its files.

    What was measured beyond the test images stays.
    """
    file = folder / "row.json"
    before = sound_row(folder)
    if file.exists() and before is None:
        tell(
            f"{file} is damaged; the run is measured again, "
            "but its ood and shift, if it had any, are not"
        )
    row = described(folder, config, measure(said(folder), folder / "test.npz", **MEASURED).row)
    row = replace(
        row,
        made_with=provenance(torch.get_num_threads(), config.recipe.precision),
        files={name: checksum(read_bytes(folder / name)) for name in FILES},
    )
    if before is not None:
        row = replace(row, ood=before.ood, shift=before.shift, motivation=before.motivation)
    return write_row(file, row)


def tell(words: str) -> None:
    """A line for the user, from the first process."""
    if my_rank()[0] == 0:
        print(f"maccal: {words}", file=sys.stderr, flush=True)
