"""Runs: a folder a trained network, which `maccal train` fills, and `maccal calibrate` and `maccal
evaluate` read.

runs/<data>-<model>-<method>-s<seed>/
    config.json          all choices, settled: the same command on the same data gives the same bits
    checkpoint.pt        while training; the same command goes on from it
    history.jsonl        one line per epoch, below its header
    model.safetensors    the network
    test.npz             its logits on the test images, and the labels
    row.json             its numbers, each with interval and null band, and the checksums of the
                         three files above
    extraction.json      once calibrated: the seconds that it took to extract its features
    features/            the features of its images, so that the next calibration takes seconds
    tensorboard/         if asked for
    error.json           why the last attempt of a benchmark failed
    .lock                held by the process that works on the folder

Every file has a checksum of its own, and row.json, which is written last, ties them together: a
file that is damaged, or of another run, is refused. maccal/runs/state.py says how they come about.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from maccal.calibration.registry import CALIBRATORS
from maccal.evaluation.predictions import Predictions, read
from maccal.evaluation.row import PARTS as PARTS
from maccal.evaluation.row import DiagramBin, Row, read_row
from maccal.io import FileError, checksum, read_bytes, read_json, read_lines, read_tensors
from maccal.methods.registry import METHODS
from maccal.models import build
from maccal.runs.config import Config, config_of, is_of
from maccal.training import History

UNFINISHED = "the training has not ended; the same `maccal train` goes on with it"
AGAIN = "the same `maccal train`, or `maccal calibrate`, writes it anew"
FILES = ("history.jsonl", "model.safetensors", "test.npz")  # what a row has the checksums of
CONFIG, HISTORY, MODEL = "config 1", "history 1", "model 1"
MEASURED = {"bins": 15, "resamples": 1000, "seed": 0}


def read_config(folder: Path | str) -> Config:
    """The choices of a run.

    FileError where its config.json is missing, damaged, or says what no run can have.
    """
    file = Path(folder) / "config.json"
    if not file.exists():
        raise FileError(folder, "no config.json; pass a folder that `maccal train` made")
    try:
        values = read_json(file, CONFIG)
    except FileError as error:
        raise FileError(file, f"{error.problem}; {AGAIN}") from None
    try:
        return config_of(values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(file, f"not of a run ({error}); {AGAIN}") from None


def fresh(config: Config, classes: int) -> Any:
    """A new network, drawn with the seed, with what the method adds to it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return METHODS[config.plan.first].network(build(config.model, classes), config.seed)


def run_of(folder: Path | str) -> tuple[Config, Row]:
    """The choices and the row of a finished run.

    FileError where it is not finished, or where the two do not belong together.
    """
    config, file = read_config(folder), Path(folder) / "row.json"
    if not file.exists():
        raise FileError(folder, f"no row.json: {UNFINISHED}")
    try:
        row = read_row(file)
    except FileError as error:
        raise FileError(file, f"{error.problem}; {AGAIN}") from None
    if row.ran is None or not is_of(config, row.ran.about):
        raise FileError(
            folder,
            "config.json and row.json are of different runs; "
            "delete the one that does not belong here",
        )
    return config, row


def check_file(folder: Path, name: str, row: Row) -> None:
    """FileError unless the file is the one that the row was made with."""
    file, files = folder / name, row.files
    anew = "delete the folder of the run, and the same `maccal train` makes it anew"
    remedy = (
        "the same `maccal train`, or `maccal calibrate`, predicts the images again"
        if name == "test.npz"
        else anew
    )
    if not file.exists():
        raise FileError(folder, f"no {name}; {remedy}")
    if files is None or checksum(read_bytes(file)) != files.get(name):
        raise FileError(
            file, f"damaged, or of another run: not the file that row.json was made with; {remedy}"
        )


def read_history(folder: Path | str) -> History:
    """What was noted after each epoch."""
    file = Path(folder) / "history.jsonl"
    history = read_lines(file, HISTORY)
    if not history:
        raise FileError(file, "no epochs; it is damaged, or was changed by another program")
    return history


def described(folder: Path, config: Config, row: Row) -> Row:
    """The measured row with what is said of its run beside the numbers: the choices, how long it
    trained, how sure and right it became, its diagram, and the path of stage II's keep.
    """
    history = read_history(folder)
    keep = [round(epoch["keep"], 6) for epoch in history] if "keep" in history[0] else []
    return replace(
        row,
        ran=config.ran,
        trained={"epochs": len(history), **history[-1]},
        diagram=diagram(folder),
        keep=tuple(keep),
    )


def diagram(folder: Path) -> tuple[DiagramBin, ...]:
    """Count, mean confidence and accuracy of each of 15 bins that is not empty."""
    bins = said(folder).bins(MEASURED["bins"])
    found = []
    for count, sure, right in zip(bins.count, bins.confidence, bins.correct, strict=True):
        if count:
            confidence, accuracy = float(sure / count), float(right / count)
            found.append(DiagramBin(int(count), round(confidence, 6), round(accuracy, 6)))
    return tuple(found)


def whole_row(folder: Path, row: Row) -> Row:
    """The run's row with these numbers; what was measured beyond its test images stays."""
    config, before = run_of(folder)
    for name in ("history.jsonl", "test.npz"):
        check_file(folder, name, before)
    kept = replace(before, name=row.name, measured=row.measured, numbers=row.numbers)
    return described(folder, config, replace(kept, verdict=row.verdict))


def said(folder: Path) -> Predictions:
    """The predictions in a folder, of a run that need not be finished."""
    return read(folder / "test.npz", name=folder.name)


def predictions_of(folder: Path | str) -> Predictions:
    """What the run's network said about the test images."""
    folder = Path(folder)
    check_file(folder, "test.npz", run_of(folder)[1])
    return said(folder)


def load_run(folder: Path | str, classes: int) -> Any:
    """The network of a run, in eval mode."""
    folder = Path(folder)
    config, row = run_of(folder)
    check_file(folder, "model.safetensors", row)
    return read_network(folder, config, classes)


def read_weights(folder: Path, config: Config) -> dict[str, torch.Tensor]:
    """The tensors of a network; FileError where they are damaged, or of another run."""
    weights, notes = read_tensors(folder / "model.safetensors", MODEL)
    if not is_of(config, notes.get("run")):
        raise FileError(folder / "model.safetensors", "the network of another run")
    return weights


def is_of_head(key: str) -> bool:
    """
    >>> is_of_head("head.0.weight"), is_of_head("body.0.weight")
    (True, False)
    """
    return key.startswith("head.")


def read_network(folder: Path, config: Config, classes: int) -> Any:
    """The network in a folder, of a run that need not be finished."""
    weights, network = read_weights(folder, config), fresh(config, classes)
    if config.plan.second is not None:
        own = {key.removeprefix("head."): weights[key] for key in weights if is_of_head(key)}
        rebuild = CALIBRATORS[config.plan.second].rebuild
        network.head = rebuild(config.stage2, network.head, own)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise FileError(
            folder / "model.safetensors", f"not the network that config.json describes ({reason})"
        ) from None
    return network.to(memory_format=torch.channels_last).eval()
