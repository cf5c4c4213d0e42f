"""The folder of a run.

Killed at every file event, damaged, shared by two commands, full, and full of odd things.
"""

import io
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import asdict, replace

import pytest
import torch
from commands import refused
from commands import run as cli

from maccal import distributed as parallel
from maccal.bench.grids import Job, collect
from maccal.calibration.stage2 import Stage2
from maccal.cli.bench import save
from maccal.evaluation.row import Row, read_row, read_rows, write_row
from maccal.io import (
    FileError,
    checksum,
    locked,
    read_bytes,
    read_json,
    read_tensors,
    write_json,
    write_tensors,
)
from maccal.runs import (
    Config,
    calibrate_run,
    load_run,
    make_run,
    predictions_of,
    read_config,
    read_history,
    run_of,
)
from maccal.runs import folder as runs
from maccal.runs.beyond import extend_row
from maccal.runs.history import write_history
from maccal.runs.origin import collected
from maccal.training.recipe import Recipe

TINY = Recipe(epochs=2, batch_size=32, padding=1, flip=False, precision="fp32")
CONFIG = Config("digits", "resnet8", "vanilla", 1, 64, TINY)
COMMAND = [
    "train",
    "--data",
    "digits",
    "--model",
    "resnet8",
    "--limit",
    "64",
    "--epochs",
    "2",
    "--batch-size",
    "32",
]
COMMAND += ["--precision", "fp32"]
DATA = ("config.json", "history.jsonl", "model.safetensors", "row.json", "test.npz")


@pytest.fixture(scope="module", autouse=True)
def few():
    """Resamples: here it matters that a run is measured, not how well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(runs.MEASURED, "resamples", 20)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_run(CONFIG, runs=tmp_path_factory.mktemp("made"))


@pytest.fixture
def run(made, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(made, tmp_path / "runs" / made.name)


def contents(folder):
    """All that must be the same after a kill: every bit but for the seconds."""
    row, history = read_row(folder / "row.json"), read_history(folder)
    row.trained.pop("seconds")
    row.files.pop("history.jsonl")
    for epoch in history:
        epoch.pop("seconds", None)
    bits = [
        (folder / name).read_bytes() for name in ("model.safetensors", "test.npz", "config.json")
    ]
    return sorted(path.name for path in folder.iterdir()), row, history, bits


KILLS = """
import gc, os, signal, sys
from pathlib import Path
import numpy as np
import torch
import torch._dynamo  # an optimiser's first step imports it
from maccal.runs import making as pipeline
from maccal.runs import second as second_stage
from maccal.runs import folder as runs
from maccal.data import DataSet, load
from maccal.models import MODELS, Net
from maccal.training.recipe import Recipe
from maccal.runs import Config
from maccal.calibration.stage2 import Stage2

torch.set_num_threads(1)
home, stage, step = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
whole = load("digits", limit=64)
parts = [part.rows(np.arange(64)) for part in (whole.train, whole.val, whole.test)]
pipeline.load = second_stage.load = lambda *words, **choices: DataSet(*parts, whole.classes)
runs.MEASURED["resamples"] = 5
body = torch.nn.Sequential(torch.nn.AvgPool2d(2), torch.nn.BatchNorm2d(3), torch.nn.Flatten())
# the smallest network, as there are hundreds of trainings
MODELS["resnet8"] = lambda classes: Net(body, 48, classes)
recipe = Recipe(epochs=2, batch_size=32, padding=1, flip=False, precision="fp32")
first = Config("digits", "resnet8", "vanilla", 1, 64, recipe)
second = Config("digits", "resnet8", "maccal", 1, 64, recipe, {}, Stage2(epochs=2))
config = (first if stage == "train" else second).settled(torch.device("cpu"))
EVENTS = ("open", "os.rename", "os.remove", "os.mkdir")
gc.collect()
gc.freeze()  # else every child would walk through, and so copy, all that was imported


