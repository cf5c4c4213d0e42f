"""The command line: verbs that call the library and print. No logic of its own."""

import json
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maccal.files import write
from maccal.metrics import METRICS, Difference, compare
from maccal.metrics.summaries import show, span
from maccal.plots import prepare_reliability
from maccal.predictions import Kind, Predictions, read, row
from maccal.report import Evaluated, change, evaluation_page

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


def paired(first: Predictions, second: Predictions, **settings: int) -> dict[str, Difference]:
    if not np.array_equal(first.labels, second.labels):
        raise ValueError(
            f"{first.name} and {second.name} do not have the same labels; a paired test needs the same rows in the same order"
        )
    return compare(first.probs, second.probs, first.labels, **settings)


def evaluated(predictions: Predictions, path: Path, *, bins: int, resamples: int, seed: int) -> Evaluated:
    numbers = predictions.summary(bins=bins, resamples=resamples, seed=seed)
    diagram = prepare_reliability(predictions.bins(bins), numbers, predictions.name)
    settings = {"file": path.name, "resamples": resamples, "seed": seed}
    return Evaluated(predictions.name, numbers, diagram, row(predictions, numbers, **settings))


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
        tyro.extras.subcommand_cli_from_dict({"evaluate": evaluate}, prog="maccal", description=ABOUT)
    except (ValueError, OSError) as error:
        Console(stderr=True).print(Text(f"maccal: {error}", style="red"))
        sys.exit(2)
