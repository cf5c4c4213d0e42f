"""The course of a monitor over time: prepare_course() gives arrays, plot_course() draws them.

Above, the accuracy and the mean confidence of each period, and the accuracy to expect where there
are no labels. In the middle, ECE with its interval, over the band of a calibrated model. Below, the
evidence of each alarm against its threshold. The moments of the alarms go through all three.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from matplotlib import dates as untyped_dates
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from maccal.monitoring.monitor import Monitor
from maccal.monitoring.periods import Period, periods
from maccal.report.look import LINES, Theme, style

dates: Any = untyped_dates  # matplotlib has no types for it
DASHES: dict[str, Any] = {"calibration": "-", "accuracy": (0, (5, 1.5)), "drift": (0, (1.2, 1.2))}
LEAST = -2.0  # the evidence is drawn from 1 / 100 on
DAY = 24 * 60 * 60  # seconds; times are drawn in days


@dataclass(frozen=True)
class Evidence:
    """An alarm's evidence over time, log10, and when it was enough."""

    name: str
    time: np.ndarray
    log10: np.ndarray
    threshold: float
    fired: float | None


@dataclass(frozen=True)
class Course:
    """What is drawn."""

    time: np.ndarray  # the middle of each period, in days
    periods: list[Period]
    evidence: list[Evidence]


def moment(text: str) -> float:
    """Days since 1970."""
    return float(dates.date2num(datetime.fromisoformat(text)))


def prepare_course(monitor: Monitor) -> Course:
    """The arrays of a monitor's course."""
    found = periods(monitor.replay, monitor.settings)
    middles = [(moment(one.since) + moment(one.until)) / 2 for one in found]
    evidence = []
    for name, course in monitor.replay.course.items():
        # What is told late, as by a merge, is evidence from then on: the line never goes back
        times = np.maximum.accumulate([moment(money.stamp.time) for money in course])
        fired = monitor.replay.fired.get(name)
        evidence.append(
            Evidence(
                name,
                times,
                np.array([money.log for money in course]) / math.log(10),
                monitor.replay.alarms[name].threshold / math.log(10),
                None if fired is None else float(times[course.index(fired)]),
            )
        )
    return Course(np.array(middles), found, evidence)


def plot_course(course: Course, theme: Theme | None = None) -> Figure:
    """Three panels over one axis of time."""
    theme = theme or Theme()
    figure = Figure(figsize=(8.6, 7.2), facecolor=theme.paper)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06, hspace=0.02)
    upper, middle, lower = figure.subplots(3, 1, height_ratios=[1.3, 1.0, 1.0], sharex=True)
    draw_accuracy(upper, course, theme)
    draw_error(middle, course, theme)
    draw_evidence(lower, course, theme)
    for axes in (upper, middle, lower):
        for one in course.evidence:
            if one.fired is not None:
                line = axes.axvline(one.fired, color=theme.over, linewidth=1.2, zorder=1)
                line.set_linestyle(DASHES[one.name])
    locator = dates.AutoDateLocator(minticks=3, maxticks=7)
    lower.xaxis.set_major_locator(locator)
    lower.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    lower.xaxis.get_offset_text().set(color=theme.quiet, fontsize=8)
    set_span(lower, course)
    legend(figure, course, theme)
    return figure


def set_span(axes: Axes, course: Course) -> None:
    """All times, with a margin; a single moment gets a second on both sides."""
    times = np.concatenate([course.time, *(one.time for one in course.evidence)])
    margin = max(0.02 * float(np.ptp(times)), 1 / DAY)
    axes.set_xlim(times.min() - margin, times.max() + margin)


def plain(axes: Axes, theme: Theme, label: str) -> None:
    """Per cent upwards, times across."""
    style(axes, theme)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.set_ylabel(label, color=theme.quiet, fontsize=9)


def column(course: Course, part: str, key: str) -> np.ndarray:
    """A number of the known or of the expected part of each period; NaN where there is none."""
    values = []
    for one in course.periods:
        found = getattr(one, part)
        values.append(math.nan if found is None else getattr(found, key))
    return np.array(values)


