"""multilabel_summary: several labels at once, each yes or no.

Probabilities are N x K, each in [0, 1], and need not sum to one; targets are N x K zeros and ones.
Every label is a binary problem of its own and gets a line: its share, its mean probability, ECE
with interval and null band, Brier, NLL, AUROC, and a p-value corrected by Holm over the labels.

    macro   the mean over the labels of a label's own number
    micro   the number of all N x K entries in one pot

Brier and NLL are means over entries, so macro and micro are the same number. Gaps of different
labels cancel within a bin of the pot, so micro_ece can be small when every label is wrong:
macro_ece cannot. Entries of one row are dependent, so intervals are those of means over rows (for
ECE by the delta method: the signs of the gaps are taken as they are). For the same reason there is
a null band for each label but none for micro and macro: how the labels of a row hang together is
not known.

Cost: as K binary problems; the intervals of a label draw 2,000 times.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from maccal.metrics.arguments import check_bins, check_given
from maccal.metrics.binary import (
    check_finite,
    checked_floats,
    probabilities,
    zeros_and_ones,
)
from maccal.metrics.binning import assign
from maccal.metrics.bins import Bins
from maccal.metrics.frames import check_order, column_names
from maccal.metrics.groups import Line, class_names, columns, measured_groups
from maccal.metrics.inputs import Array, as_tensor
from maccal.metrics.listing import Column, Listing
from maccal.metrics.ranking import auroc
from maccal.metrics.resampling import Interval
from maccal.metrics.summaries import Metric, Summary, mean_interval, show

MULTILABEL = {
    "macro_ece": Metric("ECE, macro", True, "mean over the labels of each label's ECE"),
    "micro_ece": Metric("ECE, micro", True, "ECE of all entries in one pot"),
    "nll": Metric("NLL", False, "log loss of an entry; macro and micro are the same"),
    "brier": Metric("Brier", False, "mean (p - y)² of an entry; macro and micro are the same"),
    "accuracy": Metric("Entries right", True, "share of entries right at 50 %"),
    "exact": Metric("Rows right", True, "share of rows with all their labels right at 50 %"),
    "macro_auroc": Metric("AUROC, macro", True, "mean over the labels that have both outcomes"),
    "micro_auroc": Metric("AUROC, micro", True, "AUROC of all entries in one pot"),
}
BRIER = Column("brier", "Brier", "number")


class MultilabelSummary(Summary):
    """A plain dict of numbers that prints, and shows in a notebook, as a table; `["labels"]` is a
    line for each label.
    """

    shown = MULTILABEL
    width = 18

    @property
    def heading(self) -> str:
        return f"{self['n']:,} rows, {self['classes']} labels, {self['bins']} bins"

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self["labels"]._repr_html_()

    def __str__(self) -> str:
        lines = [self.heading, *(self.line(name) for name in self.names)]
        lines += ["", str(self["labels"])]
        if "verdict" in self:
            lines += ["", self["verdict"]]
        return "\n".join(lines)


def multilabel_summary(
    probs: Array | None = None,
    labels: Array | None = None,
    *,
    logits: Array | None = None,
    names: Sequence[str] = (),
    bins: int = 15,
    interval: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> MultilabelSummary:
    """Every number about N x K probabilities (or logits) of labels that are each yes or no.

    With interval=True also intervals, each label's null band and p-value, and the `verdict`.

    >>> probs = np.array([[0.9, 0.2], [0.6, 0.7]])
    >>> found = multilabel_summary(probs, np.array([[1, 0], [1, 1]]), names=["cat", "dog"])
    >>> round(found["macro_ece"], 4), round(found["brier"], 4), found["exact"]
    (0.25, 0.075, 1.0)
    >>> [(line["label"], round(line["ece"], 3)) for line in found["labels"]]
    [('cat', 0.25), ('dog', 0.25)]
    """
    bins = check_bins(bins)
    p, y, loss = entries(probs, labels, logits)
    titles = class_names(names, p.shape[1])
    check_order(logits if probs is None else probs, column_names(labels) or titles)
    check_order(logits if probs is None else probs, titles)
    square = (p - y.double()) ** 2
    lines = label_lines(p, y, square, loss, bins)
    if interval:
        add_tests(lines, p, y, bins, resamples, seed)
    result = MultilabelSummary(n=len(p), classes=p.shape[1], bins=bins)
    result.update(pooled(p, y, lines, bins))
    result["nll"], result["brier"] = float(loss.mean()), float(square.mean())
    named = [{"label": name, **line} for name, line in zip(titles, lines, strict=True)]
    result["labels"] = Listing(named, shown(interval))
    if interval:
        result.add("nll", mean_interval(loss.mean(1)))
        result.add("brier", mean_interval(square.mean(1)))
        result.add("macro_ece", ece_interval(p, y, [p_y(p, y, k, bins) for k in range(p.shape[1])]))
        pot = Bins.of(p.reshape(-1), y.reshape(-1), bins)
        result.add("micro_ece", ece_interval(p, y, [pot] * p.shape[1]))
        result["verdict"] = verdict(result)
    return result


def entries(
    probs: Array | None, labels: Any, logits: Array | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities, targets and log losses, N x K each, on the CPU."""
    check_given(probs, labels, logits)
    name = "probs" if logits is None else "logits"
    tensor = as_tensor(probs if logits is None else logits, name)
    if tensor.ndim != 2:
        hint = "; for one score per row there is binary_summary" if tensor.ndim == 1 else ""
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected (rows, labels){hint}")
    values = checked_floats(tensor, name).cpu()
    y = zeros_and_ones(labels, values.shape, "labels").cpu()
    if logits is None:
        p = probabilities(values, name)
        return p, y, -torch.where(y, p, 1 - p).log()
    check_finite(values, name)
    return values.sigmoid(), y, torch.nn.functional.softplus(torch.where(y, -values, values))


