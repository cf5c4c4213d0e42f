"""Run folders, end to end from the command line: train, calibrate, evaluate.

And folders that are not what they should be.
"""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from commands import refused
from commands import run as cli

from maccal.calibration.posthoc.temperature import TemperatureScaling
from maccal.calibration.stage2 import Stage2
from maccal.data import load
from maccal.data.pixels import PIXELS
from maccal.evaluation.row import Row, read_rows, write_rows
from maccal.io import FileError, write_json
from maccal.metrics import summary
from maccal.runs import (
    Config,
    calibrate_run,
    load_run,
    make_run,
    motivation_run,
    predictions_of,
    read_config,
    read_history,
)
from maccal.runs.beyond import extend_row
from maccal.runs.naming import rename_rows, renamed
from maccal.runs.second import Batches, views_of
from maccal.training import predict
from maccal.training.recipe import RECIPES, Recipe

QUICK = Config("digits", "resnet8", "vanilla", 1, None, replace(RECIPES["digits"], epochs=2))
FILES = [".lock", "config.json", "history.jsonl", "model.safetensors", "row.json", "test.npz"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return make_run(QUICK, runs=tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(trained, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(trained, tmp_path / "runs" / trained.name)


@pytest.mark.slow
def test_what_a_run_holds(trained):
    assert trained.name == "digits-resnet8,epochs=2-vanilla-s1"
    assert sorted(p.name for p in trained.iterdir()) == FILES
    assert read_config(trained) == replace(
        QUICK, recipe=replace(QUICK.recipe, precision=read_config(trained).recipe.precision)
    )
    history = read_history(trained)
    assert [epoch["epoch"] for epoch in history] == [1, 2]
    row = json.loads((trained / "row.json").read_text())
    said = predictions_of(trained)
    expected = summary(logits=said.scores, labels=said.labels, interval=True)
    measured = {**row["numbers"], **row["measured"], "verdict": row["verdict"]}
    assert {key: measured[key] for key in expected} == expected
    choices = {
        "data": "digits",
        "model": "resnet8",
        "first": "vanilla",
        "second": None,
        "seed": 1,
        "limit": None,
        "feedback": None,
        "changes": [],
    }
    assert row["ran"].pop("recipe")["epochs"] == 2
    assert row["ran"] == {**choices, "settings": {}, "calibration": None}
    made_with = row["made_with"]
    assert made_with["threads"] == torch.get_num_threads()
    assert made_with["precision"] == read_config(trained).recipe.precision
    gaps = [count * abs(confidence - accuracy) for count, confidence, accuracy in row["diagram"]]
    ece = row["numbers"]["ece"]
    assert sum(gaps) / row["measured"]["n"] == pytest.approx(ece, abs=1e-5)
    assert row["trained"]["epochs"] == 2


def test_the_network_comes_back(trained):
    data, network = load("digits"), load_run(trained, 10)
    assert not network.training
    np.testing.assert_allclose(
        predict(network, data.test.images, PIXELS["digits"]).numpy(),
        predictions_of(trained).scores,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.slow
def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    """The path a new user takes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    cli(
        monkeypatch,
        "train",
        "--data",
        "digits",
        "--model",
        "resnet8",
        "--epochs",
        "3",
        "--limit",
        "400",
        "--seed",
        "2",
    )
    run = tmp_path / "runs" / "digits.400-resnet8,epochs=3-vanilla-s2"
    assert f"wrote runs/{run.name}" in capsys.readouterr().err
    assert read_config(run).limit == 400
    assert read_config(run).recipe.epochs == 3
    assert not read_config(run).recipe.flip  # the data set's own recipe
    cli(monkeypatch, "calibrate", f"runs/{run.name}", "--epochs", "4")
    new = run.with_name("digits.400-resnet8,epochs=3-maccal,epochs=4-s2")
    assert sorted(p.name for p in new.iterdir()) == FILES
    assert read_config(new).stage2 == Stage2(epochs=4).settled(trained=True)
    assert json.loads((new / "row.json").read_text())["trained"]["seconds"] > 0
    cli(monkeypatch, "evaluate", str(run), "--compare", str(new), "--resamples", "50")
    out = capsys.readouterr().out
    assert f"{new.name} minus {run.name}" in out
    page = (run / "report.html").read_text()
    assert new.name in page
    assert json.loads((new / "row.json").read_text())["measured"]["resamples"] == 50
    assert json.loads((new / "row.json").read_text())["ran"]["second"] == "maccal"
    cli(monkeypatch, "evaluate", str(new), "--resamples", "50", "--out", "elsewhere")
    assert sorted(p.name for p in (tmp_path / "elsewhere").iterdir()) == [
        f"{new.name}.report.html",
        f"{new.name}.row.json",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [None, 16])
@pytest.mark.parametrize("feedback", ["held-out", "views"])
@pytest.mark.filterwarnings("ignore:only .* of its training rows are right")
def test_calibrated_runs_come_back(run, hidden, feedback):
    new = calibrate_run(run, stage2=Stage2(epochs=2, hidden=hidden), feedback=feedback)
    data = load("digits")
    before, after = load_run(run, 10), load_run(new, 10)
    for (name, a), b in zip(
        before.body.state_dict().items(), after.body.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
    np.testing.assert_allclose(
        predict(after, data.test.images, PIXELS["digits"]).numpy(),
        predictions_of(new).scores,
        rtol=1e-4,
        atol=1e-4,
    )
    assert read_config(new).feedback == feedback
    assert (run / "features").is_dir()


def test_calibration_helps_a_network_that_is_off(run):
    new = calibrate_run(run)
    before, after = (
        summary(logits=p.scores, labels=p.labels) for p in map(predictions_of, (run, new))
    )
    assert after["nll"] < before["nll"]
    assert after["ece"] < before["ece"]


def test_a_temperature_as_a_run(run):
    """The head's weights over T: the same logits over T, so the same accuracy.

    T is that of the held-out images.
    """
    new = make_run(replace(QUICK, method="temperature"), runs=run.parent)
    data, network = load("digits"), load_run(run, 10)
    expected = (
        TemperatureScaling()
        .fit(predict(network, data.val.images, PIXELS["digits"]), data.val.labels)
        .temperature_
    )
    (history,) = read_history(new)
    assert history["temperature"] == pytest.approx(expected, rel=1e-4)
    before, after = predictions_of(run), predictions_of(new)
    np.testing.assert_allclose(after.scores * expected, before.scores, rtol=1e-3, atol=1e-3)
    assert new.name == "digits-resnet8,epochs=2-temperature-s1"
    with pytest.warns(UserWarning, match="of its training rows are right"):
        mixed = calibrate_run(run, method="temperature", feedback="mixed")
    assert mixed.name == "digits-resnet8,epochs=2-temperature,mixed-s1"
    np.testing.assert_array_equal(predictions_of(mixed).scores.argmax(1), before.scores.argmax(1))


def test_a_map_of_the_logits_as_a_run(run):
    """The held-out images have a lower NLL than with a temperature, which is one such map."""
    data = load("digits")
    losses = {}
    for name in ("temperature", "vector", "matrix"):
        new = calibrate_run(run, method=name)
        assert new.name == f"digits-resnet8,epochs=2-{name}-s1"
        logits = predict(load_run(new, 10), data.val.images, PIXELS["digits"])
        losses[name] = summary(logits=logits, labels=data.val.labels)["nll"]
    assert losses["matrix"] <= losses["vector"] < losses["temperature"]


@pytest.mark.slow
def test_every_stage_two_says_what_the_extraction_took(run):
    """Features are extracted for the first head and found by the others, which would not be
    possible without it.
    """
    calibrate_run(run, stage2=Stage2(epochs=1))
    spent = json.loads((run / "extraction.json").read_text())["seconds"]
    write_json(run / "extraction.json", "extraction 1", {"seconds": 1000.0})
    other = calibrate_run(run, stage2=Stage2(epochs=1, hidden=16))
    assert 0 < spent < 1000 <= json.loads((other / "row.json").read_text())["trained"]["seconds"]


@pytest.mark.slow
def test_what_the_motivation_shows(run):
    """Of the linear head what masks do to it; of every run its logits.

    All of it goes into the row and comes back.
    """
    parts = motivation_run(run, rows=50)
    extend_row(run, motivation=parts)
    row = json.loads((run / "row.json").read_text())
    shown = row["motivation"]
    assert (len(shown["map"]["place"]), len(shown["angles"]), sum(shown["curve"]["count"])) == (
        50,
        10,
        row["measured"]["n"],
    )
    assert (
        shown["inference"]["ratio"] == shown["retraining"]["ratio"] == [r / 10 for r in range(10)]
    )
    assert shown["inference"]["accuracy"][0] == pytest.approx(row["numbers"]["accuracy"], abs=0.01)
    assert shown["inference"]["confidence"][0] == pytest.approx(
        row["numbers"]["confidence"], abs=0.01
    )
    new = calibrate_run(run, stage2=Stage2(epochs=1))
    assert sorted(motivation_run(new, rows=50)) == ["angles", "curve", "map"]


def test_a_run_that_is_there_is_not_made_again(run, monkeypatch):
    monkeypatch.setattr("maccal.runs.making.fit", None)
    before = {p: p.stat().st_mtime_ns for p in run.iterdir()}
    assert make_run(QUICK, runs=run.parent) == run
    assert {p: p.stat().st_mtime_ns for p in run.iterdir()} == before


def test_another_recipe_is_another_run(run):
    """And what is not in the name, but in the run, is refused."""
    other = replace(QUICK, recipe=replace(QUICK.recipe, lr=0.3))
    assert make_run(other, runs=run.parent).name == "digits-resnet8,epochs=2,lr=0.3-vanilla-s1"
    seldom = replace(QUICK, recipe=replace(QUICK.recipe, watch=2))
    with pytest.raises(FileError, match=r"holds another run: watch is 1 there and 2 here"):
        make_run(seldom, runs=run.parent)


def test_what_a_killed_run_left_half_written_is_swept_away(run):
    (run / "row.json").unlink()
    (run / ".model.safetensors.123.part").write_bytes(b"half")
    make_run(QUICK, runs=run.parent)
    assert sorted(p.name for p in run.iterdir()) == FILES


def test_the_subset_is_the_same_for_every_seed():
    """So that seeds tell the spread of training, not of data."""
    first, second = (load("digits", limit=100).train for _ in range(2))
    assert torch.equal(first.images, second.images)
    counts = torch.bincount(first.labels, minlength=10)
    assert int(counts.min()) >= 9
    assert int(counts.max()) <= 11


def test_batches_are_a_loader():
    data = load("digits", limit=250)
    batches = Batches(data.train, PIXELS["digits"], 100)
    assert len(batches) == len(list(batches)) == 3
    assert torch.equal(torch.cat([y for _, y in batches]), data.train.labels)
    assert torch.equal(torch.cat([x for x, _ in batches]), PIXELS["digits"](data.train.images))


def test_tensorboard(tmp_path):
    event = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = make_run(QUICK, runs=tmp_path, tensorboard=True)
    events = event.EventAccumulator(str(folder / "tensorboard")).Reload()
    history = read_history(folder)
    shown = [(scalar.step, scalar.value) for scalar in events.Scalars("val_accuracy")]
    assert shown == [(epoch["epoch"], pytest.approx(epoch["val_accuracy"])) for epoch in history]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda run: (run / "config.json").unlink(),
            "no config.json; pass a folder that `maccal train` made",
        ),
        (lambda run: (run / "config.json").write_text("{}"), "config.json: no format"),
        (lambda run: (run / "config.json").write_text("not json"), "config.json: not JSON"),
        (lambda run: (run / "row.json").unlink(), "no row.json: the training has not ended"),
        (
            lambda run: (run / "model.safetensors").unlink(),
            "no model.safetensors; delete the folder of the run, and the same",
        ),
        (
            lambda run: (run / "model.safetensors").write_bytes(b"\0" * 50),
            "model.safetensors: damaged, or of another run",
        ),
    ],
)
def test_folders_that_are_no_runs(run, monkeypatch, capsys, spoil, words):
    spoil(run)
    assert words in refused(monkeypatch, capsys, "calibrate", str(run))


def test_what_else_a_user_may_get_wrong(run, tmp_path, monkeypatch, capsys):
    (run / "test.npz").unlink()
    assert (
        "no test.npz; the same `maccal train`, or `maccal calibrate`, predicts the images again"
        in refused(monkeypatch, capsys, "evaluate", str(run))
    )
    new = calibrate_run(run, stage2=Stage2(epochs=1))
    assert "is calibrated already" in refused(monkeypatch, capsys, "calibrate", str(new))
    assert "no data set 'mnist'" in refused(
        monkeypatch, capsys, "train", "--data", "mnist", "--runs", str(tmp_path)
    )
    assert "no model 'vgg'" in refused(
        monkeypatch, capsys, "train", "--data", "digits", "--model", "vgg", "--runs", str(tmp_path)
    )
    nothing = refused(
        monkeypatch,
        capsys,
        "train",
        "--data",
        "cifar10",
        "--root",
        str(tmp_path / "none"),
        "--runs",
        str(tmp_path),
    )
    assert re.search("no folder cifar-10-batches-py .*maccal data get cifar10", nothing)
    assert not list(tmp_path.glob("mnist*"))
    assert not list(tmp_path.glob("*vgg*"))


def test_config_in_json_is_the_whole_config(trained):
    values = json.loads((trained / "config.json").read_text())
    assert (
        Recipe(**values["recipe"] | {"drops": tuple(values["recipe"]["drops"])})
        == read_config(trained).recipe
    )
    assert values["versions"]["torch"] == torch.__version__


def test_weights_are_plain_tensors(trained):
    weights = safetensors.torch.load_file(trained / "model.safetensors")
    assert all(bool(value.isfinite().all()) for value in weights.values())
    assert F.linear(torch.zeros(1, 64), weights["head.weight"], weights["head.bias"]).shape == (
        1,
        10,
    )


def test_digits_are_never_mirrored():
    for name, pixels in PIXELS.items():
        config = Config(name, "resnet8", "maccal", 1, None, Recipe(), feedback="views")
        views = views_of(config, pixels)
        assert views == ("shift" if name in ("svhn", "digits") else "mirror")
        assert views_of(replace(config, feedback="mixed"), pixels) == "mix"
        assert views_of(replace(config, feedback="training"), pixels) is False


@pytest.mark.slow
def test_a_run_starts_from_its_trained_classifier(run):
    """As calibrate does; a bottleneck cannot, and the names tell."""
    new = calibrate_run(run)
    assert new.name == "digits-resnet8,epochs=2-maccal-s1"
    assert read_config(new).stage2 == Stage2().settled(trained=True)
    at_rest = calibrate_run(run, stage2=Stage2(lr=0.0))
    before, after = load_run(run, 10).head, load_run(at_rest, 10).head
    scale = float(
        (after.weight.norm() / before.weight.norm()).detach()
    )  # at rate zero, a temperature
    torch.testing.assert_close(after.weight, scale * before.weight, rtol=1e-4, atol=1e-6)
    fresh = calibrate_run(run, stage2=Stage2(start="fresh", epochs=1))
    assert fresh.name == "digits-resnet8,epochs=2-maccal,start=fresh,epochs=1-s1"


@pytest.mark.slow
def test_a_run_of_before_there_was_a_choice_had_a_fresh_head(run):
    """Its config.json does not say where the head started."""
    fresh = calibrate_run(run, stage2=Stage2(start="fresh", epochs=1))
    content = json.loads((fresh / "config.json").read_text())
    for later in ("start", "batchnorm"):
        del content["stage2"][later]
    content = {key: value for key, value in content.items() if key not in ("format", "checksum")}
    write_json(fresh / "config.json", "config 1", content)
    assert read_config(fresh).stage2.start == "fresh"
    assert read_config(fresh).name == fresh.name


@pytest.mark.slow
def test_balcal_starts_from_its_linear_classifier(tmp_path):
    first = make_run(replace(QUICK, method="balcal"), runs=tmp_path)
    new = calibrate_run(first, stage2=Stage2(lr=0.0))
    before, after = load_run(first, 10), load_run(new, 10)
    assert float(after.share) == 1
    scale = float((after.head.weight.norm() / before.head.weight.norm()).detach())
    torch.testing.assert_close(after.head.weight, scale * before.head.weight, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_run_on_images(run):
    """Live: the network's BatchNorm goes along; views would be of other images."""
    live = calibrate_run(run, stage2=Stage2(batchnorm="train", epochs=1))
    assert live.name == "digits-resnet8,epochs=2-maccal,epochs=1,batchnorm=train-s1"
    before, after = load_run(run, 10), load_run(live, 10)
    pairs = zip(before.body.parameters(), after.body.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert not torch.equal(before.body.bn1.running_mean, after.body.bn1.running_mean)
    with pytest.raises(ValueError, match="no feedback from views images; pass held-out or trainin"):
        calibrate_run(run, stage2=Stage2(batchnorm="train"), feedback="views")


@pytest.mark.slow
def test_presets(run, monkeypatch, capsys):
    monkeypatch.chdir(run.parent)
    cli(monkeypatch, "calibrate", run.name, "--preset", "paper", "--epochs", "1")
    printed = run.with_name("digits-resnet8,epochs=2-maccal,as_printed,epochs=1,training-s1")
    assert read_config(printed).stage2 == Stage2.paper(epochs=1)
    assert read_config(printed).feedback == "training"
    cli(monkeypatch, "calibrate", run.name, "--preset", "restricted-regrow")
    words = "maccal,lr=0.1,refresh=epoch,masking=regrow,adapt=none"
    made = run.with_name(f"digits-resnet8,epochs=2-{words}-s1")
    assert read_config(made).stage2 == Stage2.ablation("restricted", "regrow")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--preset", "printed"), "no preset 'printed'; the presets are default, paper, vanilla"),
        (
            ("--preset", "paper", "--schedule", "cosine"),
            "--schedule cosine: the preset paper has constant; leave one of them out",
        ),
        (("--preset", "masked", "--start", "trained"), "--start trained: the preset masked has"),
        (("--preset", "paper", "--feedback", "views"), "--feedback views is not the preset paper"),
        (("--preset", "paper", "--calibrator", "temperature"), "temperature has none of them"),
    ],
    ids=str,
)
def test_what_contradicts_a_preset(flags, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert words in refused(monkeypatch, capsys, "calibrate", ".", *flags)


def test_rows_by_the_names_of_today(tmp_path):
    """A row that does not say where the head started had a fresh one; its numbers stay."""
    config = replace(QUICK, method="maccal", stage2=Stage2(start="fresh")).planned()
    said = {key: value for key, value in config.ran.calibration.items() if key != "start"}
    old = replace(config.ran, calibration=said, changes=())
    rows = [
        Row("digits-resnet8,epochs=2-maccal-s1", ran=old, numbers={"ece": 0.1}),
        Row("a stranger's", ran=replace(old, model="mine"), numbers={"ece": 0.2}),
    ]
    new = renamed(rows[0])
    assert new.name == "digits-resnet8,epochs=2-maccal,start=fresh-s1"
    assert new.ran == config.ran
    assert new.numbers == rows[0].numbers
    assert renamed(rows[1]) == rows[1]
    write_rows(tmp_path / "rows.jsonl", rows)
    assert rename_rows(tmp_path / "rows.jsonl") == 1
    assert rename_rows(tmp_path / "rows.jsonl") == 0
    assert sorted(row.name for row in read_rows(tmp_path / "rows.jsonl")) == [
        "a stranger's",
        new.name,
    ]
