"""The page of an evaluation.

What is measured of one model, or of several on the same rows, and what it means.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from maccal.evaluation.evaluated import Compared, Evaluated
from maccal.metrics import METRICS, Difference, Summary
from maccal.metrics.summaries import probability, show, span
from maccal.report.diagrams import plot_reliability, prepare_reliability
from maccal.report.keep import plot_keep, prepare_keep
from maccal.report.page import PLACEHOLDERS, TEMPLATES, in_json, svg

ENDS = ("_low", "_high", "_null_low", "_null_high")


@dataclass(frozen=True)
class Cell:
    """A number in the table: its text, its interval, and the small picture of both."""

    value: str
    interval: str
    null: str
    picture: Markup


def evaluation_page(
    models: list[Evaluated],
    differences: Mapping[str, Difference] | Sequence[Compared] | None = None,
    histories: Mapping[str, Sequence[Mapping[str, float]]] | None = None,
) -> str:
    """The page of one model or of several on the same rows.

    Differences: of the second model and the first, or pairs of any two. Histories: of up to three
    runs of stage II, by name."""
    if isinstance(differences, Mapping):
        differences = [Compared(models[0], models[1], differences)]
    pairs = list(differences or [])
    alone = pairs[0].differences if len(models) == 2 and pairs else {}
    diagrams = [prepare_reliability(model.bins, model.numbers, model.name) for model in models]
    paths = [prepare_keep(history, name) for name, history in (histories or {}).items()]
    return TEMPLATES.get_template("evaluation.html").render(
        models=models,
        table=[table_row(key, models, alone) for key in METRICS],
        compared=bool(alone),
        pairs=[(pair, conclusions(pair)) for pair in pairs],
        figure=svg(plot_reliability(diagrams, PLACEHOLDERS)),
        keep=svg(plot_keep(paths, PLACEHOLDERS)) if paths else None,
        css=Markup((Path(__file__).parent / "templates" / "report.css").read_text()),
        rows=in_json([model.row.content for model in models], indent=1),
    )


def table_row(
    key: str, models: list[Evaluated], differences: Mapping[str, Difference]
) -> dict[str, object]:
    """A metric of every model, and what it means."""
    metric = METRICS[key]
    limits = scale(key, models)
    return {
        "key": key,
        "label": metric.label,
        "meaning": metric.meaning,
        "cells": [cell(key, metric.percent, model.numbers, limits) for model in models],
        "difference": change(differences.get(key), metric.percent),
    }


def conclusions(pair: Compared) -> list[str]:
    both = [pair.first, pair.second]
    return [conclusion(key, found, both) for key, found in pair.differences.items()]


def scale(key: str, models: list[Evaluated]) -> tuple[float, float]:
    """The common range of a metric's small pictures: from zero, unless all numbers are far off."""
    finite: list[float] = []
    for model in models:
        ends = [model.numbers.get(key + end, math.nan) for end in ("", *ENDS)]
        finite += [end for end in ends if math.isfinite(end)]
    finite = finite or [0.0]
    low, high = min(finite), max(finite)
    low = low if low > 0.5 * high else min(low, 0.0)
    return low, high if high > low else low + 1.0


def cell(key: str, percent: bool, numbers: Summary, limits: tuple[float, float]) -> Cell:
    return Cell(
        value=show(numbers[key], percent),
        interval=span(numbers, key, percent),
        null=span(numbers, f"{key}_null", percent),
        picture=picture(key, numbers, limits),
    )


def picture(key: str, numbers: Summary, limits: tuple[float, float]) -> Markup:
    """The null band as a bar, the interval as a line, the number as a dot.

    What is infinite or absent is left out.
    """

    def across(name: str) -> float:
        share = (numbers.get(name, math.nan) - limits[0]) / (limits[1] - limits[0])
        return round(4 + 112 * share, 2)

    value, low, high, null_low, null_high = (across(key + end) for end in ("", *ENDS))
    parts = []
    if math.isfinite(null_low + null_high):
        width = max(1.0, null_high - null_low)
        parts.append(f'<rect class="band" x="{null_low}" y="2" width="{width:.2f}" height="12"/>')
    if math.isfinite(low + high):
        parts.append(f'<path class="reach" d="M{low} 8H{high}"/>')
    if math.isfinite(value):
        parts.append(f'<circle cx="{value}" cy="8" r="3.2"/>')
    return Markup(
        '<svg class="mini" viewBox="0 0 120 16" width="120" height="16" aria-hidden="true">{}</svg>'
    ).format(Markup("".join(parts)))


def change(d: Difference | None, percent: bool) -> dict[str, str]:
    if d is None or math.isnan(d.difference):
        return {"value": "", "p": ""}
    return {
        "value": f"{'+' if d.difference > 0 else ''}{show(d.difference, percent)}",
        "p": probability(d.p_value),
    }


def conclusion(key: str, d: Difference, models: list[Evaluated]) -> str:
    """The paired test of one metric, as a sentence."""
    metric = METRICS[key]
    if math.isnan(d.difference):
        return f"{metric.label}: no test, one of the models gave a label probability 0."
    if not d.real:
        test = probability(d.p_value)
        return f"{metric.label}: no difference that chance would not explain ({test})."
    which = models[1].name if (d.difference > 0) == (key == "accuracy") else models[0].name
    size = show(abs(d.difference), metric.percent).replace(" %", " points")
    low, high = show(d.low, metric.percent), show(d.high, metric.percent)
    reach = f"95 % interval of the difference {low} to {high}"
    return f"{metric.label}: {which} is better by {size} ({probability(d.p_value)}; {reach})."
