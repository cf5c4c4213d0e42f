"""Fig. 4: accuracy, ECE, AECE and MCE of every method, over data sets and networks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from maccal.bench.lines import Book, Rows, Setting
from maccal.report.figures.drawing import bars_say, canvas, dress, note, percent
from maccal.report.figures.methods import calibrated_patch, draw_measure, name_methods
from maccal.report.figures.selection import (
    Spreads,
    comparable,
    grouped,
    left_out,
    needed,
    settings_of,
    spreads,
    without,
)
from maccal.report.look import Theme

MEASURES = {"accuracy": "accuracy", "ece": "ECE", "aece": "AECE", "mce": "MCE"}


@dataclass(frozen=True)
class Averages:
    """The average-metrics figure.

    Methods from the smallest ECE to the largest, and their measures in that order.
    """

    methods: tuple[str, ...]
    measures: dict[str, Spreads]
    settings: tuple[Setting, ...]
    left_out: tuple[str, ...]  # methods that lack a run in some setting with every seed


def prepare_averages(rows: Rows) -> Averages:
    """Accuracy, ECE, AECE and MCE of each method with its own settings, averaged over the data
    sets and networks where methods are compared.
    """
    lines = needed(comparable(Book.of(rows)), "run of a method with its own settings", "table1")
    groups = grouped(lines, "table1")
    names = list(groups)
    eces = spreads(list(groups.values()), "ece")
    order = [names[index] for index in np.argsort(eces.mean, kind="stable")]
    ordered = [groups[name] for name in order]
    measures = {key: spreads(ordered, key) for key in MEASURES}
    return Averages(tuple(order), measures, tuple(settings_of(lines)), left_out(lines, order))


def plot_averages(data: Averages, theme: Theme | None = None) -> Figure:
    """One panel per measure, one line per method, best calibrated at the top.

    Grey is where a calibrated model would score.
    """
    theme = theme or Theme()
    height = 1.35 + 0.21 * len(data.methods)
    figure, (panels,) = canvas(theme, 1, len(MEASURES), height, sharey=True)
    figure.set_layout_engine("constrained", w_pad=0.05, h_pad=0.05, wspace=0.06)
    for axes, (key, name) in zip(panels, MEASURES.items(), strict=True):
        draw_measure(axes, data.methods, data.measures[key], theme, null=key != "accuracy")
        dress(axes, theme, name, "")
        percent(axes.xaxis, 3)
        axes.yaxis.set_major_locator(NullLocator())
        if key != "accuracy":
            axes.set_xlim(left=0)
    name_methods(panels[0], data.methods, theme)
    words = f"{averaged_over(data.settings)}; {bars_say(data.measures['ece'].seeds)}"
    note(figure, theme, [calibrated_patch(theme)], words + without(data.left_out))
    return figure


def averaged_over(settings: Sequence[Setting]) -> str:
    if len(settings) == 1:
        return f"{settings[0].model}, {settings[0].title}"
    sets = dict.fromkeys(setting.title for setting in settings)
    return f"mean over {len(settings)} networks ({'; '.join(sets)})"
