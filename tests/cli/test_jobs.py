"""maccal calibrate, from features and from a model.

What is written, and that it is what the library gives.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from commands import refused, run
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import nn

from maccal.calibration.heads import load_head
from maccal.calibration.mac_cal import calibrate_head
from maccal.calibration.stage2 import Stage2
from maccal.cli.features_file import load_features
from maccal.cli.jobs import Settings, calibrate_file, calibrate_model
from maccal.cli.main import main as cli
from maccal.evaluation.predictions import read
from maccal.io import FileError, read_tensors

FAST = Stage2(epochs=5, hidden=16, batch_size=32)

BUILD = """
import torch
from torch import nn

def rows(seed, n=200):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=g)
    return [(torch.randn(n, 4, generator=g) + y[:, None], y)]

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), rows(1), rows(2), rows(3)

def train_only():
    return build()[:2]

def wrong():
    return "model"
"""


def settings(out, **changes):
    return replace(Settings("maccal", FAST, 1, None, None, None, None, out), **changes)


def arrays(seed=0, n=300):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return (rng.normal(size=(n, 6)) + y[:, None]).astype(np.float32), y


def features(folder, **more):
    (z, y), (val_z, val_y), (test_z, test_y) = (arrays(seed) for seed in range(3))
    file = folder / "mine.npz"
    np.savez(
        file,
        **{
            "z": z,
            "y": y,
            "val_z": val_z,
            "val_y": val_y,
            "test_z": test_z,
            "test_y": test_y,
            **more,
        },
    )
    return file


@pytest.mark.slow
def test_from_features(tmp_path):
    """The head is calibrate_head's; predictions, report and history are of that head."""
    weight, bias = np.eye(3, 6, dtype=np.float32), np.zeros(3, np.float32)
    done = calibrate_file(features(tmp_path, weight=weight, bias=bias), settings(tmp_path / "out"))
    expected = calibrate_head(*arrays(0), val=arrays(1), config=FAST)
    head = load_head(tmp_path / "out" / "mine.head.safetensors")
    assert all(
        torch.equal(a, b) for a, b in zip(head.parameters(), expected.parameters(), strict=True)
    )
    record = json.loads((tmp_path / "out" / "mine.history.json").read_text())
    assert record["history"] == expected.history
    assert record["config"]["hidden"] == 16
    after, before = (
        read(tmp_path / "out" / "mine.mac-cal.npz"),
        read(tmp_path / "out" / "mine.as-trained.npz"),
    )
    assert np.array_equal(after.scores, expected(torch.tensor(arrays(2)[0])).numpy())
    assert np.allclose(before.scores, arrays(2)[0][:, :3])
    assert [m.name for m in done.models] == ["as trained", "MaC-Cal"]
    assert "MaC-Cal" in (tmp_path / "out" / "mine.report.html").read_text()
    assert sorted(f.name for f in done.files) == [
        "mine.as-trained.npz",
        "mine.head.safetensors",
        "mine.history.json",
        "mine.mac-cal.npz",
    ]


def test_without_test_rows(tmp_path):
    z, y = arrays()
    np.savez(tmp_path / "bare.npz", z=z, y=y)
    done = calibrate_file(tmp_path / "bare.npz", settings(tmp_path, accuracy=0.8))
    assert done.report is None
    assert done.history[-1]["target"] == pytest.approx((0.8 * done.history[-1]["accuracy"]) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["file", "module"])
def test_from_a_model(tmp_path, monkeypatch, form):
    """The saved weights load into the model with the new head in place, and give the saved
    predictions.
    """
    (tmp_path / "somebody.py").write_text(BUILD)
    monkeypatch.syspath_prepend(tmp_path)
    spec = f"{tmp_path / 'somebody.py'}:build" if form == "file" else "somebody:build"
    done = calibrate_model(spec, settings(tmp_path / "out", cache=tmp_path / "cache"))
    model = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), load_head(tmp_path / "out" / "somebody.head.safetensors")
    )
    model.load_state_dict(
        safetensors.torch.load_file(tmp_path / "out" / "somebody.model.safetensors")
    )
    x, y = sys.modules["somebody"].rows(3)[0]
    saved = read(tmp_path / "out" / "somebody.mac-cal.npz")
    with torch.no_grad():
        assert np.allclose(saved.scores, model(x).numpy(), atol=1e-5)
    assert np.array_equal(saved.labels, y.numpy())
    assert done.report is not None
    assert len(list((tmp_path / "cache").iterdir())) == 3
    sys.modules.pop("somebody")


