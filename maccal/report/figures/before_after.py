"""Fig. 2: logits, angles between classes and calibration curve, before and after retraining.

From rows of `maccal bench motivation`, or from arrays of maccal.evaluation.masks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from maccal.bench.lines import Book, Rows, Setting
from maccal.evaluation.row import Row
from maccal.report.diagrams import Reliability, draw_bins, ece_words, prepare_reliability
from maccal.report.figures.drawing import SERIES, SIZE, canvas, figure_of, note, percent
from maccal.report.figures.motivation import Numbers, having, motivation_of, said
from maccal.report.figures.selection import needed
from maccal.report.look import Theme, style

INTERVALS = ("ece", "ece_low", "ece_high", "ece_null_low", "ece_null_high")
NEEDED = ("map", "angles", "curve")
# ten, all seen on white and on black
CLASSES = (*SERIES, "#b03a6e", "#999933", "#8c6bb1", "#7f8790")
SURE, UNSURE = 0.95, 0.12  # opacity of a point by its entropy
DIAGONAL = (0.5, 0.5, 0.5, 0.35)  # of the matrix of angles


@dataclass(frozen=True)
class Side:
    """A row of Fig. 2: a classifier's logits in the plane, its angles and its diagram."""

    place: np.ndarray  # n x 2
    labels: np.ndarray
    entropy: np.ndarray
    angles: np.ndarray  # degrees
    mean_angle: float  # of different classes
    angle_spread: float  # their standard deviation
    diagram: Reliability
    ece_spread: float = math.nan  # standard deviation over seeds; nan of one

    @property
    def deviation(self) -> np.ndarray:
        """From the mean angle, NaN on the diagonal."""
        apart = self.angles - self.mean_angle
        return np.where(np.eye(len(apart), dtype=bool), np.nan, apart)


@dataclass(frozen=True)
class BeforeAfter:
    """Fig. 2, and the ends of the scales that its two rows share."""

    before: Side
    after: Side
    entropy_top: float  # the 95th percentile of both maps: what is above is as pale
    deviation_top: float
    setting: Setting | None = None
    seeds: tuple[int, ...] = ()


def prepare_before_after(rows: Rows) -> BeforeAfter:
    """Fig. 2 of vanilla runs and the MaC-Cal runs on top of them.

    Of several data sets and networks the first. A map is of its lowest seed; angles are means over
    seeds, and bins have the rows of all seeds.
    """
    book = Book.of(rows)
    ours = {line.setting: line for line in having(book, "maccal", NEEDED)}
    both = []
    for line in having(book, "vanilla", NEEDED):
        if line.setting in ours and line.runs.keys() & ours[line.setting].runs.keys():
            both.append(line)
    before = needed(both, "vanilla and MaC-Cal run with a map of logits", "motivation")[0]
    after = ours[before.setting]
    seeds = sorted(before.runs.keys() & after.runs.keys())
    found = []
    for seed in seeds:
        found.append(before_after_from(view(before.runs[seed]), view(after.runs[seed])))
    curves = []
    for line in (before, after):
        curves.append([curve_of(motivation_of(line.runs[seed])["curve"]) for seed in seeds])
    sides = [
        together([one.before for one in found], curves[0]),
        together([one.after for one in found], curves[1]),
    ]
    return replace(
        found[0],
        before=sides[0],
        after=sides[1],
        deviation_top=widest(sides),
        setting=before.setting,
        seeds=tuple(seeds),
    )


def together(sides: Sequence[Side], curves: Sequence["Curve"]) -> Side:
    """The sides of several seeds as one, with the map of the first."""
    if len(sides) == 1:
        return sides[0]
    numbers = [side.diagram.numbers for side in sides]
    means = {}
    for key in INTERVALS:
        means[key] = fmean(one[key] for one in numbers)
    bins = Curve(
        curves[0].edges,
        count=np.sum([curve.count for curve in curves], 0),
        correct=np.sum([curve.correct for curve in curves], 0),
        confidence=np.sum([curve.confidence for curve in curves], 0),
        n=sum(curve.n for curve in curves),
    )
    return replace(
        sides[0],
        angles=np.mean([side.angles for side in sides], 0),
        mean_angle=fmean(side.mean_angle for side in sides),
        angle_spread=fmean(side.angle_spread for side in sides),
        diagram=prepare_reliability(bins, means, sides[0].diagram.name),
        ece_spread=stdev(one["ece"] for one in numbers),
    )


