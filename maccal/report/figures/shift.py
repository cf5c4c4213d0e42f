"""Fig. 5: ECE under corruption, severity by severity: of all corruptions pooled, and their mean.

An ECE of few images is large by chance alone, which the pool of fifteen corruptions is not; but
there a corruption that makes the network too sure hides one that makes it not sure enough.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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

# how the corruptions of a severity are taken together: the key of a row, and the name of the axis
POOLED, MEAN = "ece_pooled", "ece_mean"
TOGETHER = {POOLED: "ECE, corruptions pooled", MEAN: "ECE, mean over corruptions"}
ROOM = 11.0  # points of height that the name of a line takes


@dataclass(frozen=True)
class Shift:
    """A panel of the shift figure: methods x severities, 0 being the test images as they are."""

    data: str  # title of the data set
    together: str  # POOLED or MEAN
    images: str  # how many, and whose, in words
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
    """One panel per data set of all corruptions pooled, then one per data set of their mean.

    ECEs are averaged over networks and then over seeds. `shift.ece` of the rows has every
    corruption by itself.
    """
    corrupted = [line.having("shift") for line in Book.of(rows).plain]
    lines = needed([line for line in corrupted if line.runs], "corrupted images", "shift")
    sets = by_data(lines)
    return [shift_of(data, sets[data], how) for how, data in product(TOGETHER, sets)]


def shift_of(data: str, lines: Sequence[Line], together: str) -> Shift:
    rows = rows_of(lines)
    check_alike(data, rows)
    groups = grouped(lines, "shift")
    names = list(groups)
    paths = [paths_of(own, together) for own in groups.values()]
    ece = np.array([path.mean(0) for path in paths])
    deviation = np.array([path.std(0, ddof=1) if len(path) > 1 else 0 * path[0] for path in paths])
    return Shift(
        data=data,
        together=together,
        images=images_words(rows),
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


def check_alike(data: str, rows: Sequence[Row]) -> None:
    """ValueError where runs of a data set cannot be compared."""
    parts = [shift_part(row) for row in rows]
    seen = {(tuple(part["kinds"]), tuple(part["severities"])) for part in parts}
    if len(seen) > 1:
        raise ValueError(
            f"runs on {data} saw different corruptions; "
            "run `maccal bench shift` again for those that saw fewer"
        )
    if any(MEAN not in part for part in parts):
        raise ValueError(f"rows on {data} without 'ece_mean'; run `maccal bench shift` again")


def rows_of(lines: Sequence[Line]) -> list[Row]:
    found: list[Row] = []
    for line in lines:
        found.extend(line.runs.values())
    return found


def shift_part(row: Row) -> Mapping[str, Any]:
    return row.shift or {}


def images_words(rows: Sequence[Row]) -> str:
    """How many test images of each corruption, and who made them."""
    counts = sorted({int(shift_part(row).get("n", 0)) for row in rows})
    sources = {str(shift_part(row).get("source", "made")) for row in rows}
    whose = "corrupted here" if sources == {"made"} else "published"
    if len(sources) > 1:
        whose = "published or corrupted here"
    number = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{number} test images, {whose}"


def null_ends(rows: Sequence[Row], side: str) -> list[float]:
    return [row.number(f"ece_null_{side}") for row in rows]


def best_other(names: Sequence[str], values: np.ndarray) -> str:
    """The method with the lowest value, of those that are not in colour anyway if there are any."""
    others = [index for index, name in enumerate(names) if name not in COMPARED]
    return names[min(others or range(len(names)), key=lambda index: values[index])]


def paths_of(lines: Sequence[Line], together: str) -> np.ndarray:
    """One row per seed: the clean ECE, then that of all corruptions at each severity, means over
    networks.
    """
    paths = []
    for seed in shared_seeds(lines):
        rows = [line.runs[seed] for line in lines]
        clean = fmean(row.number("ece") for row in rows)
        corrupted = np.mean([shift_part(row)[together] for row in rows], 0)
        paths.append([clean, *corrupted])
    return np.array(paths)


def plot_shift(panels: Sequence[Shift], theme: Theme | None = None) -> Figure:
    """One row of panels per way of taking corruptions together; every line is named at its end.

    Those in colour have their spread over seeds.
    """
    theme = theme or Theme()
    by_way: dict[str, list[Shift]] = {}
    for panel in panels:
        by_way.setdefault(panel.together, []).append(panel)
    rows = list(by_way.values())
    tall = max(len(panel.methods) for panel in panels) * ROOM / 72
    height = 0.9 + len(rows) * (0.75 + max(1.7, tall))
    figure, grid = canvas(theme, len(rows), len(rows[0]), height)
    named = []
    for row, axes in zip(rows, grid, strict=True):
        for panel, one in zip(row, axes, strict=True):
            words = TOGETHER[panel.together] if one is axes[0] else ""
            dress(one, theme, "severity", words, panel.data)
            ends = draw_shift(one, panel, theme)
            top = 1.05 * max(panel.ece.max(), panel.high.max())
            right = panel.severities[-1] + 0.1
            one.set(xlim=(-0.35, right), ylim=(0, top), xticks=panel.severities)
            named.append((one, ends))
    note(figure, theme, [calibrated_patch(theme, " at severity 0")], words_below(panels))
    lay_out(figure)
    for one, ends in named:
        name_ends(one, ends, lines=True)
    return figure


def words_below(panels: Sequence[Shift]) -> str:
    seeds = np.concatenate([panel.seeds for panel in panels])
    bands = bars_say(seeds, "bands", "none for one seed")
    missing = without(sum((panel.left_out for panel in panels), ()))
    images = "; ".join(dict.fromkeys(panel.images for panel in panels))
    return f"severity 0: the test images as they are; others: {images}; {bands}{missing}"


def draw_shift(axes: Axes, panel: Shift, theme: Theme) -> list[Label]:
    """The lines; returns their ends, to be named."""
    axes.bar(0, panel.null[1] - panel.null[0], 0.5, panel.null[0], color=theme.band, linewidth=0)
    ends = []
    last = float(panel.severities[-1])
    for name, ece, low, high in zip(panel.methods, panel.ece, panel.low, panel.high, strict=True):
        if name in (*COMPARED, panel.best):
            colour = SERIES[3] if name not in COMPARED else colour_of(name, theme)
            axes.fill_between(panel.severities, low, high, color=colour, alpha=0.2, linewidth=0)
            (line,) = axes.plot(panel.severities, ece, color=colour, linewidth=1.8, zorder=3)
            line.set(marker="o", markersize=3)
        else:
            colour = theme.quiet
            axes.plot(panel.severities, ece, color=colour, alpha=OTHERS, linewidth=1)
        ends.append(Label(title(name), last, float(ece[-1]), colour))
    return ends
