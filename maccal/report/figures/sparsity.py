"""Fig. 8: the share of the head's weights that MaC-Cal drops, epoch by epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from maccal.bench.lines import Book, Rows, Setting
from maccal.report.figures.drawing import SERIES, Label, canvas, dress, name_ends, note
from maccal.report.figures.selection import needed
from maccal.report.look import Theme, lay_out

NAMES = 20  # that find room at the end of lines


@dataclass(frozen=True)
class SparsityPath:
    """A run of MaC-Cal: the share of weights dropped, epoch by epoch."""

    setting: Setting
    seed: int
    epoch: np.ndarray
    sparsity: np.ndarray


def prepare_sparsity(rows: Rows) -> list[SparsityPath]:
    """The paths of MaC-Cal's runs with its own settings, by data set, network and seed."""
    ours = [line.having("keep") for line in Book.of(rows).plain if line.method == "maccal"]
    lines = needed([line for line in ours if line.runs], "runs of MaC-Cal", "sparsity")
    paths = []
    for line in lines:
        for seed, row in line.runs.items():
            keep = np.array(row.keep, dtype=np.float64)
            paths.append(SparsityPath(line.setting, seed, np.arange(1, len(keep) + 1), 1 - keep))
    return paths


def plot_sparsity(paths: Sequence[SparsityPath], theme: Theme | None = None) -> Figure:
    """One line per run, one colour per data set.

    The network is named at the mean of its seeds' ends, unless there are too many.
    """
    theme = theme or Theme()
    figure, ((axes,),) = canvas(theme, 1, 1, 3.5)
    sets = dict.fromkeys(path.setting.title for path in paths)
    colours = dict(zip(sets, SERIES * 3, strict=False))
    ends: dict[Setting, list[float]] = {}
    for path in paths:
        colour = colours[path.setting.title]
        axes.plot(path.epoch, path.sparsity, color=colour, linewidth=1.2, alpha=0.85)
        ends.setdefault(path.setting, []).append(float(path.sparsity[-1]))
    dress(axes, theme, "epoch of stage II", "weights dropped")
    last = max(int(path.epoch[-1]) for path in paths)
    axes.set(xlim=(1 if last > 1 else 0, last), ylim=(0, 1))
    handles = [Line2D([], [], color=colour, label=data) for data, colour in colours.items()]
    note(figure, theme, handles, "one line per run")
    if len(ends) > NAMES:
        return figure
    lay_out(figure)
    labels = []
    for setting, values in ends.items():
        labels.append(Label(setting.model, last, fmean(values), colours[setting.title]))
    name_ends(axes, labels)
    return figure
