"""Every row of METHODS: its limit, a training killed and resumed, evaluated and calibrated.

A new row is tested by existing.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from maccal.calibration import CALIBRATORS
from maccal.calibration.stage2 import Stage2
from maccal.calibration.tst import TwoStage
from maccal.data import load
from maccal.data.pixels import PIXELS
from maccal.methods.registry import COMBINATIONS, METHODS, method, settings_of
from maccal.models import build
from maccal.runs import Config, calibrate_run, load_run, make_run, predictions_of, read_config
from maccal.training import fit, predict
from maccal.training.recipe import RECIPES

FIRST = [name for name, row in METHODS.items() if row.second is None]
QUICK = replace(RECIPES["digits"], epochs=2, batch_size=64)
PLACE = "digits.320-resnet8,epochs=2,batch_size=64"  # how the names of these runs begin
SHORT = {
    "maccal": Stage2(epochs=3),
    "tst": TwoStage(epochs=2),
    "vtst": TwoStage(epochs=2, variational=True),
}


def config(name, **changes):
    second = method(name).second
    stage2 = SHORT[second] if second else None
    return Config("digits", "resnet8", name, 1, 320, QUICK, stage2=stage2, **changes)


def network_of(name, seed=0):
    torch.manual_seed(seed)
    return METHODS[name].network(build("resnet8", 10), seed)


def one_step(name, settings):
    """Loss and gradients of a batch of digits."""
    data = load("digits").train
    network = network_of(name).train()
    objective = METHODS[name].objective(network, **settings)
    objective.begin(network, 0, 100)
    inputs = objective.inputs(
        PIXELS["digits"](data.images[:48]), data.labels[:48], torch.Generator().manual_seed(0)
    )
    loss, logits = objective.loss(network, *inputs)
    loss.backward()
    return loss.detach(), logits.detach(), [p.grad for p in network.parameters()]


def test_the_sixteen_of_table_1():
    names = "vanilla acls ls mbls mixup mit fl flsd dfl cpc mmce plp tst vtst balcal maccal"
    assert list(METHODS) == names.split()
    titles = "Vanilla ACLS LS MbLS mixup MIT FL FLSD DFL CPC MMCE PLP TST VTST BalCAL Ours"
    assert [row.title for row in METHODS.values()] == titles.split()


@pytest.mark.parametrize("name", METHODS)
def test_a_row_says_what_it_is(name):
    row = METHODS[name]
    assert row.paper
    assert (row.objective is None) == (row.second is not None)
    assert set(row.plain or {}) <= set(row.settings)
    for settings in row.own.values():
        assert set(settings) <= set(row.settings)


@pytest.mark.parametrize("name", FIRST)
def test_one_step(name):
    """A finite loss, logits a row an image, and a gradient for all that learns."""
    loss, logits, gradients = one_step(name, METHODS[name].settings)
    assert loss.isfinite()
    assert logits.shape == (48, 10)
    assert logits.dtype == torch.float32
    learns = [g for g in gradients if g is not None]
    assert len(learns) == len(gradients)
    assert all(bool(g.isfinite().all()) for g in learns)


@pytest.mark.parametrize("name", [name for name in FIRST if METHODS[name].plain is not None])
def test_the_limit_is_cross_entropy(name):
    loss, logits, gradients = one_step(name, {**METHODS[name].settings, **METHODS[name].plain})
    plain_loss, plain_logits, plain = one_step("vanilla", {})
    torch.testing.assert_close(loss, plain_loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(logits, plain_logits, rtol=1e-5, atol=1e-5)
    for a, b in zip(gradients, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


# PLP freezes: test_plp.py
@pytest.mark.parametrize("name", [name for name in FIRST if name not in ("vanilla", "plp")])
def test_away_from_the_limit_it_is_not(name):
    strong = {"margin": 0.5} if name in ("acls", "mbls") else {}
    loss, _, _ = one_step(name, {**METHODS[name].settings, **strong})
    assert abs(float(loss - one_step("vanilla", {})[0])) > 1e-3


class Stop(Exception):
    pass


def killing(monkeypatch, after):
    """Let the training's step fail after so many."""
    from maccal.training import Training

    step, count = Training.step, 0

    def counted(self):
        nonlocal count
        count += 1
        if count > after:
            raise Stop
        step(self)

    monkeypatch.setattr(Training, "step", counted)


