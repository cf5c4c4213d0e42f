"""How stage I trains: the schedules of the paper's protocol, and settings that cannot be."""

import pytest

from maccal.data import DATASETS
from maccal.training.recipe import RECIPES, Recipe


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
