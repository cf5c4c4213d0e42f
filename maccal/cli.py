"""The command line: verbs that call the library and print. No logic of its own."""

import json
import sys
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maccal.calibration import DEFAULT
from maccal.demo import run_demo
from maccal.demo import table as compact
from maccal.files import write
from maccal.jobs import Settings, calibrate_file, calibrate_model
from maccal.metrics import METRICS, Difference
from maccal.metrics.summaries import show, span
from maccal.predictions import Kind, read
from maccal.report import Evaluated, change, evaluated, evaluation_page, paired
from maccal.stage2 import Stage2

ABOUT = "Make a neural network's confidence trustworthy: measure it, calibrate it, report it."


def evaluate(
    file: tyro.conf.Positional[Path],
    compare_with: Annotated[Path | None, tyro.conf.arg(name="compare")] = None,
    labels: Path | None = None,
    kind: Kind | None = None,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
    out: Path = Path(),
) -> None:
    """Measure the confidence of predictions in a file (.npz, .npy, .csv, .parquet) and write a report.

    Args:
        file: logits or probs, and labels.
        compare_with: a second model's predictions of the same rows, for a paired test.
        labels: a .npy file of labels, for a bare .npy array.
        kind: what a bare .npy array holds, or which to use where a file has both.
        bins: bins of ECE, AECE, MCE and of the diagram.
        resamples: draws behind the intervals and null bands.
        seed: of those draws.
        out: folder for <name>.report.html and <name>.row.json.
    """
    settings = {"bins": bins, "resamples": resamples, "seed": seed}
    paths = [file] if compare_with is None else [file, compare_with]
    predictions = [read(path, labels=labels, kind=kind) for path in paths]
    differences = None if compare_with is None else paired(predictions[0], predictions[1], **settings)
    models = [evaluated(p, path, **settings) for p, path in zip(predictions, paths, strict=True)]
    page = write(out / f"{file.stem}.report.html", evaluation_page(models, differences))
    for model, path in zip(models, paths, strict=True):
        write(out / f"{path.stem}.row.json", json.dumps(model.row, indent=1, allow_nan=False) + "\n")

    console = Console()
    for model in models:
        console.print(table(model), Text(model.numbers["verdict"]), "")
    if differences:
        console.print(difference_table(models, differences), "")
    console.print(Text(f"report: {page}"))


def calibrate(
    source: tyro.conf.Positional[str],
    accuracy: float | None = None,
    head: str | None = None,
    cache: Path | None = None,
    config: tyro.conf.OmitArgPrefixes[Stage2] = DEFAULT,
    seed: int = 1,
    out: Path = Path(),
) -> None:
    """Give a classifier a confidence that can be trusted, from features in a file or from a model.

    Args:
        source: features.npz with z, y and if at hand val_z, val_y (held out), test_z, test_y, weight, bias (as trained); or
            file.py:function, which returns model, train[, val[, test]].
        accuracy: on unseen data, where it is known and no held-out labels are given.
        head: name of the model's classifier, where it cannot be found.
        cache: folder for the model's features, so that they are extracted once.
        config: the choices of stage II.
        seed: of weights, masks and order.
        out: folder for <name>.head.safetensors, <name>.history.json and, with test rows, <name>.report.html.
    """
    settings = Settings(config, seed, accuracy, head, cache, out)
    done = calibrate_model(source, settings) if ":" in source else calibrate_file(Path(source), settings)
    console, last = Console(), done.history[-1]
    if done.models:
        console.print(compact(done.models), "")
    words = "keeps {keep:.1%} of its weights in training; confidence {confidence:.2%}, wanted {target:.2%}"
    console.print(Text(f"the new classifier {words.format(**last)}"))
    for file in [*done.files, *([done.report] if done.report else [])]:
        console.print(Text(f"wrote {file}"))


def demo(out: Path = Path("build/demo"), seed: int = 1) -> None:
    """Train a small network on handwritten digits, calibrate it, and write a report: no download, half a minute.

    Args:
        out: folder for demo.report.html, the predictions, their rows, and the features.
        seed: of the images, the network and its calibration.
    """
    run_demo(out, seed, console=Console())


def table(model: Evaluated) -> Table:
    numbers = model.numbers
    result = Table("", "value", "95 % interval", "calibrated model", title=Text(model.name), title_justify="left", box=None)
    for key, metric in METRICS.items():
        spans = [span(numbers, f"{key}{part}", metric.percent) for part in ("", "_null")]
        result.add_row(metric.label, Text(show(numbers[key], metric.percent), style="bold"), *spans)
    for column in result.columns[1:]:
        column.justify = "right"
    return result


def difference_table(models: list[Evaluated], differences: dict[str, Difference]) -> Table:
    title = Text(f"{models[1].name} minus {models[0].name}")
    result = Table("", "difference", "95 % interval", "", title=title, title_justify="left", box=None)
    for key, d in differences.items():
        percent, size = METRICS[key].percent, change(d, METRICS[key].percent)
        result.add_row(METRICS[key].label, size["value"], f"{show(d.low, percent)} to {show(d.high, percent)}", size["p"])
    return result


def main() -> None:
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"calibrate": calibrate, "demo": demo, "evaluate": evaluate}, prog="maccal", description=ABOUT
        )
    except (ValueError, OSError) as error:
        Console(stderr=True).print(Text(f"maccal: {error}", style="red"))
        sys.exit(2)
