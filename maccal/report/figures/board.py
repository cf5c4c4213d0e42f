"""The leaderboard figure: ECE of every method on each data set and network, with the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from maccal.bench import paper
from maccal.bench.lines import Book, Line, Rows, Setting, average
from maccal.bench.titles import in_order, set_title
from maccal.report.figures.drawing import LONGEST, SIZE, bars_say, canvas, note, percent
from maccal.report.figures.methods import (
    calibrated_patch,
    colour_of,
    draw_measure,
    name_methods,
    weight_of,
)
from maccal.report.figures.selection import (
    Spreads,
    as_before,
    comparable,
    left_out,
    needed,
    settings_of,
    spreads,
    without,
)
from maccal.report.look import Theme, short, style

PANELS = 24  # that one can still read
FAR = 10  # the highest ECE by the lowest, from where on the axis is logarithmic


@dataclass(frozen=True)
class Panel:
    """A panel of the leaderboard: ECE over the methods, and the paper's, NaN where it has none."""

    setting: Setting
    ece: Spreads
    paper: np.ndarray  # mean over its networks on that data set, as a fraction


@dataclass(frozen=True)
class Leaderboard:
    """The leaderboard figure: methods from the smallest mean ECE over the panels to the largest."""

    methods: tuple[str, ...]
    panels: tuple[Panel, ...]
    left_out: tuple[str, ...]  # methods that lack a run in some setting
    ways: str = ""  # in words: whose settings are not their own of today


def prepare_leaderboard(rows: Rows) -> Leaderboard:
    """One panel per data set and network.

    The ECE of each method with its own settings that was run in all of them.
    """
    book = Book.of(rows)
    lines = needed(
        comparable(book, one_seed=True), "run of a method with its own settings", "table1"
    )
    settings = settings_of(lines)
    if len(settings) > PANELS:
        raise ValueError(
            f"{len(settings)} data sets and networks; a figure has room for {PANELS}, "
            "the table above for all"
        )
    groups = run_everywhere(lines, settings)
    needed(groups, "method run on every data set and network", "table1")
    names = list(groups)
    means = [average(groups[name], "ece") for name in names]
    order = [names[index] for index in np.argsort(means, kind="stable")]
    panels = []
    for number, setting in enumerate(settings):
        eces = spreads([[groups[name][number]] for name in order], "ece")
        panels.append(Panel(setting, eces, printed(setting.data, order)))
    return Leaderboard(tuple(order), tuple(panels), left_out(lines, order), as_before(lines))


def run_everywhere(lines: Sequence[Line], settings: Sequence[Setting]) -> dict[str, list[Line]]:
    """The methods that have a line in each setting, in the order of the settings."""
    index = {(line.method, line.setting): line for line in lines}
    found = {}
    for name in in_order({line.method for line in lines}):
        own = [index[name, setting] for setting in settings if (name, setting) in index]
        if len(own) == len(settings):
            found[name] = own
    return found


def printed(data: str, methods: Sequence[str]) -> np.ndarray:
    """The paper's mean ECE of each method over its networks on a data set, as a fraction.

    >>> printed("cifar10", ["maccal", "new"]).round(5).tolist()
    [0.01045, nan]
    """
    found: dict[str, list[float]] = {}
    for row in paper.table("table1"):
        if row["data"] == data:
            found.setdefault(row["method"], []).append(row["ece"] / 100)
    return np.array([np.mean(found[name]) if name in found else np.nan for name in methods])


