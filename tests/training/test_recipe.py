"""How stage I trains: the schedules of the paper's protocol, and settings that cannot be."""

import pytest
import torch

from maccal.data import DATASETS
from maccal.training.loop import precise
from maccal.training.recipe import RECIPES, Recipe, bf16_runs, has_bf16


def changes(recipe):
    """The epochs, from 0, before which the rate changes, and the rates."""
    rates = [recipe.lr_at(epoch) for epoch in range(recipe.epochs)]
    return [epoch for epoch in range(1, recipe.epochs) if rates[epoch] != rates[epoch - 1]], sorted(
        set(rates)
    )


def test_the_paper_on_cifar():
    recipe = RECIPES["cifar10"]
    assert (recipe.epochs, recipe.batch_size, recipe.momentum, recipe.weight_decay) == (
        350,
        128,
        0.9,
        5e-4,
    )
    assert (recipe.reduction, recipe.clip, recipe.padding, recipe.flip) == ("sum", 2.0, 4, True)
    assert changes(recipe) == ([150, 250], pytest.approx([0.001, 0.01, 0.1]))
    assert RECIPES["cifar100"] == recipe


def test_the_paper_on_tiny_imagenet():
    assert RECIPES["tiny-imagenet"].epochs == 100
    assert changes(RECIPES["tiny-imagenet"]) == ([40, 60], pytest.approx([0.001, 0.01, 0.1]))


def test_drops_follow_the_epochs():
    assert changes(Recipe(epochs=35))[0] == [15, 25]


def test_cosine_falls_to_zero():
    recipe = Recipe(epochs=10, schedule="cosine", lr=0.2)
    rates = [recipe.lr_at(epoch, step, 7) for epoch in range(10) for step in range(7)]
    assert rates[0] == 0.2
    assert rates == sorted(rates, reverse=True)
    assert recipe.lr_at(5) == pytest.approx(0.1)
    assert 0 < rates[-1] < 2e-4


@pytest.mark.parametrize("name", [name for name in DATASETS if not name.endswith("-c")])
def test_every_set_has_a_recipe(name):
    assert RECIPES[name].epochs > 0


def test_digits_are_not_mirrored():
    assert not RECIPES["svhn"].flip
    assert not RECIPES["digits"].flip


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"epochs": 0}, "epochs is 0; pass a number from 1 up"),
        ({"batch_size": 1}, "batch_size is 1"),
        ({"lr": -0.1}, "lr is -0.1"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"clip": -1.0}, "clip is -1.0"),
        ({"padding": -1}, "padding is -1"),
        ({"watch": 0}, "watch is 0; pass a number from 1 up"),
        ({"drops": (0.7, 0.3)}, "rising shares"),
        ({"drops": (40, 60)}, "rising shares"),
    ],
)
def test_settings_that_cannot_be(setting, words):
    with pytest.raises(ValueError, match=words):
        Recipe(**setting)


@pytest.mark.parametrize(
    ("known", "runs", "expected"),
    [
        ({"avx512_bf16": True}, False, True),
        ({"avx512_bf16": True, "amx_bf16": True}, True, True),
        ({"avx512_bf16": True, "amx_bf16": True}, False, False),
        ({}, True, False),
    ],
)
def test_bf16_is_used_where_the_processor_has_it(monkeypatch, known, runs, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    monkeypatch.setattr("maccal.training.recipe.bf16_runs", lambda: runs)
    assert has_bf16(torch.device("cpu")) is expected


def test_an_older_torch_does_not_tell(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert has_bf16(torch.device("cpu")) is False


@pytest.mark.parametrize(
    ("code", "expected"),
    [("", True), ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", False)],
)
def test_a_processor_that_dies_of_bf16_is_noticed(monkeypatch, code, expected):
    monkeypatch.setattr("maccal.training.recipe.PROBE", code)
    assert bf16_runs.__wrapped__() is expected


def test_bf16_that_would_kill_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    monkeypatch.setattr("maccal.training.recipe.bf16_runs", lambda: False)
    monkeypatch.setattr("maccal.training.loop.bf16_runs", lambda: False)
    assert precise(Recipe(), torch.device("cpu")).precision == "fp32"
    with pytest.raises(ValueError, match="cannot run them; pass precision fp32"):
        precise(Recipe(precision="bf16"), torch.device("cpu"))
