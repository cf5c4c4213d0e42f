"""What the figures have in common.

A page's width, axes, colours, and names beside lines and points instead of a legend.
"""

import io
from collections.abc import Sequence
from itertools import product
from textwrap import fill
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from maccal.report.look import Theme, short, style

WIDTH = 7.2  # inches: a page without its margins
SIZE = 8.0  # points of small text
DPI = 180
LONGEST = 30  # letters of a name
# Okabe and Ito's colours, the darker first: no yellow, which is lost on paper, and no black, which
# is lost on a dark page
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
# seconds at which an axis of times may have a tick
SMALL = (1, 2, 5, 10, 15, 20, 30, 45)
HOURS = (1, 2, 5, 10, 20, 50, 100, 200)
TIMES = [*SMALL, *(60 * n for n in SMALL), *(3600 * n for n in HOURS)]
OTHERS = 0.4  # opacity of what is there for comparison only


def canvas(
    theme: Theme, rows: int, columns: int, height: float, **how: Any
) -> tuple[Figure, np.ndarray]:
    """A figure of a page's width and its axes, rows x columns."""
    figure = Figure(figsize=(WIDTH, height), facecolor=theme.paper)
    figure.set_layout_engine("constrained", w_pad=0.05, h_pad=0.05, wspace=0.03)
    return figure, figure.subplots(rows, columns, squeeze=False, **how)


def rendered(figure: Figure, kind: str) -> bytes:
    """The figure as "svg", "pdf" or "png": the same bytes every time."""
    buffer = io.BytesIO()
    stamps = {"svg": ("Date", "Creator"), "pdf": ("CreationDate",), "png": ("Software",)}
    with matplotlib.rc_context({"svg.hashsalt": "maccal"}):
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=dict.fromkeys(stamps[kind]))
    return buffer.getvalue()


def dress(axes: Axes, theme: Theme, x: str, y: str, heading: str = "") -> None:
    """The house's axes with names, percent on y, plain numbers on x."""
    style(axes, theme)
    percent(axes.yaxis)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(x, color=theme.quiet, fontsize=9)
    axes.set_ylabel(y, color=theme.quiet, fontsize=9)
    axes.set_title(heading, loc="left", color=theme.ink, fontsize=10, parse_math=False)


def percent(axis: Axis, ticks: int = 5) -> None:
    axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 6):g} %"))