def plot_leaderboard(data: Leaderboard, theme: Theme | None = None) -> Figure:
    """One line per method, best at the top, with its ECE in per cent at the end of the line.

    At most four panels in a row.
    """
    theme = theme or Theme()
    count = len(data.panels)
    rows = -(-count // 4)
    columns = -(-count // rows)
    height = 0.8 + rows * (0.75 + 0.2 * len(data.methods))
    figure, grid = canvas(theme, rows, columns, height, sharey=True)
    far = any(highest(panel) > FAR * lowest(panel.ece.mean, panel.paper) for panel in data.panels)
    for empty in grid.flatten()[count:]:
        empty.set_axis_off()
    for panel, axes in zip(data.panels, grid.flatten(), strict=False):
        draw_panel(axes, panel, data.methods, theme, far)
        if far:
            shown = ticks(axes.get_xlim(), 6 if columns < 3 else 4)
            axes.xaxis.set_major_locator(FixedLocator(shown))
    for first in grid[:, 0]:
        name_methods(first, data.methods, theme)
    seeds = np.concatenate([panel.ece.seeds for panel in data.panels])
    note(figure, theme, handles(theme), bars_say(seeds) + data.ways + without(data.left_out))
    return figure


def handles(theme: Theme) -> list[object]:
    """Of the legend."""
    mean = Line2D([], [], color=theme.quiet, marker="o", markersize=5, linewidth=1.4)
    mean.set_label("mean ECE, in per cent")
    theirs = hollow([], [], theme)
    theirs.set_label("the paper's, mean of its networks")
    return [mean, theirs, calibrated_patch(theme)]


def hollow(x: Sequence[float], y: Sequence[float], theme: Theme) -> Line2D:
    """The paper's marks: diamonds that hide nothing."""
    marks = Line2D(x, y, color=theme.quiet, linestyle="", marker="D", markersize=4, zorder=2.5)
    marks.set(markerfacecolor="none", markeredgewidth=0.9)
    return marks


def lowest(*values: np.ndarray) -> float:
    """The smallest that has a place on a logarithmic axis."""
    found = np.concatenate(values)
    return float(np.min(found[found > 0], initial=1.0))


def highest(panel: Panel) -> float:
    return float(np.nanmax([*panel.ece.high, *panel.ece.mean, *panel.ece.null_high, *panel.paper]))


def draw_panel(axes: Axes, panel: Panel, methods: Sequence[str], theme: Theme, far: bool) -> None:
    """One line per method: null band, spread, dot and the paper's mark."""
    at = np.arange(len(methods))
    left = 0.8 * lowest(panel.ece.mean, panel.ece.null_low, panel.paper) if far else 0.0
    right = (1.15 if far else 1.04) * highest(panel)
    if "maccal" in methods:
        middle = methods.index("maccal")
        axes.axhspan(middle - 0.5, middle + 0.5, color=theme.under, alpha=0.1, linewidth=0)
    axes.hlines(at, left, right, color=theme.quiet, linewidth=0.5, alpha=0.25)
    draw_measure(axes, methods, floored(panel.ece, left), theme, null=True)
    axes.add_line(hollow(panel.paper.tolist(), at.tolist(), theme))
    dress_panel(axes, panel, theme)
    write_numbers(axes, methods, panel.ece.mean, theme)
    axes.set_xscale("log" if far else "linear")
    axes.set_xlim(left, right)
    axes.xaxis.set_minor_locator(NullLocator())
    percent(axes.xaxis, 4)


def dress_panel(axes: Axes, panel: Panel, theme: Theme) -> None:
    """The name of the data set over that of the network, and no axis at the left."""
    style(axes, theme)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("ECE", color=theme.quiet, fontsize=9)
    heading = axes.set_title(set_title(panel.setting.data), loc="left", pad=18, parse_math=False)
    heading.set(color=theme.ink, fontsize=10, fontweight="bold")
    images = f", {panel.setting.limit:,} images" if panel.setting.limit else ""
    words = short(panel.setting.model + images, LONGEST)
    below = axes.annotate(
        words, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points"
    )
    below.set(color=theme.quiet, fontsize=SIZE, parse_math=False)


def write_numbers(axes: Axes, methods: Sequence[str], values: np.ndarray, theme: Theme) -> None:
    """In per cent, right of the axes."""
    beside = axes.get_yaxis_transform()
    for number, (name, value) in enumerate(zip(methods, values.tolist(), strict=True)):
        text = axes.annotate(
            f"{100 * value:.2f}",
            (1, number),
            (30, 0),
            xycoords=beside,
            textcoords="offset points",
            annotation_clip=False,
        )
        text.set(ha="right", va="center", fontsize=SIZE)
        text.set(color=colour_of(name, theme), fontweight=weight_of(name))


def floored(found: Spreads, left: float) -> Spreads:
    """What would lie left of the axis begins at its edge."""
    low = np.maximum(found.low, left)
    return replace(found, low=low, null_low=np.maximum(found.null_low, left))


def ticks(limits: tuple[float, float], most: int) -> list[float]:
    """Of a logarithmic axis: 1, 2 and 5 of each power of ten, or 1 and 3, or 1, so that there are
    not too many.

    >>> ticks((0.004, 0.3), 6), ticks((0.004, 0.3), 4)
    ([0.005, 0.01, 0.02, 0.05, 0.1, 0.2], [0.01, 0.03, 0.1, 0.3])
    """
    low, high = limits
    for digits in ((1, 2, 5), (1, 3), (1,)):
        every = [float(f"{digit}e{power}") for power, digit in product(range(-6, 1), digits)]
        inside = [tick for tick in every if low <= tick <= high]
        if len(inside) <= most:
            break
    return inside
