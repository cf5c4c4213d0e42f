"""Seconds of training against ECE, of every method; not in the paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from maccal.bench.lines import Book, Line, Rows, shared_seeds
from maccal.bench.titles import title
from maccal.report.figures.drawing import (
    Label,
    bars_say,
    canvas,
    clock,
    dress,
    name_points,
    note,
)
from maccal.report.figures.methods import calibrated_patch, colour_of
from maccal.report.figures.selection import (
    Spreads,
    by_data,
    comparable,
    grouped,
    left_out,
    needed,
    spreads,
    with_seeds,
    without,
)
from maccal.report.look import Theme, lay_out


@dataclass(frozen=True)
class Cost:
    """A panel of the cost figure: arrays over the methods."""

    data: str  # title of the data set
    methods: tuple[str, ...]
    seconds: np.ndarray  # of both stages, mean over networks, median over seeds
    seconds_low: np.ndarray  # the shortest and the longest
    seconds_high: np.ndarray
    ece: Spreads
    left_out: tuple[str, ...]


def prepare_cost(rows: Rows) -> list[Cost]:
    """One panel per data set: seconds of training against ECE. What stage I took is added to runs
    that are a stage II.

    A run whose stage I is not among the rows is left out.
    """
    book = Book.of(rows)
    timed = []
    for line in comparable(book, one_seed=True):
        seeds = sorted(book.seconds(line))
        if seeds:
            timed.append(with_seeds(line, seeds))
    lines = needed(timed, "timed run with its stage I", "cost")
    return [cost_of(data, own, book) for data, own in by_data(lines).items()]


def cost_of(data: str, lines: Sequence[Line], book: Book) -> Cost:
    groups = grouped(lines, "cost")
    times = [seconds_of(own, book) for own in groups.values()]
    return Cost(
        data=data,
        methods=tuple(groups),
        seconds=np.array([np.median(time) for time in times]),
        seconds_low=np.array([min(time) for time in times]),
        seconds_high=np.array([max(time) for time in times]),
        ece=spreads(list(groups.values()), "ece"),
        left_out=left_out(lines, groups),
    )


def seconds_of(lines: Sequence[Line], book: Book) -> list[float]:
    """Of the whole training, mean over networks; one number per seed."""
    totals = [book.seconds(line) for line in lines]
    found = []
    for seed in shared_seeds(lines):
        found.append(fmean(total[seed] for total in totals))
    return found


def plot_cost(panels: Sequence[Cost], theme: Theme | None = None) -> Figure:
    """One point per method: the lower the better calibrated, the farther left the cheaper."""
    theme = theme or Theme()
    columns, rows = min(2, len(panels)), -(-len(panels) // 2)
    figure, grid = canvas(theme, rows, columns, 0.6 + 3.8 * rows)
    axes = grid.flatten()[: len(panels)]
    for empty in grid.flatten()[len(panels) :]:
        empty.set_axis_off()
    for number, (panel, one) in enumerate(zip(panels, axes, strict=True)):
        heading = "" if number % columns else "ECE"
        dress(one, theme, "training, both stages", heading, panel.data)
        draw_cost(one, panel, theme)
    seeds = np.concatenate([panel.ece.seeds for panel in panels])
    words = f"{bars_say(seeds)}; of the seconds, shortest to longest"
    words += without(sum((panel.left_out for panel in panels), ()))
    note(figure, theme, [calibrated_patch(theme)], words)
    lay_out(figure)
    for panel, one in zip(panels, axes, strict=True):
        name_methods_at(one, panel, theme)
    return figure


def name_methods_at(axes: Axes, panel: Cost, theme: Theme) -> None:
    """Names beside the points."""
    labels = []
    for name, x, y in zip(panel.methods, panel.seconds, panel.ece.mean, strict=True):
        labels.append(Label(title(name), float(x), float(y), colour_of(name, theme)))
    ends = (panel.seconds_low, panel.ece.low, panel.seconds_high, panel.ece.high)
    corners = [tuple(corner) for corner in np.transpose(ends).tolist()]
    name_points(axes, labels, corners)


def draw_cost(axes: Axes, panel: Cost, theme: Theme) -> None:
    seconds, ece = panel.seconds, panel.ece
    band = float(ece.null_low.mean()), float(ece.null_high.mean())
    axes.axhspan(*band, color=theme.band, linewidth=0)
    colours = [colour_of(name, theme) for name in panel.methods]
    axes.vlines(seconds, ece.low, ece.high, color=colours, linewidth=1, alpha=0.7)
    axes.hlines(
        ece.mean, panel.seconds_low, panel.seconds_high, color=colours, linewidth=1, alpha=0.7
    )
    dots = axes.scatter(seconds, ece.mean, s=24, c=colours, edgecolor=theme.paper, zorder=3)
    dots.set_linewidth(0.6)
    axes.set_xscale("log")
    axes.set_xlim(0.8 * panel.seconds_low.min(), 1.6 * panel.seconds_high.max())
    axes.set_ylim(0, 1.08 * ece.high.max())
    clock(axes.xaxis)