def test_a_linear_head_of_a_model(tmp_path):
    (tmp_path / "plain.py").write_text(BUILD)
    with pytest.warns(UserWarning, match="no good view"):
        calibrate_model(
            f"{tmp_path / 'plain.py'}:train_only",
            settings(tmp_path, config=replace(FAST, hidden=None)),
        )
    assert len(load_head(tmp_path / "plain.head.safetensors")) == 1


TIED = """
import torch
from torch import nn

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.fc = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight
        whole = torch.arange(6.0)
        self.register_buffer("whole", whole)
        self.register_buffer("part", whole[:4])

    def forward(self, x):
        return self.fc(self.second(self.first(x).relu()).relu() + self.part)

def build():
    g = torch.Generator().manual_seed(1)
    y = torch.randint(3, (200,), generator=g)
    return Tied(), [(torch.randn(200, 4, generator=g) + y[:, None], y)]
"""


def test_tied_weights_are_written_once_and_load_again(tmp_path):
    (tmp_path / "tied.py").write_text(TIED)
    calibrate_model(
        f"{tmp_path / 'tied.py'}:build",
        settings(tmp_path, config=replace(FAST, hidden=None), head="fc", accuracy=0.9),
    )
    tensors, _ = read_tensors(tmp_path / "tied.model.safetensors", "model 1")
    assert sorted(tensors) == [
        "fc.bias",
        "fc.weight",
        "first.bias",
        "first.weight",
        "second.bias",
        "whole",
    ]
    model, _ = sys.modules["tied"].build()
    model.fc.weight.data.zero_()
    safetensors.torch.load_model(model, tmp_path / "tied.model.safetensors")
    assert torch.equal(model.fc.weight, tensors["fc.weight"])
    assert torch.equal(model.second.weight, tensors["first.weight"])
    sys.modules.pop("tied")


def test_the_command(tmp_path, monkeypatch, capsys):
    file = features(tmp_path)
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "maccal",
            "calibrate",
            str(file),
            "--out",
            str(tmp_path),
            "--epochs",
            "3",
            "--hidden",
            "8",
        ],
    )
    cli()
    shown, notes = capsys.readouterr()
    assert "MaC-Cal" in shown
    assert "feedback from " in shown
    assert notes.splitlines()[-1] == f"wrote {tmp_path}/mine.report.html"
    assert json.loads((tmp_path / "mine.history.json").read_text())["config"]["epochs"] == 3


@pytest.mark.parametrize(
    ("source", "changes", "message"),
    [
        ("no.npz", {}, "no.npz: no such file"),
        ("half.npz", {}, "z and y belong together; found z"),
        ("empty.npz", {}, "no z and y; found logits"),
        ("broken.npz", {}, "not a readable .npz file"),
        ("code.py:missing", {}, "cannot be loaded"),
        ("nowhere.py:build", {}, "no file"),
        ("no_such_package.module:build", {}, "No module named 'no_such_package'"),
        ("code.py:wrong", {}, r"returned \(str\); expected model, train"),
        ("code.py:build", {"head": "7"}, "no module '7'"),
    ],
)
def test_bad_sources(tmp_path, monkeypatch, source, changes, message):
    monkeypatch.chdir(tmp_path)
    np.savez("half.npz", z=np.ones((2, 2)))
    np.savez("empty.npz", logits=np.ones((2, 2)))
    Path("broken.npz").write_bytes(b"PK")
    Path("code.py").write_text(BUILD)
    job = calibrate_model if ":" in source else (lambda s, *rest: calibrate_file(Path(s), *rest))
    with pytest.raises(ValueError, match=message):
        job(source, settings(tmp_path / "out", **changes))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, ">i4"])
