"""compare: are two models on the same rows really different?

The rows are shared, so what is hard for one is hard for the other, and only the differences count.
Means over rows (accuracy, NLL, Brier) get the paired normal test. ECE gets the paired bootstrap:
both models are resampled by the same rows, and the spread of the difference about its mean is what
chance does to it.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from maccal.metrics.arguments import as_tensor, check_bins, generator
from maccal.metrics.binning import assign, equal_width_edges
from maccal.metrics.frames import check_index
from maccal.metrics.given import Classes, plain
from maccal.metrics.inputs import Array, Labels, check_confidence, top_label
from maccal.metrics.listing import Column, Listing
from maccal.metrics.miscalibration import ece
from maccal.metrics.notebooks import needs_pandas
from maccal.metrics.resampling import LEVEL, Z, batches, centred
from maccal.metrics.scores import as_scores, row_scores
from maccal.metrics.summaries import METRICS, show

COLUMNS = (
    Column("metric", "", "text"),
    Column("difference", "second minus first", "text"),
    Column("interval", "95 % interval", "text"),
    Column("p", "p", "p"),
)
BLOCKS = 1 << 13  # beyond this many rows, random blocks of rows are resampled


class Difference(NamedTuple):
    """Second model minus first: below zero, the second's number is lower."""

    difference: float
    low: float
    high: float
    p_value: float

    @property
    def real(self) -> bool:
        """Whether chance alone is an unlikely explanation, at the 5 % level."""
        return self.p_value < 1 - LEVEL


class Differences(dict[str, Difference]):
    """A plain dict of differences that prints, and shows in a notebook, as a table."""

    def listing(self) -> Listing:
        """One line per metric, as texts."""
        lines = []
        for key, found in self.items():
            metric = METRICS[key]
            value, low, high = (show(number, metric.percent) for number in found[:3])
            lines.append(
                {
                    "metric": metric.label,
                    "difference": f"+{value}" if found.difference > 0 else value,
                    "interval": f"{low} to {high}",
                    "p": found.p_value,
                }
            )
        return Listing(lines, COLUMNS)

    def to_frame(self) -> Any:
        """The numbers as a pandas DataFrame, one row per metric."""
        frame = needs_pandas().DataFrame(list(self.values()), index=list(self))
        return frame.rename_axis("metric")

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return str(self.listing())

    def _repr_html_(self) -> str:
        return self.listing()._repr_html_()


def compare(
    first: Array,
    second: Array,
    labels: Labels,
    *,
    classes: Classes | None = None,
    normalise: bool = False,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> Differences:
    """Accuracy, ECE, NLL and Brier of the second model minus those of the first.

    Each with its interval and p-value. `first` and `second` are probabilities of the same rows;
    classes and normalise as in `summary`.

    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.6, 1, 4000)
    >>> labels = (rng.random(4000) > p).astype(int)
    >>> sharp = p**3 / (p**3 + (1 - p) ** 3)
    >>> result = compare(np.stack([p, 1 - p], 1), np.stack([sharp, 1 - sharp], 1), labels)
    >>> result["ece"].difference > 0.1, result["ece"].real, result["accuracy"].difference
    (True, True, 0.0)
    """
    check_index(first, second)
    check_index(first, labels)
    first, _ = plain(first, labels, classes=classes, normalise=normalise)
    second, y = plain(second, labels, classes=classes, normalise=normalise)
    check_classes(first, second)
    pair = RowNumbers.of(first, y), RowNumbers.of(second, y)
    return compare_rows(*pair, bins=check_bins(bins), resamples=resamples, seed=seed)


def check_classes(first: Any, second: Any) -> None:
    """ValueError for predictions of another number of classes."""
    shapes = [as_tensor(one, name).shape for one, name in ((first, "first"), (second, "second"))]
    tables = all(len(shape) == 2 and shape[1] > 1 for shape in shapes)
    if tables and shapes[0][1] != shapes[1][1]:
        counts = f"first has {shapes[0][1]} classes and second {shapes[1][1]}"
        raise ValueError(f"{counts}; expected predictions of the same classes")


class RowNumbers(NamedTuple):
    """Of each row what is compared, where its probabilities need not be kept."""

    confidence: Tensor
    hit: Tensor
    scores: Tensor  # 2 x N: NLL and Brier

    @classmethod
    def of(cls, probs: Array, labels: Array) -> "RowNumbers":
        confidence, hit = check_confidence(*top_label(probs, labels))
        return cls(confidence, hit, row_scores(*as_scores(probs, labels, None)))


def compare_rows(
    first: RowNumbers, second: RowNumbers, *, bins: int, resamples: int, seed: int
) -> Differences:
    """As compare, of two models whose rows were looked at before."""
    nll, brier = second.scores - first.scores
    tops = [(first.confidence, first.hit), (second.confidence, second.hit)]
    return Differences(
        accuracy=paired_means(second.hit.double() - first.hit.double()),
        ece=paired_ece(tops, bins, resamples, seed),
        nll=paired_means(nll),
        brier=paired_means(brier),
    )


def paired_means(difference: Tensor) -> Difference:
    """The normal test that the mean of row differences is zero."""
    n = len(difference)
    mean = float(difference.mean())
    error = float(difference.std(correction=min(1, n - 1))) / math.sqrt(n)
    if not math.isfinite(mean + error):  # a label of probability zero has an infinite NLL
        return Difference(mean, math.nan, math.nan, math.nan)
    half = Z * error
    p_value = 2 * float(ndtr(-abs(mean) / error)) if error > 0 else float(mean == 0)
    return Difference(mean, mean - half, mean + half, p_value)


def paired_ece(
    models: list[tuple[Tensor, Tensor]], bins: int, resamples: int, seed: int
) -> Difference:
    """The paired bootstrap of ECE.

    What is drawn are sums of residuals per bin: of single rows or, if there are many, of random
    blocks of rows.
    """
    rng = generator(seed)
    n = len(models[0][0])
    units = min(n, BLOCKS)
    block = torch.from_numpy(rng.permutation(n) * units // n)
    first, second = (unit_sums(c.cpu(), hit.cpu(), block, units, bins) for c, hit in models)
    parts = []
    for many in batches(resamples, units):
        weight = rng.multinomial(units, np.full(units, 1 / units), many).astype(np.float64)
        first_ece = np.abs(weight @ first).sum(1) / n
        second_ece = np.abs(weight @ second).sum(1) / n
        parts.append(second_ece - first_ece)
    draws = np.concatenate(parts)
    point = ece(*models[1], bins) - ece(*models[0], bins)
    low, high = centred(point, draws, within=(-1.0, 1.0))
    extreme = np.abs(draws - draws.mean()) >= abs(point)
    return Difference(point, low, high, (1 + int(extreme.sum())) / (1 + resamples))


def unit_sums(
    confidence: Tensor, correct: Tensor, block: Tensor, units: int, bins: int
) -> np.ndarray:
    """The sum of confidence - correct of every block in every bin, units x bins."""
    index = block * bins + assign(confidence, equal_width_edges(bins), "maccal")
    residual = confidence - correct.double()
    return torch.bincount(index, residual, minlength=units * bins).view(units, bins).numpy()