def widest(sides: Sequence[Side]) -> float:
    """The largest deviation of an angle from the mean angle."""
    return max(float(np.nanmax(np.abs(side.deviation))) for side in sides)


def view(row: Row) -> dict[str, Any]:
    """What before_after_from takes of a run."""
    return {**motivation_of(row), "numbers": row.numbers}


def before_after_from(before: Mapping[str, Any], after: Mapping[str, Any]) -> BeforeAfter:
    """Fig. 2 from two mappings with "map", "angles" and "curve", of masks.logit_map,
    prototype_angles and calibration_curve, and "numbers", those of the row or a summary with
    intervals. Both maps must show the same rows.
    """
    sides = [side(before, "before"), side(after, "after")]
    if not np.array_equal(before["map"]["rows"], after["map"]["rows"]):
        raise ValueError(
            "the maps before and after show different rows; "
            "use the same labels, `rows` and `seed` for both"
        )
    entropy = np.concatenate([one.entropy for one in sides])
    return BeforeAfter(sides[0], sides[1], float(np.quantile(entropy, 0.95)), widest(sides))


def side(numbers: Mapping[str, Any], name: str) -> Side:
    for key in (*NEEDED, "numbers"):
        if key not in numbers:
            raise ValueError(
                f"no {key!r} for the classifier {name}; "
                "compute it from the runs of `maccal bench motivation`"
            )
    angles = np.asarray(numbers["angles"], np.float64)
    off = angles[~np.eye(len(angles), dtype=bool)]
    if not len(off):
        raise ValueError(f"angles of {len(angles)} class {name}; at least two are needed")
    shown = numbers["map"]
    return Side(
        place=np.asarray(shown["place"]),
        labels=np.asarray(shown["labels"]),
        entropy=np.asarray(shown["entropy"]),
        angles=angles,
        mean_angle=float(off.mean()),
        angle_spread=float(off.std()),
        diagram=diagram_of(numbers["curve"], numbers["numbers"], name),
    )


@dataclass(frozen=True)
class Curve:
    """A calibration curve as sums over its bins."""

    edges: np.ndarray
    count: np.ndarray
    correct: np.ndarray
    confidence: np.ndarray
    n: int


def curve_of(curve: Mapping[str, Any]) -> Curve:
    """As sums over its bins."""
    count = np.asarray(curve["count"], np.float64)
    confidence = np.nan_to_num(np.asarray(curve["confidence"], np.float64))
    accuracy = np.nan_to_num(np.asarray(curve["accuracy"], np.float64))
    edges = np.asarray(curve["edges"], np.float64)
    return Curve(edges, count, np.rint(accuracy * count), confidence * count, int(count.sum()))


def diagram_of(curve: Numbers, numbers: Mapping[str, Any], name: str) -> Reliability:
    """The diagram of a calibration curve.

    ValueError if the numbers are not of the same predictions.
    """
    bins = curve_of(curve)
    if not bins.n:
        raise ValueError(f"the curve {name} has no rows")
    ece = float(np.abs(bins.confidence - bins.correct).sum() / bins.n)
    if abs(ece - numbers["ece"]) > 1e-4:
        raise ValueError(
            f"the curve {name} has an ECE of {ece:.4f} and its numbers {numbers['ece']:.4f}; "
            "they must belong together"
        )
    return prepare_reliability(bins, {key: float(numbers[key]) for key in INTERVALS}, name)


def plot_before_after(data: BeforeAfter, theme: Theme | None = None) -> Figure:
    """Two rows, before and after: map of logits, matrix of angles, calibration curve."""
    theme = theme or Theme()
    figure, axes = canvas(theme, 2, 3, 5.5, width_ratios=[1, 1, 1])
    for row, (name, one) in enumerate({"before": data.before, "after": data.after}.items()):
        draw_map(axes[row, 0], one, data.entropy_top, theme)
        axes[row, 0].set_ylabel(name, color=theme.ink, fontsize=11)
        draw_angles(axes[row, 1], one, data.deviation_top, theme)
        draw_curve(axes[row, 2], one, theme)
    axes[1, 2].set_xlabel("confidence", color=theme.quiet, fontsize=9)
    handles: list[Line2D | Patch] = [
        point("entropy 0", SURE, theme),
        point(f"entropy {data.entropy_top:.2g} nats or more", UNSURE, theme),
        Patch(color=theme.over, label="too sure", linewidth=0),
        Patch(color=theme.under, label="not sure enough", linewidth=0),
        Patch(color=theme.band, label="calibrated, 95 %", linewidth=0),
    ]
    words = said(data.setting, data.seeds)
    if len(data.seeds) > 1:
        words += f"; maps are of seed {data.seeds[0]}, bins have the rows of all seeds"
    note(figure, theme, handles, words)
    return figure