def clock(axis: Axis) -> None:
    """Ticks at whole seconds, minutes and hours, on a logarithmic axis."""
    low, high = axis.get_view_interval()
    inside: list[float] = [tick for tick in TIMES if low <= tick <= high]
    if len(inside) < 3:  # a short stretch: evenly, in the unit of its end
        unit = unit_of(high / 2)[0]
        even = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low / unit, high / unit)
        inside = [unit * tick for tick in even if low <= unit * tick <= high]
    axis.set_major_locator(FixedLocator(inside[:: max(1, -(-len(inside) // 7))]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: worded(value)))


def worded(seconds: float) -> str:
    """
    >>> worded(45), worded(600), worded(5400), worded(36000)
    ('45 s', '10 min', '1.5 h', '10 h')
    """
    unit, name = unit_of(seconds)
    return f"{seconds / unit:g} {name}"


def unit_of(seconds: float) -> tuple[int, str]:
    """The largest unit that such a time has one of."""
    if seconds >= 3600:
        return 3600, "h"
    return (60, "min") if seconds >= 60 else (1, "s")


def note(figure: Figure, theme: Theme, handles: Sequence[Any], words: str = "") -> None:
    """The legend below all panels, under a line that says what bars and bands are."""
    legend = figure.legend(
        handles=list(handles),
        loc="outside lower center",
        ncols=min(5, len(handles)),
        frameon=False,
        fontsize=SIZE,
        labelcolor=theme.quiet,
        handlelength=1.6,
        columnspacing=1.6,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    if words:
        legend.set_title(fill(words, 110))
        legend.get_title().set(
            fontsize=SIZE, color=theme.quiet, multialignment="center", parse_math=False
        )


def bars_say(
    seeds: np.ndarray, what: str = "bars", alone: str = "95 % interval of each run"
) -> str:
    """What the bars of a figure are, given how many seeds stand behind each.

    >>> bars_say(np.array([3, 3]))
    'bars: standard deviation over 3 seeds'
    >>> bars_say(np.array([1, 2, 3]))
    'bars: standard deviation over 2 to 3 seeds, or 95 % interval of each run'
    """
    several = sorted({int(n) for n in seeds.flat if n > 1})
    parts = []
    if several:
        counts = " to ".join(str(n) for n in dict.fromkeys((several[0], several[-1])))
        parts.append(f"standard deviation over {counts} seeds")
    if (seeds == 1).any():
        parts.append(alone)
    return f"{what}: {', or '.join(parts)}"


def apart(wanted: Sequence[float], gap: float) -> np.ndarray:
    """Heights at least `gap` apart in the order of those wanted, moved as little as the pushing of
    neighbours allows.

    >>> apart([0.0, 0.1, 5.0], 1.0).round(2).tolist()
    [-0.45, 0.55, 5.0]
    """
    order = np.argsort(wanted, kind="stable")
    # mean of the wanted lowest ends, and how many labels, of labels that touch
    blocks: list[tuple[float, int]] = []
    for number, index in enumerate(order):
        block = (float(wanted[index]) - number * gap, 1)
        while blocks and blocks[-1][0] > block[0]:
            start, count = blocks.pop()
            block = ((start * count + block[0] * block[1]) / (count + block[1]), count + block[1])
        blocks.append(block)
    result = np.empty(len(order))
    result[order] = np.repeat(
        [start for start, _ in blocks], [count for _, count in blocks]
    ) + gap * np.arange(len(order))
    return result


class Label(NamedTuple):
    """A name for a point of the data, in a colour."""

    name: str
    x: float
    y: float
    colour: str


def figure_of(axes: Axes) -> Figure:
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    return figure


def in_points(axes: Axes, places: Sequence[tuple[float, float]]) -> np.ndarray:
    """Where places of the data are on the page, in points.

    Limits must be set and the figure laid out.
    """
    return np.asarray(axes.transData.transform(places)) * 72 / figure_of(axes).dpi


def write_beside(axes: Axes, label: Label, dx: float, dy: float, line: bool = False) -> None:
    """The name so many points from its place: right of there, or left if dx is negative.

    With a thin line if asked for.
    """
    side = (1 if dx < 0 else 0, 0.5)  # of the name, where its line ends
    line_look = {"arrowstyle": "-", "color": label.colour, "linewidth": 0.5, "alpha": 0.7}
    text = axes.annotate(
        short(label.name, LONGEST),
        (label.x, label.y),
        (dx, dy),
        textcoords="offset points",
        arrowprops={**line_look, "shrinkA": 0, "shrinkB": 2, "relpos": side} if line else None,
        annotation_clip=False,
        parse_math=False,
        va="center",
        ha="right" if dx < 0 else "left",
    )
    text.set(fontsize=SIZE, color=label.colour)


def name_ends(axes: Axes, ends: Sequence[Label], lines: bool = False) -> None:
    """Names right of the ends of lines, pushed apart where they would overlap.

    With `lines` a thin one leads from each end to its name, for where many are pushed far.
    """
    if ends:
        heights = in_points(axes, [(end.x, end.y) for end in ends])[:, 1]
        for end, dy in zip(ends, apart(heights.tolist(), 1.2 * SIZE) - heights, strict=True):
            write_beside(axes, end, 14 if lines else 5, float(dy), line=lines)


def name_points(
    axes: Axes, labels: Sequence[Label], corners: Sequence[tuple[float, float, float, float]]
) -> None:
    """Names beside points, where they hide no point, no bar and no other name, as far as there is
    room.

    `corners` are the ends of a point's bars: left, bottom, right and top.
    """
    middles = [(label.x, label.y) for label in labels]
    edges = [(axes.get_xlim()[end], axes.get_ylim()[end]) for end in (0, 1)]
    bars = [corner[:2] for corner in corners] + [corner[2:] for corner in corners]
    places, low, high, (lowest, highest) = np.split(
        in_points(axes, [*middles, *bars, *edges]),
        np.cumsum([len(middles), len(corners), len(corners)]),
    )
    taken = [np.array([*place - 3, *place + 3]) for place in places]
    for (x, y), (left, bottom), (right, top) in zip(places, low, high, strict=True):
        taken += [np.array([x - 1, bottom, x + 1, top]), np.array([left, y - 1, right, y + 1])]
    for index in np.argsort(-places[:, 1], kind="stable"):
        boxes = boxes_beside(places[index], 0.58 * SIZE * len(short(labels[index].name, LONGEST)))
        costs = overlap(boxes, np.array(taken)) + 20 * beyond(boxes, lowest, highest) + LENGTHS
        best = int(np.argmin(costs))
        dx, dy = STEPS[best].tolist()
        taken.append(boxes[best])
        write_beside(axes, labels[index], dx, dy, line=abs(dx) > 5 or abs(dy) > 4)


# Where a name may stand, in points from its place; and how far that is, right being a little better
# than left: less than any overlap that could be seen
ACROSS = (5.0, -5.0, 20.0, -20.0, 35.0, -35.0, 50.0, -50.0)
STEPS = np.array([(across, 4.0 * up) for across, up in product(ACROSS, range(-11, 12))])
LENGTHS = 0.05 * np.abs(STEPS).sum(1) + np.where(STEPS[:, 0] < 0, 0.1, 0)


def boxes_beside(place: np.ndarray, width: float) -> np.ndarray:
    """Left, bottom, right and top of a name beside a place, one row for each of STEPS."""
    left = place[0] + STEPS[:, 0] - np.where(STEPS[:, 0] < 0, width, 0)
    middle = place[1] + STEPS[:, 1]
    return np.stack([left, middle - SIZE / 2, left + width, middle + SIZE / 2], 1)


def overlap(boxes: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """The area that each box shares with what is there."""
    sides = np.minimum(boxes[:, None, 2:], taken[:, 2:]) - np.maximum(
        boxes[:, None, :2], taken[:, :2]
    )
    return np.asarray(np.where((sides > 0).all(2), sides.prod(2), 0).sum(1))


def beyond(boxes: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """How far each box reaches out of the axes."""
    return np.asarray(
        np.maximum(0, np.hstack([lowest - boxes[:, :2], boxes[:, 2:] - highest])).sum(1)
    )
