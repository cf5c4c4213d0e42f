"""Predictions as JSON and gzip, and from files that are damaged or hostile: bounded, or refused."""

import gzip
import io
import json
import sys

import numpy as np
import pytest

import maccal as mc
from maccal.evaluation import records
from maccal.evaluation.predictions import Predictions, read
from maccal.io import FileError

PROBS = np.array([[0.75, 0.25], [0.625, 0.375], [0.125, 0.875]])
CODES = [0, 1, 1]
NAMES = ["cat", "dog", "dog"]
CLASSES = ["cat", "dog"]
INDICES = [{"label": y, "probs": p} for y, p in zip(CODES, PROBS.tolist(), strict=True)]
BY_NAME = [
    {"label": y, "probs": dict(zip(CLASSES, p, strict=True))}
    for y, p in zip(NAMES, PROBS.tolist(), strict=True)
]
FLAT = [
    {"id": 7, "label": y, "prob_dog": p[1], "prob_cat": p[0]}
    for y, p in zip(NAMES, PROBS.tolist(), strict=True)
]
COLUMNS = {"labels": NAMES, "probs": PROBS.tolist(), "classes": CLASSES}
CSV = "label,prob_cat,prob_dog\ncat,0.75,0.25\ndog,0.625,0.375\ndog,0.125,0.875\n"


def lines(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows)