def test_labels_of_any_whole_type(tmp_path, kind):
    """They are the same labels."""
    weight, bias = np.eye(3, 6), np.zeros(3, ">f4")
    plain = load_features(features(tmp_path))
    made = features(
        tmp_path,
        weight=weight,
        bias=bias,
        **{name: plain[name].astype(kind) for name in ("y", "val_y", "test_y")},
    )
    found = load_features(made)
    for name, array in plain.items():
        assert found[name].dtype.isnative
        assert np.array_equal(found[name], array)
    assert found["y"].dtype == np.int64
    assert torch.as_tensor(found["bias"]).tolist() == [0, 0, 0]


def changed(index, value, kind=np.int64):
    y = arrays()[1].astype(kind)
    y[index] = value
    return y


WRONG = {
    "one label of two billion": (
        {"y": changed(7, 2_000_000_000)},
        "y has labels from 0 to 2000000000; expected class indices",
    ),
    "the same in val": (
        {"val_y": changed(7, 2_000_000_000)},
        "val_y has labels from 0 to 2000000000",
    ),
    "a label beyond int64": (
        {"y": changed(0, 2**64 - 1, np.uint64)},
        "y has labels from 0 to 18446744073709551615",
    ),
    "a label below zero": ({"y": changed(0, -1)}, "y has labels from -1 to 2"),
    "a test label of no class": (
        {"test_y": changed(0, 3)},
        r"label 3 in test_y is outside 0 \.\. 2",
    ),
    "a label of no output": (
        {"weight": np.ones((2, 6)), "bias": np.ones(2)},
        r"label 2 in y is outside 0 \.\. 1",
    ),
    "labels of floats": (
        {"y": arrays()[1] * 1.0},
        r"y is float64 of shape \(300,\); expected 300 whole numbers",
    ),
    "labels of truth": ({"y": arrays()[1] > 1}, "y is bool of shape"),
    "labels of text": ({"test_y": arrays()[1].astype(str)}, "test_y is <U"),
    "one label too few": (
        {"val_y": arrays()[1][1:]},
        r"val_y is int64 of shape \(299,\); expected 300",
    ),
    "labels in columns": ({"y": arrays()[1][:, None]}, r"y is int64 of shape \(300, 1\)"),
    "no labels": ({"y": np.zeros(0, int)}, r"y is int64 of shape \(0,\)"),
    "a wider val": (
        {"val_z": np.ones((300, 7))},
        "z has 6 features and val_z 7; they must be of one network",
    ),
    "a narrower test": ({"test_z": np.ones((300, 5))}, "z has 6 features and test_z 5"),
    "a wider weight": (
        {"weight": np.ones((3, 9)), "bias": np.ones(3)},
        "z has 6 features and weight 9",
    ),
    "unlabelled of another width": (
        {"unlabelled_z": np.ones((9, 2))},
        "z has 6 features and unlabelled_z 2",
    ),
    "a bias of another length": (
        {"weight": np.ones((3, 6)), "bias": np.ones(4)},
        r"bias is float64 of shape \(4,\); expected 3",
    ),
    "a flat z": (
        {"z": np.ones(300)},
        r"z is float64 of shape \(300,\); expected floating-point rows x dimensions",
    ),
    "a z of whole numbers": ({"z": np.ones((300, 6), int)}, "z is int64 of shape"),
    "a z of objects": (
        {"z": np.full((300, 6), None)},
        "z holds Python objects, which could run code",
    ),
    "a z of complex numbers": ({"z": np.ones((300, 6), complex)}, "z is complex128"),
    "a z of long floats": (
        {"z": np.ones((300, 6), np.longdouble)},
        "z is float128|z is longdouble",
    ),
    "a test without rows": (
        {"test_z": np.ones((0, 6)), "test_y": np.zeros(0, int)},
        r"test_z is float64 of shape \(0, 6\)",
    ),
    "a z of one number": ({"z": np.float64(1)}, r"z is float64 of shape \(\)"),
}


