"""Fig. 1: what random masks do to a classifier, at inference and in retraining.

From rows of `maccal bench motivation`, or from arrays of maccal.evaluation.masks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from maccal.bench.lines import Book, Line, Rows, Setting
from maccal.evaluation.row import Row
from maccal.report.figures.drawing import canvas, dress, note, percent
from maccal.report.figures.selection import needed
from maccal.report.look import Theme

Numbers = Mapping[str, np.ndarray]
DRAWN = (
    "ratio",
    "edges",
    "histogram",
    "accuracy",
    "accuracy_spread",
    "confidence",
    "confidence_spread",
)


@dataclass(frozen=True)
class Masked:
    """One way to mask: arrays over the ratios, ascending."""

    ratio: np.ndarray
    accuracy: np.ndarray
    accuracy_spread: np.ndarray  # standard deviation over draws or seeds
    confidence: np.ndarray
    confidence_spread: np.ndarray
    histogram: np.ndarray  # share of rows in each bin of confidence at the figure's ratio


@dataclass(frozen=True)
class Motivation:
    """Fig. 1.

    `trained` is the histogram without a mask, or None if ratio 0 is not among the ratios.
    """

    ratio: float
    edges: np.ndarray
    trained: np.ndarray | None
    inference: Masked
    retraining: Masked
    setting: Setting | None = None
    seeds: tuple[int, ...] = ()


def prepare_motivation(rows: Rows, ratio: float = 0.5) -> Motivation:
    """Fig. 1 of the vanilla runs whose head was masked, mean over their seeds.

    Of several data sets and networks the first.
    """
    lines = having(Book.of(rows), "vanilla", ("inference", "retraining"))
    first = needed(lines, "vanilla run with a masked head", "motivation")[0]
    masks = [motivation_of(first.runs[seed]) for seed in sorted(first.runs)]
    inference = over_seeds([arrays(one["inference"]) for one in masks])
    retraining = over_seeds([arrays(one["retraining"]) for one in masks])
    found = motivation_from(inference, retraining, ratio)
    return replace(found, setting=first.setting, seeds=tuple(sorted(first.runs)))


def over_seeds(runs: Sequence[Numbers]) -> Numbers:
    """The mean of every array, and as spreads the standard deviation over runs.

    One run keeps its own, which is over draws of its masks. ValueError where runs have other ratios
    or bins.
    """
    if len(runs) == 1:
        return runs[0]
    for key in ("ratio", "edges"):
        if not all(np.array_equal(run[key], runs[0][key]) for run in runs):
            raise ValueError(
                f"seeds with another {key!r} of their masks; run `maccal bench motivation` again"
            )
    found = {}
    for key in DRAWN:
        found[key] = np.mean([run[key] for run in runs], 0)
    for key in ("accuracy", "confidence"):
        found[f"{key}_spread"] = np.std([run[key] for run in runs], 0, ddof=1)
    return found


def having(book: Book, method: str, parts: tuple[str, ...]) -> list[Line]:
    """The plain lines of a method, with the runs that have these parts of the motivation."""
    found = []
    for line in book.plain:
        if line.method == method:
            runs = {}
            for seed, row in line.runs.items():
                if motivation_of(row).keys() >= set(parts):
                    runs[seed] = row
            if runs:
                found.append(replace(line, runs=runs))
    return found


def motivation_of(row: Row) -> Mapping[str, Any]:
    return row.motivation or {}


def arrays(values: Mapping[str, Any]) -> Numbers:
    return {key: np.asarray(value) for key, value in values.items()}


def said(setting: Setting | None, seeds: Sequence[int]) -> str:
    """
    >>> said(Setting("cifar10", 10_000, "resnet8"), [1]), said(None, [])
    ('resnet8, CIFAR-10, 10,000 images, seed 1', '')
    >>> said(Setting("cifar10", 0, "resnet8"), [1, 2, 3])
    'resnet8, CIFAR-10, mean over seeds 1, 2, 3'
    """
    if setting is None:
        return ""
    listed = ", ".join(map(str, seeds))
    whose = f"mean over seeds {listed}" if len(seeds) > 1 else f"seed {listed}"
    return f"{setting.model}, {setting.title}, {whose}"


def motivation_from(inference: Numbers, retraining: Numbers, ratio: float = 0.5) -> Motivation:
    """Fig. 1 from what masks.masked_inference and masked_retraining return.

    The histograms are those at `ratio`.
    """
    check_numbers("masked_inference", inference)
    check_numbers("masked_retraining", retraining)
    if not np.array_equal(inference["edges"], retraining["edges"]):
        raise ValueError(
            "masked inference and retraining have histograms of different bins; "
            "use the same `bins` for both"
        )
    unmasked = np.flatnonzero(inference["ratio"] == 0)
    return Motivation(
        ratio,
        edges=np.asarray(inference["edges"]),
        trained=np.asarray(inference["histogram"][unmasked[0]]) if len(unmasked) else None,
        inference=masked(inference, ratio),
        retraining=masked(retraining, ratio),
    )


def check_numbers(name: str, numbers: Numbers) -> None:
    for key in DRAWN:
        if key not in numbers or not len(numbers[key]):
            hint = f"pass what masks.{name} returns for the runs of `maccal bench motivation`"
            raise ValueError(f"no {key!r} in the numbers of {name}; {hint}")


def masked(numbers: Numbers, ratio: float) -> Masked:
    there = np.flatnonzero(np.isclose(numbers["ratio"], ratio))
    if not len(there):
        known = ", ".join(f"{one:g}" for one in sorted(numbers["ratio"]))
        raise ValueError(f"no masking ratio {ratio:g}; the ratios are {known}")
    order = np.argsort(numbers["ratio"], kind="stable")

    def ordered(key: str) -> np.ndarray:
        return np.asarray(numbers[key])[order]

    return Masked(
        ratio=ordered("ratio"),
        accuracy=ordered("accuracy"),
        accuracy_spread=ordered("accuracy_spread"),
        confidence=ordered("confidence"),
        confidence_spread=ordered("confidence_spread"),
        histogram=np.asarray(numbers["histogram"][there[0]]),
    )


def plot_motivation(data: Motivation, theme: Theme | None = None) -> Figure:
    """Three panels.

    Confidences, accuracy over the masking ratio, and confidence over it with the accuracy beside
    it, dotted.
    """
    theme = theme or Theme()
    figure, (axes,) = canvas(theme, 1, 3, 2.9)
    handles = []
    if data.trained is not None:
        draw_histogram(axes[0], data.edges, data.trained, theme.ink)
        handles.append(Line2D([], [], color=theme.ink, label="as trained", linewidth=1.5))
    ways = {"masked inference": data.inference, "masked retraining": data.retraining}
    for (name, way), colour in zip(ways.items(), (theme.over, theme.under), strict=True):
        draw_histogram(axes[0], data.edges, way.histogram, colour)
        draw_over_ratio(axes[1], way.ratio, way.accuracy, way.accuracy_spread, colour)
        draw_over_ratio(axes[2], way.ratio, way.confidence, way.confidence_spread, colour)
        axes[2].plot(way.ratio, way.accuracy, color=colour, linewidth=1.2, linestyle=":")
        handles.append(Line2D([], [], color=colour, label=name, linewidth=1.5))
    handles.append(Line2D([], [], color=theme.quiet, linestyle=":", label="accuracy, as in b"))
    dress(axes[0], theme, "confidence", "test images", f"a  {100 * data.ratio:.0f} % masked")
    dress(axes[1], theme, "weights masked", "accuracy", "b  accuracy")
    dress(axes[2], theme, "weights masked", "confidence", "c  confidence")
    for panel in axes:
        percent(panel.xaxis, 4)
        panel.set(xlim=(0, 1), ylim=(0, 1.0))
    bands = "bands: a standard deviation over seeds"
    if len(data.seeds) < 2:
        bands = "bands: a standard deviation over draws of the masks, or of the retraining's seeds"
    words = [part for part in (said(data.setting, data.seeds), bands) if part]
    note(figure, theme, handles, "; ".join(words))
    return figure


def draw_histogram(axes: Axes, edges: np.ndarray, shares: np.ndarray, colour: str) -> None:
    axes.stairs(shares, edges, color=colour, linewidth=1.5, fill=False)


def draw_over_ratio(
    axes: Axes, ratio: np.ndarray, values: np.ndarray, spread: np.ndarray, colour: str
) -> None:
    low, high = values - spread, values + spread
    axes.fill_between(ratio, low, high, color=colour, alpha=0.2, linewidth=0)
    (line,) = axes.plot(ratio, values, color=colour, linewidth=1.5, clip_on=False)
    line.set(marker="o", markersize=3)
