"""Fig. 3: the scheme of the method, drawn; it needs no rows.

Above stage I, which trains the whole network. Below stage II: the body is frozen, its features are
taken once, and the head goes on training under random masks, whose share of kept weights follows
the gap between confidence and accuracy (Eqs. 7 to 13).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch, Rectangle

from maccal.bench.lines import Rows
from maccal.report.figures.drawing import SIZE, canvas, note
from maccal.report.look import Theme

WIDE, TALL = 100.0, 52.0  # of the drawing, in its own units
MASK = (6, 8)  # rows and columns of the weights that are shown
SEED = 3  # of the mask that is shown
KEPT = 0.6


class Box(NamedTuple):
    """A step of the method: its left lower corner, its size, and its words."""

    x: float
    y: float
    width: float
    height: float
    words: str

    @property
    def middle(self) -> float:
        return self.y + self.height / 2

    @property
    def right(self) -> float:
        return self.x + self.width


@dataclass(frozen=True)
class Scheme:
    """The steps of both stages, from left to right."""

    first: tuple[Box, ...]
    second: tuple[Box, ...]
    mask: np.ndarray  # whether a weight of the head is kept


def prepare_scheme(rows: Rows = ()) -> Scheme:
    """The same whatever the rows are."""
    rng = np.random.default_rng(SEED)
    first = (
        Box(1, 35, 15, 11, "training\nimages"),
        Box(23, 35, 19, 11, "body"),
        Box(49, 35, 19, 11, "classifier"),
        Box(75, 35, 24, 11, "loss of the method:\nany of stage I"),
    )
    second = (
        Box(1, 11, 15, 11, "training\nimages"),
        Box(23, 11, 19, 11, "body, frozen:\nfeatures once"),
        Box(49, 7, 19, 19, ""),
        Box(75, 15, 24, 11, "cross-entropy:\nkept weights learn"),
        Box(75, 0.5, 24, 11, "confidence above\naccuracy: keep fewer;\nbelow: keep more"),
    )
    return Scheme(first, second, rng.random(MASK) < KEPT)


def plot_scheme(data: Scheme, theme: Theme | None = None) -> Figure:
    """Blue learns, grey is fixed, vermilion is the feedback."""
    theme = theme or Theme()
    figure, ((axes,),) = canvas(theme, 1, 1, 4.1)
    axes.set(xlim=(0, WIDE), ylim=(-2, TALL), xticks=[], yticks=[])
    axes.set_facecolor("none")
    axes.spines[:].set_visible(False)
    draw_first(axes, data.first, theme)
    draw_second(axes, data, theme)
    handles: list[Patch | Line2D] = [
        Patch(facecolor=theme.paper, edgecolor=theme.under, label="learns"),
        Patch(color=theme.band, label="fixed", linewidth=0),
        Line2D([], [], color=theme.over, label="feedback, once per epoch"),
    ]
    words = "afterwards the head is one plain layer, keep × weights: as fast as the one before"
    note(figure, theme, handles, words)
    return figure


def draw_first(axes: Axes, boxes: tuple[Box, ...], theme: Theme) -> None:
    heading(axes, 49.5, "Stage I: the whole network is trained", theme)
    for number, box in enumerate(boxes):
        draw_box(axes, box, theme, learns=number in (1, 2))
    for one, other in pairwise(boxes):
        arrow(axes, (one.right, one.middle), (other.x, other.middle), theme.quiet)


def draw_second(axes: Axes, data: Scheme, theme: Theme) -> None:
    heading(axes, 29.5, "Stage II: the classifier alone, under random masks", theme)
    images, body, head, loss, feedback = data.second
    for box, learns in ((images, False), (body, False), (head, True), (loss, False)):
        draw_box(axes, box, theme, learns=learns)
    draw_box(axes, feedback, theme, learns=False, edge=theme.over)
    draw_mask(axes, head, data.mask, theme)
    arrow(axes, (images.right, images.middle), (body.x, body.middle), theme.quiet)
    arrow(axes, (body.right, body.middle), (head.x, body.middle), theme.quiet)
    arrow(axes, (head.right, loss.middle), (loss.x, loss.middle), theme.quiet)
    arrow(axes, (feedback.x, 6), (head.right, 9), theme.over, bend=-0.15)
    above = (head.x + head.width / 2, 35.0)
    arrow(axes, above, (above[0], head.y + head.height), theme.quiet, dashed=True)
    start = axes.text(above[0] + 1.2, 30.5, "as trained, or afresh as in the paper", va="center")
    start.set(fontsize=SIZE, color=theme.quiet)


def heading(axes: Axes, y: float, words: str, theme: Theme) -> None:
    text = axes.text(0.5, y, words, va="center", ha="left")
    text.set(fontsize=10, color=theme.ink)


def draw_box(axes: Axes, box: Box, theme: Theme, *, learns: bool, edge: str | None = None) -> None:
    """A step with its words; what learns has a blue edge, the rest is grey."""
    shape = FancyBboxPatch(
        (box.x, box.y), box.width, box.height, boxstyle="round,pad=0,rounding_size=1.2"
    )
    fill = theme.paper if learns or edge else theme.band
    shape.set(facecolor=fill, edgecolor=edge or (theme.under if learns else theme.band))
    shape.set_linewidth(1.6)
    axes.add_patch(shape)
    text = axes.text(box.x + box.width / 2, box.middle, box.words, ha="center", va="center")
    text.set(fontsize=SIZE, color=theme.ink, linespacing=1.3)


def draw_mask(axes: Axes, box: Box, mask: np.ndarray, theme: Theme) -> None:
    """The weights of the head: those kept in colour, those dropped empty; and what it says."""
    rows, columns = mask.shape
    width, height = (box.width - 4) / columns, (box.height - 8) / rows
    for row, column in np.ndindex(rows, columns):
        place = (box.x + 2 + column * width, box.y + 2 + row * height)
        cell = Rectangle(place, 0.86 * width, 0.8 * height, linewidth=0.5)
        colour = theme.under if mask[row, column] else "none"
        cell.set(facecolor=colour, edgecolor=theme.under, alpha=0.75)
        axes.add_patch(cell)
    words = "weights × mask,\ndrawn anew"
    text = axes.text(box.x + box.width / 2, box.y + box.height - 3, words, ha="center", va="center")
    text.set(fontsize=SIZE, color=theme.ink, linespacing=1.2)


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str,
    *,
    bend: float = 0.0,
    dashed: bool = False,
) -> None:
    line = FancyArrowPatch(
        start, end, arrowstyle="-|>", mutation_scale=9, connectionstyle=f"arc3,rad={bend}"
    )
    line.set(color=colour, linewidth=1.3, linestyle="--" if dashed else "-")
    line.shrinkA = line.shrinkB = 2
    axes.add_patch(line)
