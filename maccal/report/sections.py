"""A page of sections: a verdict, words, a figure and a table each.

trust_page   sets, answers, classes and groups of `maccal trust`
task_page    a binary score or several labels, of `maccal evaluate --task`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from maccal.evaluation.tasks import TaskPredictions, plain_numbers
from maccal.evaluation.trusting import Trust
from maccal.metrics import BinarySummary, Bins, Listing, MultilabelSummary
from maccal.metrics.binary import BINARY, scored
from maccal.metrics.multilabel import MULTILABEL
from maccal.metrics.summaries import Metric, Summary, show, span
from maccal.report.diagrams import draw_bins, prepare_reliability
from maccal.report.look import Theme, style
from maccal.report.page import PLACEHOLDERS, TEMPLATES, in_json, svg
from maccal.trust.conformal import ConformalSets

SETS = (
    "A set holds the label of a new row as often as asked, if new rows come from where these came"
    " from: over all rows together, not for every class or group."
)
ANSWERS = (
    "The bound holds for new rows like these, with the certainty stated, whatever the confidences"
    " are worth. Where the confidence is too low there is no answer."
)
GROUPS = (
    "Calibrated: where the ECE of a calibrated model would fall with as many rows. p is corrected"
    " for looking at all lines (Holm): below 0.05 a line is miscalibrated, and not by chance."
)


@dataclass(frozen=True)
class Section:
    """A part of the page; what is empty is left out."""

    heading: str
    verdict: str = ""
    told: bool = False  # whether the verdict is bad news
    words: Sequence[str] = ()
    figure: Markup | None = None
    headings: Sequence[str] = ()
    lines: Sequence[Sequence[str]] = ()


def page_of(title: str, about: str, sections: Sequence[Section], record: Mapping[str, Any]) -> str:
    return TEMPLATES.get_template("sections.html").render(
        title=title,
        about=about,
        sections=sections,
        record=in_json(record, indent=1),
        footer=f"maccal {version('maccal')}",
        css=Markup((Path(__file__).parent / "templates" / "report.css").read_text()),
    )


def trust_page(trust: Trust, record: Mapping[str, Any]) -> str:
    """Sets, answers, classes and groups."""
    about = f"Fitted on {trust.fitted_on:,} rows, measured on {trust.measured_on:,} others."
    sections = [sets_section(trust)]
    for made, found in zip(trust.sets, trust.measured_sets, strict=True):
        heading = f"Sets by class: {method_name(made)}"
        sections.append(listed(heading, found["classes"], [found.sentence()]))
    sections.append(answers_section(trust))
    sections.append(listed("Calibration by predicted class", trust.classes, [GROUPS]))
    if trust.groups is not None:
        sections.append(listed("Calibration by group", trust.groups, [GROUPS]))
    return page_of(f"{trust.name}: what may be done with it", about, sections, record)


def listed(heading: str, listing: Listing, words: Sequence[str]) -> Section:
    return Section(heading, words=words, headings=listing.headings, lines=listing.cells())


SET_HEADINGS = ("", "asked", "coverage", "95 % interval", "mean size", "one class", "empty")


def set_lines(trust: Trust) -> list[list[str]]:
    """One line per method."""
    lines = []
    for made, found in zip(trust.sets, trust.measured_sets, strict=True):
        lines.append(
            [
                method_name(made),
                show(made.coverage, True),
                show(found["coverage"], True),
                f"{show(found['coverage_low'], True)} to {show(found['coverage_high'], True)}",
                f"{found['size']:.2f}",
                show(found["single"], True),
                show(found["empty"], True),
            ]
        )
    return lines


def method_name(made: ConformalSets) -> str:
    """As papers write it; APS and RAPS are randomised unless this says otherwise."""
    return made.method.upper() + (", deterministic" if made.randomised is False else "")


def sets_section(trust: Trust) -> Section:
    return Section("Sets of classes", words=[SETS], headings=SET_HEADINGS, lines=set_lines(trust))


def answered_words(measured: Mapping[str, Any]) -> str:
    """What the threshold did on rows that it was not fitted on."""
    many = f"On {measured['n']:,} other rows it answers {show(measured['coverage'], True)}"
    if not measured["answered"]:
        return f"{many}."
    low, high = show(measured["risk_low"], True), show(measured["risk_high"], True)
    return f"{many}; {show(measured['risk'], True)} of the answers are wrong ({low} to {high})."


def answers_section(trust: Trust) -> Section:
    made = trust.answers
    return Section(
        "Answers and abstentions",
        verdict=made.verdict_,
        told=not made.found_,
        words=[answered_words(trust.measured_answers), ANSWERS],
        figure=svg(plot_candidates(made.candidates_, made.risk, PLACEHOLDERS)),
        headings=made.candidates_.headings,
        lines=made.candidates_.cells(),
    )


def plot_candidates(candidates: Listing, risk: float, theme: Theme) -> Figure:
    """Risk and its bound against the share of rows answered, with the risk asked for."""
    used = [line for line in candidates if line["answered"]]
    coverage = [line["coverage"] for line in used]
    bounds = [line["bound"] for line in used]
    figure = Figure(figsize=(5.2, 3.2), facecolor=theme.paper, layout="constrained")
    axes = figure.subplots()
    style(axes, theme)
    axes.plot(coverage, bounds, color=theme.over, marker="o", markersize=4, label="bound")
    risks = [line["risk"] for line in used]
    axes.plot(coverage, risks, color=theme.under, marker="o", markersize=4, label="risk seen")
    axes.axhline(risk, color=theme.ink, linewidth=1, linestyle=(0, (4, 3)), label="risk asked for")
    top = min(1.0, max(3 * risk, 1.3 * float(np.max(risks, initial=risk))))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    axes.set(xlim=(0, 1.02), ylim=(0, top))
    axes.set_xlabel("rows answered", color=theme.quiet, fontsize=9)
    axes.set_ylabel("answers wrong", color=theme.quiet, fontsize=9)
    axes.legend(frameon=False, fontsize=8, labelcolor=theme.quiet, loc="upper left")
    return figure


NUMBER_HEADINGS = ("", "value", "95 % interval", "calibrated model")


def number_lines(numbers: Summary, metrics: Mapping[str, Metric]) -> list[list[str]]:
    """One line per metric: its value, its interval, and what a calibrated model would have."""
    lines = []
    for key, metric in metrics.items():
        value = show(numbers[key], metric.percent)
        ends = (span(numbers, name, metric.percent) for name in (key, f"{key}_null"))
        lines.append([metric.label, value, *ends])
    return lines


def task_page(said: TaskPredictions, numbers: BinarySummary | MultilabelSummary) -> str:
    """The page of a binary score, or of several labels."""
    lines = number_lines(numbers, metrics_of(numbers))
    table = Section("All numbers", headings=NUMBER_HEADINGS, lines=lines)
    told = not numbers["verdict"].startswith(("Cannot", "No label"))
    if isinstance(numbers, BinarySummary):
        about = f"{numbers['n']:,} rows, one score of class 1 each."
        figure = svg(plot_shares(said, numbers, PLACEHOLDERS))
        first = Section("Can the probability be trusted?", numbers["verdict"], told, figure=figure)
        sections = [first, table]
    else:
        about = f"{numbers['n']:,} rows, {numbers['classes']} labels that are each yes or no."
        first = Section("Can the probabilities be trusted?", numbers["verdict"], told)
        sections = [first, table, listed("By label", numbers["labels"], [GROUPS])]
    return page_of(said.name, about, sections, plain_numbers(numbers))


def metrics_of(numbers: BinarySummary | MultilabelSummary) -> Mapping[str, Metric]:
    return BINARY if isinstance(numbers, BinarySummary) else MULTILABEL


def plot_shares(said: TaskPredictions, numbers: BinarySummary, theme: Theme) -> Figure:
    """The reliability diagram of class 1: its share against its probability."""
    given = {said.kind: said.scores}
    rows = scored(given.get("probs"), said.labels, given.get("logits"))
    sums = Bins.of(rows.score, rows.label, numbers["bins"])
    figure = Figure(figsize=(4.4, 4.4), facecolor=theme.paper, layout="constrained")
    axes = figure.subplots()
    draw_bins(axes, prepare_reliability(sums, {}), theme)
    style(axes, theme)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set_xlabel("probability of class 1", color=theme.quiet, fontsize=9)
    axes.set_ylabel("share of class 1", color=theme.quiet, fontsize=9)
    return figure
