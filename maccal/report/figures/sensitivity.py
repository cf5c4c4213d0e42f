"""Figs. 6 and 7, what the settings do: mixup's alpha, and the gamma of the feedback."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from maccal.bench.lines import Book, Line, Rows, Setting
from maccal.bench.sweeps import other_changes, sweeps_alpha
from maccal.bench.titles import title
from maccal.report.figures.drawing import SERIES, Label, bars_say, canvas, dress, name_ends, note
from maccal.report.figures.methods import calibrated_patch
from maccal.report.figures.selection import Spreads, needed, one_setting, spreads
from maccal.report.look import Theme, lay_out

MIXED = {"mixup": SERIES[1], "mit": SERIES[2], "mixup+maccal": SERIES[0]}
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
        if line.method in MIXED and sweeps_alpha(line):
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
    """A line of the gamma figure.

    `references` are ECEs that have no gamma, each an array of one, where the rows have them.
    """

    setting: Setting
    head: str  # what is not MaC-Cal's own in stage II, in words
    gamma: np.ndarray
    ece: Spreads
    references: Mapping[str, Spreads]  # "held-out" and "vanilla"


def prepare_gamma(rows: Rows) -> list[Gamma]:
    """ECE over gamma with the feedback of the training rows, by data set, network and head.

    Beside it MaC-Cal with held-out feedback, and vanilla. A single gamma is no line.
    """
    book = Book.of(rows)
    lines: dict[tuple[Setting, str], list[Line]] = {}
    for line in book.lines:
        if line.method == "maccal" and line.ran.feedback == "training":
            head = ", ".join(other_changes(line)).replace("_", " ")
            lines.setdefault((line.setting, head), []).append(line)
    several = {key: own for key, own in lines.items() if len(own) > 1}
    needed(several, "runs of MaC-Cal with feedback from the training rows", "gamma")
    found = []
    for (setting, head), own in sorted(several.items()):
        by_gamma = by_value((gamma_of(line), line) for line in own)
        eces = spreads([[line] for line in by_gamma.values()], "ece")
        gamma = np.array(list(by_gamma))
        found.append(Gamma(setting, head, gamma, eces, references(book, setting)))
    return found


def references(book: Book, setting: Setting) -> dict[str, Spreads]:
    known = {}
    for name, method in REFERENCES.items():
        line = book.get(setting, method)
        if line is not None:
            known[name] = spreads([[line]], "ece")
    return known


def gamma_of(line: Line) -> float:
    assert line.ran.calibration is not None
    return float(line.ran.calibration["gamma"])


def plot_gamma(lines: Sequence[Gamma], theme: Theme | None = None) -> Figure:
    """One panel per data set and network, one line per head.

    References are horizontal lines with their spread, named at their right end.
    """
    theme = theme or Theme()
    settings = list(dict.fromkeys(one.setting for one in lines))
    heads = list(dict.fromkeys(one.head for one in lines))
    colours = dict(zip(heads, (theme.under, *SERIES[3:], *SERIES), strict=False))
    figure, (panels,) = canvas(theme, 1, len(settings), 3.5)
    named = []
    for setting, axes in zip(settings, panels, strict=True):
        own = [one for one in lines if one.setting == setting]
        dress(axes, theme, "gamma", "ECE", f"{setting.model}, {setting.title}")
        named.append((axes, draw_gammas(axes, own, colours, theme)))
    handles = []
    for head, colour in colours.items():
        handles.append(dotted(colour, f"feedback from the training rows{', ' * bool(head)}{head}"))
    seeds = []
    for one in lines:
        seeds += [one.ece.seeds, *(found.seeds for found in one.references.values())]
    note(figure, theme, [*handles, calibrated_patch(theme)], bars_say(np.concatenate(seeds)))
    lay_out(figure)
    for axes, ends in named:
        name_ends(axes, ends)
    return figure


def draw_gammas(
    axes: Axes, lines: Sequence[Gamma], colours: Mapping[str, str], theme: Theme
) -> list[Label]:
    """The lines of a panel and its references; returns the ends of these, to be named."""
    ece = lines[0].ece
    axes.fill_between(lines[0].gamma, ece.null_low, ece.null_high, color=theme.band, linewidth=0)
    for one in lines:
        draw_spread(axes, one.gamma, one.ece, colours[one.head])
    every = np.concatenate([one.gamma for one in lines])
    right = float(every.max()) + 0.02
    axes.set_xlim(float(every.min()) - 0.02, right)
    ends = []
    for name, found in lines[0].references.items():
        words = "held-out feedback" if name == "held-out" else title(name)
        colour = SERIES[2] if name == "held-out" else theme.ink
        draw_reference(axes, found, colour)
        ends.append(Label(words, right, float(found.mean[0]), colour))
    axes.set_ylim(0, None)
    return ends


def draw_reference(axes: Axes, found: Spreads, colour: str) -> None:
    """A dashed line across the panel, and its spread."""
    axes.axhspan(float(found.low[0]), float(found.high[0]), color=colour, alpha=0.12, linewidth=0)
    axes.axhline(float(found.mean[0]), color=colour, linewidth=1.2, linestyle=(0, (4, 2)))
