"""Reading predictions: every format gives the same, every broken file says what is wrong."""

import builtins
import json
import math
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from maccal.evaluation.predictions import Predictions, read, row
from maccal.evaluation.row import Measured, row_of
from maccal.io import FileError
from maccal.metrics import softmax

rng = np.random.default_rng(0)
LOGITS = rng.normal(size=(12, 3))
PROBS = softmax(LOGITS)
LABELS = rng.integers(0, 3, 12)
CLASSES = ("cat", "dog", "emu")


def csv_text(header, scores, labels):
    lines = [",".join(header)]
    lines += [
        ",".join([str(label), *(repr(float(v)) for v in line)])
        for label, line in zip(labels, scores, strict=True)
    ]
    return "\n".join(lines) + "\n"


def write_npz(folder):
    np.savez(folder / "m.npz", probs=PROBS, labels=LABELS, other=np.ones(3))
    return read(folder / "m.npz")


def write_compressed(folder):
    np.savez_compressed(folder / "m.npz", probs=PROBS, labels=LABELS)
    return read(folder / "m.npz")


def write_npy(folder):
    np.save(folder / "m.npy", PROBS)
    np.save(folder / "y.npy", LABELS)
    return read(folder / "m.npy", labels=folder / "y.npy", kind="probs")


def write_structured_npy(folder):
    table = np.empty(12, dtype=[("probs", float, 3), ("labels", int)])
    table["probs"], table["labels"] = PROBS, LABELS
    np.save(folder / "m.npy", table)
    return read(folder / "m.npy")


def write_csv(folder):
    (folder / "m.csv").write_text(csv_text(["label", "prob_0", "prob_1", "prob_2"], PROBS, LABELS))
    return read(folder / "m.csv")


def write_shuffled_csv(folder):
    (folder / "m.csv").write_text(
        csv_text(["labels", "probs_2", "probs_0", "probs_1"], PROBS[:, [2, 0, 1]], LABELS)
    )
    return read(folder / "m.csv")


def write_named_csv(folder):
    names = [f'"{CLASSES[y]}"' for y in LABELS]
    (folder / "m.csv").write_text(
        "\ufeff" + csv_text(["label", "prob_cat", "prob_dog", "prob_emu"], PROBS, names),
        encoding="utf-8",
    )
    made = read(folder / "m.csv")
    assert made.classes == CLASSES
    return made


def write_parquet(folder):
    columns = {"label": LABELS, **{f"prob_{k}": PROBS[:, k] for k in range(3)}}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "m.parquet")
    return read(folder / "m.parquet")


def write_list_parquet(folder):
    pyarrow.parquet.write_table(
        pyarrow.table({"probs": PROBS.tolist(), "labels": LABELS}), folder / "m.parquet"
    )
    return read(folder / "m.parquet")


FORMATS = [
    write_npz,
    write_compressed,
    write_npy,
    write_structured_npy,
    write_csv,
    write_shuffled_csv,
    write_named_csv,
    write_parquet,
    write_list_parquet,
]


@pytest.mark.parametrize("make", FORMATS)
def test_every_format_gives_the_same(make, tmp_path):
    made = make(tmp_path)
    assert np.array_equal(made.scores, PROBS)
    assert np.array_equal(made.labels, LABELS)
    assert (made.kind, made.name) == ("probs", "m")
    assert made.summary(resamples=20)["accuracy"] == (PROBS.argmax(1) == LABELS).mean()


def test_logits(tmp_path):
    np.savez(tmp_path / "m.npz", logits=LOGITS.astype(np.float32), labels=LABELS)
    made = read(tmp_path / "m.npz", name="mine")
    assert (made.kind, made.name) == ("logits", "mine")
    assert np.allclose(made.probs, PROBS, atol=1e-6)
    assert made.bins(10).n == 12


def test_choosing_between_logits_and_probs(tmp_path):
    np.savez(tmp_path / "m.npz", logits=LOGITS, probs=PROBS, labels=LABELS)
    with pytest.raises(FileError, match="both logits and probs; choose with --kind"):
        read(tmp_path / "m.npz")
    assert read(tmp_path / "m.npz", kind="logits").kind == "logits"


