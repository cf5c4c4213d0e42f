"""binary_summary: one score per row, the probability of class 1.

Two questions that are often mixed up, so both answers carry their name:

    positive_...   is the probability of class 1 right? Confidence s, outcome [y = 1]
    top_...        is the confidence of the answer right? Confidence max(s, 1 - s), outcome whether
                   the answer, 1 where s > 1/2, is the label; this is what `summary` measures

A model for a rare class can have a tiny top_ece and be useless as a probability of that class.
`brier` is mean (s - y)^2, from 0 to 1: half of what `summary` gives for the columns (1 - s, s).
`nll` is the mean log loss, infinite where a label has the probability 0.

Cost: as `summary` of two columns; with intervals about twice that.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from maccal.metrics.arguments import check_bins, check_given
from maccal.metrics.bins import Bins
from maccal.metrics.given import Classes, class_indices
from maccal.metrics.inputs import Array, as_tensor, first, label_tensor
from maccal.metrics.miscalibration import by_confidence, equal_mass_of, ks_of
from maccal.metrics.ranking import auroc
from maccal.metrics.resampling import LEVEL, Statistics, band, centred, resample, tail
from maccal.metrics.summaries import Metric, Summary, mean_interval, probability, show

BINARY = {
    "positives": Metric("Share of class 1", True, "share of rows whose label is 1"),
    "probability": Metric("Mean probability", True, "what the model says that share is"),
    "positive_ece": Metric("ECE of class 1", True, "gap between probability and share"),
    "positive_aece": Metric("AECE of class 1", True, "the same with equally filled bins"),
    "positive_mce": Metric("MCE of class 1", True, "gap of the worst bin"),
    "positive_ks": Metric("KS of class 1", True, "largest cumulative gap"),
    "accuracy": Metric("Accuracy", True, "share of rows whose answer, 1 above 50 %, is right"),
    "top_confidence": Metric("Mean confidence", True, "of the answer, max(s, 1 - s)"),
    "top_ece": Metric("ECE of the answer", True, "gap between confidence and accuracy"),
    "nll": Metric("NLL", False, "log loss"),
    "brier": Metric("Brier", False, "mean (s - y)²; half of the two-column Brier"),
    "auroc": Metric("AUROC", True, "chance that a row of class 1 scores above one of class 0"),
}
# names here, and those of the draws of resampling.py
POSITIVE = {
    "positives": "accuracy",
    "probability": "confidence",
    "positive_ece": "ece",
    "positive_aece": "aece",
    "positive_mce": "mce",
    "positive_ks": "ks",
}
TOP = {"accuracy": "accuracy", "top_confidence": "confidence", "top_ece": "ece"}
STATED = ("probability", "top_confidence")  # a calibrated model states the same: no null band


class Scored(NamedTuple):
    """Checked rows: the score, the label, and the log loss of each."""

    score: Tensor  # float64 in [0, 1]
    label: Tensor  # bool
    loss: Tensor


class BinarySummary(Summary):
    """A plain dict of numbers that prints, and shows in a notebook, as a table."""

    shown = BINARY
    width = 18

    @property
    def heading(self) -> str:
        return f"{self['n']:,} rows, binary, {self['bins']} bins"


def binary_summary(
    probs: Array | None = None,
    labels: Array | None = None,
    *,
    logits: Array | None = None,
    classes: Classes | None = None,
    bins: int = 15,
    interval: bool = False,
    resamples: int = 1000,
    seed: int = 0,
) -> BinarySummary:
    """Every number about one score per row: the probability of class 1, or its logit.

    `probs` or `logits` is a vector or one column; labels are 0 and 1, or booleans, or two names
    with `classes=["ham", "spam"]`, class 1 last. With interval=True also `<name>_low/_high`,
    `<name>_null_low/_null_high`, the `positive_p_value` of calibrated probabilities, and the
    `verdict`.

    >>> import numpy as np
    >>> found = binary_summary(np.array([0.9, 0.9, 0.2, 0.1]), np.array([1, 0, 0, 0]))
    >>> round(found["positive_ece"], 3), round(found["top_ece"], 3), round(found["brier"], 4)
    (0.275, 0.225, 0.2175)
    """
    rows = scored(probs, labels, logits, classes)
    bins = check_bins(bins)
    answer = rows.score > 0.5
    top = torch.where(answer, rows.score, 1 - rows.score), answer == rows.label
    result = BinarySummary(n=len(rows.score), bins=bins)
    result.update(measured(rows, top, bins))
    if interval:
        positive = resample(rows.score, rows.label, bins=bins, resamples=resamples, seed=seed)
        add_drawn(result, POSITIVE, *positive)
        add_drawn(result, TOP, *resample(*top, bins=bins, resamples=resamples, seed=seed))
        result.add("nll", mean_interval(rows.loss))
        result.add("brier", mean_interval((rows.score - rows.label.double()) ** 2))
        add_test(result, positive[1])
    return result


def measured(rows: Scored, top: tuple[Tensor, Tensor], bins: int) -> dict[str, float]:
    """All numbers without their intervals."""
    ordered = by_confidence(rows.score, rows.label)
    sums = Bins.of(rows.score, rows.label, bins)
    outcome = rows.label.double()
    inside, outside = rows.score[rows.label], rows.score[~rows.label]
    both = len(inside) > 0 and len(outside) > 0
    return {
        "positives": float(outcome.mean()),
        "probability": float(rows.score.mean()),
        "positive_ece": sums.ece(),
        "positive_aece": equal_mass_of(ordered, bins).ece(),
        "positive_mce": sums.mce().gap,
        "positive_ks": ks_of(ordered),
        "accuracy": float(top[1].double().mean()),
        "top_confidence": float(top[0].mean()),
        "top_ece": Bins.of(*top, bins).ece(),
        "nll": float(rows.loss.mean()),
        "brier": float(((rows.score - outcome) ** 2).mean()),
        "auroc": auroc(inside, outside) if both else math.nan,
    }


def add_drawn(
    result: BinarySummary, names: dict[str, str], boot: Statistics, null: Statistics
) -> None:
    """Add intervals and null bands from draws, under the names that they have here."""
    for name, drawn in names.items():
        known = None if name in STATED else band(null[drawn])
        result.add(name, centred(result[name], boot[drawn]), known)


def add_test(result: BinarySummary, null: Statistics) -> None:
    """Add the p-value of calibrated probabilities of class 1, and the verdict."""
    chances = []
    for name in ("ece", "ks"):
        chances.append(tail(result[f"positive_{name}"], null[name]))
    result["positive_p_value"] = min(1.0, 2 * min(chances))
    result["verdict"] = verdict(result)


def verdict(s: BinarySummary) -> str:
    """Whether the probabilities of class 1 can be told from calibrated ones, in words."""
    band_of = f"{100 * s['positive_ece_null_low']:.2f} to {100 * s['positive_ece_null_high']:.2f} %"
    error = f"ECE of class 1 is {show(s['positive_ece'], True)}; calibrated ones would score"
    chance = f"{probability(s['positive_p_value'])}, {s['n']:,} rows"
    if s["positive_p_value"] > 1 - LEVEL:
        return f"Cannot be told from calibrated probabilities: their {error} {band_of} ({chance})."
    if s["positives"] < s["positives_null_low"]:
        kind = "Too high"
    elif s["positives"] > s["positives_null_high"]:
        kind = "Too low"
    else:
        kind = "Miscalibrated, too high here and too low there"
    says = f"the mean probability of class 1 is {show(s['probability'], True)}"
    says += f" and its share {show(s['positives'], True)}"
    return f"{kind}: {says}. Their {error} {band_of} ({chance})."


def scored(
    probs: Array | None, labels: Any, logits: Array | None, classes: Classes | None = None
) -> Scored:
    """Scores and labels as float64 and booleans; ValueError that says what to pass instead."""
    check_given(probs, labels, logits)
    if classes is not None:
        labels = class_indices(labels, classes, columns=2)
    if logits is None:
        score = probabilities(column(probs, "probs"), "probs")
        label = zeros_and_ones(labels, score.shape, "labels").to(score.device)
        return Scored(score, label, -torch.where(label, score, 1 - score).log())
    z = column(logits, "logits")
    check_finite(z, "logits")
    label = zeros_and_ones(labels, z.shape, "labels").to(z.device)
    return Scored(z.sigmoid(), label, torch.nn.functional.softplus(torch.where(label, -z, z)))


def column(values: Any, name: str) -> Tensor:
    """A float64 vector, from a vector or from one column."""
    tensor = as_tensor(values, name)
    shape = tuple(tensor.shape)
    if tensor.ndim == 2 and shape[1] == 2:
        fix = f"that is what summary takes; or pass {name}[:, 1], of class 1, alone"
        raise ValueError(f"{name} has two columns; {fix}")
    if tensor.ndim == 2 and shape[1] == 1:
        tensor = tensor[:, 0]
    if tensor.ndim != 1:
        raise ValueError(f"{name} has shape {shape}; expected one score of class 1 for each row")
    return checked_floats(tensor, name)


def checked_floats(tensor: Tensor, name: str) -> Tensor:
    """In float64; ValueError where there are no rows or no fractions."""
    if tensor.numel() == 0:
        raise ValueError(f"{name} is empty: there are no rows to measure")
    if not tensor.is_floating_point():
        raise ValueError(f"{name} has dtype {tensor.dtype}; expected floating point")
    return tensor.double().contiguous()


def check_finite(values: Tensor, name: str) -> None:
    wrong = ~values.isfinite()
    if bool(wrong.any()):
        row = first(wrong.reshape(len(wrong), -1).any(1))
        fix = "remove such rows or find where they come from"
        raise ValueError(f"{name} row {row} holds {float(values[wrong][0])}; {fix}")


def probabilities(values: Tensor, name: str) -> Tensor:
    """ValueError where a number is no probability."""
    check_finite(values, name)
    wrong = (values < 0) | (values > 1)
    if bool(wrong.any()):
        row = first(wrong.reshape(len(wrong), -1).any(1))
        problem = f"{name} row {row} holds {float(values[wrong][0]):.4g}, outside [0, 1]"
        fix = "if these are logits, pass logits=... (--kind logits)"
        if float(values.min()) >= 0 and 1.5 < float(values.max()) <= 100:
            fix = "if these are percentages, divide by 100"
        raise ValueError(f"{problem}; {fix}")
    return values


def zeros_and_ones(labels: Array, shape: Any, name: str) -> Tensor:
    """Booleans of this shape, from booleans or from zeros and ones."""
    tensor = label_tensor(labels)
    if tensor.ndim == 2 and len(shape) == 1 and tensor.shape[1] == 1:
        tensor = tensor[:, 0]
    if tuple(tensor.shape) != tuple(shape):
        found = f"{name} have shape {tuple(tensor.shape)} and the scores {tuple(shape)}"
        raise ValueError(f"{found}; they must match one to one")
    if tensor.dtype == torch.bool:
        return tensor
    wrong = (tensor != 0) & (tensor != 1)
    if bool(wrong.any()):
        row = first(wrong.reshape(len(wrong), -1).any(1))
        value = float(tensor[wrong][0])
        hint = ", or what classes=[...] has, class 1 last" if len(shape) == 1 else ""
        raise ValueError(f"{name} hold {value:.4g} in row {row}; expected 0 or 1{hint}")
    return tensor != 0
