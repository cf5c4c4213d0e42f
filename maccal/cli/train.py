"""The verb `maccal train`: stage I, and stage II where the method has one."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from maccal.cli.printing import show_run
from maccal.distributed import joined, my_rank
from maccal.runs import Config, make_run
from maccal.training.memory import keep_memory
from maccal.training.recipe import RECIPES, Recipe


def train_with(usual: Recipe) -> Callable[..., None]:
    """The verb `train`, with a data set's own recipe as its defaults."""

    def train(
        data: str = "cifar10",
        model: str = "resnet50",
        method: str = "vanilla",
        seed: int = 1,
        limit: int | None = None,
        settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = (),
        recipe: tyro.conf.OmitArgPrefixes[Recipe] = usual,
        root: Path | None = None,
        runs: Path = Path("runs"),
        tensorboard: bool = False,
    ) -> None:
        """Train a network: stage I. The same command goes on where a killed one stopped; torchrun
        gives it several devices.

        Args:
            data: cifar10, cifar100, tiny-imagenet, svhn or digits (which needs no download).
            model: resnet50, resnet110, wrn26_10, densenet121, resnet50_tiny; for small machines
                resnet8 to resnet56 and more.
            method: vanilla, acls, ls, mbls, mixup, mit, fl, flsd, dfl, cpc, mmce, plp, balcal; tst,
                vtst and maccal, which give a vanilla network a new head; or both, such as
                acls+maccal.
            seed: number that settles weights, order and augmentation.
            limit: number of images to train on, the same share of every class; by default all.
            settings: choices of the method, such as gamma=2 or gammas=5,3,3; else its authors' for
                that data set and network.
            recipe: rates, epochs and augmentation.
            root: folder with the data sets; else $MACCAL_DATA, else the user's cache folder.
            runs: folder for the run, <data>-<model>-<method>-s<seed>.
            tensorboard: write TensorBoard's files too.
        """
        keep_memory()
        with joined() as device:
            config = Config(data, model, method, seed, limit, recipe, parsed(settings))
            folder = make_run(
                config, runs=runs, root=root, device=device, tensorboard=tensorboard, progress=True
            )
            if my_rank()[0] == 0:
                show_run(folder)

    return train


def train_of(words: Sequence[str]) -> Callable[..., None]:
    """The verb for a command line, whose data set settles the usual recipe."""
    return train_with(usual_recipe(words))


def parsed(settings: tuple[str, ...]) -> dict[str, Any]:
    """Words such as gamma=2 and where=all as a dict."""
    found = {}
    for word in settings:
        key, sign, value = word.partition("=")
        if not sign:
            raise ValueError(f"--set {word}: expected name=value, such as gamma=2")
        found[key] = worth(value)
    return found


def worth(word: str) -> Any:
    """A number, several separated by commas, or the word itself.

    >>> worth("2"), worth("5,3,3"), worth("all")
    (2.0, (5.0, 3.0, 3.0), 'all')
    """
    try:
        numbers = tuple(float(part) for part in word.split(","))
    except ValueError:
        return word
    return numbers if len(numbers) > 1 else numbers[0]


def usual_recipe(words: Sequence[str]) -> Recipe:
    """The recipe of the data set on the command line, so that --help shows its numbers and a flag
    changes only its own.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--data", default="cifar10")
    return RECIPES.get(parser.parse_known_args(words)[0].data, Recipe())
