"""The command line: every verb by its name."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import tyro

from maccal.cli.bench import bench
from maccal.cli.calibrate import calibrate, usual_choices
from maccal.cli.compare import compare
from maccal.cli.data import data
from maccal.cli.demo import demo
from maccal.cli.evaluate import evaluate
from maccal.cli.failures import answered
from maccal.cli.monitor import monitor
from maccal.cli.report import report
from maccal.cli.train import train_with, usual_recipe
from maccal.cli.trust import trust
from maccal.plugins import load_plugins, without_plugins

ABOUT = "Make a neural network's confidence trustworthy: measure it, calibrate it, report it."


def command() -> None:
    """What the command line says."""
    words, files = without_plugins(sys.argv[1:])
    load_plugins(files)
    verbs: dict[str, Callable[..., Any]] = {
        "train": train_with(usual_recipe(words)),
        "calibrate": partial(calibrate, config=usual_choices(words)),
        "evaluate": evaluate,
        "compare": compare,
        "monitor": monitor,
        "trust": trust,
        "bench": bench,
        "report": report,
        "demo": demo,
        "data": data,
    }
    tyro.extras.subcommand_cli_from_dict(verbs, prog="maccal", description=ABOUT, args=words)


def main() -> None:
    answered(command)
