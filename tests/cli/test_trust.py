"""maccal trust, and maccal evaluate --task: tables, JSON, pages, and what is refused."""

import json

import numpy as np
import pytest
from commands import refused, run

import maccal as mc
from maccal.evaluation.tasks import read_task
from maccal.evaluation.trusting import halves
from maccal.io import FileError, read_json


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Predictions of a model, of a binary score and of two labels, in a folder to work in."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=1200)
    logits = rng.normal(size=(1200, 4)) + 5 * np.eye(4)[labels]
    np.savez("said.npz", logits=logits, labels=labels)
    np.savez("more.npz", logits=logits[:600], labels=labels[:600])
    np.savez("few.npz", logits=logits[:600, :3], labels=labels[:600] % 3)
    np.save("sites.npy", rng.choice(["<b>north", "south"], 1200))
    scores = rng.uniform(0.05, 0.95, 400)
    truth = (rng.random(400) < scores**2).astype(int)
    np.savez("binary.npz", probs=scores, labels=truth)
    lines = [f"7,{y},{s!r}" for y, s in zip(truth, scores.tolist(), strict=True)]
    (tmp_path / "binary.csv").write_text("\n".join(["id,label,prob", *lines]))
    probs = rng.uniform(0.1, 0.9, (300, 2))
    targets = (rng.random((300, 2)) < probs).astype(int)
    np.savez("multi.npz", logits=np.log(probs / (1 - probs)), labels=targets)
    rows = [
        f"{y[0]},{p[0]!r},{y[1]},{p[1]!r}" for y, p in zip(targets, probs.tolist(), strict=True)
    ]
    header = "label_rain,prob_rain,label_wind,prob_wind"
    (tmp_path / "multi.csv").write_text("\n".join([header, *rows]))
    return tmp_path


QUICK = ("--resamples", "50")


def test_trust_prints_and_writes(folder, monkeypatch, capsys):
    words = ("--groups", "sites.npy", "--risk", "0.05", "--out", "out")
    run(monkeypatch, "trust", "said.npz", *words, *QUICK)
    printed = capsys.readouterr().out
    assert "fitted on 600 rows, measured on 600 others" in printed
    assert "at most 5.00 % of the answers are wrong with 95 % certainty" in printed
    assert "Calibration by group" in printed
    record = read_json(folder / "out" / "said.trust.json", "trust 1")
    page = (folder / "out" / "said.trust.html").read_text()
    assert "&lt;b&gt;north" in page
    assert "<b>north" not in page.split("<script")[0]
    assert [one["method"] for one in record["sets"]] == ["thr", "aps", "raps"]
    assert [line["group"] for line in record["groups"]] == ["<b>north", "south"]


def test_what_is_recorded_is_what_the_library_gives(folder, monkeypatch, capsys):
    run(monkeypatch, "trust", "said.npz", "--json", "--seed", "3", *QUICK)
    record = json.loads(capsys.readouterr().out)
    old, new = halves(mc.read("said.npz"), 3)
    assert len(old.labels) + len(new.labels) == 1200
    for one in record["sets"]:
        sets = mc.ConformalSets(one["method"], 0.9, seed=3).fit(old.probs, old.labels)
        assert one["thresholds"] == sets.thresholds_.tolist()
        assert one["coverage"] == sets.measure(new.probs, new.labels)["coverage"]
        assert one["randomised"] == (one["method"] != "thr")
    model = mc.AbstainingClassifier().fit(old.probs, old.labels)
    assert record["answers"]["found"] == model.found_
    assert record["groups"] is None


def test_a_second_file_is_measured_on(folder, monkeypatch, capsys):
    words = ("--test", "more.npz", "--methods", "aps", "--deterministic", "--json")
    run(monkeypatch, "trust", "said.npz", *words, *QUICK)
    record = json.loads(capsys.readouterr().out)
    assert (record["fitted_on"], record["measured_on"]) == (1200, 600)
    assert [one["randomised"] for one in record["sets"]] == [False]


@pytest.mark.parametrize("suffix", ["npz", "csv"])
def test_binary(folder, monkeypatch, capsys, suffix):
    run(monkeypatch, "evaluate", f"binary.{suffix}", "--task", "binary", "--out", "out", *QUICK)
    assert "Too high: the mean probability of class 1" in capsys.readouterr().out
    record = read_json(folder / "out" / "binary.binary.json", "binary 1")
    stored = np.load("binary.npz")
    expected = mc.binary_summary(stored["probs"], stored["labels"])
    assert record["positive_ece"] == pytest.approx(expected["positive_ece"])
    assert "share of class 1" in (folder / "out" / "binary.report.html").read_text()


