"""summary: every number about one model's confidence, with its interval and null band.

The null band is where a calibrated model with the same confidences would be. Top-label statistics
get both from resampling.py. Means over rows (NLL, Brier and their splits) get the normal interval
of a mean, and a null band in closed form. Classwise ECE gets an interval by the delta method, and a
null band by binomial counts per class and bin.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from scipy.special import gammaincinv
from torch import Tensor

from maccal.metrics import miscalibration, ranking
from maccal.metrics.arguments import check_bins, check_given
from maccal.metrics.binning import assign
from maccal.metrics.bins import Bins
from maccal.metrics.given import Classes, plain
from maccal.metrics.inputs import (
    Array,
    Labels,
    blocks,
    check_confidence,
    check_labels,
    matrix,
    scan,
    top_label,
)
from maccal.metrics.notebooks import Line, frame_of, html_table
from maccal.metrics.resampling import (
    LEVEL,
    Interval,
    Statistics,
    Z,
    band,
    batches,
    centred,
    resample,
    tail,
)
from maccal.metrics.scores import NullScore, Split, as_scores, log_probs, null_scores, splits
from maccal.metrics.softmaxes import Rows, score_rows

if TYPE_CHECKING:
    import pandas as pd

# ECE sees gaps of either sign; the KS error sees a small gap that all rows share
TESTED = ("ece", "ks")


class Metric(NamedTuple):
    """How a number of the summary is shown and read."""

    label: str
    percent: bool
    meaning: str


METRICS = {
    "accuracy": Metric("Accuracy", True, "share of rows whose most probable class is right"),
    "confidence": Metric("Mean confidence", True, "what the model says its accuracy is"),
    "ece": Metric("ECE", True, "average gap between confidence and accuracy, equal-width bins"),
    "aece": Metric("AECE", True, "the same with equally filled bins"),
    "smece": Metric("smECE", True, "the same without bins"),
    "ks": Metric("KS error", True, "largest cumulative gap"),
    "mce": Metric("MCE", True, "gap of the worst bin, which may hold few rows"),
    "classwise_ece": Metric("Classwise ECE", True, "ECE of every class's probability, averaged"),
    "debiased_squared_ce": Metric(
        "Debiased CE²", False, "squared error less sampling noise; may be below zero"
    ),
    "nll": Metric("NLL", False, "negative log likelihood of the labels"),
    "nll_refinement": Metric("· refinement", False, "NLL left after the best temperature"),
    "nll_calibration": Metric("· calibration", False, "NLL that the best temperature would save"),
    "brier": Metric("Brier", False, "squared distance to the one-hot label"),
    "brier_refinement": Metric("· refinement", False, "Brier left after the best temperature"),
    "brier_calibration": Metric(
        "· calibration", False, "Brier that the best temperature would save"
    ),
    "aurc": Metric("AURC", False, "error rate averaged over how many of the surest rows are kept"),
    "e_aurc": Metric("E-AURC", False, "AURC above that of a perfect order"),
}


# The ending of a Stream's numbers that see confidences only to the width of a fine bin
BINNED = "_binned"


def metric_of(name: str) -> Metric:
    """The metric behind a name of a summary, `aurc` or `aurc_binned`."""
    if name in METRICS:
        return METRICS[name]
    metric = METRICS[name.removesuffix(BINNED)]
    return metric._replace(label=f"{metric.label} (binned)")


class Summary(dict[str, Any]):
    """A plain dict of numbers that prints, and shows in a notebook, as a table."""

    shown: ClassVar[Mapping[str, Metric]] = METRICS
    width: ClassVar[int] = 16  # of the labels

    def __str__(self) -> str:
        lines = [self.heading]
        for name in self.names:
            lines.append(self.line(name))
        if "verdict" in self:
            lines.append(self["verdict"])
        return "\n".join(lines)

    def __repr__(self) -> str:
        """The table, so that a prompt shows it too; a part of a summary is a dict."""
        return str(self) if "n" in self else super().__repr__()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # IPython would show the dict, as of any other

    def _repr_html_(self) -> str:
        return html_table(self.heading, self.lines(), self.get("verdict", ""))

    def to_frame(self) -> "pd.DataFrame":
        """A pandas DataFrame: one row per metric, by the name that it has in this dict.

        Columns: label, value and, with intervals, low, high, null_low, null_high. What else the
        summary says (n, classes, verdict, ...) is in `.attrs`.

        >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
        >>> summary(probs, [0, 1, 1]).to_frame().loc["ece", "value"].round(3)
        np.float64(0.4)
        """
        return frame_of(self, self.lines())

    @property
    def heading(self) -> str:
        counts = {"n": "rows", "classes": "classes", "bins": "bins"}
        return ", ".join(f"{self[key]:,} {word}" for key, word in counts.items() if key in self)

    @property
    def names(self) -> list[str]:
        """Of the numbers that are shown; a stream's may end in _binned."""
        found = []
        for metric in self.shown:
            found += [name for name in (metric, f"{metric}{BINNED}") if name in self]
        return found

    def metric(self, name: str) -> Metric:
        return self.shown[name] if name in self.shown else metric_of(name)

    def lines(self) -> list[Line]:
        """Every number with its label and its texts."""
        found = []
        for name in self.names:
            label, percent, meaning = self.metric(name)
            value = show(self[name], percent)
            bands = [span(self, key, percent) for key in (name, f"{name}_null")]
            found.append(Line(name, label, meaning, value, *bands))
        return found

    def line(self, name: str) -> str:
        """One number with its label and, if they are there, its interval and null band."""
        metric = self.metric(name)
        width = self.width if f"aurc{BINNED}" not in self else 22
        cells = [f"{metric.label:<{width}}{show(self[name], metric.percent):>9}"]
        if f"{name}_low" in self:
            cells.append(f"[{span(self, name, metric.percent)}]".ljust(22))
        if f"{name}_null_low" in self:
            cells.append(f"calibrated: {span(self, f'{name}_null', metric.percent)}")
        return "  ".join(cells).rstrip()

    def add(self, name: str, interval: Interval, null: Interval | None = None) -> None:
        """Add the interval and the null band of a number, under their names."""
        self.update({f"{name}_low": interval.low, f"{name}_high": interval.high})
        if null is not None and name != "confidence":  # the null model states the same confidences
            self.update({f"{name}_null_low": null.low, f"{name}_null_high": null.high})


