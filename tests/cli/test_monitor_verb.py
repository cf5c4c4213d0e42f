"""`maccal monitor` as a user types it: exit codes, JSON, the page, all changes or none."""

import json

import numpy as np
import pytest
from commands import refused, run

from maccal.io import FileError
from maccal.monitoring import Monitor


def rows(seed, n=300, gap=0.0):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.7, 1, n)
    return np.stack([p, 1 - p], 1), (rng.random(n) > p - gap).astype(int)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for name, seed, gap in (("held", 0, 0.0), ("good", 1, 0.0), ("bad", 2, 0.2)):
        p, y = rows(seed, gap=gap)
        np.savez(f"{name}.npz", probs=p, labels=y)
    np.savez("unlabelled.npz", probs=rows(4)[0])
    (tmp_path / "page.html").mkdir()
    p, y = rows(3)
    np.savez("later.npz", probs=p, ids=np.arange(300))
    lines = [f"{row},{label}\n" for row, label in enumerate(y)]
    (tmp_path / "late.csv").write_text("id,label\n" + "".join(lines))
    return tmp_path


def test_from_the_first_day_to_the_alarm(files, monkeypatch, capsys):
    run(monkeypatch, "monitor", "state", "--new", "--reference", "held.npz")
    assert "0 rows in 0 batches" in capsys.readouterr().out
    run(monkeypatch, "monitor", "state", "--add", "good.npz", "--time", "2026-03-01")
    said = capsys.readouterr().out
    assert "300 rows in 1 batch; 300 with labels, 0 waiting for theirs" in said
    assert "No alarm: the confidence is right, as far as can be told" in said
    run(monkeypatch, "monitor", "state", "--add", "later.npz", "--time", "2026-03-02")
    assert "Accuracy to expect" in capsys.readouterr().out
    run(monkeypatch, "monitor", "state", "--labels", "late.csv", "--time", "2026-03-03")
    capsys.readouterr()
    bad = ("--add", "bad.npz", "--time", "2026-03-04", "--page", "out.html", "--json")
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, "monitor", "state", *bad)
    assert caught.value.code == 3
    found = json.loads(capsys.readouterr().out)
    assert found["fired"]
    assert (found["rows"], found["labelled"], found["waiting"]) == (900, 900, 0)
    assert found["alarms"][0]["fired_at"] == "2026-03-04T00:00:00+00:00"
    assert found["alarms"][1]["fired_at"] is None
    assert found["known"]["rows"] == 900
    assert found["expected"] is None
    assert 'data-fired="2026-03-04T00:00:00+00:00"' in (files / "out.html").read_text()
    with pytest.raises(SystemExit) as caught:  # it stays, whoever looks
        run(monkeypatch, "monitor", "state")
    assert caught.value.code == 3
    assert "Alarm since 2026-03-04 00:00 UTC, after 900 rows" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(monkeypatch, "monitor", "state", "--add", "unlabelled.npz")
    said = " ".join(capsys.readouterr().out.split())
    assert "the calibration alarm says that it has changed: do not rely on it" in said


def test_all_changes_or_none(files, monkeypatch, capsys):
    run(monkeypatch, "monitor", "state", "--new")
    before = Monitor.open("state").standing()
    (files / "wrong.csv").write_text("id,label\nnobody,0\n")
    words = refused(
        monkeypatch, capsys, "monitor", "state", "--add", "later.npz", "--labels", "wrong.csv"
    )
    assert "id 'nobody' does not wait for a label" in words
    assert Monitor.open("state").standing() == before
    run(monkeypatch, "monitor", "state", "--add", "later.npz", "--labels", "late.csv")
    assert Monitor.open("state").standing().labelled == 300


def test_merge(files, monkeypatch, capsys):
    for folder, file in (("one", "good.npz"), ("two", "held.npz")):
        run(monkeypatch, "monitor", folder, "--new", "--add", file)
    run(monkeypatch, "monitor", "one", "--merge", "two")
    run(monkeypatch, "monitor", "one", "--merge", "two")
    assert Monitor.open("one").standing().rows == 600
    assert Monitor.open("two").standing().rows == 300


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("monitor nowhere", "nowhere: no monitor; make one with `maccal monitor FOLDER --new`"),
        ("monitor state --new", "state is a monitor already"),
        ("monitor state --alpha 0.1", "--alpha does not apply to a monitor that is there"),
        ("monitor state --reference held.npz", "--reference does not apply"),
        ("monitor state --time 2026-03-01", "--time does not apply to a command without --add"),
        ("monitor state --kind probs", "--kind does not apply to a command without --add"),
        ("monitor state --add good.npz --time never", "time is 'never'; expected ISO 8601"),
        ("monitor new --new --reference later.npz", "later.npz: no labels; a reference needs them"),
        ("monitor new --new --alpha 2", "alpha is 2.0; expected a number above 0 and below 1"),
        ("monitor state --merge nowhere", "nowhere: no monitor"),
        ("monitor new --new --add nowhere.npz", "nowhere.npz: no such file"),
        ("monitor state --add good.npz --page good.npz", "pass a name that ends in .html"),
        ("monitor state --add good.npz --page state/p.html", "in the folder of the monitor"),
        ("monitor state --add good.npz --page page.html", "page.html: a folder"),
        ("monitor state --add good.npz --page good.npz/p.html", "good.npz: a file, where a folder"),
        ("monitor good.npz --new", "good.npz: a file, where a folder is needed"),
    ],
)
def test_refused(files, monkeypatch, capsys, command, words):
    run(monkeypatch, "monitor", "state", "--new")
    capsys.readouterr()
    assert words in refused(monkeypatch, capsys, *command.split())
    assert Monitor.open("state").standing().batches == 0
    with pytest.raises(FileError):
        Monitor.open("new")
