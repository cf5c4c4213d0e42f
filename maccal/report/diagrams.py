"""The reliability diagram: prepare_*() turns results into arrays, and plot_*() draws them.

It shows, for every bin that holds rows, the accuracy against the mean confidence. Around the
diagonal lies the null band: where a calibrated model's bins would fall 95 times in 100, given how
many rows each holds. A dot outside it with its interval clear of the diagonal is evidence; a dot
inside it is not. Bins that hold few rows are pale. Below, how the rows are spread over the bins.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, overload

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from scipy.special import bdtr, ndtri

from maccal.report.look import LINES, Theme, legend_below, short, style, write
from maccal.report.notebooks import new_figure

if TYPE_CHECKING:  # the report draws rows, and need not wait for torch
    from maccal.metrics.given import Classes
    from maccal.metrics.inputs import Array, Labels

LEVEL = 0.95  # as in metrics.resampling
Z = float(ndtri((1 + LEVEL) / 2))
FEW = 0.005  # a bin with a smaller share of the rows is drawn pale


class Sums(Protocol):
    """What a diagram needs of metrics.Bins: sums over the rows of each bin."""

    @property
    def edges(self) -> np.ndarray: ...
    @property
    def count(self) -> np.ndarray: ...
    @property
    def correct(self) -> np.ndarray: ...
    @property
    def confidence(self) -> np.ndarray: ...
    @property
    def n(self) -> int: ...


@dataclass(frozen=True)
class Reliability:
    """What a reliability diagram shows of one model: arrays over the bins that hold rows."""

    name: str
    low: np.ndarray  # edges of the bins
    high: np.ndarray
    share: np.ndarray  # of all rows
    confidence: np.ndarray
    accuracy: np.ndarray
    accuracy_low: np.ndarray  # Wilson interval of the bin's accuracy
    accuracy_high: np.ndarray
    null_low: np.ndarray  # where a calibrated model's accuracy would fall
    null_high: np.ndarray
    # accuracy, confidence, ece, ece_low, ece_high, ece_null_low, ece_null_high
    numbers: Mapping[str, float]


def prepare_reliability(bins: Sums, numbers: Mapping[str, float], name: str = "") -> Reliability:
    """The arrays of a diagram from the sums of its bins; empty bins are left out."""
    filled = bins.count > 0
    count, correct = bins.count[filled], bins.correct[filled]
    confidence = bins.confidence[filled] / count
    accuracy = correct / count
    # Wilson's interval
    centre = (correct + Z**2 / 2) / (count + Z**2)
    root = np.sqrt(accuracy * (1 - accuracy) / count + Z**2 / (4 * count**2))
    half = Z * root / (1 + Z**2 / count)
    chance = np.clip(confidence, 0, 1)
    return Reliability(
        name,
        low=bins.edges[:-1][filled],
        high=bins.edges[1:][filled],
        share=count / bins.n,
        confidence=confidence,
        accuracy=accuracy,
        accuracy_low=np.clip(centre - half, 0, 1),
        accuracy_high=np.clip(centre + half, 0, 1),
        null_low=quantile((1 - LEVEL) / 2, count, chance) / count,
        null_high=quantile((1 + LEVEL) / 2, count, chance) / count,
        numbers=numbers,
    )


def quantile(q: float, count: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Of the binomial law: the fewest of `count` that are not exceeded with probability q.

    As binom.ppf of scipy.stats, which takes half a second to import.

    >>> quantile(0.5, np.array([10.0, 10.0, 10.0]), np.array([0.0, 0.25, 1.0])).tolist()
    [0.0, 2.0, 10.0]
    """
    low = np.zeros(len(count), dtype=np.int64)
    high = n = count.astype(np.int64)
    while (low < high).any():  # halve the range that holds it
        middle = (low + high) // 2
        enough = bdtr(middle, n, p) >= q
        above = np.minimum(middle + 1, high)
        low = np.where(enough, low, above)
        high = np.where(enough, middle, high)
    return high.astype(np.float64)