def show(value: float, percent: bool) -> str:
    """A number as people read it."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if percent:
        return f"{100 * value:.2f} %"
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.4f}"


def probability(p: float) -> str:
    """A p-value as text; a thousand resamples, as usual, cannot tell values below 0.002 apart."""
    return "p < 0.002" if p < 0.002 else f"p = {p:.3f}"


def span(numbers: Summary, key: str, percent: bool) -> str:
    """`low to high` of an interval (key "ece") or a null band (key "ece_null"); empty if none."""
    if f"{key}_low" not in numbers:
        return ""
    return f"{show(numbers[f'{key}_low'], percent)} to {show(numbers[f'{key}_high'], percent)}"


def percent_range(numbers: Mapping[str, Any], key: str) -> str:
    """An interval or a null band in a few letters."""
    low = 100 * numbers[f"{key}_low"]
    high = 100 * numbers[f"{key}_high"]
    return f"{low:.2f}–{high:.2f} %"


def summary(
    probs: Array | None = None,
    labels: Labels | None = None,
    *,
    logits: Array | None = None,
    classes: Classes | None = None,
    normalise: bool = False,
    bins: int = 15,
    interval: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> Summary:
    """Every metric of one model, as fractions.

    Labels are class indices, or names with `classes=["cat", "dog"]` in the order of the columns.
    With normalise=True each row of probs is divided by its sum (percentages, rounded numbers).

    With interval=True also `<name>_low/_high`, `<name>_null_low/_null_high`, the `p_value` of
    perfect calibration (from ECE and KS error, corrected for looking twice), and the `verdict` in
    words.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.5, 1, 2000)
    >>> s = summary(np.stack([p, 1 - p], 1), (rng.random(2000) > p).astype(int), interval=True)
    >>> s["ece_null_low"] < s["ece"] < s["ece_null_high"], s["verdict"].split(":")[0]
    (True, 'Cannot be told from a calibrated model')
    """
    check_given(probs, labels, logits)
    bins = check_bins(bins)
    probs, labels = plain(probs, labels, logits, classes=classes, normalise=normalise)
    if probs is None:
        rows, (confidence, correct), by_class = of_logits(logits, labels, bins)
    else:
        rows, (confidence, correct), by_class = of_probs(probs, labels, bins)
    per_row = score_rows(rows)
    parts = splits(rows, per_row.mean(1))

    n, columns = rows.scores.shape
    result = Summary(n=n, classes=columns, bins=bins)
    result.update(top_label_metrics(confidence, correct, bins))
    result["classwise_ece"] = by_class.ece()
    for name, scores, part in zip(PROPER, per_row, parts, strict=True):
        result[name] = float(scores.mean())
        result[f"{name}_refinement"] = part.refinement
        result[f"{name}_calibration"] = part.calibration
    result["temperature"] = parts[0].temperature
    if not interval:
        return result

    add_resampled(result, *resample(confidence, correct, bins=bins, resamples=resamples, seed=seed))
    add_scores(result, rows, per_row, parts)
    p = rows.scores.softmax(1) if probs is None else matrix(probs, "probs")
    classwise = classwise_interval(by_class, p, rows.labels)
    result.add("classwise_ece", classwise, classwise_null(by_class, resamples, seed))
    return result


PROPER = ("nll", "brier")  # the proper scores, in the order that scores.py gives them
Top = tuple[Tensor, Tensor]  # confidence and whether it was right


def of_probs(probs: Any, labels: Any, bins: int) -> tuple[Rows, Top, Bins]:
    """Scores, top label and classwise bins of probabilities, which are checked once."""
    p = matrix(probs, "probs")
    top = top_label(p, labels)
    rows = Rows.of(log_probs(p), check_labels(labels, p))
    return rows, top, Bins.of_checked_classes(p, rows.labels, bins)


def of_logits(logits: Any, labels: Any, bins: int) -> tuple[Rows, Top, Bins]:
    """The same of logits, whose probabilities are made block by block, never all at once."""
    rows = Rows.of(*as_scores(None, labels, logits))
    by_class = Bins.empty(bins, classes=rows.scores.shape[1])
    confidences = []
    corrects = []
    for part in blocks(*rows.scores.shape):
        p = rows.scores[part].softmax(1)
        confidence, correct, _, _ = scan(p, rows.labels[part])
        confidences.append(confidence)
        corrects.append(correct)
        by_class += Bins.of_checked_classes(p, rows.labels[part], bins)
    return rows, (torch.cat(confidences), torch.cat(corrects)), by_class


def top_label_metrics(confidence: Tensor, correct: Tensor, bins: int) -> dict[str, float]:
    ordered = miscalibration.by_confidence(*check_confidence(confidence, correct))
    equal_width = Bins.of(confidence, correct, bins)
    equal_mass = miscalibration.equal_mass_of(ordered, bins)
    worst = equal_width.mce()
    aurc, e_aurc = ranking.areas_of(ordered)
    return {
        "accuracy": float(correct.double().mean()),
        "confidence": float(confidence.double().mean()),
        "ece": equal_width.ece(),
        "aece": equal_mass.ece(),
        "smece": miscalibration.smece_of(ordered),
        "ks": miscalibration.ks_of(ordered),
        "mce": worst.gap,
        "mce_count": worst.count,
        "debiased_squared_ce": equal_mass.debiased_squared_ce(),
        "aurc": aurc,
        "e_aurc": e_aurc,
    }


def add_resampled(result: Summary, boot: Statistics, null: Statistics) -> None:
    """Add intervals, null bands, p-values and the verdict, from draws of top-label statistics."""
    for name in boot:
        within = (-math.inf, math.inf) if name.startswith("debiased_squared_ce") else (0.0, 1.0)
        result.add(name, centred(result[name], boot[name], within=within), band(null[name]))
    for name in tested(result):
        result[f"{name}_p_value"] = tail(result[name], null[name])
    least = min(result[f"{name}_p_value"] for name in tested(result))
    result["p_value"] = min(1.0, len(TESTED) * least)  # corrected for looking twice (Bonferroni)
    result["verdict"] = verdict(result)


def tested(result: Summary) -> list[str]:
    """The names that TESTED has in this summary, which may be a stream's."""
    return [name if name in result else f"{name}{BINNED}" for name in TESTED]


