"""The path of keep: a run of stage II, epoch by epoch.

prepare_keep(history), plot_keep(paths)     the confidence and accuracy that it compared, and below
                                            them the share of the weights it kept
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator, ScalarFormatter

from maccal.report.look import LINES, Theme, legend_below, short, style, write


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

    def column(key: str) -> np.ndarray:
        return np.array([entry[key] for entry in history], dtype=np.float64)

    return KeepPath(name, column("epoch"), column("keep"), column("confidence"), column("target"))


def plot_keep(paths: list[KeepPath], theme: Theme | None = None) -> Figure:
    """One column per run, three at most.

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
    for column, path in enumerate(paths):
        draw_feedback(axes[0, column], path, theme, first=column == 0)
        draw_keep(axes[1, column], path, theme, first=column == 0)
    sides = {"too sure": theme.over, "not sure enough": theme.under}
    legend_below(figure, theme, sides, 2 if columns == 1 else 4, solid="wanted")
    return figure


def draw_feedback(axes: Axes, path: KeepPath, theme: Theme, first: bool) -> None:
    """The two lines that stage II compares, and their gap in the colour of its sign."""
    over = path.confidence > path.target
    for side, colour in ((over, theme.over), (~over, theme.under)):
        gap = axes.fill_between(path.epoch, path.target, path.confidence, side, interpolate=True)
        gap.set(color=colour, alpha=0.28, linewidth=0)
    for values, dashes in (
        (path.target, LINES["accuracy"]),
        (path.confidence, LINES["confidence"]),
    ):
        axes.plot(path.epoch, values, color=theme.ink, linewidth=1.4, linestyle=dashes)
    write(axes, 0, 1.05, short(path.name), 11, theme.ink)
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
