"""Figures, in two steps: prepare_*() turns results into arrays, plot_*() draws arrays.

The reliability diagram shows, for every bin that holds rows, the accuracy against the mean
confidence. Around the diagonal lies the null band: where a calibrated model's bins would fall 95
times in 100, given how many rows each holds. A dot outside it with its interval clear of the
diagonal is evidence; a dot inside it is not. Bins that hold few rows are pale. Below, how the rows
are spread over the bins.

The path of keep shows a run of stage II: epoch by epoch, the confidence and accuracy that it
compared, and below them the share of the weights it kept.

Colours are Okabe and Ito's, told apart by all common forms of colour vision, and position alone
says the same in print."""

import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, ScalarFormatter
from scipy.special import bdtr, ndtri

if TYPE_CHECKING:  # the report draws rows, and need not wait for torch
    from maccal.metrics.inputs import Array

LEVEL = 0.95  # as in metrics.resampling
Z = float(ndtri((1 + LEVEL) / 2))
FEW = 0.005  # a bin with a smaller share of the rows is drawn pale
# the two marks of the histogram
LINES: dict[str, Any] = {"accuracy": "-", "confidence": (0, (2.5, 1.2))}


@dataclass(frozen=True)
class Theme:
    """The colours of a figure. The report passes CSS variables under the names it finds here."""

    ink: str = "#1b1f24"
    quiet: str = "#6b7480"
    paper: str = "#ffffff"
    band: str = "#d5dae0"
    over: str = "#d55e00"  # vermilion: too sure
    under: str = "#0072b2"  # blue: not sure enough


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
    confidence, accuracy = bins.confidence[filled] / count, correct / count
    centre = (correct + Z**2 / 2) / (count + Z**2)
    half = (
        Z * np.sqrt(accuracy * (1 - accuracy) / count + Z**2 / (4 * count**2)) / (1 + Z**2 / count)
    )
    chance = [
        quantile(q, count, np.clip(confidence, 0, 1)) / count
        for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    ]
    return Reliability(
        name,
        low=bins.edges[:-1][filled],
        high=bins.edges[1:][filled],
        share=count / bins.n,
        confidence=confidence,
        accuracy=accuracy,
        accuracy_low=np.clip(centre - half, 0, 1),
        accuracy_high=np.clip(centre + half, 0, 1),
        null_low=chance[0],
        null_high=chance[1],
        numbers=numbers,
    )