def point(label: str, opacity: float, theme: Theme) -> Line2D:
    """A point of the map, for the legend."""
    dot = Line2D([], [], marker="o", linestyle="", color=theme.ink, label=label)
    dot.set(alpha=opacity, markeredgewidth=0)
    return dot


def draw_map(axes: Axes, one: Side, top: float, theme: Theme) -> None:
    """Colour is the class, numbered at its middle; the fainter, the higher the entropy."""
    share = np.clip(one.entropy / top if top > 0 else 0 * one.entropy, 0, 1)
    colours = np.array([to_rgb(CLASSES[label % len(CLASSES)]) for label in one.labels])
    shades = np.column_stack([colours, SURE + (UNSURE - SURE) * share])
    x, y = one.place.T
    axes.scatter(x, y, s=5, c=shades, linewidth=0, rasterized=True)
    classes = np.unique(one.labels)
    for label in classes if len(classes) <= 20 else []:
        middle = np.median(one.place[one.labels == label], 0)
        number = axes.text(
            middle[0], middle[1], str(label), ha="center", va="center", fontsize=SIZE
        )
        number.set_color(theme.ink)
        box = {"boxstyle": "circle,pad=0.15", "facecolor": theme.paper, "edgecolor": "none"}
        number.set_bbox({**box, "alpha": 0.75})
    frame(axes, theme)
    axes.set_title("logits, by t-SNE", loc="left", fontsize=9, color=theme.ink)


def frame(axes: Axes, theme: Theme) -> None:
    """No ticks, thin lines: for pictures whose axes mean nothing."""
    axes.set(xticks=[], yticks=[])
    axes.set_box_aspect(1)
    axes.set_facecolor("none")
    for spine in axes.spines.values():
        spine.set(color=theme.band, linewidth=0.8)


def draw_angles(axes: Axes, one: Side, top: float, theme: Theme) -> None:
    """Clear is near the mean angle, so that the picture suits light pages and dark.

    Blue is narrower, vermilion wider.
    """
    narrow, wide = to_rgb(SERIES[0]), to_rgb(SERIES[1])
    stops = [(0.0, (*narrow, 1.0)), (0.5, (*narrow, 0.0)), (0.5, (*wide, 0.0)), (1.0, (*wide, 1.0))]
    colours = LinearSegmentedColormap.from_list("angles", stops).with_extremes(bad=DIAGONAL)
    scale = Normalize(-top or -1, top or 1)
    axes.imshow(one.deviation, cmap=colours, norm=scale, interpolation="nearest")
    bar = figure_of(axes).colorbar(ScalarMappable(scale, colours), ax=axes, shrink=0.8, pad=0.03)
    bar.outline.set_visible(False)
    bar.ax.set_facecolor("none")
    bar.ax.tick_params(colors=theme.quiet, labelsize=SIZE, length=2)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:+g}°" if value else "mean")
    frame(axes, theme)
    axes.set_title(
        f"angles {one.mean_angle:.1f}° ± {one.angle_spread:.1f}°",
        loc="left",
        fontsize=9,
        color=theme.ink,
    )


def draw_curve(axes: Axes, one: Side, theme: Theme) -> None:
    """A small reliability diagram."""
    model = one.diagram
    draw_bins(axes, model, theme, dot=30)
    style(axes, theme)
    percent(axes.xaxis, 4)
    percent(axes.yaxis, 4)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_box_aspect(1)
    axes.set_ylabel("accuracy", color=theme.quiet, fontsize=9)
    ece, interval, null = ece_words(model)
    words = f"ECE {ece} % ({interval})\ncalibrated {null}"
    if math.isfinite(one.ece_spread):
        words = f"ECE {ece} ± {100 * one.ece_spread:.2f} % over seeds\ncalibrated {null}"
    axes.set_title(words, loc="left", fontsize=SIZE, color=theme.ink)
