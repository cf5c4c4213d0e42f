"""by_group, by_class: is the confidence right for every group of rows, or only on average?

A model that is calibrated overall may be overconfident on one hospital and timid on another. Each
group gets its accuracy (exact interval), its ECE with interval and null band, and the p-value of
perfect calibration, from ECE and KS error as in `summary`. Small groups have a large ECE by chance
alone: look at the null band, not at the number. Of many groups some look bad by chance too, so the
p-values are corrected by Holm: `p_holm` below 5 % holds for all groups together.

Where all draws fall short of the KS error, a thousand draws cannot say how rare it is. Then its
p-value is Freedman's bound for the largest sum of independent residuals (Freedman 1975), which is
never too small. So a clear finding stays clear among a thousand groups.

Cost: 2,000 draws of each group, about 20 ms for a group of a thousand rows.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from maccal.metrics import given
from maccal.metrics.arguments import check_bins, check_given, generator, refuse_missing
from maccal.metrics.bins import Bins
from maccal.metrics.counts import clopper_pearson, holm
from maccal.metrics.frames import check_order
from maccal.metrics.given import Classes, class_indices
from maccal.metrics.inputs import (
    Array,
    Labels,
    as_tensor,
    check_confidence,
    check_labels,
    check_probs,
    refuse_several,
    scan,
    softmax,
)
from maccal.metrics.listing import Column, Listing
from maccal.metrics.miscalibration import by_confidence, ks_of
from maccal.metrics.resampling import (
    Counts,
    Groups,
    Statistics,
    band,
    bootstrap_draws,
    centred,
    equal_width,
    gather,
    null_draws,
    tail,
)

TESTS = ("ece", "ks")
Line = dict[str, Any]


def columns(first: str, rate: str, said: str) -> tuple[Column, ...]:
    """What is shown of groups whose true rate and stated probability have these names."""
    return (
        Column(first, first, "text"),
        Column("rows", "rows", "count"),
        Column(rate, rate),
        Column(said, said),
        Column("ece", "ECE"),
        Column("ece", "95 % int.", "range"),
        Column("ece_null", "calibrated", "range"),
        Column("p_holm", "p (Holm)", "p"),
    )


def by_group(
    probs: Array | None = None,
    labels: Labels | None = None,
    groups: Labels | None = None,
    *,
    logits: Array | None = None,
    classes: Classes | None = None,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> Listing:
    """Accuracy, confidence and ECE of every group of rows, with intervals and corrected p-values.

    `groups` has one name or number for each row. Lines are in the order of the sorted names.
    `classes` are the names of the columns, for labels that are names.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.5, 1, 4000)
    >>> site = np.repeat(["north", "south"], 2000)
    >>> right = rng.random(4000) < np.where(site == "north", p, p - 0.1)
    >>> lines = by_group(np.stack([p, 1 - p], 1), (~right).astype(int), site)
    >>> [(line["group"], bool(line["p_holm"] < 0.05)) for line in lines]
    [('north', False), ('south', True)]
    """
    if classes is not None and labels is not None:
        check_order(logits if probs is None else probs, given.class_names(classes))
        labels = class_indices(labels, classes)
    confidence, correct, _ = top_of(probs, labels, logits)
    names, index = group_index(groups, len(confidence))
    parts = []
    for number in range(len(names)):
        rows = index == number
        parts.append((confidence[rows], correct[rows]))
    measured = measured_groups(parts, ("accuracy", "confidence"), bins, resamples, seed)
    return listing("group", names, measured, ("accuracy", "confidence"))


def by_class(
    probs: Array | None = None,
    labels: Any = None,
    *,
    logits: Array | None = None,
    classes: Classes | None = None,
    names: Sequence[str] = (),
    one_vs_rest: bool = False,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> Listing:
    """Accuracy, confidence and ECE of every predicted class, as by_group; others are absent.

    With one_vs_rest=True every class's own probability is measured on all rows, against whether
    the label is that class: `share` is how often it is, `probability` what the model says. Rows of
    one true class are no group: not even a perfect model is calibrated on those alone. With
    `classes` (or `names`, which is the same here) the lines have names, and labels may be names.

    >>> probs = np.array([[0.8, 0.2]] * 10 + [[0.4, 0.6]] * 10)
    >>> labels = np.array([0] * 8 + [1] * 2 + [1] * 10)
    >>> lines = by_class(probs, labels, classes=["cat", "dog"])
    >>> [(line["class"], line["rows"], round(line["ece"], 3)) for line in lines]
    [('cat', 10, 0.0), ('dog', 10, 0.4)]
    """
    if classes is not None and len(names):
        raise ValueError("classes and names are the same here; pass classes alone")
    names = names if classes is None else given.class_names(classes)
    if len(names):
        check_order(logits if probs is None else probs, names)
        labels = class_indices(labels, names)
    confidence, correct, p = top_of(probs, labels, logits)
    titles = class_names(names, p.shape[1])
    if one_vs_rest:
        y = check_labels(labels, p)
        parts = [(p[:, k].double().clamp(max=1), y == k) for k in range(p.shape[1])]
        measured = measured_groups(parts, ("share", "probability"), bins, resamples, seed)
        return listing("class", titles, measured, ("share", "probability"))
    said = p.argmax(1)
    present = [k for k in range(p.shape[1]) if bool((said == k).any())]
    parts = [(confidence[said == k], correct[said == k]) for k in present]
    measured = measured_groups(parts, ("accuracy", "confidence"), bins, resamples, seed)
    return listing("class", [titles[k] for k in present], measured, ("accuracy", "confidence"))


def top_of(
    probs: Array | None, labels: Any, logits: Array | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Confidence, whether it was right, and the probabilities, all checked and on the CPU."""
    check_given(probs, labels, logits)
    refuse_several(labels, logits if probs is None else probs)
    p = check_probs(probs) if logits is None else as_tensor(softmax(logits), "logits")
    p = p.cpu() if p.dtype == torch.float64 else p.cpu().float()
    confidence, correct, _, _ = scan(p, check_labels(labels, p))
    return *check_confidence(confidence.clamp(max=1), correct), p


