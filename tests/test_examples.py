"""The examples run as their headers say."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run

EXAMPLES = Path(__file__).parents[1] / "examples"


def program(monkeypatch, name, *words):
    """As `python examples/NAME.py WORDS`, in this process: nothing is imported twice."""
    file = str(EXAMPLES / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [file, *map(str, words)])
    runpy.run_path(file, run_name="__main__")


@pytest.mark.slow
def test_digits(tmp_path, monkeypatch, capsys):
    program(monkeypatch, "digits", tmp_path)
    assert "accuracy 90.1%" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"naive-bayes.npz", "logistic.npz"}


def test_tables(monkeypatch, capsys):
    program(monkeypatch, "tables")
    before, after = capsys.readouterr().out.splitlines()
    assert before.startswith("logistic regression: accuracy 9")
    accuracy, error = after.removeprefix("MaCCalClassifier: accuracy ").split("%, ECE ")
    assert float(accuracy) > 94
    assert float(error.removesuffix("%")) < 0.6 * float(before.split("ECE ")[1].removesuffix("%"))


@pytest.mark.slow
def test_calibrate(monkeypatch, capsys):
    """The example's network is overconfident by 13 points.

    Calibrated, chance explains what is left.
    """
    program(monkeypatch, "calibrate")
    before, after = capsys.readouterr().out.splitlines()
    assert before.startswith("as trained: Overconfident: it says 86.")
    assert after.startswith("calibrated: Cannot be told from a calibrated model")


@pytest.mark.slow
def test_calibrate_from_the_command_line(tmp_path, monkeypatch):
    words = [f"{EXAMPLES / 'calibrate.py'}:build", "--out", str(tmp_path), "--epochs", "5"]
    run(monkeypatch, "calibrate", *words)
    assert (tmp_path / "calibrate.report.html").exists()


@pytest.mark.slow
def test_monitor(tmp_path, monkeypatch, capsys):
    """The dirt comes on the ninth day, its labels on the tenth."""
    program(monkeypatch, "monitor", tmp_path)
    rows, calibration, drift, _ = capsys.readouterr().out.splitlines()
    assert rows == "897 rows, 833 with labels"
    assert "the model is too sure" in calibration
    assert "2026-03-10" <= calibration.removeprefix("Alarm since ")[:10] <= "2026-03-14"
    assert drift.startswith("No alarm: the confidences are spread as in the reference")
    assert "<svg" in (tmp_path / "monitor.html").read_text()


@pytest.mark.distributed
def test_stream_from_one_process_and_from_two(monkeypatch, capsys):
    program(monkeypatch, "stream")
    alone = capsys.readouterr().out
    assert "200,000 rows, 10 classes" in alone
    assert "Overconfident" in alone
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*torchrun, str(EXAMPLES / "stream.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == alone


def output(*command):
    """What a new process prints."""
    words = [sys.executable, *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_one_of_everything_registered(tmp_path):
    """A method, data set, network and calibrator of one's own work from the command line."""
    plugin = ["--plugin", EXAMPLES / "plugin.py"]
    runs = tmp_path / "runs"
    command = ["train", *plugin, "--data", "stripes", "--model", "small", "--method", "squared"]
    output("-m", "maccal", *command, "--epochs", "2", "--precision", "fp32", "--runs", runs)
    (run,) = runs.iterdir()
    said = output("-m", "maccal", "calibrate", run, *plugin, "--calibrator", "shrunk")
    assert "wrote" in said
    after = runs / run.name.replace("squared", "squared+shrunk")
    before_scores, after_scores = (np.load(path / "test.npz")["logits"] for path in (run, after))
    np.testing.assert_allclose(after_scores, 0.5 * before_scores, rtol=1e-4, atol=1e-5)
    unknown = subprocess.run(
        [sys.executable, "-m", "maccal", "evaluate", after], capture_output=True, text=True
    )
    assert unknown.returncode == 2  # without the plugin nobody knows the method
    assert "no method 'squared'" in unknown.stderr
