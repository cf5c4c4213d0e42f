"""Fig. 8: the share of the head's weights that MaC-Cal drops, epoch by epoch.

By itself MaC-Cal solves for it after every epoch; where they were run, the steps of Eq. 12, from a
fresh head and as printed, are drawn beside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from maccal.bench.lines import Book, Rows, Setting
from maccal.bench.titles import PRINTED
from maccal.report.figures.drawing import SERIES, Label, canvas, dress, name_ends, note
from maccal.report.figures.selection import needed
from maccal.report.look import Theme, lay_out

NAMES = 20  # that find room at the end of lines
# how keep is set, by the name of the line: its style, and what it is called where there are several
RULES: Mapping[str, tuple[Literal["-", "--", ":"], str]] = {
    "maccal": ("-", "MaC-Cal by itself"),
    "maccal,start=fresh": ("--", "a fresh head, by Eq. 12"),
    PRINTED: (":", "as printed"),
}


@dataclass(frozen=True)
class SparsityPath:
    """A run of MaC-Cal: the share of weights dropped, epoch by epoch."""

    setting: Setting
    seed: int
    epoch: np.ndarray
    sparsity: np.ndarray
    variant: str = "maccal"


def prepare_sparsity(rows: Rows) -> list[SparsityPath]:
    """The paths of MaC-Cal's runs by data set, network and seed: its own, and by Eq. 12."""
    ours = [line.having("keep") for line in Book.of(rows).lines if line.variant in RULES]
    lines = needed([line for line in ours if line.runs], "runs of MaC-Cal", "sparsity")
    paths = []
    for line in lines:
        for seed, row in line.runs.items():
            keep = np.array(row.keep, dtype=np.float64)
            epoch = np.arange(1, len(keep) + 1)
            paths.append(SparsityPath(line.setting, seed, epoch, 1 - keep, line.variant))
    return paths


def plot_sparsity(paths: Sequence[SparsityPath], theme: Theme | None = None) -> Figure:
    """One line per run, one colour per data set, one style for each way in which keep is set.

    The network is named at the mean of the ends of its longest lines, unless there are too many.
    """
    theme = theme or Theme()
    figure, ((axes,),) = canvas(theme, 1, 1, 3.5)
    sets = dict.fromkeys(path.setting.title for path in paths)
    colours = dict(zip(sets, SERIES * 3, strict=False))
    for path in paths:
        colour, style = colours[path.setting.title], RULES[path.variant][0]
        axes.plot(
            path.epoch, path.sparsity, color=colour, linewidth=1.2, alpha=0.85, linestyle=style
        )
    ends = ends_of(paths)
    dress(axes, theme, "epoch of stage II", "weights dropped")
    last = max(int(path.epoch[-1]) for path in paths)
    axes.set(xlim=(1 if last > 1 else 0, last), ylim=(0, 1))
    handles = [Line2D([], [], color=colour, label=data) for data, colour in colours.items()]
    seen = {path.variant for path in paths}
    drawn = [name for name in RULES if name in seen]
    for style, words in [RULES[name] for name in drawn] if drawn != ["maccal"] else ():
        handles.append(Line2D([], [], color=theme.quiet, linestyle=style, label=words))
    note(figure, theme, handles, "one line per run")
    if len(ends) > NAMES:
        return figure
    lay_out(figure)
    labels = []
    for setting, values in ends.items():
        labels.append(Label(setting.model, last, fmean(values), colours[setting.title]))
    name_ends(axes, labels)
    return figure


def ends_of(paths: Sequence[SparsityPath]) -> dict[Setting, list[float]]:
    """By setting the ends of those lines that reach farthest, of the first way that does."""
    found: dict[Setting, list[float]] = {}
    for setting in dict.fromkeys(path.setting for path in paths):
        own = [path for path in paths if path.setting == setting]
        farthest = max(own, key=lambda path: len(path.epoch))
        for path in own:
            if (path.variant, len(path.epoch)) == (farthest.variant, len(farthest.epoch)):
                found.setdefault(setting, []).append(float(path.sparsity[-1]))
    return found