def group_index(groups: Any, rows: int) -> tuple[list[object], torch.Tensor]:
    """The names of the groups, sorted, and the number of each row's."""
    if groups is None:
        raise ValueError("groups are missing: pass one name or number for each row")
    refuse_missing(groups, "groups")
    array = np.asarray(groups.cpu() if isinstance(groups, torch.Tensor) else groups)
    if array.dtype.kind == "U" and isinstance(groups, list | tuple):
        array = np.array(groups, object)  # a number beside names was made text
    if array.shape != (rows,):
        found = f"groups have shape {array.shape}"
        raise ValueError(f"{found}; expected one name or number for each of the {rows} rows")
    if array.dtype.kind == "O":
        array = array_of_names(array)
    absent = {"f": np.isnan, "M": np.isnat, "m": np.isnat}.get(array.dtype.kind)
    if absent is not None and absent(array).any():
        row = int(absent(array).argmax())
        raise ValueError(f"groups are NaN in row {row}; give such rows a name of their own")
    names, index = np.unique(array, return_inverse=True)
    return names.tolist(), torch.from_numpy(index.reshape(-1))


def array_of_names(array: np.ndarray) -> np.ndarray:
    """Python objects as text or numbers; ValueError where one is neither."""
    for row, value in enumerate(array.tolist()):
        if not isinstance(value, str | int):
            problem = f"the group of row {row} is {value!r}"
            raise ValueError(f"{problem}; expected a name or a whole number")
    if len({type(value) for value in array.tolist()}) > 1:
        raise ValueError("groups mix names and numbers; make them all text")
    return np.array(array.tolist())


def class_names(names: Sequence[str], classes: int) -> list[object]:
    """These names, or the numbers of the classes."""
    if len(names) == 0:
        return list(range(classes))
    return given.class_names(names, classes)


def listing(
    first: str, names: Sequence[object], measured: Sequence[Line], words: tuple[str, str]
) -> Listing:
    """The lines with their names."""
    lines = [{first: name, **line} for name, line in zip(names, measured, strict=True)]
    return Listing(lines, columns(first, *words))


def measured_groups(
    parts: Sequence[tuple[Array, Array]],
    words: tuple[str, str],
    bins: int,
    resamples: int,
    seed: int,
) -> list[Line]:
    """One line for each pair of confidences and outcomes, with p-values corrected together."""
    bins = check_bins(bins)
    streams = generator(seed).spawn(len(parts))
    lines = []
    for (confidence, correct), rng in zip(parts, streams, strict=True):
        lines.append(measured_group(confidence, correct, words, bins, resamples, rng))
    corrected = holm([line["p_value"] for line in lines])
    for line, p_value in zip(lines, corrected.tolist(), strict=True):
        line["p_holm"] = p_value
    return lines


def measured_group(
    confidence: Array,
    correct: Array,
    words: tuple[str, str],
    bins: int,
    resamples: int,
    rng: np.random.Generator,
) -> Line:
    """Rate, stated probability, ECE and p-value of one group."""
    c, hit = check_confidence(confidence, correct)
    rows, right = len(c), int(hit.sum())
    point = {"ece": Bins.of(c, hit, bins).ece(), "ks": ks_of(by_confidence(c, hit))}
    gathered = gather(c, hit, bins)
    boot = drawn(gathered, bootstrap_draws(gathered, resamples, rng, bins), bins)
    null = drawn(gathered, null_draws(gathered, resamples, rng, bins), bins)
    chances = [tail(point[name], null[name]) for name in TESTS]
    freedman = maximal_bound(rows * point["ks"], float((c * (1 - c)).sum()))
    if freedman < 1 / (1 + resamples):
        chances[1] = freedman
    rate, said = words
    line: Line = {"rows": rows, rate: right / rows, said: float(c.mean())}
    line[f"{rate}_low"], line[f"{rate}_high"] = clopper_pearson(right, rows)
    line["ece"] = point["ece"]
    line["ece_low"], line["ece_high"] = centred(point["ece"], boot["ece"])
    line["ece_null_low"], line["ece_null_high"] = band(null["ece"])
    line["p_value"] = min(1.0, len(TESTS) * min(chances))
    return line


def drawn(groups: Groups, draws: Iterator[Counts], bins: int) -> Statistics:
    """ECE and KS error of all draws."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in TESTS}
    for right, wrong in draws:
        count = right + wrong
        n = int(count[0].sum())
        residual = count * groups.confidence - right
        found["ece"].append(equal_width(groups.confidence, count, residual, bins, n)["ece"])
        found["ks"].append(np.abs(residual.cumsum(1)).max(1) / n)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def maximal_bound(largest: float, variance: float) -> float:
    """A bound of the chance that a sum of independent residuals ever gets so far from 0.

    The residuals are at most 1, and their variances add up to this.
    """
    if largest <= 0:
        return 1.0
    return min(1.0, 2 * math.exp(-(largest**2) / (2 * (variance + largest / 3))))