def broken(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


HEADER = "label,prob_0,prob_1\n"
BROKEN = {
    "not a zip": ("m.npz", b"hello", "not a readable .npz file"),
    "cut off": ("m.npz", b"PK\x03\x04 and then nothing", "not a readable .npz file"),
    "not npy": ("m.npy", b"", "not a readable .npy file"),
    "no header": ("m.csv", "", "no rows below the header"),
    "no rows": ("m.csv", HEADER, "no rows below the header"),
    "strange columns": (
        "m.csv",
        "truth,a,b\n0,0.5,0.5\n",
        "columns truth, a, b .* expected one 'label' and prob_0",
    ),
    "two kinds": ("m.csv", "label,prob_0,logit_1\n0,0.5,0.5\n", "expected one 'label'"),
    "a gap": ("m.csv", "label,prob_0,prob_2\n0,0.5,0.5\n", "numbered 0, 2; expected 0 to 1"),
    "twice": ("m.csv", "label,prob_a,prob_a\n0,0.5,0.5\n", "two score columns have the same name"),
    "a word": ("m.csv", HEADER + "0,0.5,half\n", "not a table of numbers"),
    "short line": ("m.csv", HEADER + "0,0.5,0.5\n0,0.5\n", "not a table of numbers"),
    "unknown class": (
        "m.csv",
        "label,prob_cat,prob_dog\nemu,0.5,0.5\n",
        "label 'emu' in row 0 is neither a class index nor one of the classes cat, dog",
    ),
    "half a label": ("m.csv", HEADER + "0.5,0.5,0.5\n", "label '0.5' in row 0"),
    "not text": ("m.csv", b"label,prob_0,prob_1\n\xff\xfe,1,2\n", "not a table of numbers"),
    "not parquet": ("m.parquet", b"PAR1", "not a readable .parquet file"),
    "suffix": (
        "m.txt",
        "0.5",
        "unknown suffix '.txt'; expected one of .npz, .npy, .csv, .csv.gz",
    ),
}


@pytest.mark.parametrize(("name", "content", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_files(name, content, message, tmp_path):
    path = broken(tmp_path, name, content)
    with pytest.raises(FileError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))


def test_missing_pieces(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        read(tmp_path / "none.npz")
    np.savez(tmp_path / "m.npz", probs=PROBS)
    with pytest.raises(FileError, match="no labels; found probs"):
        read(tmp_path / "m.npz")
    np.savez(tmp_path / "m.npz", labels=LABELS, p=PROBS)
    with pytest.raises(FileError, match="no logits or probs; found labels"):
        read(tmp_path / "m.npz")
    np.save(tmp_path / "m.npy", PROBS)
    with pytest.raises(FileError, match="a bare array; say what it holds"):
        read(tmp_path / "m.npy")
    with pytest.raises(FileError, match="no such file"):
        read(tmp_path / "m.npy", kind="probs", labels=tmp_path / "y.npy")


def test_classes_that_contradict_the_file_are_refused(tmp_path):
    write_named_csv(tmp_path)
    path = tmp_path / "m.csv"
    assert read(path, classes=CLASSES).classes == CLASSES
    with pytest.raises(FileError, match=r"its classes are .*; leave --classes out"):
        read(path, classes=CLASSES[::-1])
    np.savez(tmp_path / "m.npz", probs=PROBS, labels=LABELS)
    with pytest.raises(FileError, match="2 classes for 3 columns"):
        read(tmp_path / "m.npz", classes=CLASSES[:2])


def test_pickles_are_not_opened(tmp_path):
    """An array of objects could run code when loaded."""
    np.savez(tmp_path / "m.npz", probs=np.array([{"a": 1}], dtype=object), labels=LABELS)
    with pytest.raises(FileError, match=r"probs holds Python objects, which could run code"):
        read(tmp_path / "m.npz")


def test_lists_of_different_length(tmp_path):
    pyarrow.parquet.write_table(
        pyarrow.table({"probs": [[0.5, 0.5], [1.0]], "labels": [0, 0]}), tmp_path / "m.parquet"
    )
    with pytest.raises(FileError, match="the lists in probs differ in length"):
        read(tmp_path / "m.parquet")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    write_parquet(tmp_path)
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(FileError, match=r"pip install 'maccal\[parquet\]'"):
        read(tmp_path / "m.parquet")


def test_row_is_json():
    """Infinity becomes null: JSON has no word for it."""
    made = Predictions(np.array([[1.0, 0.0], [0.6, 0.4]] * 5), "probs", np.array([1, 0] * 5))
    result = row(made, made.summary(resamples=20), Measured(seed=0))
    assert row_of(json.loads(json.dumps(result.content, allow_nan=False)), Path("x")) == result
    assert result.ran is None
    assert result.numbers["nll"] is None
    assert math.isclose(result.numbers["brier"], (2 + 0.32) / 2)
    assert (result.measured.kind, result.measured.n, result.measured.classes) == ("probs", 10, 2)
    assert result.made_with.torch == version("torch")