GOOD = {
    "indices.jsonl": lines(INDICES),
    "names.jsonl": lines(BY_NAME),
    "flat.jsonl": lines(FLAT),
    "blank.jsonl": "\n" + lines(INDICES).replace("\n", "\n\n"),
    "marked.jsonl": "\ufeff" + lines(INDICES),
    "list.json": json.dumps(INDICES),
    "names.json": json.dumps(BY_NAME),
    "columns.json": json.dumps(COLUMNS),
    "table.csv": CSV,
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", GOOD)
def test_every_form_is_the_same_predictions(tmp_path, name, packed):
    path = tmp_path / (f"{name}.gz" if packed else name)
    data = GOOD[name].encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    said = read(path)
    order = [list(said.classes).index(one) for one in CLASSES] if said.classes else [0, 1]
    assert said.scores[:, order].tolist() == PROBS.tolist()
    assert [order.index(label) for label in said.labels] == CODES
    assert said.name == name.split(".")[0]
    assert said.summary(resamples=20)["accuracy"] == mc.summary(PROBS, CODES)["accuracy"]


def test_names_in_an_npz(tmp_path):
    np.savez(tmp_path / "a.npz", probs=PROBS, labels=NAMES, classes=CLASSES)
    assert read(tmp_path / "a.npz").labels.tolist() == CODES
    np.savez(tmp_path / "b.npz", probs=PROBS, labels=NAMES)
    assert read(tmp_path / "b.npz", classes=CLASSES).labels.tolist() == CODES
    with pytest.raises(ValueError, match="labels are names, such as 'cat'; pass classes="):
        read(tmp_path / "b.npz").summary(resamples=20)
    with pytest.raises(FileError, match=r"b.npz: label 'cat' in row 0 is none of the classes"):
        read(tmp_path / "b.npz", classes=["a", "b"])
    np.savez(tmp_path / "c.npz", probs=PROBS, labels=NAMES, classes=np.eye(2))
    with pytest.raises(FileError, match="classes is float64 of shape"):
        read(tmp_path / "c.npz")


def test_predictions_of_ones_own():
    said = Predictions(PROBS, "probs", np.array(NAMES), classes=("cat", "dog"))
    assert said.labels.tolist() == CODES


def test_normalised_files(tmp_path):
    (tmp_path / "a.csv").write_text("label,prob_0,prob_1\n0,33.3,66.6\n1,33.3,66.6\n")
    with pytest.raises(ValueError, match="as normalise=True and --normalise do"):
        read(tmp_path / "a.csv").summary(resamples=20)
    assert read(tmp_path / "a.csv", normalise=True).scores[0] == pytest.approx([1 / 3, 2 / 3])
    np.savez(tmp_path / "b.npz", logits=PROBS, labels=CODES)
    with pytest.raises(FileError, match="normalise is for probabilities, and these are logits"):
        read(tmp_path / "b.npz", normalise=True)


DEEP = "[" * 100_000
BAD = {
    "nothing.jsonl": ("", "no rows"),
    "blank.jsonl": ("\n\n", "no rows"),
    "number.jsonl": ("3\n", "row 0 is 3; expected an object"),
    "fields.jsonl": ('{"x": 1}\n', "fields x; expected 'label' and 'probs' or 'logits'"),
    "no label.jsonl": ('{"probs": [1, 0]}\n', "expected 'label'"),
    "two labels.jsonl": ('{"label": 0, "labels": 0, "probs": [1]}\n', "expected 'label'"),
    "lost label.jsonl": (lines([*INDICES, {"probs": [1, 0]}]), "row 3 has no 'label'"),
    "ragged.jsonl": (lines([*INDICES, {"label": 0, "probs": [1]}]), "row 3 has 1 probs"),
    "other form.jsonl": (lines([*INDICES, BY_NAME[0]]), "row 3 does not have the probs"),
    "other names.jsonl": (
        lines([*BY_NAME, {"label": "cat", "probs": {"cat": 1, "cow": 0}}]),
        "row 3 does not have the probs",
    ),
    "more names.jsonl": (
        lines([*BY_NAME, {"label": "cat", "probs": {"cat": 1, "dog": 0, "cow": 0}}]),
        "row 3 does not have the probs",
    ),
    "text.jsonl": ('{"label": 0, "probs": ["a", "b"]}\n', "row 0 holds 'a', which is no number"),
    "true.jsonl": ('{"label": 0, "probs": [true, false]}\n', "which is no number"),
    "null.jsonl": ('{"label": 0, "probs": [null, 1]}\n', "which is no number"),
    "empty.jsonl": ('{"label": 0, "probs": []}\n', "is no list of scores"),
    "label.jsonl": ('{"label": 0.5, "probs": [1, 0]}\n', "neither a class index nor a name"),
    "true label.jsonl": ('{"label": true, "probs": [1, 0]}\n', "neither a class index"),
    "unknown.jsonl": ('{"label": "cow", "probs": {"cat": 1, "dog": 0}}\n', "label 'cow' in row 0"),
    "twice.jsonl": ('{"label": 0, "label": 1, "probs": [1, 0]}\n', "a name comes twice"),
    "huge.jsonl": ('{"label": 0, "probs": [1' + "0" * 400 + ", 0]}\n", "not a file of JSON lines"),
    "deep.jsonl": (DEEP, "not a file of JSON lines"),
    "cut.jsonl": ('{"label": 0, "probs": [1, 0]', "not a file of JSON lines"),
    "deep.json": (DEEP, "not a readable JSON file"),
    "cut.json": ("[", "not a readable JSON file"),
    "number.json": ("3", "neither a list of rows nor an object of columns"),
    "classes.json": ('{"labels": [0], "probs": [[1, 0]], "classes": 3}', "classes is not a list"),
    "labels.json": ('{"labels": 0, "probs": [[1, 0]]}', "the labels are not a list"),
    "ragged.json": ('{"labels": [0, 0], "probs": [[1, 0], [1]]}', "not predictions"),
    "no scores.json": ('{"labels": [0]}', "no logits or probs; found labels"),
    "both.json": ('{"labels": [0], "probs": [[1, 0]], "logits": [[1, 0]]}', "both logits and"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(tmp_path, name):
    text, message = BAD[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError, match=message) as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_text_that_is_not_utf8(tmp_path):
    for name in ("a.json", "a.jsonl"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00")
        with pytest.raises(FileError, match="not a "):
            read(tmp_path / name)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json"])
def test_a_bomb(tmp_path, monkeypatch, suffix):
    """A file of 20 kB that unpacks to 20 MB; with a smaller grant, to be quick."""
    start = GOOD["table.csv" if suffix == "csv" else "indices.jsonl"].encode()
    path = tmp_path / f"bomb.{suffix}.gz"
    path.write_bytes(gzip.compress(start + b" " * 20_000_000))
    assert path.stat().st_size < 30_000
    monkeypatch.setenv("MACCAL_LARGEST", "1000000")
    with pytest.raises(FileError, match=r"more than [\d,]+ bytes") as caught:
        read(path)
    assert "MACCAL_LARGEST" in str(caught.value)


def test_a_bomb_of_rows(tmp_path, monkeypatch):
    """Lines of good rows, 300 times as many bytes as the file has."""
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress((CSV[:24] + "cat,0.75,0.25\n" * 500_000).encode(), 9))
    monkeypatch.setenv("MACCAL_LARGEST", "1000")
    with pytest.raises(FileError, match="unpacks to more than"):
        read(path)
    monkeypatch.setenv("MACCAL_LARGEST", "10000000")
    assert len(read(path).labels) == 500_000


def test_damaged_gzip(tmp_path):
    good = gzip.compress(CSV.encode())
    for name, data in {
        "cut.csv.gz": good[:-12],
        "flipped.csv.gz": good[:-8] + b"\0\0\0\0" + good[-4:],
        "plain.csv.gz": CSV.encode(),
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileError, match="not a table of numbers"):
            read(tmp_path / name)


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "LONGEST", 1000)
    (tmp_path / "long.jsonl").write_text("[" + "1," * 1000)
    with pytest.raises(FileError, match="a line of more than 1,000 bytes; expected one row"):
        read(tmp_path / "long.jsonl")


class Pipe:
    """Standard input that has these bytes."""

    def __init__(self, data):
        self.buffer = io.BytesIO(data)

    def isatty(self):
        return self.buffer is None


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Pipe(CSV.encode()))
    said = read("-", format="csv")
    assert (said.name, said.labels.tolist()) == ("stdin", CODES)
    monkeypatch.setattr(sys, "stdin", Pipe(CSV.encode()))
    monkeypatch.setenv("MACCAL_LARGEST", "10")
    with pytest.raises(FileError, match="standard input: more than 10 bytes; pass a file"):
        read("-", format="csv")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(FileError, match="standard input: nothing is piped in"):
        read("-", format="csv")


def test_a_format_that_is_said(tmp_path):
    (tmp_path / "said.txt").write_text(CSV)
    assert read(tmp_path / "said.txt", format="csv").name == "said"
    with pytest.raises(FileError, match=r"unknown suffix .*; or say --format"):
        read(tmp_path / "said.txt")
