"""Figs. 6 and 7, what the settings do: mixup's alpha, and the gamma of the feedback."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from maccal.bench.lines import Book, Line, Rows, Setting
from maccal.bench.titles import title
from maccal.report.figures.drawing import SERIES, Label, bars_say, canvas, dress, name_ends, note
from maccal.report.figures.methods import calibrated_patch
from maccal.report.figures.selection import Spreads, needed, one_setting, spreads
from maccal.report.look import Theme, lay_out

MIXED = {"mixup": SERIES[1], "mit": SERIES[2], "mixup+maccal": SERIES[0]}
# what may differ from the method's own in the grid of gamma
SWEPT = {"feedback", "calibration.statistics", "calibration.gamma"}
REFERENCES = {"held-out": "maccal", "vanilla": "vanilla"}


def by_value(pairs: Iterable[tuple[float, Line]]) -> dict[float, Line]:
    """The lines by the value of a setting, ascending; ValueError where two have the same."""
    found: dict[float, Line] = {}
    for value, line in pairs:
        before = found.setdefault(value, line)
        if before is not line:
            names = f"{before.variant} and {line.variant}"
            raise ValueError(f"{names} have the same place in the figure; pass one of them")
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class Mixing:
    """One method of the mixup figure over alpha, ascending."""

    method: str
    title: str
    alpha: np.ndarray
    ece: Spreads
    accuracy: Spreads


def prepare_mixup(rows: Rows) -> tuple[Setting, list[Mixing]]:
    """The data set and network, and mixup, MIT and mixup with MaC-Cal over alpha.

    Settings with a single alpha are left out.
    """
    alphas: dict[Setting, set[float]] = {}
    lines = []
    for line in Book.of(rows).lines:
        swept = line.method in MIXED and set(line.ran.changes) <= {"settings.alpha"}
        if swept and "alpha" in line.ran.settings:
            lines.append(line)
            alphas.setdefault(line.setting, set()).add(alpha_of(line))
    several = [line for line in lines if len(alphas[line.setting]) > 1]
    needed(several, "runs of mixup with several alphas", "mixup")
    setting = one_setting(several, "mixup")
    found = []
    for method in MIXED:
        own = [line for line in several if line.method == method]
        if own:
            found.append(mixing_of(method, own))
    return setting, found


def alpha_of(line: Line) -> float:
    return float(line.ran.settings["alpha"])


def mixing_of(method: str, lines: Sequence[Line]) -> Mixing:
    found = by_value((alpha_of(line), line) for line in lines)
    groups = [[line] for line in found.values()]
    name = title(lines[0].made.first, lines[0].made.second)
    ece, accuracy = spreads(groups, "ece"), spreads(groups, "accuracy")
    return Mixing(method, name, np.array(list(found)), ece, accuracy)


def plot_mixup(data: tuple[Setting, list[Mixing]], theme: Theme | None = None) -> Figure:
    """ECE and accuracy over alpha; methods stand a little apart, so that no bar hides another."""
    theme = theme or Theme()
    setting, lines = data
    figure, (axes,) = canvas(theme, 1, 2, 3.3)
    for number, one in enumerate(lines):
        beside = one.alpha * 1.05 ** (number - 1)
        draw_spread(axes[0], beside, one.ece, MIXED[one.method])
        draw_spread(axes[1], beside, one.accuracy, MIXED[one.method])
    draw_null(axes[0], lines, theme)
    dress(axes[0], theme, "mixup's alpha", "ECE", f"{setting.model}, {setting.title}")
    dress(axes[1], theme, "mixup's alpha", "accuracy")
    alphas = np.unique(np.concatenate([one.alpha for one in lines]))
    for panel in axes:
        panel.set_xscale("log")
        panel.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
        panel.xaxis.set_minor_locator(NullLocator())
    axes[0].set_ylim(bottom=0)
    handles = [dotted(MIXED[one.method], one.title) for one in lines]
    seeds = np.concatenate([one.ece.seeds for one in lines])
    note(figure, theme, [*handles, calibrated_patch(theme)], bars_say(seeds))
    return figure


def dotted(colour: str, label: str) -> Line2D:
    return Line2D([], [], color=colour, marker="o", markersize=4, label=label)


def draw_spread(axes: Axes, x: np.ndarray, found: Spreads, colour: str) -> None:
    axes.vlines(x, found.low, found.high, color=colour, linewidth=1.2)
    axes.plot(x, found.mean, color=colour, linewidth=1.5, marker="o", markersize=4)


def draw_null(axes: Axes, lines: Sequence[Mixing], theme: Theme) -> None:
    """The mean null band of the methods at each alpha."""
    ends: dict[float, list[tuple[float, float]]] = {}
    for one in lines:
        for alpha, low, high in zip(one.alpha, one.ece.null_low, one.ece.null_high, strict=True):
            ends.setdefault(float(alpha), []).append((low, high))
    alphas = sorted(ends)
    low, high = np.transpose([np.mean(ends[alpha], 0) for alpha in alphas])
    axes.fill_between(alphas, low, high, color=theme.band, linewidth=0, zorder=0)


@dataclass(frozen=True)
class Gamma:
    """The gamma figure.

    `references` are ECEs that have no gamma, each an array of one, where the rows have them.
    """

    setting: Setting
    gamma: np.ndarray
    ece: Spreads
    references: Mapping[str, Spreads]  # "held-out" and "vanilla"


def prepare_gamma(rows: Rows) -> Gamma:
    """ECE over gamma with the feedback of the training rows.

    Beside it the same head with held-out feedback, and vanilla.
    """
    book = Book.of(rows)
    swept = [line for line in book.lines if is_swept(line)]
    needed(swept, "runs of MaC-Cal with feedback from the training rows", "gamma")
    setting = one_setting(swept, "gamma")
    found = by_value((gamma_of(line), line) for line in swept)
    known = {}
    for name, method in REFERENCES.items():
        line = book.get(setting, method)
        if line is not None:
            known[name] = spreads([[line]], "ece")
    eces = spreads([[line] for line in found.values()], "ece")
    return Gamma(setting, np.array(list(found)), eces, known)


def is_swept(line: Line) -> bool:
    ours = line.method == "maccal" and line.ran.feedback == "training"
    return ours and set(line.ran.changes) <= SWEPT


def gamma_of(line: Line) -> float:
    assert line.ran.calibration is not None
    return float(line.ran.calibration["gamma"])


def plot_gamma(data: Gamma, theme: Theme | None = None) -> Figure:
    """One panel; references are horizontal lines with their spread, named at their right end."""
    theme = theme or Theme()
    figure, ((axes,),) = canvas(theme, 1, 1, 3.5)
    ece = data.ece
    axes.fill_between(data.gamma, ece.null_low, ece.null_high, color=theme.band, linewidth=0)
    draw_spread(axes, data.gamma, ece, theme.under)
    dress(axes, theme, "gamma", "ECE", f"{data.setting.model}, {data.setting.title}")
    axes.set_xlim(data.gamma[0] - 0.02, data.gamma[-1] + 0.02)
    right = axes.get_xlim()[1]
    ends = []
    for name, found in data.references.items():
        words = "held-out feedback" if name == "held-out" else title(name)
        colour = SERIES[2] if name == "held-out" else theme.ink
        draw_reference(axes, found, colour)
        ends.append(Label(words, right, float(found.mean[0]), colour))
    axes.set_ylim(0, None)
    ours = dotted(theme.under, "feedback from the training rows")
    seeds = [ece.seeds, *(found.seeds for found in data.references.values())]
    note(figure, theme, [ours, calibrated_patch(theme)], bars_say(np.concatenate(seeds)))
    lay_out(figure)
    name_ends(axes, ends)
    return figure


def draw_reference(axes: Axes, found: Spreads, colour: str) -> None:
    """A dashed line across the panel, and its spread."""
    axes.axhspan(float(found.low[0]), float(found.high[0]), color=colour, alpha=0.12, linewidth=0)
    axes.axhline(float(found.mean[0]), color=colour, linewidth=1.2, linestyle=(0, (4, 2)))