def make(folder, kill_at):
    # A process that makes the run and dies just before that file event in its folder; returns
    # whether it did.
    child = os.fork()  # this process runs no network itself, so that its children can
    if child:
        return os.waitpid(child, 0)[1]
    count, fsync = 0, os.fsync

    def event():
        nonlocal count
        count += 1
        if count == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(name, words):
        if name in EVENTS and str(words[0]).startswith(str(folder / config.name)):
            event()

    def synced(handle):
        event()
        fsync(handle)

    os.fsync = synced
    sys.addaudithook(hook)
    pipeline.make_run(config, runs=folder)
    os._exit(0)


if stage == "calibrate":
    config, wanted = first.settled(torch.device("cpu")), config
    assert make(home / "base", 0) == 0
    config = wanted
    assert make(home / "base", 0) == 0
    (home / "base" / config.name).rename(home / "whole")
else:
    assert make(home / "base", 0) == 0
place = 1 - step
while True:
    place += step
    folder = home / str(place)
    if stage == "calibrate":
        folder.mkdir()
        (folder / first.name).symlink_to(home / "base" / first.name)
    status = make(folder, place)
    if status == 0:
        break
    assert status == signal.SIGKILL, (place, status)
    assert make(folder, 0) == 0, place
print(place)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(("stage", "step"), [("train", 1), ("calibrate", 3)])
def test_killed_at_any_file_event_the_same_command_ends_with_the_same_bits(tmp_path, stage, step):
    command = [sys.executable, "-c", KILLS, str(tmp_path), stage, str(step)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    events = range(1, int(done.stdout), step)
    assert len(events) * step > 50
    name = next(p.name for p in (tmp_path / "1").iterdir() if not p.is_symlink())
    whole = contents(tmp_path / "whole" if stage == "calibrate" else tmp_path / "base" / name)
    for place in events:
        assert contents(tmp_path / str(place) / name) == whole, place


def flip(file):
    """Change a few bytes in the middle: a number's last digit alone may not change its value."""
    data = file.read_bytes()
    middle = len(data) // 2
    changed = bytes(byte ^ 1 for byte in data[middle : middle + 5])
    file.write_bytes(data[:middle] + changed + data[middle + 5 :])


@pytest.mark.parametrize(
    "spoil",
    [
        flip,
        lambda file: file.write_bytes(file.read_bytes()[:-9]),
        lambda file: file.write_bytes(b""),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "row.json", "test.npz"])
def test_the_same_command_mends_what_the_other_files_can_mend(
    run, monkeypatch, capsys, name, spoil
):
    before = contents(run)
    spoil(run / name)
    words = refused(monkeypatch, capsys, "evaluate", str(run))
    assert name in words
    assert "the same `maccal train`" in words
    assert sorted(p.name for p in run.iterdir()) == before[0]  # no page either
    monkeypatch.setattr("maccal.runs.making.fit", None)
    make_run(CONFIG, runs=run.parent)
    (words,) = capsys.readouterr().err.splitlines()  # not without a word
    assert name in words
    assert contents(run) == before


@pytest.mark.parametrize("name", ["history.jsonl", "model.safetensors"])
def test_what_cannot_be_mended_is_named_with_what_to_do(run, monkeypatch, capsys, name):
    flip(run / name)
    monkeypatch.setattr("maccal.runs.making.fit", None)
    words = refused(monkeypatch, capsys, *COMMAND, "--runs", str(run.parent))
    assert f"{run.name}/{name}: " in words
    assert "delete the folder, and the same command makes the run anew" in words
    (run / "row.json").write_text("half a ro")
    with pytest.raises(FileError, match=rf"{name}: .*delete the folder"):
        make_run(CONFIG, runs=run.parent)


@pytest.mark.parametrize("name", DATA)
def test_whole_files_of_another_run_are_noticed(run, tmp_path, name):
    other = make_run(
        replace(CONFIG, seed=2, recipe=replace(TINY, epochs=1)), runs=tmp_path / "other"
    )
    shutil.copy(other / name, run / name)
    noticed = 0
    for reader in (
        run_of,
        predictions_of,
        lambda folder: load_run(folder, 10),
        lambda folder: runs.whole_row(folder, Row("any")),
    ):
        try:
            reader(run)
        except FileError:
            noticed += 1
    assert (
        noticed
        == {
            "config.json": 4,
            "row.json": 4,
            "test.npz": 2,
            "history.jsonl": 1,
            "model.safetensors": 1,
        }[name]
    )
    if name == "test.npz":
        make_run(CONFIG, runs=run.parent)
        assert predictions_of(run).name == run.name
    else:
        with pytest.raises(FileError, match=r"holds another run|delete the folder"):
            make_run(CONFIG, runs=run.parent)


def test_a_lost_row_is_measured_again_and_left_overs_go(run, monkeypatch):
    """As after a kill in stage II before the row, and in stage I after it."""
    before = contents(run)
    monkeypatch.setattr("maccal.runs.making.fit", None)
    for spoil in (
        lambda: (run / "row.json").unlink(),
        lambda: (run / "checkpoint.pt").write_bytes(b"left over"),
    ):
        spoil()
        (run / ".model.safetensors.0123456789abcdef.part").write_bytes(b"half")
        make_run(CONFIG, runs=run.parent)
        assert contents(run) == before


def test_what_was_measured_beyond_the_test_images_stays(run):
    extend_row(run, ood={"svhn": {"auroc": 0.75}})
    flip(run / "test.npz")
    make_run(CONFIG, runs=run.parent)
    assert read_row(run / "row.json").ood == {"svhn": {"auroc": 0.75}}


def test_a_damaged_row_is_no_dead_end_for_the_grid(run, tmp_path):
    job = Job(CONFIG.settled(torch.device("cpu")))
    assert job.state(run.parent) == "done"
    flip(run / "row.json")
    assert job.state(run.parent) == "missing"
    assert collect([job], run.parent) == []
    make_run(job.config, runs=run.parent)
    assert job.state(run.parent) == "done"
    (row,) = read_rows(save([job], run.parent, tmp_path / "results" / "rows.jsonl"))
    assert row == collected(run, read_row(run / "row.json"))


def test_one_epoch_killed_between_checkpoint_and_history(tmp_path, monkeypatch):
    config = replace(CONFIG, recipe=replace(TINY, epochs=1))
    whole = make_run(config, runs=tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("maccal.runs.history.write_lines", lambda *words: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make_run(config, runs=tmp_path / "killed")
    killed = tmp_path / "killed" / whole.name
    assert sorted(p.name for p in killed.iterdir()) == [".lock", "checkpoint.pt", "config.json"]
    assert contents(make_run(config, runs=tmp_path / "killed")) == contents(whole)


def test_numbers_that_json_cannot_say_are_null_in_the_history(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "maccal.training.steps.val_numbers",
        lambda *words: {"val_accuracy": 0.1, "val_nll": float("inf")},
    )
    folder = make_run(replace(CONFIG, recipe=replace(TINY, epochs=1)), runs=tmp_path)
    assert read_history(folder)[0]["val_nll"] is None
    assert read_row(folder / "row.json").trained["val_nll"] is None


@pytest.mark.parametrize("stage", ["train", "calibrate"])
def test_a_second_command_waits_and_finds_the_run_finished(run, monkeypatch, stage):
    """The other command, which holds the lock, finishes the run meanwhile."""
    monkeypatch.setattr(parallel, "PAUSE", 0.01)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    before, result = shutil.copytree(run, run.parent / "copy"), []
    target = run
    if stage == "calibrate":
        target = calibrate_run(run, stage2=Stage2(epochs=1))
        before = shutil.copytree(target, run.parent / "copy2")
    shutil.rmtree(target)
    make = {
        "train": lambda: make_run(CONFIG, runs=run.parent),
        "calibrate": lambda: calibrate_run(run, stage2=Stage2(epochs=1)),
    }[stage]
    for part in ("maccal.runs.making.fit", "maccal.runs.second.head_on_features"):
        monkeypatch.setattr(part, None)
    with locked(target):
        second = threading.Thread(target=lambda: result.append(make()))
        second.start()
        end = time.monotonic() + 60
        while "waiting" not in sys.stderr.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
        for name in DATA:
            shutil.copy(before / name, target / name)
    second.join()
    assert (
        sys.stderr.getvalue()
        == f"maccal: {target} is being worked on by another process; waiting for it to end\n"
    )
    assert result == [target]
    assert contents(target)[1:] == contents(before)[1:]


def test_two_comparisons_of_two_runs_never_wait_for_each_other(run, monkeypatch):
    """However the runs are named, their locks are taken in one order."""
    other, taken = shutil.copytree(run, run.parent / "z"), []
    monkeypatch.setattr(
        "maccal.cli.evaluate.held", lambda folder: nullcontext(taken.append(folder.resolve()))
    )
    monkeypatch.chdir(run.parent)
    for words in ((run, "--compare", "z"), ("z", "--compare", run)):
        cli(monkeypatch, "evaluate", *map(str, words), "--resamples", "10")
    assert taken == [run, other] * 2


@pytest.fixture
def full():
    """A disk on which no file can be larger than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(
    tmp_path, monkeypatch, capsys, made, full
):
    for size, left in ((30_000, [".lock", "config.json"]), (10, [".lock"])):
        full(size)
        words = refused(monkeypatch, capsys, *COMMAND, "--runs", str(tmp_path / str(size)))
        assert words.startswith("maccal: [Errno 27] File too large: ")
        assert sorted(p.name for p in (tmp_path / str(size) / made.name).iterdir()) == left
    full(resource.RLIM_INFINITY)
    cli(monkeypatch, *COMMAND, "--runs", str(tmp_path / "30000"))
    assert contents(tmp_path / "30000" / made.name) == contents(made)


def test_a_disk_that_fills_up_leaves_the_last_checkpoint(tmp_path, monkeypatch, made, full):
    def fill_up(folder, history):
        write_history(folder, history)
        full(30_000)

    with monkeypatch.context() as patch:
        patch.setattr("maccal.runs.history.write_history", fill_up)
        with pytest.raises(OSError, match=r"too large: .*checkpoint\.pt"):
            make_run(CONFIG, runs=tmp_path)
    full(resource.RLIM_INFINITY)
    folder = tmp_path / made.name
    assert sorted(p.name for p in folder.iterdir()) == [
        ".lock",
        "checkpoint.pt",
        "config.json",
        "history.jsonl",
    ]
    assert len(read_history(folder)) == 1
    assert contents(make_run(CONFIG, runs=tmp_path)) == contents(made)


@pytest.mark.parametrize("name", [*DATA, "checkpoint.pt"])
@pytest.mark.parametrize("odd", [os.mkfifo, os.mkdir])
def test_odd_things_in_a_run_folder_are_refused_at_once(run, monkeypatch, capsys, name, odd):
    (run / name).unlink(missing_ok=True)
    odd(run / name)
    monkeypatch.setattr("maccal.runs.making.fit", None)
    words = refused(monkeypatch, capsys, *COMMAND, "--runs", str(run.parent))
    assert f"{name}: not a regular file; delete it" in words
    if name in ("config.json", "row.json", "test.npz"):
        assert f"{name}: not a regular file" in refused(monkeypatch, capsys, "evaluate", str(run))


def test_a_file_where_the_folder_should_be(tmp_path, monkeypatch, capsys, made):
    (tmp_path / made.name).write_text("not a folder")
    assert "a file, where a folder is needed" in refused(
        monkeypatch, capsys, *COMMAND, "--runs", str(tmp_path)
    )


ODD = {
    "data": ["mnist", 3, None, ["digits"], "../digits"],
    "model": ["vgg", {}, 8],
    "method": ["x", 1, None, "maccal", ["vanilla"]],
    "seed": ["1", 1.5, True, 10**40, None],
    "limit": [0, -1, "64", 1e300],
    "recipe": [
        None,
        [],
        "x",
        {"epochs": 0},
        {"epochs": "2"},
        {"lr": "high"},
        {"drops": ["a"]},
        {"speed": 1},
        {"flip": 1},
    ],
    "settings": [{"gamma": 2}, [], "x", {"gamma": {}}],
    "stage2": [{"epochs": 1}, 7],
    "feedback": ["none", 1],
    "more": [1],
}


@pytest.mark.parametrize("key", ODD)
def test_a_config_with_odd_values_is_refused(run, key):
    """With the right checksum: written so, not damaged."""
    values = read_json(run / "config.json", "config 1")
    for value in ODD[key]:
        write_json(run / "config.json", "config 1", values | {key: value})
        with pytest.raises(FileError, match=r"config\.json: not of a run"):
            read_config(run)
    for value in ({"where": "../../x"}, {"where": "a" * 9, "alpha": [1, "b"]}):
        write_json(run / "config.json", "config 1", values | {"method": "mit", "settings": value})
        with pytest.raises(FileError, match=r"config\.json: not of a run"):
            read_config(run)


def test_rows_with_odd_values_are_refused(run):
    row = read_row(run / "row.json")
    for change in (
        {"files": None},
        {"files": {"test.npz": 3}},
        {"ran": None},
        {"ran": replace(row.ran, data=[])},
        {"ran": replace(row.ran, seed=9)},
    ):
        write_row(run / "row.json", replace(row, **change))
        with pytest.raises(
            FileError,
            match=r"not the file that row\.json was made with|of different runs|ran\.data is",
        ):
            predictions_of(run)


def test_a_run_with_a_row_of_format_1_is_finished(run, capsys, monkeypatch):
    """It was made before rows had their format of today: it is read, and nothing is made anew."""
    row = read_row(run / "row.json")
    old = {
        "name": row.name,
        "run": row.ran.about,
        "trained": row.trained,
        "diagram": row.diagram,
        **asdict(row.measured),
        **row.numbers,
        "verdict": row.verdict,
        "versions": {"maccal": row.made_with.maccal},
        "files": row.files,
    }
    write_json(run / "row.json", "row 1", old)
    before = (run / "row.json").read_bytes()
    make_run(CONFIG, runs=run.parent)
    assert (run / "row.json").read_bytes() == before
    assert "rows of format 1, read as format 2" in capsys.readouterr().err
    again = read_row(run / "row.json")
    assert (again.ran, again.numbers, again.files) == (row.ran, row.numbers, row.files)
    cli(monkeypatch, "evaluate", str(run))
    assert json.loads((run / "row.json").read_text())["format"] == "maccal row 2"


def test_stage_two_of_another_network_is_never_taken_for_this_ones(run):
    """The run that it was made from is deleted and made anew, and has become another network."""
    new = calibrate_run(run, stage2=Stage2(epochs=1))
    tensors, notes = read_tensors(run / "model.safetensors", "model 1")
    tensors["head.bias"] += 1
    write_tensors(run / "model.safetensors", "model 1", tensors, **notes)
    (run / "row.json").unlink()
    make_run(CONFIG, runs=run.parent)  # measures it
    with pytest.raises(
        FileError,
        match=r"maccal,epochs=1-s1: was made from another network than .* holds now; delete it",
    ):
        calibrate_run(run, stage2=Stage2(epochs=1))
    # nor is it by the grid, whose runs are finished before anything is loaded
    with pytest.raises(FileError, match="was made from another network than"):
        make_run(read_config(new), runs=run.parent)
    shutil.rmtree(new)
    assert calibrate_run(run, stage2=Stage2(epochs=1)) == new
    assert make_run(read_config(new), runs=run.parent) == new
    first, second = (collected(folder, run_of(folder)[1]) for folder in (run, new))
    assert first.stage1 == second.stage1 == checksum(read_bytes(run / "model.safetensors"))


def test_damage_of_stage_two(run, monkeypatch):
    """The row is measured and the images are predicted again; no head is trained."""
    new = calibrate_run(run, stage2=Stage2(epochs=1, hidden=8))
    before = contents(new)
    monkeypatch.setattr("maccal.runs.second.head_on_features", None)
    for name in ("row.json", "test.npz", "config.json"):
        flip(new / name)
        calibrate_run(run, stage2=Stage2(epochs=1, hidden=8))
        assert contents(new) == before
