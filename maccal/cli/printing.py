"""What the verbs print: tables of numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from maccal.evaluation.evaluated import Evaluated, measure
from maccal.metrics import METRICS, Difference, Summary
from maccal.metrics.summaries import show, span
from maccal.report.evaluation import change
from maccal.runs import predictions_of
from maccal.runs.folder import MEASURED


def show_run(folder: Path) -> None:
    """A run's numbers, and where they are."""
    model = measure(predictions_of(folder), folder / "test.npz", **MEASURED)
    console = Console()
    console.print(compact([model]), Text(model.numbers["verdict"]), "", Text(f"wrote {folder}"))


def table(model: Evaluated) -> Table:
    numbers = model.numbers
    result = Table("", "value", "95 % interval", "calibrated model", box=None)
    for key, metric in METRICS.items():
        spans = [span(numbers, f"{key}{part}", metric.percent) for part in ("", "_null")]
        result.add_row(metric.label, Text(show(numbers[key], metric.percent), style="bold"), *spans)
    for column in result.columns[1:]:
        column.justify = "right"
    return result


def ood_tables(sets: dict[str, dict[str, float]]) -> list[Table]:
    result = Table(
        "out of distribution", "AUROC", "95 % interval", "FPR95", "95 % interval", box=None
    )
    for name, numbers in sets.items():
        cells = [
            (show(numbers[key], True), span(Summary(numbers), key, True))
            for key in ("auroc", "fpr95")
        ]
        result.add_row(Text(name), *(cell for pair in cells for cell in pair))
    return [result]


def shift_tables(part: dict[str, Any]) -> list[Table]:
    result = Table("severity", "accuracy", "mean ECE", "pooled ECE", box=None)
    for place, severity in enumerate(part["severities"]):
        numbers = (
            part["accuracy"][:, place].mean(),
            part["ece_mean"][place],
            part["ece_pooled"][place],
        )
        result.add_row(str(severity), *(show(float(number), True) for number in numbers))
    return [result]


def difference_table(differences: Mapping[str, Difference]) -> Table:
    result = Table("", "difference", "95 % interval", "", box=None)
    for key, d in differences.items():
        percent, size = METRICS[key].percent, change(d, METRICS[key].percent)
        result.add_row(
            METRICS[key].label,
            size["value"],
            f"{show(d.low, percent)} to {show(d.high, percent)}",
            size["p"],
        )
    return result


def compact(models: list[Evaluated]) -> Table:
    """A line a model: accuracy, ECE with its interval and null band, NLL."""
    result = Table(
        "", "accuracy", "ECE", "95 % interval", "calibrated", "NLL", box=None, pad_edge=False
    )
    for model in models:
        n = model.numbers
        shown = {key: show(n[key], METRICS[key].percent) for key in ("accuracy", "ece", "nll")}
        spans = [
            f"{100 * n[f'{key}_low']:.2f}–{100 * n[f'{key}_high']:.2f} %"
            for key in ("ece", "ece_null")
        ]
        result.add_row(
            Text(model.name),
            shown["accuracy"],
            Text(shown["ece"], style="bold"),
            *spans,
            shown["nll"],
        )
    for column in result.columns[1:]:
        column.justify = "right"
    return result