@pytest.mark.parametrize("name", FIRST)
def test_trained_killed_resumed_evaluated_calibrated(name, tmp_path, monkeypatch):
    """320 rows are 5 steps of 64, so the 7th is inside the second epoch."""
    whole = make_run(config(name), runs=tmp_path / "whole")
    with monkeypatch.context() as patch:
        killing(patch, 7)
        with pytest.raises(Stop):
            make_run(config(name), runs=tmp_path / "killed", every=0)
    resumed = make_run(config(name), runs=tmp_path / "killed")
    assert (whole / "model.safetensors").read_bytes() == (
        resumed / "model.safetensors"
    ).read_bytes()
    assert json.loads((resumed / "row.json").read_text())["ran"]["first"] == name
    said = predictions_of(resumed)
    again = predict(load_run(resumed, 10), load("digits").test.images, PIXELS["digits"])
    np.testing.assert_allclose(again.numpy(), said.scores, rtol=1e-3, atol=1e-3)
    new = calibrate_run(resumed, stage2=SHORT["maccal"])
    assert new.name == f"{PLACE}-{'' if name == 'vanilla' else f'{name}+'}maccal,epochs=3-s1"
    again = predict(load_run(new, 10), load("digits").test.images, PIXELS["digits"])
    np.testing.assert_allclose(again.numpy(), predictions_of(new).scores, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if row.second])
def test_stage_two_alone(name, tmp_path):
    """The vanilla network is trained first, once for all of them, and its features are run once."""
    run = make_run(config(name), runs=tmp_path)
    first = tmp_path / "digits.320-resnet8,epochs=2,batch_size=64-vanilla-s1"
    asked = SHORT[name]
    settled = asked.settled(trained=True) if isinstance(asked, Stage2) else asked
    assert read_config(run).stage2 == settled
    assert (first / "row.json").is_file()
    before = (first / "model.safetensors").stat().st_mtime_ns
    made = sorted(p.name for p in (first / "features").iterdir())
    other = make_run(config(next(n for n in SHORT if n != name)), runs=tmp_path)
    assert other != run
    assert (first / "model.safetensors").stat().st_mtime_ns == before
    assert sorted(p.name for p in (first / "features").iterdir()) == made
    again = predict(load_run(run, 10), load("digits").test.images, PIXELS["digits"])
    np.testing.assert_allclose(again.numpy(), predictions_of(run).scores, rtol=1e-3, atol=1e-3)
    body = {k: v for k, v in load_run(first, 10).state_dict().items() if k.startswith("body.")}
    assert all(torch.equal(v, load_run(run, 10).state_dict()[k]) for k, v in body.items())


def test_the_ten_combinations_of_table_3():
    assert (
        " ".join(method(name).first for name in COMBINATIONS)
        == "acls ls mbls mixup mit fl flsd dfl cpc mmce"
    )
    assert {method(name).second for name in COMBINATIONS} == {"maccal"}
    assert all(method(name).name == name for name in COMBINATIONS)


def test_a_combination_is_a_run(tmp_path):
    run = make_run(config("mixup+vtst"), runs=tmp_path)
    assert run.name == "digits.320-resnet8,epochs=2,batch_size=64-mixup+vtst,epochs=2-s1"
    assert (tmp_path / "digits.320-resnet8,epochs=2,batch_size=64-mixup-s1" / "row.json").is_file()
    assert make_run(config("mixup+vtst"), runs=tmp_path) == run


