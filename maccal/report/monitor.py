"""The page of a monitor: which alarms have fired, the course over time, all numbers.

Cost: about three seconds, most of them for the intervals of up to sixty periods.
"""

from pathlib import Path

from markupsafe import Markup

from maccal.io import readable
from maccal.metrics import METRICS
from maccal.metrics.summaries import show
from maccal.monitoring.monitor import Monitor
from maccal.monitoring.periods import Period
from maccal.monitoring.standing import Standing
from maccal.report.course import plot_course, prepare_course
from maccal.report.page import PLACEHOLDERS, TEMPLATES, in_json, svg

SHOWN = 20  # periods in the table: the latest


def monitor_page(monitor: Monitor, name: str) -> str:
    """The page; `name` is what is being watched."""
    found = monitor.standing()
    course = prepare_course(monitor)
    return TEMPLATES.get_template("monitor.html").render(
        name=readable(name),
        found=found,
        settings=monitor.settings,
        reference=monitor.settings.reference,
        sentences=list(zip(found.alarms, found.words(), strict=True)),
        figure=svg(plot_course(course, PLACEHOLDERS)) if course.periods else None,
        numbers=number_rows(found),
        periods=[period_row(one) for one in course.periods[-SHOWN:]],
        more=max(0, len(course.periods) - SHOWN),
        css=Markup((Path(__file__).parent / "templates" / "report.css").read_text()),
        values=in_json(found.values(), indent=1),
    )


def percent(value: float) -> str:
    return show(value, percent=True)


def between(low: float, high: float) -> str:
    return f"{percent(low)} to {percent(high)}"


def number_rows(found: Standing) -> list[dict[str, str]]:
    """Label, meaning, value, interval and what a calibrated model would have."""
    rows = []
    known, expected = found.known, found.expected
    if known is not None:
        accuracy = between(known.accuracy_low, known.accuracy_high)
        ece = between(known.ece_low, known.ece_high)
        null = between(known.ece_null_low, known.ece_null_high)
        rows.append(number("accuracy", known.accuracy, accuracy))
        rows.append(number("confidence", known.confidence, ""))
        rows.append(number("ece", known.ece, ece, null))
    if expected is not None:
        meaning = f"of the {expected.rows:,} rows without labels, from their confidence"
        if found.caution():
            meaning += ", which the calibration alarm says is wrong: do not rely on it"
        interval = between(expected.low, expected.high)
        rows.append(
            {
                "label": "Accuracy to expect",
                "meaning": meaning,
                "value": percent(expected.accuracy),
                "interval": interval,
                "null": "",
            }
        )
    return rows


def number(key: str, value: float, interval: str, null: str = "") -> dict[str, str]:
    metric = METRICS[key]
    words = {"label": metric.label, "meaning": metric.meaning}
    return {**words, "value": percent(value), "interval": interval, "null": null}


def period_row(one: Period) -> dict[str, str]:
    """The cells of a period, empty where there is nothing."""
    known, expected = one.known, one.expected
    when = one.since[:16].replace("T", " ")
    if one.until[:16] != one.since[:16]:
        when += f" to {one.until[:16].replace('T', ' ')}"
    cells = {"time": when, "rows": f"{one.rows:,}", "labelled": "0"}
    cells |= dict.fromkeys(("accuracy", "confidence", "ece", "expected"), "")
    if known is not None:
        cells["labelled"] = f"{known.rows:,}"
        cells["accuracy"] = short(known.accuracy, known.accuracy_low, known.accuracy_high)
        cells["confidence"] = f"{100 * known.confidence:.1f} %"
        cells["ece"] = short(known.ece, known.ece_low, known.ece_high)
    if expected is not None:
        cells["expected"] = short(expected.accuracy, expected.low, expected.high)
    return cells


def short(value: float, low: float, high: float) -> str:
    """A share and its interval in a few letters.

    >>> short(0.912, 0.9, 0.925)
    '91.2 (90.0–92.5) %'
    """
    return f"{100 * value:.1f} ({100 * low:.1f}–{100 * high:.1f}) %"