@pytest.mark.parametrize(("changes", "message"), WRONG.values(), ids=WRONG)
def test_wrong_features(tmp_path, changes, message):
    """Said before anything is computed or written."""
    with pytest.raises(FileError, match=message):
        calibrate_file(features(tmp_path, **changes), settings(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_many_classes_are_no_mistake_where_they_are_known(tmp_path):
    """A classifier of so many outputs says that there are; so do as many rows."""
    weight, bias = np.ones((70_000, 6), np.float32), np.zeros(70_000, np.float32)
    found = load_features(features(tmp_path, weight=weight, bias=bias, y=changed(0, 69_999)))
    assert found["y"].max() == 69_999
    rows = 70_000
    np.savez(tmp_path / "many.npz", z=np.ones((rows, 1), np.float32), y=np.arange(rows))
    assert load_features(tmp_path / "many.npz")["y"].max() == rows - 1


kinds = st.sampled_from(["f2", "f4", ">f8", "i1", "u8", "i8", "?", "U3", "c8", "M8[s]", "V4", "O"])
any_array = st.builds(
    lambda shape, kind: np.zeros(shape, kind),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    kinds,
)
NAMES = ["z", "y", "val_z", "val_y", "unlabelled_z", "test_z", "test_y", "weight", "bias", "other"]


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(NAMES), any_array, max_size=8))
@hypothesis_settings(max_examples=150)
def test_any_features(tmp_path_factory, given_arrays):
    """Whatever arrays there are: a FileError, or arrays that go together."""
    path = tmp_path_factory.getbasetemp() / "any.npz"
    np.savez(path, **{"z": np.ones((2, 3)), "y": np.array([0, 1]), **given_arrays})
    try:
        found = load_features(path)
    except FileError:
        return
    widths = {found[name].shape[1] for name in found if name.endswith("z") or name == "weight"}
    assert len(widths) == 1
    assert all(found[name].dtype == np.int64 for name in found if name.endswith("y"))
    assert all(
        len(found[z]) == len(found[y])
        for z, y in (("z", "y"), ("val_z", "val_y"), ("test_z", "test_y"))
        if y in found
    )


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_features_that_are_no_file(tmp_path, monkeypatch, capsys, kind):
    path = tmp_path / "f.npz"
    os.mkfifo(path) if kind == "fifo" else path.mkdir()
    with pytest.raises(FileError, match="not a regular file"):
        calibrate_file(path, settings(tmp_path / "out"))
    if kind == "fifo":
        assert "not a regular file" in refused(monkeypatch, capsys, "calibrate", str(path))


def test_a_name_that_is_not_text(tmp_path, monkeypatch, capsys):
    """The files keep the name; what is shown and what is inside has a mark in its place."""
    features(tmp_path).rename(tmp_path / os.fsdecode(b"n\xe9t.npz"))
    words = [
        "calibrate",
        str(tmp_path / os.fsdecode(b"n\xe9t.npz")),
        "--out",
        str(tmp_path / "out"),
    ]
    run(monkeypatch, *words, "--epochs", "1", "--hidden", "8")
    assert r"n\udce9t" in capsys.readouterr().err
    written = {os.fsencode(file.name) for file in (tmp_path / "out").iterdir()}
    assert written == {
        b"n\xe9t." + end
        for end in (b"head.safetensors", b"history.json", b"mac-cal.npz", b"report.html")
    }
    assert "MaC-Cal" in next((tmp_path / "out").glob("*.html")).read_bytes().decode()


def test_a_file_that_is_no_head(tmp_path):
    for data in (b"nothing", safetensors.torch.save({"w": torch.ones(2)})):
        (tmp_path / "x.safetensors").write_bytes(data)
        with pytest.raises(ValueError, match="not a head written by maccal"):
            load_head(tmp_path / "x.safetensors")
