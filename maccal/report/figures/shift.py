"""Fig. 5: ECE under corruption, severity by severity."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from maccal.bench.lines import Book, Line, Rows, shared_seeds
from maccal.bench.titles import title
from maccal.evaluation.row import Row
from maccal.report.figures.drawing import (
    OTHERS,
    SERIES,
    Label,
    bars_say,
    canvas,
    dress,
    name_ends,
    note,
)
from maccal.report.figures.methods import COMPARED, calibrated_patch, colour_of
from maccal.report.figures.selection import by_data, grouped, left_out, needed, without
from maccal.report.look import Theme, lay_out


@dataclass(frozen=True)
class Shift:
    """A panel of the shift figure: methods x severities, 0 being the test images as they are."""

    data: str  # title of the data set
    severities: np.ndarray
    methods: tuple[str, ...]
    ece: np.ndarray  # of all corruptions together; mean over seeds
    low: np.ndarray  # less the standard deviation over seeds
    high: np.ndarray  # and more
    seeds: np.ndarray
    # of the test images as they are, mean over runs: the corrupted ones have none in the rows
    null: tuple[float, float]
    best: str  # of those that are not drawn in colour anyway, by the mean over severities 1 and up
    left_out: tuple[str, ...]


def prepare_shift(rows: Rows) -> list[Shift]:
    """One panel per data set: ECE of all corruptions together, averaged over networks and then over
    seeds.

    An ECE of few images is large by chance alone, so the fifteen corruptions are pooled;
    `shift.ece` of the rows has them apart.
    """
    corrupted = [line.having("shift") for line in Book.of(rows).plain]
    lines = needed([line for line in corrupted if line.runs], "corrupted images", "shift")
    return [shift_of(data, own) for data, own in by_data(lines).items()]


def shift_of(data: str, lines: Sequence[Line]) -> Shift:
    rows = rows_of(lines)
    seen = {(tuple(part["kinds"]), tuple(part["severities"])) for part in map(shift_part, rows)}
    if len(seen) > 1:
        raise ValueError(
            f"runs on {data} saw different corruptions; "
            "run `maccal bench shift` again for those that saw fewer"
        )
    groups = grouped(lines, "shift")
    names = list(groups)
    paths = [paths_of(own) for own in groups.values()]
    ece = np.array([path.mean(0) for path in paths])
    deviation = np.array([path.std(0, ddof=1) if len(path) > 1 else 0 * path[0] for path in paths])
    return Shift(
        data=data,
        severities=np.array([0, *shift_part(rows[0])["severities"]]),
        methods=tuple(names),
        ece=ece,
        low=ece - deviation,
        high=ece + deviation,
        seeds=np.array([len(path) for path in paths]),
        null=(fmean(null_ends(rows, "low")), fmean(null_ends(rows, "high"))),
        best=best_other(names, ece[:, 1:].mean(1)),
        left_out=left_out(lines, names),
    )


def rows_of(lines: Sequence[Line]) -> list[Row]:
    found: list[Row] = []
    for line in lines:
        found.extend(line.runs.values())
    return found


def shift_part(row: Row) -> dict[str, list[float]]:
    return dict(row.shift or {})


def null_ends(rows: Sequence[Row], side: str) -> list[float]:
    return [row.number(f"ece_null_{side}") for row in rows]


def best_other(names: Sequence[str], values: np.ndarray) -> str:
    """The method with the lowest value, of those that are not in colour anyway if there are any."""
    others = [index for index, name in enumerate(names) if name not in COMPARED]
    return names[min(others or range(len(names)), key=lambda index: values[index])]


def paths_of(lines: Sequence[Line]) -> np.ndarray:
    """One row per seed: the clean ECE, then that of all corruptions at each severity, means over
    networks.
    """
    paths = []
    for seed in shared_seeds(lines):
        rows = [line.runs[seed] for line in lines]
        clean = fmean(row.number("ece") for row in rows)
        corrupted = np.mean([shift_part(row)["ece_pooled"] for row in rows], 0)
        paths.append([clean, *corrupted])
    return np.array(paths)


def plot_shift(panels: Sequence[Shift], theme: Theme | None = None) -> Figure:
    """Grey lines are the other methods.

    Those in colour are named where they end, with their spread over seeds.
    """
    theme = theme or Theme()
    figure, (axes,) = canvas(theme, 1, len(panels), 3.6)
    named = []
    for panel, one in zip(panels, axes, strict=True):
        first = one is axes[0]
        dress(one, theme, "severity", "ECE, all corruptions" if first else "", panel.data)
        ends = draw_shift(one, panel, theme)
        one.set(xlim=(-0.35, panel.severities[-1] + 0.1), ylim=(0, None), xticks=panel.severities)
        named.append((one, ends))
    others = Line2D([], [], color=theme.quiet, alpha=OTHERS, label="other methods", linewidth=1)
    note(figure, theme, [others, calibrated_patch(theme, " at severity 0")], words_below(panels))
    lay_out(figure)
    for one, ends in named:
        name_ends(one, ends)
    return figure


def words_below(panels: Sequence[Shift]) -> str:
    seeds = np.concatenate([panel.seeds for panel in panels])
    bands = bars_say(seeds, "bands", "none for one seed")
    missing = without(sum((panel.left_out for panel in panels), ()))
    return f"severity 0: the test images as they are; {bands}{missing}"


def draw_shift(axes: Axes, panel: Shift, theme: Theme) -> list[Label]:
    """The lines; returns the ends of those to be named."""
    axes.bar(0, panel.null[1] - panel.null[0], 0.5, panel.null[0], color=theme.band, linewidth=0)
    ends = []
    for name, ece, low, high in zip(panel.methods, panel.ece, panel.low, panel.high, strict=True):
        if name not in (*COMPARED, panel.best):
            axes.plot(panel.severities, ece, color=theme.quiet, alpha=OTHERS, linewidth=1)
            continue
        colour = SERIES[3] if name not in COMPARED else colour_of(name, theme)
        axes.fill_between(panel.severities, low, high, color=colour, alpha=0.2, linewidth=0)
        (line,) = axes.plot(panel.severities, ece, color=colour, linewidth=1.8, zorder=3)
        line.set(marker="o", markersize=3)
        ends.append(Label(title(name), float(panel.severities[-1]), float(ece[-1]), colour))
    return ends
