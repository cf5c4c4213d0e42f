"""The command line as a user meets it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from commands import refused, run

from maccal.metrics import softmax, summary


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two models' predictions of the same rows, in the working folder."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(600, 4)) * 2
    labels = (softmax(logits).cumsum(1) > rng.random((600, 1))).argmax(1)
    np.savez(tmp_path / "sharp.npz", logits=3 * logits, labels=labels)
    np.savez(tmp_path / "plain.npz", probs=softmax(logits), labels=labels)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def test_evaluate(files, monkeypatch, capsys):
    run(monkeypatch, "evaluate", "sharp.npz", "--resamples", "100")
    out = " ".join(capsys.readouterr().out.split())
    row = json.loads((files / "sharp.row.json").read_text())
    with np.load("sharp.npz") as saved:
        expected = summary(logits=saved["logits"], labels=saved["labels"], interval=True, resamples=100)
    assert {key: row[key] for key in expected} == expected
    assert f"ECE {100 * row['ece']:.2f} % {100 * row['ece_low']:.2f} % to {100 * row['ece_high']:.2f} %" in out
    assert row["verdict"] in out
    assert "report: sharp.report.html" in out
    assert (files / "sharp.report.html").read_text().startswith("<!doctype html>")


def test_compare(files, monkeypatch, capsys):
    run(monkeypatch, "evaluate", "sharp.npz", "--compare", "plain.npz", "--resamples", "100", "--out", "deep/er")
    out = capsys.readouterr().out
    assert "plain minus sharp" in out
    assert sorted(p.name for p in (files / "deep" / "er").iterdir()) == ["plain.row.json", "sharp.report.html", "sharp.row.json"]
    page = (files / "deep" / "er" / "sharp.report.html").read_text()
    assert "ECE: plain is better by" in page
    assert "Accuracy: no difference that chance would not explain" in page


def test_bare_arrays(files, monkeypatch):
    with np.load("plain.npz") as saved:
        np.save("p.npy", saved["probs"])
        np.save("y.npy", saved["labels"])
    run(monkeypatch, "evaluate", "p.npy", "--kind", "probs", "--labels", "y.npy", "--resamples", "50")
    assert json.loads((files / "p.row.json").read_text())["n"] == 600


def test_other_labels_cannot_be_compared(files, monkeypatch, capsys):
    with np.load("plain.npz") as saved:
        np.savez("other.npz", probs=saved["probs"], labels=saved["labels"][::-1])
    message = refused(monkeypatch, capsys, "evaluate", "sharp.npz", "--compare", "other.npz")
    assert "do not have the same labels" in message
    assert not list(files.glob("*.report.html"))


def test_bad_rows_write_nothing(files, monkeypatch, capsys):
    np.savez("bad.npz", probs=np.array([[0.5, 0.5], [np.nan, 1.0]]), labels=np.array([0, 1]))
    assert refused(monkeypatch, capsys, "evaluate", "bad.npz").startswith("maccal: probs row 1 holds nan")
    assert sorted(p.name for p in files.iterdir()) == ["bad.npz", "plain.npz", "sharp.npz"]


def test_missing_file(files, monkeypatch, capsys):
    assert refused(monkeypatch, capsys, "evaluate", "nothing.npz") == "maccal: nothing.npz: no such file"


@pytest.mark.parametrize(("flag", "value"), [("--bins", "0"), ("--bins", "100000000"), ("--resamples", "0")])
def test_bad_settings(files, monkeypatch, capsys, flag, value):
    assert flag.strip("-") in refused(monkeypatch, capsys, "evaluate", "sharp.npz", flag, value)


def test_as_a_program(files):
    """In a process of its own, as installed: exit codes, and no traceback for a user's mistake."""
    good = subprocess.run(
        [sys.executable, "-m", "maccal", "evaluate", "plain.npz", "--resamples", "50"], capture_output=True, text=True
    )
    assert good.returncode == 0, good.stderr
    bad = subprocess.run([sys.executable, "-m", "maccal", "evaluate", "no.npz"], capture_output=True, text=True)
    assert bad.returncode == 2
    assert "Traceback" not in bad.stderr
    usage = subprocess.run([sys.executable, "-m", "maccal", "--help"], capture_output=True, text=True)
    assert "evaluate" in usage.stdout