def quantile(q: float, count: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Of the binomial law: the fewest of `count` that are not exceeded with probability q.

    As binom.ppf of scipy.stats, which takes half a second to import.

    >>> quantile(0.5, np.array([10.0, 10.0, 10.0]), np.array([0.0, 0.25, 1.0])).tolist()
    [0.0, 2.0, 10.0]
    """
    low, high = np.zeros(len(count), dtype=np.int64), count.astype(np.int64)
    n = high
    while (low < high).any():  # halve the range that holds it
        middle = (low + high) // 2
        enough = bdtr(middle, n, p) >= q
        low, high = (
            np.where(enough, low, np.minimum(middle + 1, high)),
            np.where(enough, middle, high),
        )
    return high.astype(np.float64)


def reliability(
    probs: "Array | Mapping[str, Array]", labels: "Array", *, bins: int = 15, seed: int = 0
) -> Figure:
    """The reliability diagram of one model, or of several side by side: `reliability({"before": p,
    "after": q}, labels)`.

    Returns a matplotlib Figure: `.savefig("reliability.svg")`, or show it in a notebook.
    """
    models = probs if isinstance(probs, Mapping) else {"": probs}
    return plot_reliability(
        [prepare_model(p, labels, bins, name, seed) for name, p in models.items()]
    )


def prepare_model(probs: "Array", labels: "Array", bins: int, name: str, seed: int) -> Reliability:
    from maccal.metrics import Bins, resample, top_label
    from maccal.metrics.resampling import band, centred

    confidence, correct = top_label(probs, labels)
    sums = Bins.of(confidence, correct, bins)
    boot, null = resample(confidence, correct, bins=bins, seed=seed)
    (low, high), (null_low, null_high) = centred(sums.ece(), boot["ece"]), band(null["ece"])
    numbers = {
        "accuracy": float(sums.correct.sum() / sums.n),
        "confidence": float(sums.confidence.sum() / sums.n),
        "ece": sums.ece(),
        "ece_low": low,
        "ece_high": high,
        "ece_null_low": null_low,
        "ece_null_high": null_high,
    }
    return prepare_reliability(sums, numbers, name)


def plot_reliability(models: list[Reliability], theme: Theme | None = None) -> Figure:
    """One panel a model, with a histogram below each."""
    theme = theme or Theme()
    rows, columns = grid(len(models))
    figure = Figure(figsize=(3.9 * columns + 0.5, 5.35 * rows + 0.45), facecolor=theme.paper)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06, hspace=0.0)
    heights = [4.0, 1.0] * rows
    axes = figure.subplots(2 * rows, columns, squeeze=False, height_ratios=heights, sharex=True)
    tallest = max(float(m.share.max()) for m in models)
    for place in range(rows * columns):
        upper, lower = axes[2 * (place // columns) : 2 * (place // columns) + 2, place % columns]
        if place >= len(models):
            upper.set_axis_off()
            lower.set_axis_off()
            continue
        draw_diagram(upper, models[place], theme, first=place % columns == 0)
        draw_histogram(lower, models[place], theme, tallest, first=place % columns == 0)
    look: dict[str, Any] = {
        "frameon": False,
        "fontsize": 8,
        "labelcolor": theme.quiet,
        "handlelength": 1.4,
        "columnspacing": 1.6,
    }
    patches = {
        "overconfident": theme.over,
        "underconfident": theme.under,
        "calibrated, 95 %": theme.band,
    }
    figure.legend(
        handles=legend(theme, patches),
        loc="outside lower center",
        ncols=3 if columns == 1 else 5,
        **look,
    )
    return figure


def grid(panels: int) -> tuple[int, int]:
    """Rows and columns: at most three in a row, and four as two and two."""
    columns = 2 if panels == 4 else min(3, panels)
    return -(-panels // columns), columns


def draw_diagram(axes: Axes, model: Reliability, theme: Theme, first: bool) -> None:
    width = model.high - model.low
    middle = (model.low + model.high) / 2
    axes.bar(
        middle,
        model.null_high - model.null_low,
        width,
        model.null_low,
        color=theme.band,
        linewidth=0,
        zorder=1,
    )
    axes.plot([0, 1], [0, 1], color=theme.quiet, linewidth=0.9, dashes=(4, 3), zorder=2)
    colour = np.where(model.accuracy < model.confidence, theme.over, theme.under)
    weight = np.where(model.share < FEW, 0.4, 1.0)  # bins of a handful of rows say little: pale
    gap = model.accuracy - model.confidence
    axes.bar(
        model.confidence,
        gap,
        0.62 * width,
        model.confidence,
        color=to_rgba_array(colour, 0.28 * weight),
        linewidth=0,
        zorder=3,
    )
    strong = to_rgba_array(colour, weight)
    axes.vlines(
        model.confidence,
        model.accuracy_low,
        model.accuracy_high,
        color=strong,
        linewidth=1.4,
        zorder=4,
        clip_on=False,
    )
    dots: dict[str, Any] = {
        "c": strong,
        "edgecolor": theme.paper,
        "linewidth": 0.9,
        "clip_on": False,
    }
    axes.scatter(
        model.confidence, model.accuracy, s=14 + 90 * np.sqrt(model.share), zorder=5, **dots
    )
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    draw_heading(axes, model, theme)
    style(axes, theme)
    axes.set_ylabel("accuracy" if first else "", color=theme.quiet, fontsize=9)


def draw_heading(axes: Axes, model: Reliability, theme: Theme) -> None:
    """Name, ECE, interval and null band, above the panel where they hide nothing."""
    n = {key: 100 * value for key, value in model.numbers.items() if isinstance(value, float)}
    words: dict[str, Any] = {"transform": axes.transAxes, "va": "bottom", "parse_math": False}
    interval = f"95 % interval {n['ece_low']:.2f} to {n['ece_high']:.2f} %"
    null = f"calibrated model {n['ece_null_low']:.2f} to {n['ece_null_high']:.2f} %"
    axes.text(
        0, 1.045, f"ECE {n['ece']:.2f} %", fontsize=13, fontweight="bold", color=theme.ink, **words
    )
    axes.text(
        1,
        1.035,
        f"{interval}\n{null}",
        fontsize=8,
        linespacing=1.35,
        ha="right",
        color=theme.quiet,
        **words,
    )
    axes.text(0, 1.135, short(model.name), fontsize=11, color=theme.ink, **words)


def draw_histogram(
    axes: Axes, model: Reliability, theme: Theme, tallest: float, first: bool
) -> None:
    axes.bar(
        (model.low + model.high) / 2,
        model.share,
        0.86 * (model.high - model.low),
        color=theme.quiet,
        alpha=0.55,
        linewidth=0,
    )
    for key, dashes in LINES.items():
        axes.axvline(model.numbers[key], color=theme.ink, linewidth=1.2, linestyle=dashes)
    axes.set(xlim=(0, 1), ylim=(0, min(1.0, 1.08 * tallest)))
    style(axes, theme)
    axes.yaxis.set_major_locator(
        MultipleLocator(0.5 if tallest > 0.5 else 0.2 if tallest > 0.2 else 0.1)
    )
    axes.tick_params(labelbottom=True)  # in every row of panels, though they share the axis
    axes.set_xlabel("confidence", color=theme.quiet, fontsize=9)
    axes.set_ylabel("rows" if first else "", color=theme.quiet, fontsize=9)


@dataclass(frozen=True)
class KeepPath:
    """What a run of stage II did: arrays over its epochs."""

    name: str
    epoch: np.ndarray
    keep: np.ndarray  # share of the weights kept in the epoch
    confidence: np.ndarray  # on the rows of the feedback, after the epoch
    target: np.ndarray  # what it should have been; on held-out rows, the accuracy


def prepare_keep(history: Sequence[Mapping[str, float]], name: str = "") -> KeepPath:
    """The arrays of a path from the `.history` of a head.

    >>> prepare_keep([{"epoch": 1, "keep": 0.5, "confidence": 0.9, "target": 0.8}]).keep.tolist()
    [0.5]
    """
    keys = ("epoch", "keep", "confidence", "target")
    return KeepPath(
        name, *(np.array([entry[key] for entry in history], dtype=np.float64) for key in keys)
    )


def plot_keep(paths: list[KeepPath], theme: Theme | None = None) -> Figure:
    """One column a run, three at most.

    Confidence and what it should be above, each on its own scale, and keep below.
    """
    theme = theme or Theme()
    columns = len(paths)
    if not 1 <= columns <= 3:
        raise ValueError(
            f"{columns} paths of keep; a figure shows one to three, so draw several figures"
        )
    figure = Figure(figsize=(3.9 * columns + 0.5, 4.1), facecolor=theme.paper)
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.06, hspace=0.0)
    axes = figure.subplots(2, columns, squeeze=False, height_ratios=[2.2, 1.0], sharex="col")
    for place, path in enumerate(paths):
        draw_feedback(axes[0, place], path, theme, first=place == 0)
        draw_keep(axes[1, place], path, theme, first=place == 0)
    look: dict[str, Any] = {
        "frameon": False,
        "fontsize": 8,
        "labelcolor": theme.quiet,
        "handlelength": 1.4,
        "columnspacing": 1.6,
    }
    sides = {"too sure": theme.over, "not sure enough": theme.under}
    figure.legend(
        handles=legend(theme, sides, "wanted"),
        loc="outside lower center",
        ncols=2 if columns == 1 else 4,
        **look,
    )
    return figure


def draw_feedback(axes: Axes, path: KeepPath, theme: Theme, first: bool) -> None:
    """The two lines that stage II compares, and their gap in the colour of its sign."""
    over = path.confidence > path.target
    for side, colour in ((over, theme.over), (~over, theme.under)):
        axes.fill_between(
            path.epoch,
            path.target,
            path.confidence,
            side,
            interpolate=True,
            color=colour,
            alpha=0.28,
            linewidth=0,
        )
    axes.plot(path.epoch, path.target, color=theme.ink, linewidth=1.4, linestyle=LINES["accuracy"])
    axes.plot(
        path.epoch, path.confidence, color=theme.ink, linewidth=1.4, linestyle=LINES["confidence"]
    )
    words: dict[str, Any] = {"transform": axes.transAxes, "va": "bottom", "parse_math": False}
    axes.text(0, 1.05, short(path.name), fontsize=11, color=theme.ink, **words)
    style(axes, theme)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.set_ylabel("feedback" if first else "", color=theme.quiet, fontsize=9)
    axes.tick_params(labelbottom=False)


def draw_keep(axes: Axes, path: KeepPath, theme: Theme, first: bool) -> None:
    axes.step(path.epoch, path.keep, where="mid", color=theme.under, linewidth=1.6)
    axes.annotate(
        f"{100 * path.keep[-1]:.0f} %",
        (path.epoch[-1], path.keep[-1]),
        (0, 5),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=theme.ink,
    )
    style(axes, theme)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_locator(MultipleLocator(0.5))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("epoch", color=theme.quiet, fontsize=9)
    axes.set_ylabel("weights kept" if first else "", color=theme.quiet, fontsize=9)


def legend(
    theme: Theme, patches: Mapping[str, str], solid: str = "accuracy"
) -> list[Patch | Line2D]:
    """Coloured patches, and the two lines that every figure has."""
    lines = {solid: LINES["accuracy"], "mean confidence": LINES["confidence"]}
    return [
        *(Patch(color=colour, label=label, linewidth=0) for label, colour in patches.items()),
        *(
            Line2D([], [], color=theme.ink, linewidth=1.2, linestyle=dashes, label=label)
            for label, dashes in lines.items()
        ),
    ]


def short(name: str, most: int = 40) -> str:
    """What a drawing has room for, in letters; those of East Asian scripts are two wide.

    >>> short("resnet50, 10,000 images", 30), short("a name that nobody would give to a network", 30), short("模型" * 9, 30)
    ('resnet50, 10,000 images', 'a name that nobody would give…', '模型模型模型模型模型模型模型…')
    """
    widths = [2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name]
    if sum(widths) <= most:
        return name
    room = sum(1 for end in accumulate(widths) if end < most)
    return name[:room].rstrip() + "…"


@contextmanager
def any_letters() -> Iterator[None]:
    """No warning of letters that the measuring font lacks.

    In a page the text is text, and the reader's fonts show it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        yield


def lay_out(figure: Figure) -> None:
    """Give the axes their places, as a draw would, but draw nothing: half the time."""
    engine = figure.get_layout_engine()
    if engine is not None:
        with any_letters():
            engine.execute(figure)


def style(axes: Axes, theme: Theme) -> None:
    """Two thin axes, percent on both, nothing else."""
    axes.set_facecolor("none")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set(color=theme.quiet, linewidth=0.8)
    axes.tick_params(colors=theme.quiet, labelsize=8, length=3, width=0.8)
    percent = FuncFormatter(lambda value, _: f"{100 * value:.0f} %")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(percent)
        axis.set_major_locator(MultipleLocator(0.2))
