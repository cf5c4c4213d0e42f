"""What the verbs print: tables of numbers."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from maccal.cli.output import answer, note, tell
from maccal.evaluation.evaluated import Evaluated
from maccal.evaluation.row import Row
from maccal.metrics import METRICS, Difference, Summary
from maccal.metrics.summaries import percent_range, show, span
from maccal.report.evaluation import change
from maccal.runs import run_of


def show_run(folder: Path) -> None:
    """A run's numbers, and where they are."""
    row = run_of(folder)[1]
    tell(compact([row]), row.verdict or "")
    answer({"folder": folder, "row": row.content})
    note(f"wrote {folder}")


def table(model: Evaluated) -> Table:
    """One line per metric: its value, its interval, and what a calibrated model would have."""
    numbers = model.numbers
    result = Table("", "value", "95 % interval", "calibrated model", box=None)
    for key, metric in METRICS.items():
        value = Text(show(numbers[key], metric.percent), style="bold")
        interval = span(numbers, key, metric.percent)
        null = span(numbers, f"{key}_null", metric.percent)
        result.add_row(metric.label, value, interval, null)
    return right_aligned(result)


def ood_tables(sets: dict[str, dict[str, float]]) -> list[Table]:
    """One line per set: AUROC and FPR95 with their intervals."""
    result = Table(
        "out of distribution", "AUROC", "95 % interval", "FPR95", "95 % interval", box=None
    )
    for name, numbers in sets.items():
        cells = []
        for key in ("auroc", "fpr95"):
            cells += [show(numbers[key], True), span(Summary(numbers), key, True)]
        result.add_row(Text(name), *cells)
    return [result]


def shift_tables(part: dict[str, Any]) -> list[Table]:
    """One line per severity: accuracy and ECE over the corruptions."""
    result = Table("severity", "accuracy", "mean ECE", "pooled ECE", box=None)
    columns = (part["accuracy"].mean(0), part["ece_mean"], part["ece_pooled"])
    for severity, *numbers in zip(part["severities"], *columns, strict=True):
        result.add_row(str(severity), *(show(float(number), True) for number in numbers))
    return [result]


def difference_table(differences: Mapping[str, Difference]) -> Table:
    """One line per metric: the difference of two models, its interval and p-value."""
    result = Table("", "difference", "95 % interval", "", box=None)
    for key, difference in differences.items():
        metric = METRICS[key]
        words = change(difference, metric.percent)
        low = show(difference.low, metric.percent)
        high = show(difference.high, metric.percent)
        result.add_row(metric.label, words["value"], f"{low} to {high}", words["p"])
    return result


def compact(models: Sequence[Evaluated | Row]) -> Table:
    """One line per model: accuracy, ECE with its interval and null band, NLL."""
    result = Table(
        "", "accuracy", "ECE", "95 % interval", "calibrated", "NLL", box=None, pad_edge=False
    )
    for model in models:
        numbers = model.numbers
        nll = numbers["nll"]
        result.add_row(
            Text(model.name),
            show(numbers["accuracy"] or 0.0, percent=True),
            Text(show(numbers["ece"] or 0.0, percent=True), style="bold"),
            percent_range(numbers, "ece"),
            percent_range(numbers, "ece_null"),
            show(math.inf if nll is None else nll, percent=False),  # JSON cannot say infinity
        )
    return right_aligned(result)


def right_aligned(table: Table) -> Table:
    """The table with its numbers, all columns but the first, aligned to the right."""
    for column in table.columns[1:]:
        column.justify = "right"
    return table
