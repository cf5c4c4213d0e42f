"""The demo, small.

Its files, its numbers read back, the same again from the same seed, and nothing left changed.
"""

import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import maccal
from maccal.calibration.stage2 import Stage2
from maccal.cli.demo import MODELS, Task, digits, noisy, run_demo
from maccal.cli.main import main

pytestmark = pytest.mark.slow  # every test looks at one training

SMALL = Task(
    train=300,
    copies=5,
    test_copies=1,
    width=12,
    epochs=20,
    stage2=Stage2(hidden=128),
    resamples=100,
)


def run(out, seed=1):
    results, notes = io.StringIO(), io.StringIO()
    with redirect_stdout(results), redirect_stderr(notes):
        result = run_demo(out, seed, SMALL)
    assert notes.getvalue() == f"report: {out}/demo.report.html\n"
    return result, results.getvalue()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One run: its folder, its result, what it printed, and the state of torch before and after."""
    out = tmp_path_factory.mktemp("demo") / "deep" / "er"
    before = torch.get_rng_state(), torch.get_num_threads()
    result, printed = run(out)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == torch.get_num_threads()
    return out, result, printed


def test_files(made):
    out, result, _ = made
    expected = {"features.npz", "demo.report.html"}
    for stem in MODELS.values():
        expected |= {f"{stem}.npz", f"{stem}.row.json"}
    assert {path.name for path in out.iterdir()} == expected
    assert result.report == out / "demo.report.html"


def test_rows_agree_with_the_predictions(made):
    """`maccal evaluate` of a saved file gives the demo's own numbers."""
    out, result, _ = made
    for model, stem in zip(result.models, MODELS.values(), strict=True):
        predictions = maccal.read(out / f"{stem}.npz")
        row = json.loads((out / f"{stem}.row.json").read_text())
        numbers = predictions.summary(resamples=100)
        measured = row["measured"]
        found = {**row["numbers"], **measured, "verdict": row["verdict"]}
        assert {key: found[key] for key in numbers} == numbers == model.numbers
        assert row["notes"] == {"demo": {"seed": 1, **asdict(SMALL)}}
        assert (measured["file"], row["name"]) == (f"{stem}.npz", model.name)
        assert measured["n"] == 1797 - 700


def test_features(made):
    """The network's own classifier is linear in the features, and the three parts are there with
    their labels.
    """
    out, _, _ = made
    with np.load(out / "features.npz") as saved:
        assert {key: saved[key].shape for key in saved.files} == {
            "z": (1500, 96),
            "y": (1500,),
            "val_z": (400, 96),
            "val_y": (400,),
            "test_z": (1097, 96),
            "test_y": (1097,),
            "weight": (10, 96),
            "bias": (10,),
        }
        logits = maccal.read(out / "as-trained.npz").scores
        z = np.column_stack([saved["test_z"].astype(np.float64), np.ones(1097)])
        assert np.abs(z @ np.linalg.lstsq(z, logits, rcond=None)[0] - logits).max() < 1e-3
        assert np.array_equal(saved["test_y"], maccal.read(out / "maccal.npz").labels)


def test_what_comes_out(made):
    """Overconfident as trained; less so with MaC-Cal; the temperature leaves every answer alone."""
    _, result, _ = made
    before, scaled, ours, _ = (model.numbers for model in result.models)
    assert before["confidence"] > before["accuracy"] + 0.05
    assert ours["ece"] < 0.7 * before["ece"]
    assert scaled["accuracy"] == before["accuracy"]
    assert ours["accuracy"] > before["accuracy"] - 0.05
    ece = result.pairs[0].differences["ece"]
    assert ece.difference == pytest.approx(ours["ece"] - before["ece"])


def test_what_is_printed(made):
    _, result, printed = made
    for model in result.models:
        line = next(
            line
            for line in printed.splitlines()
            if re.match(rf"{re.escape(model.name)}\s+\d", line)
        )
        numbers = [
            f"{100 * model.numbers[key]:.2f}"
            for key in ("accuracy", "ece", "ece_low", "ece_high", "ece_null_low")
        ]
        assert all(number in line for number in [*numbers, f"{model.numbers['nll']:.4f}"])
    assert "MaC-Cal against as trained" in printed
    assert "MaC-Cal against temperature scaling" in printed


def test_the_page(made):
    out, result, _ = made
    html = (out / "demo.report.html").read_text()
    assert '<figure class="card wide" id="keep"' in html
    assert all(name in html for name in (*MODELS, *result.histories))
    for known in (
        'xmlns="http://www.w3.org/2000/svg"',
        'xmlns:xlink="http://www.w3.org/1999/xlink"',
    ):
        html = html.replace(known, "")
    assert not re.search(r"https?://|//cdn|@import|url\((?!#)|src=", html)


def test_same_seed_same_bytes(made, tmp_path):
    out, _, _ = made
    run(tmp_path)
    for path in out.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_parts():
    """Copies come one after the other.

    Every digit is in one part only, so that the labels add up to those of the whole set.
    """
    parts = digits(replace(SMALL, copies=1), torch.Generator().manual_seed(0))
    assert [len(part.y) for part in parts.values()] == [300, 400, 1097]
    assert (
        torch.cat([part.y for part in parts.values()]).bincount().tolist()
        == np.bincount(load_digits().target).tolist()
    )
    labels = digits(SMALL, torch.Generator().manual_seed(0))["train"].y
    assert torch.equal(labels, parts["train"].y.repeat(5))


def test_copies_are_moved_by_a_pixel_at_most():
    dot = torch.zeros(1, 8, 8)
    dot[0, 3, 4] = 1
    moved = noisy(dot, torch.tensor([7]), 200, 0.0, torch.Generator().manual_seed(0))
    assert moved.x.shape == (200, 1, 8, 8)
    assert set(moved.y.tolist()) == {7}
    found = {tuple(pixel) for pixel in moved.x[:, 0].nonzero()[:, 1:].tolist()}
    assert found == set(product((2, 3, 4), (3, 4, 5)))
    assert moved.x.sum() == 200


def test_the_verb(monkeypatch, tmp_path, capsys):
    """`maccal demo` hands its flags on."""
    called = {}
    monkeypatch.setattr(
        "maccal.cli.demo.run_demo", lambda out, seed: called.update(out=out, seed=seed)
    )
    monkeypatch.setattr(sys, "argv", ["maccal", "demo", "--out", str(tmp_path), "--seed", "3"])
    main()
    assert called == {"out": tmp_path, "seed": 3}
    monkeypatch.setattr(sys, "argv", ["maccal", "demo", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert "no download" in " ".join(capsys.readouterr().out.split())