def add_scores(result: Summary, rows: Rows, per_row: Tensor, parts: tuple[Split, Split]) -> None:
    """Add intervals and null bands of the proper scores and of their parts."""
    expected = null_scores(rows.scores)
    for which, name in enumerate(PROPER):
        before = after = per_row[which]
        if math.isfinite(parts[which].temperature):
            after = score_rows(rows, 1 / parts[which].temperature)[which]
        add_score(result, name, before, after, expected[which])


def add_score(result: Summary, name: str, before: Tensor, after: Tensor, null: NullScore) -> None:
    """Add those of one score, given that of every row before and after the best temperature."""
    expected = Interval(null.mean - Z * null.deviation, null.mean + Z * null.deviation)
    result.add(name, mean_interval(before), expected)
    result.add(f"{name}_refinement", mean_interval(after), expected)
    chance = null.gain * 2 * gammaincinv(0.5, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    result.add(f"{name}_calibration", mean_interval(before - after), Interval(*chance.tolist()))


def mean_interval(values: Tensor) -> Interval:
    """The normal interval of a mean of rows that cannot be below zero.

    NaN if a row is infinite, or if there is only one.
    """
    n = len(values)
    mean = float(values.mean())
    half = Z * float(values.std(correction=min(1, n - 1))) / math.sqrt(n)
    if n == 1 or not math.isfinite(half):
        return Interval(math.nan, math.nan)
    return Interval(max(0.0, mean - half), mean + half)


def classwise_interval(by_class: Bins, probs: Tensor, labels: Tensor) -> Interval:
    """The delta method: the interval of the mean of every row's share in the classwise ECE.

    The signs of the gaps are taken as they are.
    """
    classes, width = by_class.count.shape
    signs = np.sign(by_class.confidence - by_class.correct)
    sign = torch.from_numpy(signs).to(probs.device).flatten()
    names = torch.arange(classes, device=probs.device)
    share = torch.empty(len(probs), dtype=torch.float64, device=probs.device)
    for rows in blocks(*probs.shape):
        value = probs[rows].double().clamp(max=1.0)
        index = assign(value, by_class.edges, by_class.convention) + names * width
        share[rows] = (sign[index] * (value - (labels[rows, None] == names).double())).mean(1)
    return mean_interval(share)


def classwise_null(by_class: Bins, resamples: int, seed: int) -> Interval:
    """The band if labels are drawn from the probabilities: binomial counts per class and bin.

    If there are two classes, the second mirrors the first, and the first is enough.
    """
    count = by_class.count
    total = by_class.confidence
    if len(count) == 2:
        count = count[:1]
        total = total[:1]
    filled = count > 0
    trials = count[filled].astype(np.int64)
    expected = total[filled]
    chance = np.clip(expected / trials, 0, 1)
    rng = np.random.default_rng(seed)
    resamples = min(resamples, max(100, 2_000_000 // len(trials)))
    draws = []
    for many in batches(resamples, len(trials)):
        correct = rng.binomial(trials, chance, (many, len(trials)))
        draws.append(np.abs(correct - expected).sum(1))
    return band(np.concatenate(draws) / (by_class.n * len(count)))


def verdict(s: Summary) -> str:
    """Whether the model can be told from a calibrated one, and which way it errs, in words."""
    chance = f"{probability(s['p_value'])}, {s['n']:,} rows"
    if s["p_value"] > 1 - LEVEL:
        return f"Cannot be told from a calibrated model: its {evidence(s, 'ece')} ({chance})."
    if s["accuracy"] < s["accuracy_null_low"]:
        kind = "Overconfident"
    elif s["accuracy"] > s["accuracy_null_high"]:
        kind = "Underconfident"
    else:
        kind = "Miscalibrated, too sure here and not sure enough there"
    says = f"it says {show(s['confidence'], True)}"
    says += f" and is right {show(s['accuracy'], True)} of the time"
    clearest = min(tested(s), key=lambda name: s[f"{name}_p_value"])
    return f"{kind}: {says}. Its {evidence(s, clearest)} ({chance})."


def evidence(s: Summary, name: str) -> str:
    """The number, and what a calibrated model would score."""
    floor = f"{100 * s[f'{name}_null_low']:.2f} to {100 * s[f'{name}_null_high']:.2f} %"
    null = f"a calibrated model with these confidences would score {floor}"
    return f"{metric_of(name).label} is {show(s[name], True)}; {null}"