def p_y(p: Tensor, y: Tensor, label: int, bins: int) -> Bins:
    """The sums of one label."""
    return Bins.of(p[:, label], y[:, label], bins)


def label_lines(p: Tensor, y: Tensor, square: Tensor, loss: Tensor, bins: int) -> list[Line]:
    """What needs no draws, of each label."""
    lines: list[Line] = []
    for k in range(p.shape[1]):
        lines.append(
            {
                "rows": len(p),
                "share": float(y[:, k].double().mean()),
                "probability": float(p[:, k].mean()),
                "ece": p_y(p, y, k, bins).ece(),
                "brier": float(square[:, k].mean()),
                "nll": float(loss[:, k].mean()),
                "auroc": area(p[:, k], y[:, k]),
            }
        )
    return lines


def area(p: Tensor, y: Tensor) -> float:
    """AUROC; NaN where all outcomes are the same."""
    inside, outside = p[y], p[~y]
    return auroc(inside, outside) if len(inside) and len(outside) else math.nan


def add_tests(
    lines: list[Line], p: Tensor, y: Tensor, bins: int, resamples: int, seed: int
) -> None:
    """Add intervals, null bands and corrected p-values."""
    parts = [(p[:, k], y[:, k]) for k in range(p.shape[1])]
    tested = measured_groups(parts, ("share", "probability"), bins, resamples, seed)
    for line, found in zip(lines, tested, strict=True):
        line.update(found)


def shown(interval: bool) -> tuple[Column, ...]:
    """What the terminal has room for; the rows are the same for all labels."""
    found = [column for column in columns("label", "share", "probability") if column.key != "rows"]
    if interval:
        return (*found[:-1], BRIER, found[-1])
    plain = [column for column in found if column.kind not in ("range", "p")]
    return (*plain, BRIER, Column("nll", "NLL", "number"))


def pooled(p: Tensor, y: Tensor, lines: list[Line], bins: int) -> dict[str, float]:
    """Numbers of all labels together."""
    right = (p > 0.5) == y
    areas = [line["auroc"] for line in lines if not math.isnan(line["auroc"])]
    return {
        "macro_ece": float(np.mean([line["ece"] for line in lines])),
        "micro_ece": Bins.of(p.reshape(-1), y.reshape(-1), bins).ece(),
        "accuracy": float(right.double().mean()),
        "exact": float(right.all(1).double().mean()),
        "macro_auroc": float(np.mean(areas)) if areas else math.nan,
        "micro_auroc": area(p.reshape(-1), y.reshape(-1)),
    }


def ece_interval(p: Tensor, y: Tensor, sums: list[Bins]) -> Interval:
    """The interval of the mean of every row's share in the ECE; `sums` are those of each label."""
    share = torch.zeros(len(p), dtype=torch.float64)
    for k, one in enumerate(sums):
        sign = torch.from_numpy(np.sign(one.confidence - one.correct))
        index = assign(p[:, k].contiguous(), one.edges, one.convention)
        share += sign[index] * (p[:, k] - y[:, k].double())
    return mean_interval(share / len(sums))


def verdict(s: MultilabelSummary) -> str:
    """Which labels can be told from calibrated ones, in words."""
    wrong = [line for line in s["labels"] if line["p_holm"] < 0.05]
    if not wrong:
        return f"No label can be told from a calibrated one ({s['n']:,} rows, Holm at 5 %)."
    worst = max(wrong, key=lambda line: line["ece"])
    head = f"{len(wrong)} of {s['classes']} labels are miscalibrated ({s['n']:,} rows, Holm at 5 %)"
    says = f"says {show(worst['probability'], True)} and is {show(worst['share'], True)}"
    return f"{head}; the worst is {worst['label']}: ECE {show(worst['ece'], True)}, {says}."