@overload
def reliability(
    probs: "Array | Mapping[str, Array]",
    labels: "Labels",
    *,
    ax: None = None,
    title: str = "",
    classes: "Classes | None" = None,
    normalise: bool = False,
    bins: int = 15,
    seed: int = 0,
) -> Figure: ...


@overload
def reliability(
    probs: "Array | Mapping[str, Array]",
    labels: "Labels",
    *,
    ax: Axes,
    title: str = "",
    classes: "Classes | None" = None,
    normalise: bool = False,
    bins: int = 15,
    seed: int = 0,
) -> Axes: ...


def reliability(
    probs: "Array | Mapping[str, Array]",
    labels: "Labels",
    *,
    ax: Axes | None = None,
    title: str = "",
    classes: "Classes | None" = None,
    normalise: bool = False,
    bins: int = 15,
    seed: int = 0,
) -> Figure | Axes:
    """The reliability diagram of one model, or of several side by side: `reliability({"before": p,
    "after": q}, labels)`.

    Returns a matplotlib Figure: a notebook shows it, `.savefig("reliability.svg")` writes it. With
    `ax` one model is drawn there, without the histogram, and the axes are returned. `title` stands
    above it. Labels may be names where `classes` has them in the order of the columns; normalise
    divides each row by its sum.
    """
    given = probs if isinstance(probs, Mapping) else {title: probs}
    if not given or (ax is not None and len(given) > 1):
        room = "ax has room for one" if given else "pass at least one"
        raise ValueError(f"{len(given)} models to draw; {room}")
    if ax is not None and not hasattr(ax, "bar"):
        raise ValueError(f"ax is a {type(ax).__name__}; pass one matplotlib Axes, such as axes[0]")
    models = []
    for name, said in given.items():
        models.append(prepare_model(said, labels, bins, name, seed, classes, normalise))
    if ax is not None:
        draw_diagram(ax, replace(models[0], name=title or models[0].name), Theme(), first=True)
        ax.set_xlabel("confidence", color=Theme().quiet, fontsize=9)
        return ax
    above = title if isinstance(probs, Mapping) else ""
    return plot_reliability(models, title=above, new=new_figure)


def prepare_model(
    probs: "Array",
    labels: "Labels",
    bins: int,
    name: str,
    seed: int,
    classes: "Classes | None" = None,
    normalise: bool = False,
) -> Reliability:
    # here, for the report draws rows, and need not wait for torch
    from maccal.evaluation.evaluated import diagram_numbers
    from maccal.metrics.given import plain

    probs, y = plain(probs, labels, classes=classes, normalise=normalise)
    sums, numbers = diagram_numbers(probs, y, bins, seed)
    return prepare_reliability(sums, numbers, name)


def plot_reliability(
    models: list[Reliability],
    theme: Theme | None = None,
    title: str = "",
    new: Callable[..., Figure] = Figure,
) -> Figure:
    """One panel per model, with a histogram below each; `new` makes the empty figure."""
    theme = theme or Theme()
    rows, columns = grid(len(models))
    height = 5.35 * rows + 0.45
    # Where a square panel has too little height it gets narrower than the histogram below it
    height += 0.35 if columns == 1 else 0.0  # a legend of two lines
    height += 0.4 if title else 0.0
    figure = new(figsize=(3.9 * columns + 0.5, height), facecolor=theme.paper)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06, hspace=0.0)
    heights = [4.0, 1.0] * rows
    axes = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=heights, sharex=True)
    tallest = max(float(model.share.max()) for model in models)
    for panel in range(rows * columns):
        row, column = divmod(panel, columns)
        upper = axes[2 * row, column]
        lower = axes[2 * row + 1, column]
        if panel >= len(models):
            upper.set_axis_off()
            lower.set_axis_off()
            continue
        draw_diagram(upper, models[panel], theme, first=column == 0)
        draw_histogram(lower, models[panel], theme, tallest, first=column == 0)
    patches = {
        "overconfident": theme.over,
        "underconfident": theme.under,
        "calibrated, 95 %": theme.band,
    }
    legend_below(figure, theme, patches, 3 if columns == 1 else 5)
    if title:
        figure.suptitle(title, color=theme.ink, fontsize=13, parse_math=False)
    return figure


