"""Figs. 1 and 2.

What random masks do to a classifier, from rows of `maccal bench motivation` or arrays of
maccal.evaluation.masks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from maccal.report.diagrams import FEW, Reliability, Theme, prepare_reliability, style
from maccal.report.figures.drawing import (
    OTHERS,
    SERIES,
    SIZE,
    canvas,
    dress,
    figure_of,
    note,
    percent,
)
from maccal.report.figures.selection import Place, Row, needed, place_of, plain, set_title

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
INTERVALS = ("ece", "ece_low", "ece_high", "ece_null_low", "ece_null_high")
# ten, all seen on white and on black
CLASSES = (*SERIES, "#b03a6e", "#999933", "#8c6bb1", "#7f8790")
SURE, UNSURE = 0.95, 0.12  # opacity of a point by its entropy
DIAGONAL = (0.5, 0.5, 0.5, 0.35)  # of the matrix of angles


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
    place: Place | None = None
    seed: int | None = None


def prepare_motivation(rows: Iterable[Row], ratio: float = 0.5) -> Motivation:
    """Fig. 1 of the vanilla run whose head was masked.

    Of several the first data set and network, and its lowest seed.
    """
    chosen = needed(
        measured(rows, "vanilla", "inference", "retraining"),
        "vanilla run with a masked head",
        "motivation",
    )
    first = min(chosen, key=whose)
    inference, retraining = (
        {key: np.asarray(value) for key, value in first["motivation"][way].items()}
        for way in ("inference", "retraining")
    )
    return replace(
        motivation_from(inference, retraining, ratio),
        place=place_of(first),
        seed=first["run"]["seed"],
    )


def measured(rows: Iterable[Row], method: str, *parts: str) -> list[Row]:
    """The plain runs of a method that have these parts of the motivation."""
    found = [row for row in plain(rows) if row["run"]["method"] == method and row.get("motivation")]
    return [row for row in found if all(part in row["motivation"] for part in parts)]


def whose(row: Row) -> tuple[Place, int]:
    return place_of(row), row["run"]["seed"]


def said(place: Place | None, seed: int | None) -> str:
    """
    >>> said(("cifar10.10000", "resnet8"), 1), said(None, None)
    ('resnet8, CIFAR-10, 10,000 images, seed 1', '')
    """
    return f"{place[1]}, {set_title(place[0])}, seed {seed}" if place else ""


def motivation_from(inference: Numbers, retraining: Numbers, ratio: float = 0.5) -> Motivation:
    """Fig. 1 from what geometry.masked_inference and masked_retraining return.

    The histograms are those at `ratio`.
    """
    for name, numbers in (("masked_inference", inference), ("masked_retraining", retraining)):
        if missing := [key for key in DRAWN if key not in numbers or not len(numbers[key])]:
            hint = f"pass what geometry.{name} returns for the runs of `maccal bench motivation`"
            raise ValueError(f"no {missing[0]!r} in the numbers of {name}; {hint}")
    if not np.array_equal(inference["edges"], retraining["edges"]):
        raise ValueError(
            "masked inference and retraining have histograms of different bins; use the same `bins` for both"
        )
    unmasked = np.flatnonzero(inference["ratio"] == 0)
    trained = np.asarray(inference["histogram"][unmasked[0]]) if len(unmasked) else None
    return Motivation(
        ratio,
        np.asarray(inference["edges"]),
        trained,
        masked(inference, ratio),
        masked(retraining, ratio),
    )


def masked(numbers: Numbers, ratio: float) -> Masked:
    there = np.flatnonzero(np.isclose(numbers["ratio"], ratio))
    if not len(there):
        raise ValueError(
            f"no masking ratio {ratio:g}; the ratios are {', '.join(f'{r:g}' for r in sorted(numbers['ratio']))}"
        )
    order = np.argsort(numbers["ratio"], kind="stable")
    keys = ("ratio", "accuracy", "accuracy_spread", "confidence", "confidence_spread")
    return Masked(
        **{key: np.asarray(numbers[key])[order] for key in keys},
        histogram=np.asarray(numbers["histogram"][there[0]]),
    )


def plot_motivation(data: Motivation, theme: Theme | None = None) -> Figure:
    """Three panels.

    Confidences, accuracy over the masking ratio, and confidence over it with the accuracy beside
    it, dotted.
    """
    theme = theme or Theme()
    figure, (axes,) = canvas(theme, 1, 3, 2.9)
    ways = {
        "masked inference": (theme.over, data.inference),
        "masked retraining": (theme.under, data.retraining),
    }
    lines = [] if data.trained is None else [(theme.ink, data.trained, "as trained")]
    for colour, values, _ in [
        *lines,
        *((colour, way.histogram, name) for name, (colour, way) in ways.items()),
    ]:
        axes[0].stairs(values, data.edges, color=colour, linewidth=1.5, fill=False)
    for colour, way in ways.values():
        draw_over_ratio(axes[1], way, "accuracy", colour)
        draw_over_ratio(axes[2], way, "confidence", colour)
        axes[2].plot(way.ratio, way.accuracy, color=colour, linewidth=1.2, linestyle=":")
    dress(axes[0], theme, "confidence", "test images", f"a  {100 * data.ratio:.0f} % masked")
    dress(axes[1], theme, "weights masked", "accuracy", "b  accuracy")
    dress(axes[2], theme, "weights masked", "confidence", "c  confidence")
    for panel in axes:
        percent(panel.xaxis, 4)
        panel.set(xlim=(0, 1), ylim=(0, 1.0))
    handles = [Line2D([], [], color=colour, label=name, linewidth=1.5) for colour, _, name in lines]
    handles += [
        Line2D([], [], color=colour, label=name, linewidth=1.5)
        for name, (colour, _) in ways.items()
    ]
    handles.append(Line2D([], [], color=theme.quiet, linestyle=":", label="accuracy, as in b"))
    bands = "bands: a standard deviation over draws of the masks, or over seeds"
    note(
        figure,
        theme,
        handles,
        "; ".join(part for part in (said(data.place, data.seed), bands) if part),
    )
    return figure


def draw_over_ratio(axes: Axes, way: Masked, measure: str, colour: str) -> None:
    values, spread = getattr(way, measure), getattr(way, f"{measure}_spread")
    axes.fill_between(
        way.ratio, values - spread, values + spread, color=colour, alpha=0.2, linewidth=0
    )
    axes.plot(
        way.ratio, values, color=colour, linewidth=1.5, marker="o", markersize=3, clip_on=False
    )


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
    place: Place | None = None
    seed: int | None = None


def prepare_before_after(rows: Iterable[Row]) -> BeforeAfter:
    """Fig. 2 of a vanilla run and the MaC-Cal run on top of it.

    Of several the first data set and network, and its lowest seed.
    """
    found = list(rows)
    before, after = (
        {whose(row): row for row in measured(found, name, "map", "angles", "curve")}
        for name in ("vanilla", "maccal")
    )
    both = needed(
        [before[key] for key in before.keys() & after.keys()],
        "vanilla and MaC-Cal run with a map of logits",
        "motivation",
    )
    first = min(both, key=whose)
    sides = [row["motivation"] | {"numbers": row} for row in (first, after[whose(first)])]
    return replace(before_after_from(*sides), place=place_of(first), seed=first["run"]["seed"])


def before_after_from(before: Mapping[str, Any], after: Mapping[str, Any]) -> BeforeAfter:
    """Fig. 2 from two mappings with "map", "angles" and "curve", of geometry's logit_map,
    prototype_angles and calibration_curve, and "numbers", the row of the run or a summary with
    intervals. Both maps must show the same rows.
    """
    sides = [side(numbers, name) for numbers, name in ((before, "before"), (after, "after"))]
    if not np.array_equal(before["map"]["rows"], after["map"]["rows"]):
        raise ValueError(
            "the maps before and after show different rows; use the same labels, `rows` and `seed` for both"
        )
    entropy = np.concatenate([s.entropy for s in sides])
    widest = max(float(np.nanmax(np.abs(s.deviation))) for s in sides)
    return BeforeAfter(sides[0], sides[1], float(np.quantile(entropy, 0.95)), widest)


def side(numbers: Mapping[str, Any], name: str) -> Side:
    for key in ("map", "angles", "curve", "numbers"):
        if key not in numbers:
            raise ValueError(
                f"no {key!r} for the classifier {name}; compute it from the runs of `maccal bench motivation`"
            )
    place, labels, entropy = (
        np.asarray(numbers["map"][key]) for key in ("place", "labels", "entropy")
    )
    angles = np.asarray(numbers["angles"], np.float64)
    off = angles[~np.eye(len(angles), dtype=bool)]
    if not len(off):
        raise ValueError(f"angles of {len(angles)} class {name}; at least two are needed")
    diagram = diagram_of(numbers["curve"], numbers["numbers"], name)
    return Side(place, labels, entropy, angles, float(off.mean()), float(off.std()), diagram)


@dataclass(frozen=True)
class Curve:
    """A calibration curve as sums over its bins."""

    edges: np.ndarray
    count: np.ndarray
    correct: np.ndarray
    confidence: np.ndarray
    n: int


def diagram_of(curve: Numbers, numbers: Mapping[str, Any], name: str) -> Reliability:
    """The diagram of a calibration curve.

    ValueError if the numbers are not of the same predictions.
    """
    count = np.asarray(curve["count"], np.float64)
    if not count.sum():
        raise ValueError(f"the curve {name} has no rows")
    confidence, accuracy = (
        np.nan_to_num(np.asarray(curve[key], np.float64)) for key in ("confidence", "accuracy")
    )
    edges = np.asarray(curve["edges"], np.float64)
    bins = Curve(edges, count, np.rint(accuracy * count), confidence * count, int(count.sum()))
    ece = float(np.abs(bins.confidence - bins.correct).sum() / bins.n)
    if abs(ece - numbers["ece"]) > 1e-4:
        raise ValueError(
            f"the curve {name} has an ECE of {ece:.4f} and its numbers {numbers['ece']:.4f}; they must belong together"
        )
    return prepare_reliability(bins, {key: float(numbers[key]) for key in INTERVALS}, name)


def plot_before_after(data: BeforeAfter, theme: Theme | None = None) -> Figure:
    """Two rows, before and after: the map of logits, the matrix of angles, the calibration curve."""
    theme = theme or Theme()
    figure, axes = canvas(theme, 2, 3, 5.5, width_ratios=[1, 1, 1])
    for row, (name, one) in enumerate({"before": data.before, "after": data.after}.items()):
        draw_map(axes[row, 0], one, data.entropy_top, theme)
        axes[row, 0].set_ylabel(name, color=theme.ink, fontsize=11)
        draw_angles(axes[row, 1], one, data.deviation_top, theme)
        draw_curve(axes[row, 2], one.diagram, theme)
    axes[1, 2].set_xlabel("confidence", color=theme.quiet, fontsize=9)
    dots = {"entropy 0": SURE, f"entropy {data.entropy_top:.2g} nats or more": UNSURE}
    handles: list[Any] = [
        Line2D(
            [],
            [],
            marker="o",
            linestyle="",
            color=theme.ink,
            alpha=shade,
            markeredgewidth=0,
            label=name,
        )
        for name, shade in dots.items()
    ]
    patches = {
        "too sure": theme.over,
        "not sure enough": theme.under,
        "calibrated, 95 %": theme.band,
    }
    handles += [Patch(color=colour, label=name, linewidth=0) for name, colour in patches.items()]
    note(figure, theme, handles, said(data.place, data.seed))
    return figure


def draw_map(axes: Axes, one: Side, top: float, theme: Theme) -> None:
    """Colour is the class, numbered at its middle; the fainter, the higher the entropy."""
    share = np.clip(one.entropy / top if top > 0 else 0 * one.entropy, 0, 1)
    colours = np.array([to_rgb(CLASSES[label % len(CLASSES)]) for label in one.labels])
    axes.scatter(
        one.place[:, 0],
        one.place[:, 1],
        s=5,
        c=np.column_stack([colours, SURE + (UNSURE - SURE) * share]),
        linewidth=0,
        rasterized=True,
    )
    classes = np.unique(one.labels)
    for label in classes if len(classes) <= 20 else []:
        middle = np.median(one.place[one.labels == label], 0)
        look: dict[str, Any] = {
            "boxstyle": "circle,pad=0.15",
            "facecolor": theme.paper,
            "edgecolor": "none",
            "alpha": 0.75,
        }
        axes.text(
            middle[0],
            middle[1],
            str(label),
            ha="center",
            va="center",
            fontsize=SIZE,
            color=theme.ink,
            bbox=look,
        )
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


def draw_curve(axes: Axes, model: Reliability, theme: Theme) -> None:
    """A small reliability diagram: null band, gaps, and dots with their intervals."""
    width, middle = model.high - model.low, (model.low + model.high) / 2
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
    for few, opacity in ((False, 1.0), (True, OTHERS)):
        for over, colour in ((True, theme.over), (False, theme.under)):
            at = ((model.accuracy < model.confidence) == over) & ((model.share < FEW) == few)
            x, y, ends = (
                model.confidence[at],
                model.accuracy[at],
                (model.accuracy_low[at], model.accuracy_high[at]),
            )
            axes.vlines(
                x, *ends, color=colour, alpha=opacity, linewidth=1.2, zorder=3, clip_on=False
            )
            axes.scatter(
                x,
                y,
                s=16,
                color=colour,
                alpha=opacity,
                edgecolor=theme.paper,
                linewidth=0.6,
                zorder=4,
                clip_on=False,
            )
    style(axes, theme)
    percent(axes.xaxis, 4)
    percent(axes.yaxis, 4)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_box_aspect(1)
    axes.set_ylabel("accuracy", color=theme.quiet, fontsize=9)
    n = {key: f"{100 * value:.2f}" for key, value in model.numbers.items()}
    interval, null = (f"{n[f'ece{end}_low']} to {n[f'ece{end}_high']} %" for end in ("", "_null"))
    axes.set_title(
        f"ECE {n['ece']} % ({interval})\ncalibrated {null}",
        loc="left",
        fontsize=SIZE,
        color=theme.ink,
    )