def test_settings_of_the_second_stage(tmp_path):
    """What stage I does not know is stage II's; whole numbers come back whole."""
    run = make_run(
        replace(config("ls+tst"), settings={"alpha": 0.1, "width": 8.0, "batchnorm": "train"}),
        runs=tmp_path,
    )
    assert run.name == f"{PLACE}-ls,alpha=0.1+tst,width=8,epochs=2,batchnorm=train-s1"
    first = tmp_path / "digits.320-resnet8,epochs=2,batch_size=64-ls,alpha=0.1-s1"
    assert (first / "row.json").is_file()
    before, after = load_run(first, 10), load_run(run, 10)
    assert all(
        torch.equal(a, b)
        for a, b in zip(before.body.parameters(), after.body.parameters(), strict=True)
    )
    # as the published code leaves it
    assert not torch.equal(before.body.bn1.running_mean, after.body.bn1.running_mean)
    again = predict(after, load("digits").test.images, PIXELS["digits"])
    np.testing.assert_allclose(again.numpy(), predictions_of(run).scores, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="ls has no setting 'widht'"):
        make_run(replace(config("ls+tst"), settings={"widht": 8.0}), runs=tmp_path)


@pytest.mark.parametrize("name", ["maccal+tst", "tst+acls", "acls+mbls", "acls+maccal+tst"])
def test_what_does_not_compose(name):
    with pytest.raises(
        ValueError,
        match="is not a method of stage I and then one of stage II, which are tst, vtst, maccal",
    ):
        method(name)


def test_unknown_names():
    with pytest.raises(ValueError, match="no method 'acsl'; the methods are vanilla, acls"):
        method("acsl+maccal")
    with pytest.raises(
        ValueError, match="mbls has no setting 'gamma'; its settings are margin, alpha"
    ):
        settings_of("mbls", "cifar10", "resnet8", {"gamma": 1.0})
    with pytest.raises(ValueError, match="vanilla has no setting 'gamma'; it has none"):
        settings_of("vanilla", "cifar10", "resnet8", {"gamma": 1.0})


@pytest.mark.parametrize(
    ("name", "data", "model", "expected"),
    [
        ("dfl", "cifar10", "resnet110", {"gamma": 4.5}),
        ("dfl", "cifar100", "densenet121", {"gamma": 3.4}),
        ("dfl", "tiny-imagenet", "resnet50_tiny", {"gamma": 2.3}),
        ("dfl", "cifar10", "resnet8", {"gamma": 5.0}),
        ("mbls", "cifar100", "wrn26_10", {"margin": 6.0, "alpha": 0.1}),
        ("mbls", "tiny-imagenet", "resnet50_tiny", {"margin": 10.0, "alpha": 0.1}),
        ("acls", "cifar10", "resnet50", {"margin": 10.0, "alpha": 0.1, "top": 1.0, "rest": 0.1}),
        ("mmce", "cifar10", "resnet50", {"weight": 2.0, "form": "as coded"}),
    ],
)
def test_the_authors_settings(name, data, model, expected):
    assert settings_of(name, data, model) == expected


def test_settings_are_part_of_the_run(tmp_path):
    run = make_run(config("fl", settings={"gamma": 2.0}), runs=tmp_path)
    assert run.name == "digits.320-resnet8,epochs=2,batch_size=64-fl,gamma=2-s1"
    assert read_config(run).settings == {"gamma": 2.0}
    assert make_run(config("fl", settings={"gamma": 3.0}), runs=tmp_path) == make_run(
        config("fl"), runs=tmp_path
    )


REFUSED = {
    ("cpc", 2): "CPC needs at least 3 classes",
    ("balcal", 200): "200 classes do not fit into 64 features",
}


@pytest.mark.parametrize("classes", [2, 200])
@pytest.mark.parametrize("name", FIRST)
def test_few_and_many_classes(name, classes):
    """Two classes, and more classes than rows: right, or a clear error."""

    def step():
        data = load("digits").train
        network = METHODS[name].network(build("resnet8", classes), 0).train()
        objective = METHODS[name].objective(network, **METHODS[name].settings)
        x, y = PIXELS["digits"](data.images[:16]), data.labels[:16] % classes
        loss, _ = objective.loss(network, *objective.inputs(x, y, torch.Generator().manual_seed(0)))
        loss.backward()
        return loss, [p.grad for p in network.parameters()]

    if (name, classes) in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[name, classes]):
            step()
        return
    loss, gradients = step()
    assert loss.isfinite()
    assert all(bool(g.isfinite().all()) for g in gradients)