def draw_accuracy(axes: Axes, course: Course, theme: Theme) -> None:
    time = course.time
    accuracy = column(course, "known", "accuracy")
    low, high = (column(course, "known", f"accuracy_{end}") for end in ("low", "high"))
    axes.vlines(time, low, high, color=theme.under, linewidth=1.4, alpha=0.55, zorder=2)
    axes.plot(time, accuracy, color=theme.under, linewidth=1.4, marker="o", markersize=3.5)
    confidence = column(course, "known", "confidence")
    axes.plot(time, confidence, color=theme.ink, linewidth=1.4, linestyle=LINES["confidence"])
    expected = column(course, "expected", "accuracy")
    low, high = (column(course, "expected", end) for end in ("low", "high"))
    axes.vlines(time, low, high, color=theme.quiet, linewidth=1.2, zorder=2)
    axes.plot(time, expected, "D", color=theme.paper, markeredgecolor=theme.quiet, markersize=4)
    plain(axes, theme, "accuracy")


def draw_error(axes: Axes, course: Course, theme: Theme) -> None:
    time = course.time
    keys = ("ece", "ece_low", "ece_high", "ece_null_low", "ece_null_high")
    ece, low, high, null_low, null_high = (column(course, "known", key) for key in keys)
    axes.fill_between(time, null_low, null_high, color=theme.band, linewidth=0, zorder=1)
    axes.vlines(time, null_low, null_high, color=theme.band, linewidth=4, zorder=1)
    axes.vlines(time, low, high, color=theme.under, linewidth=1.4, alpha=0.55, zorder=2)
    axes.plot(time, ece, color=theme.under, linewidth=1.4, marker="o", markersize=3.5)
    axes.set_ylim(bottom=0)
    plain(axes, theme, "ECE")


def draw_evidence(axes: Axes, course: Course, theme: Theme) -> None:
    """On a scale of powers of ten, to a little beyond the highest threshold."""
    top = max(one.threshold for one in course.evidence) + 1.0
    for one in course.evidence:
        order = np.argsort(one.time, kind="stable")
        shown = np.clip(one.log10[order], LEAST, top)
        time = one.time[order]
        (steps,) = axes.step(time, shown, where="post", color=theme.ink, linewidth=1.4)
        steps.set_linestyle(DASHES[one.name])
        axes.plot(time[-1:], shown[-1:], "o", color=theme.ink, markersize=3)
        line = axes.axhline(one.threshold, color=theme.quiet, linewidth=0.9, zorder=1)
        line.set_linestyle(DASHES[one.name])
    plain(axes, theme, "evidence")
    axes.set_ylim(LEAST - 0.15, top + 0.15)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(power))


def power(value: float, _: Any) -> str:
    """
    >>> power(-2.0, None), power(0.0, None), power(2.0, None)
    ('1/100', '1', '100')
    """
    return f"{10**value:.0f}" if value >= 0 else f"1/{10**-value:.0f}"


def legend(figure: Figure, course: Course, theme: Theme) -> None:
    """What each mark is, below the panels; only what there is."""
    dashes = LINES["confidence"]
    handles: list[Line2D | Patch] = []

    def line(label: str, colour: str, **look: Any) -> None:
        handles.append(Line2D([], [], color=colour, label=label, linewidth=1.3, **look))

    if any(one.known is not None for one in course.periods):
        line("accuracy, ECE, 95 % interval", theme.under, marker="o", markersize=3.5)
        line("mean confidence", theme.ink, linestyle=dashes)
        handles.append(Patch(color=theme.band, label="ECE of a calibrated model", linewidth=0))
    if any(one.expected is not None for one in course.periods):
        line("accuracy to expect without labels", theme.quiet, marker="D", markersize=4)
        handles[-1].set_markerfacecolor(theme.paper)  # type: ignore[union-attr]
    for one in course.evidence:
        line(f"evidence, {one.name}", theme.ink, linestyle=DASHES[one.name])
    if fired(course.evidence):
        line("alarm", theme.over)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=8,
        labelcolor=theme.quiet,
        handlelength=1.8,
        columnspacing=1.6,
    )


def fired(evidence: Sequence[Evidence]) -> bool:
    return any(one.fired is not None for one in evidence)
