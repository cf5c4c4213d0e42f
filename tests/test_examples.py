"""The examples run as their headers say."""

import subprocess
import sys
from pathlib import Path

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