@pytest.mark.parametrize("name", FIRST)
def test_it_lowers_the_cross_entropy(name):
    """Whatever it minimises, the network learns the digits."""
    data, network = load("digits", limit=600), network_of(name, 3)
    recipe = replace(QUICK, epochs=5, batch_size=32)
    objective = METHODS[name].objective(network, **METHODS[name].settings)
    fit(network, data.train, recipe, pixels=PIXELS["digits"], objective=objective)
    logits = predict(network, data.test.images, PIXELS["digits"])
    assert float(F.cross_entropy(logits, data.test.labels)) < 2.1
    assert float((logits.argmax(1) == data.test.labels).double().mean()) > 0.6


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("mmce", {"form": "ascoded"}, "mmce: form is 'ascoded'; choose one of as coded, weighted"),
        ("mmce", {"form": 2.0}, "mmce: form is 2.0; choose one of"),
        ("mit", {"where": "everywhere"}, "mit: where is 'everywhere'; choose one of logits, all"),
        ("ls", {"alpha": "much"}, "ls: alpha is 'much'; pass a number"),
        ("ls", {"alpha": (0.1, 0.2)}, "ls: alpha is"),
        ("flsd", {"gammas": (5.0, 3.0)}, "flsd: gammas is .*; pass 3 numbers, such as 5,3,3"),
        ("flsd", {"gammas": "5;3;3"}, "flsd: gammas is '5;3;3'; pass 3 numbers"),
        ("tst", {"optimiser": "rmsprop"}, "tst: optimiser is 'rmsprop'; pass sgd or adam"),
        ("tst", {"epochs": "many"}, "tst: epochs is 'many'; pass a whole number"),
        ("tst", {"epochs": 1.5}, "tst: epochs is '1.5'; pass a whole number"),
        ("maccal", {"schedule": "linear"}, "maccal: schedule is 'linear'; pass cosine or constant"),
        ("maccal", {"lr": "fast"}, "maccal: lr is 'fast'; pass a number or None"),
        ("maccal", {"standardise": "no"}, "maccal: standardise is 'no'; pass True or False"),
        ("maccal", {"adapt": "newton"}, "maccal: adapt is 'newton'; pass solved or sparsity"),
    ],
    ids=str,
)
def test_a_setting_of_another_kind_is_refused_in_one_line(name, settings, words):
    with pytest.raises(ValueError, match=words):
        replace(config(name), settings=settings, stage2=None).planned()


def test_every_setting_that_is_a_word_says_which_words_there_are():
    for name, row in METHODS.items():
        for key, value in row.settings.items():
            if isinstance(value, str):
                assert value in row.words[key], name


def test_words_are_read_as_they_are_written_in_names():
    def planned(name, **settings):
        return replace(config(name), settings=settings, stage2=None).planned()

    assert planned("mmce", form="as_coded").settings["form"] == "as coded"
    head = planned("maccal", hidden=8.0, standardise="False").stage2
    assert (head.hidden, head.standardise, head.start) == (8, False, "fresh")
    assert planned("tst", batchnorm="train").stage2.batchnorm == "train"


def test_the_authors_choices_of_stage_two():
    """TST and V-TST as published; what the MaC-Cal paper says of them has a name."""
    own = CALIBRATORS["vtst"].choices
    assert (own.optimiser, own.lr, own.epochs, own.batch_size) == ("adam", 1e-4, 40, 256)
    assert (own.select, own.weight_decay, own.clip) == ("val-nll", 0, 0)
    other = replace(config("vtst"), stage2=TwoStage.as_in_maccal(variational=True)).planned()
    assert other.described_method == "vtst,as_in_maccal"
    wider = replace(config("tst"), stage2=TwoStage.as_in_maccal(width=8)).planned()
    assert wider.described_method == "tst,as_in_maccal,width=8"
