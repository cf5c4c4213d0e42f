"""The look that all drawings share: colours, axes, letters, and the two lines of every legend.

Colours are Okabe and Ito's, told apart by all common forms of colour vision, and position alone
says the same in print.
"""

import unicodedata
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MultipleLocator

# the two lines of every diagram
LINES: Mapping[str, Any] = {"accuracy": "-", "confidence": (0, (2.5, 1.2))}


@dataclass(frozen=True)
class Theme:
    """The colours of a figure. The report passes CSS variables under the names it finds here."""

    ink: str = "#1b1f24"
    quiet: str = "#6b7480"
    paper: str = "#ffffff"
    band: str = "#d5dae0"
    over: str = "#d55e00"  # vermilion: too sure
    under: str = "#0072b2"  # blue: not sure enough


def legend_below(
    figure: Figure, theme: Theme, patches: Mapping[str, str], columns: int, solid: str = "accuracy"
) -> None:
    """Coloured patches, and the two lines that every diagram has, below all panels."""
    handles: list[Patch | Line2D] = []
    for label, colour in patches.items():
        handles.append(Patch(color=colour, label=label, linewidth=0))
    lines = {solid: LINES["accuracy"], "mean confidence": LINES["confidence"]}
    for label, dashes in lines.items():
        line = Line2D([], [], color=theme.ink, linewidth=1.2, linestyle=dashes, label=label)
        handles.append(line)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
        labelcolor=theme.quiet,
        handlelength=1.4,
        columnspacing=1.6,
    )


def write(axes: Axes, x: float, y: float, words: str, size: float, colour: str) -> Any:
    """Text at a place of the axes, upwards from there; a name with dollar signs is no formula."""
    text = axes.text(x, y, words, transform=axes.transAxes, va="bottom", parse_math=False)
    text.set(fontsize=size, color=colour)
    return text


def short(name: str, most: int = 40) -> str:
    """What a drawing has room for, in letters; those of East Asian scripts are two wide.

    >>> short("resnet50, 10,000 images", 30), short("模型" * 9, 30)
    ('resnet50, 10,000 images', '模型模型模型模型模型模型模型…')
    >>> short("a name that nobody would give to a network", 30)
    'a name that nobody would give…'
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


def percent(axis: Axis) -> FuncFormatter:
    """Whole numbers in per cent; where the marks are closer than that, as many decimals as needed.

    >>> axes = Figure().subplots()
    >>> axes.set_ylim(0, 1), axes.yaxis.set_major_formatter(percent(axes.yaxis))
    ((0.0, 1.0), None)
    >>> [label.get_text() for label in axes.get_yticklabels()][:2]
    ['0 %', '20 %']
    >>> axes.set_ylim(0.712, 0.72)
    (0.712, 0.72)
    >>> [label.get_text() for label in axes.get_yticklabels()][:2]
    ['71.2 %', '71.3 %']
    """

    def text(value: float, _: object) -> str:
        marks = 100 * np.asarray(axis.get_majorticklocs())
        decimals = 0
        while decimals < 3 and not np.allclose(marks, marks.round(decimals), rtol=0, atol=1e-9):
            decimals += 1
        return f"{100 * value:.{decimals}f} %"

    return FuncFormatter(text)


def style(axes: Axes, theme: Theme) -> None:
    """Two thin axes, percent on both, nothing else."""
    axes.set_facecolor("none")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set(color=theme.quiet, linewidth=0.8)
    axes.tick_params(colors=theme.quiet, labelsize=8, length=3, width=0.8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(percent(axis))
        axis.set_major_locator(MultipleLocator(0.2))