def test_binary_labels_may_be_names_in_arrays_too(folder, monkeypatch, capsys):
    stored = np.load("binary.npz")
    np.savez("names.npz", probs=stored["probs"], labels=np.array(["ham", "spam"])[stored["labels"]])
    words = ("--task", "binary", "--classes", "ham", "spam", "--out", "out")
    run(monkeypatch, "evaluate", "names.npz", *words, *QUICK)
    record = read_json(folder / "out" / "names.binary.json", "binary 1")
    assert record["positives"] == pytest.approx(stored["labels"].mean())


@pytest.mark.parametrize("suffix", ["npz", "csv"])
def test_multilabel(folder, monkeypatch, capsys, suffix):
    words = ("--task", "multilabel", "--out", "out")
    run(monkeypatch, "evaluate", f"multi.{suffix}", *words, *QUICK)
    assert "ECE, macro" in capsys.readouterr().out
    record = read_json(folder / "out" / "multi.multilabel.json", "multilabel 1")
    names = [line["label"] for line in record["labels"]]
    assert names == (["rain", "wind"] if suffix == "csv" else [0, 1])
    stored = np.load("multi.npz")
    expected = mc.multilabel_summary(logits=stored["logits"], labels=stored["labels"])
    assert record["macro_ece"] == pytest.approx(expected["macro_ece"])


REFUSED = [
    ("trust said.npz --methods thr --deterministic", "--deterministic does not apply to thr"),
    ("trust said.npz --methods aps aps", "names none, or one twice"),
    ("trust said.npz --out said.npz", "said.npz: a file, where a folder is needed"),
    ("compare said.npz --out said.npz", "said.npz: a file, where a folder is needed"),
    ("evaluate said.npz --out said.npz", "said.npz: a file, where a folder is needed"),
    ("evaluate binary.npz --task binary --out said.npz", "said.npz: a file, where a folder is"),
    ("trust said.npz --coverage 90", "coverage is 90.0; expected a share between 0 and 1"),
    ("trust said.npz --risk 0", "risk is 0.0; expected a share between 0 and 1"),
    ("trust said.npz --groups said.npz", "groups are a .npy array"),
    ("trust more.npz --groups sites.npy", "groups have shape (1200,)"),
    ("trust said.npz --test few.npz", "the classes must be the same"),
    ("trust binary.npz", "probs has shape (400,)"),
    ("evaluate binary.csv", "for one score of class 1 per row say --task binary"),
    ("evaluate multi.csv", "for several labels per row say --task multilabel"),
    ("evaluate binary.npz", "maccal evaluate --task binary"),
    ("evaluate multi.npz", "maccal evaluate --task multilabel"),
    ("evaluate said.npz --task binary", "expected one score of class 1 for each row"),
    ("evaluate said.npz --task multilabel", "must match one to one"),
    ("evaluate binary.npz --task binary --compare x.npz", "--compare does not apply to --task"),
    ("evaluate binary.npz --task binary --ood svhn", "--ood does not apply to --task binary"),
    ("evaluate binary.npz --task multilabel", "for one score per row there is binary_summary"),
    ("evaluate binary.csv --task multilabel", "expected label_a and prob_a"),
    ("evaluate multi.csv --task binary", "expected label,prob or label,logit"),
    ("evaluate binary.csv --task binary --kind probs", "leave --labels and --kind out"),
    ("evaluate said.parquet --task binary", "are read from .npz, .npy, .csv"),
]


@pytest.mark.parametrize(("command", "words"), REFUSED, ids=[command for command, _ in REFUSED])
def test_refused(folder, monkeypatch, capsys, command, words):
    before = sorted(folder.rglob("*"))
    assert words in refused(monkeypatch, capsys, *command.split())
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns none"),
        ("label,prob\n", "no rows below the header"),
        ("label,prob\n1,0.5\n0\n", "not a table of numbers"),
        ("label,prob\n1,high\n", "not a table of numbers"),
        ("label,prob,logit\n1,0.5,0.1\n", "expected label,prob"),
    ],
)
def test_damaged_tables(tmp_path, text, message):
    path = tmp_path / "said.csv"
    path.write_text(text)
    with pytest.raises(FileError, match=message):
        read_task(path, "binary")
