"""The examples run as their headers say."""

import subprocess
import sys
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples"


def output(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_digits(tmp_path):
    assert "accuracy 90.1%" in output(EXAMPLES / "digits.py", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"naive-bayes.npz", "logistic.npz"}


def test_calibrate(tmp_path):
    """The example's network is overconfident by 13 points.

    Calibrated, chance explains what is left.
    """
    before, after = output(EXAMPLES / "calibrate.py").splitlines()
    assert before.startswith("as trained: Overconfident: it says 86.")
    assert after.startswith("calibrated: Cannot be told from a calibrated model")
    output(
        "-m",
        "maccal",
        "calibrate",
        f"{EXAMPLES / 'calibrate.py'}:build",
        "--out",
        tmp_path,
        "--epochs",
        "5",
    )
    assert (tmp_path / "calibrate.report.html").exists()


def test_stream_from_one_process_and_from_two():
    alone = output(EXAMPLES / "stream.py")
    assert "200,000 rows, 10 classes" in alone
    assert "Overconfident" in alone
    assert (
        output("-m", "torch.distributed.run", "--nproc-per-node", "2", EXAMPLES / "stream.py")
        == alone
    )


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
