"""What starts.py is to show: each target, met or missed, with its numbers."""

from collections.abc import Iterator, Sequence
from statistics import mean

from scipy.stats import binomtest, ttest_1samp
from starts_arrays import TUNED
from starts_rows import NONE, Rows

from maccal.calibration.looks import DOUBTFUL

TEMPERATURE = "temperature"
MACCAL = "MaC-Cal"
MANY = 5000
PERCENT = ("accuracy", "ece", "aece")
POINTS = 0.001  # a tenth of a point of accuracy


def SCOPES(rows: Rows) -> dict[str, list[str]]:
    names = rows.networks
    return {
        "reported on": [name for name in names if name not in TUNED],
        "chosen on": [name for name in names if name in TUNED],
        "all": names,
    }


def image_networks(rows: Rows) -> list[str]:
    return [name for name in rows.networks if "shift" in rows.of(name, "as trained", NONE)[0]]


def differences(
    rows: Rows, names: Sequence[str], method: str, labels: int, key: str
) -> dict[str, float]:
    """Method minus temperature, by network."""
    found = {}
    for name in names:
        if rows.has(name, method, labels) and rows.has(name, TEMPERATURE, labels):
            ours = rows.mean(name, method, labels, key)
            found[name] = ours - rows.mean(name, TEMPERATURE, labels, key)
    return found


def percent_more(rows: Rows, names: Sequence[str], method: str, labels: int, key: str) -> float:
    """How much more than the temperature's, in %, mean over networks."""
    ratios = []
    for name in names:
        theirs = rows.mean(name, TEMPERATURE, labels, key)
        if theirs > 0:
            ratios.append(rows.mean(name, method, labels, key) / theirs - 1)
    return 100 * mean(ratios) if ratios else float("nan")


def tests_over_networks(found: dict[str, float], key: str) -> list[str]:
    """Counts, the mean difference, and the p of a t test and of a sign test."""
    values = [round(value, 6) for value in found.values()]
    lower, higher = sum(v < 0 for v in values), sum(v > 0 for v in values)
    scale, unit = (100, " points") if key in PERCENT else (1, "")
    chance = binomtest(lower, lower + higher).pvalue if lower + higher else 1.0
    same = len(set(values)) == 1
    t_test = 1.0 if same else float(ttest_1samp(values, 0).pvalue)
    counts = f"{lower} / {len(values) - lower - higher} / {higher}"
    return [counts, f"{scale * mean(values):+.4f}{unit}", f"{t_test:.3f}", f"{chance:.3f}"]


def said(met: bool, target: str, numbers: str) -> str:
    return f"- **{'met' if met else 'missed'}**: {target}: {numbers}"


def in_the_mean(rows: Rows, names: list[str], labels: int) -> Iterator[str]:
    """ECE and AECE below the temperature's, NLL within 0.5 %, Brier and AURC not worse."""
    for key, title in (("ece", "ECE"), ("aece", "AECE")):
        ours, theirs = (mean(rows.mean(n, m, labels, key) for n in names) for m in BOTH)
        numbers = f"{100 * ours:.2f} against {100 * theirs:.2f} %"
        yield said(ours < theirs, f"{title} below temperature's", numbers)
    more = percent_more(rows, names, MACCAL, labels, "nll")
    yield said(more <= 0.5, "NLL within 0.5 %", f"{more:+.2f} %")
    for key, title in (("brier", "Brier"), ("aurc", "AURC")):
        ours, theirs = (mean(rows.mean(n, m, labels, key) for n in names) for m in BOTH)
        numbers = f"{ours:.4f} against {theirs:.4f}"
        yield said(round(ours, 4) <= round(theirs, 4), f"{title} not worse", numbers)


BOTH = (MACCAL, TEMPERATURE)


def accuracy_on_each(rows: Rows, names: list[str], labels: int) -> str:
    found = differences(rows, names, MACCAL, labels, "accuracy")
    below = {name: 100 * value for name, value in found.items() if value < -POINTS}
    worst = ", ".join(f"{name} {value:+.2f}" for name, value in below.items())
    numbers = f"{len(found) - len(below)} of {len(found)}, mean {100 * mean(found.values()):+.2f}"
    more = f"; below: {worst}" if below else ""
    return said(not below, "accuracy within 0.1 points on each", numbers + more)


def under_corruption(rows: Rows, names: list[str]) -> Iterator[str]:
    for key, title in (("shift.ece_pooled_mean", "ECE"), ("shift.nll", "NLL")):
        found = differences(rows, names, MACCAL, MANY, key)
        scale, digits = (100, 2) if title == "ECE" else (1, 4)
        worse = []
        for name, value in found.items():
            if value >= 0:
                worse.append(f"{name} {scale * value:+.{digits}f}")
        average = f"{scale * mean(found.values()):+.{digits}f}"
        numbers = f"{len(found) - len(worse)} of {len(found)}, mean {average}"
        more = f"; not on {', '.join(worse)}" if worse else ""
        target = f"under corruption lower {title} than temperature on each image network"
        yield said(not worse, target, numbers + more)


def without_labels(rows: Rows, names: list[str]) -> str:
    """Within one point of the temperature that had 5,000 labels."""
    beyond, silent = [], 0
    for name in names:
        labelled = rows.mean(name, TEMPERATURE, MANY, "ece")
        more = 100 * (rows.mean(name, MACCAL, NONE, "ece") - labelled)
        if more <= 1:
            continue
        warned = rows.mean(name, MACCAL, NONE, "within") > DOUBTFUL
        silent += not warned
        beyond.append(f"{name} {more:+.2f} ({'warned' if warned else 'not warned'})")
    numbers = f"{len(names) - len(beyond)} of {len(names)}"
    more_text = f"; beyond: {', '.join(beyond)}" if beyond else ""
    target = "without labels, ECE within 1 point of temperature with 5,000 on each image network"
    return said(silent == 0, f"{target}, or a warning", numbers + more_text)


def verdicts(rows: Rows) -> str:
    parts = []
    for scope, names in SCOPES(rows).items():
        images = [name for name in names if name in image_networks(rows)]
        if not names:
            continue
        lines = [f"### Networks that defaults were {scope}" if scope != "all" else "### All"]
        for labels in (MANY, 500, 100):
            there = [name for name in names if rows.has(name, MACCAL, labels)]
            if there:
                lines.append(f"With {labels:,} labels, {len(there)} networks:\n")
                lines += in_the_mean(rows, there, labels)
                lines.append(accuracy_on_each(rows, there, labels) + "\n")
        lines.append("And:\n")
        lines += under_corruption(rows, images)
        lines.append(without_labels(rows, images))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