def grid(panels: int) -> tuple[int, int]:
    """Rows and columns: at most three in a row, and four as two and two."""
    columns = 2 if panels == 4 else min(3, panels)
    return -(-panels // columns), columns


def draw_diagram(axes: Axes, model: Reliability, theme: Theme, first: bool) -> None:
    draw_bins(axes, model, theme)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    draw_heading(axes, model, theme)
    style(axes, theme)
    axes.set_ylabel("accuracy" if first else "", color=theme.quiet, fontsize=9)


def draw_bins(axes: Axes, model: Reliability, theme: Theme, dot: float = 90) -> None:
    """Null band, diagonal, gaps, and dots with their intervals: every reliability diagram's.

    A dot is the larger the more rows its bin holds; `dot` is that of a bin with all of them.
    """
    width = model.high - model.low
    middle = (model.low + model.high) / 2
    band = model.null_high - model.null_low
    axes.bar(middle, band, width, model.null_low, color=theme.band, linewidth=0, zorder=1)
    axes.plot([0, 1], [0, 1], color=theme.quiet, linewidth=0.9, dashes=(4, 3), zorder=2)
    colour = np.where(model.accuracy < model.confidence, theme.over, theme.under)
    weight = np.where(model.share < FEW, 0.4, 1.0)  # bins of a handful of rows say little: pale
    strong = to_rgba_array(colour, weight)
    pale = to_rgba_array(colour, 0.28 * weight)
    x, y = model.confidence, model.accuracy
    axes.bar(x, y - x, 0.62 * width, x, color=pale, linewidth=0, zorder=3)
    reach = axes.vlines(x, model.accuracy_low, model.accuracy_high, color=strong, zorder=4)
    reach.set(linewidth=1.4, clip_on=False)
    size = 14 + dot * np.sqrt(model.share)
    dots = axes.scatter(x, y, s=size, c=strong, edgecolor=theme.paper, linewidth=0.9, zorder=5)
    dots.set_clip_on(False)


def draw_heading(axes: Axes, model: Reliability, theme: Theme) -> None:
    """Name, ECE, interval and null band, above the panel where they hide nothing."""
    ece, interval, null = ece_words(model)
    write(axes, 0, 1.045, f"ECE {ece} %", 13, theme.ink).set_fontweight("bold")
    right = f"95 % interval {interval}\ncalibrated model {null}"
    write(axes, 1, 1.035, right, 8, theme.quiet).set(linespacing=1.35, ha="right")
    write(axes, 0, 1.135, short(model.name), 11, theme.ink)


def ece_words(model: Reliability) -> tuple[str, str, str]:
    """ECE, its interval and its null band in per cent."""

    def percent(key: str) -> str:
        return f"{100 * model.numbers[key]:.2f}"

    interval = f"{percent('ece_low')} to {percent('ece_high')} %"
    return percent("ece"), interval, f"{percent('ece_null_low')} to {percent('ece_null_high')} %"


def draw_histogram(
    axes: Axes, model: Reliability, theme: Theme, tallest: float, first: bool
) -> None:
    middle = (model.low + model.high) / 2
    width = 0.86 * (model.high - model.low)
    axes.bar(middle, model.share, width, color=theme.quiet, alpha=0.55, linewidth=0)
    for key, dashes in LINES.items():
        axes.axvline(model.numbers[key], color=theme.ink, linewidth=1.2, linestyle=dashes)
    axes.set(xlim=(0, 1), ylim=(0, min(1.0, 1.08 * tallest)))
    style(axes, theme)
    steps = [step for step in (0.5, 0.2) if tallest > step] or [0.1]
    axes.yaxis.set_major_locator(MultipleLocator(steps[0]))
    axes.tick_params(labelbottom=True)  # in every row of panels, though they share the axis
    axes.set_xlabel("confidence", color=theme.quiet, fontsize=9)
    axes.set_ylabel("rows" if first else "", color=theme.quiet, fontsize=9)
