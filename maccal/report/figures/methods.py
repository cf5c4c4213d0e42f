"""What figures of all methods side by side have in common: colours, names and marks."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from maccal.bench.titles import title
from maccal.report.figures.drawing import LONGEST, SERIES
from maccal.report.figures.selection import Spreads
from maccal.report.look import Theme, short

# drawn in colour wherever they are; the others in grey
COMPARED = ("vanilla", "temperature", "maccal")


def colour_of(method: str, theme: Theme) -> str:
    colours = {"vanilla": theme.ink, "temperature": SERIES[2], "maccal": theme.under}
    return colours.get(method, theme.quiet)


def weight_of(method: str) -> str:
    return "bold" if method in COMPARED else "normal"


def calibrated_patch(theme: Theme, where: str = "") -> Patch:
    return Patch(color=theme.band, label=f"calibrated{where}, 95 %", linewidth=0)


def name_methods(axes: Axes, methods: Sequence[str], theme: Theme) -> None:
    """The methods beside the axes, from the top down."""
    names = [short(title(name), LONGEST) for name in methods]
    axes.set_yticks(range(len(methods)), names, parse_math=False)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    for tick, name in zip(axes.get_yticklabels(), methods, strict=True):
        tick.set(color=colour_of(name, theme), fontweight=weight_of(name))


def draw_measure(
    axes: Axes, methods: Sequence[str], found: Spreads, theme: Theme, null: bool
) -> None:
    """One dot per method, with its spread and, if asked for, its null band."""
    at = np.arange(len(methods))
    if null:
        width = found.null_high - found.null_low
        axes.barh(at, width, 0.62, found.null_low, color=theme.band, linewidth=0)
    colours = [colour_of(name, theme) for name in methods]
    axes.hlines(at, found.low, found.high, color=colours, linewidth=1.4)
    axes.scatter(found.mean, at, s=22, c=colours, edgecolor=theme.paper, linewidth=0.6, zorder=3)
