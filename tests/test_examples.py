"""The examples run as their headers say."""

import re
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
    """The example's network is overconfident; calibrated, its confidence is within two points of its accuracy."""
    before, after = output(EXAMPLES / "calibrate.py").splitlines()
    says, right = (float(number) for number in re.search(r"says ([\d.]+) % and is right ([\d.]+) %", before).groups())
    assert before.startswith("as trained: Overconfident")
    assert says - right > 5
    assert float(re.search(r"Its ECE is ([\d.]+) %", after).group(1)) < 0.5 * float(re.search(r"Its ECE is ([\d.]+) %", before).group(1))
    output("-m", "maccal", "calibrate", f"{EXAMPLES / 'calibrate.py'}:build", "--out", tmp_path, "--epochs", "5")
    assert (tmp_path / "calibrate.report.html").exists()


def test_stream_from_one_process_and_from_two():
    alone = output(EXAMPLES / "stream.py")
    assert "200,000 rows, 10 classes" in alone
    assert "Overconfident" in alone
    assert output("-m", "torch.distributed.run", "--nproc-per-node", "2", EXAMPLES / "stream.py") == alone
