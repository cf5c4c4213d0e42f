"""What the settings do.

Mixup's alpha, the gamma of the feedback, and the sparsity that stage II settles on.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from maccal.report.diagrams import Theme, lay_out
from maccal.report.figures.drawing import SERIES, Label, bars_say, canvas, dress, name_ends, note
from maccal.report.figures.selection import (
    Place,
    Row,
    Spread,
    by_seed,
    changes,
    done,
    needed,
    one_place,
    place_of,
    plain,
    set_title,
    spread_of,
    title,
)

MIXED = {"mixup": SERIES[1], "mit": SERIES[2], "mixup+maccal": SERIES[0]}
NAMES = 20  # that find room at the end of lines
# what is not the method's own in the grid of gamma, but for gamma
FEEDBACK = {"training", "statistics=deployed"}


@dataclass(frozen=True)
class Mixing:
    """One method of the mixup figure over alpha, ascending."""

    method: str
    alpha: np.ndarray
    ece: Spread
    accuracy: Spread


def prepare_mixup(rows: Iterable[Row]) -> tuple[Place, list[Mixing]]:
    """The data set and network, and mixup, MIT and mixup with MaC-Cal over alpha.

    Places with a single alpha are left out.
    """
    mixed = [
        row
        for row in done(rows)
        if row["run"]["method"] in MIXED and "alpha" in row["run"].get("settings", {})
    ]
    fit = [row for row in mixed if all(change.startswith("alpha=") for change in changes(row))]
    alphas: dict[Place, set[float]] = {}
    for row in fit:
        alphas.setdefault(place_of(row), set()).add(row["run"]["settings"]["alpha"])
    chosen = needed(
        [row for row in fit if len(alphas[place_of(row)]) > 1],
        "runs of mixup with several alphas",
        "mixup",
    )
    place = one_place(chosen, "mixup")
    return place, [
        mixing_of(name, chosen)
        for name in MIXED
        if any(row["run"]["method"] == name for row in chosen)
    ]


def mixing_of(method: str, rows: Sequence[Row]) -> Mixing:
    own = [row for row in rows if row["run"]["method"] == method]
    groups = by_seed(own, lambda row: float(row["run"]["settings"]["alpha"]))
    alphas = sorted(groups)
    ece, accuracy = (
        spread_of([groups[alpha] for alpha in alphas], key) for key in ("ece", "accuracy")
    )
    return Mixing(method, np.array(alphas), ece, accuracy)


def plot_mixup(data: tuple[Place, list[Mixing]], theme: Theme | None = None) -> Figure:
    """ECE and accuracy over alpha; the methods stand a little apart, so that no bar hides another."""
    theme = theme or Theme()
    (place, lines), (figure, (axes,)) = data, canvas(theme, 1, 2, 3.3)
    for shift, one in enumerate(lines):
        for panel, spread in zip(axes, (one.ece, one.accuracy), strict=True):
            draw_spread(panel, one.alpha * 1.05 ** (shift - 1), spread, MIXED[one.method])
    draw_null(axes[0], lines, theme)
    for panel, name in zip(axes, ("ECE", "accuracy"), strict=True):
        dress(
            panel,
            theme,
            "mixup's alpha",
            name,
            f"{place[1]}, {set_title(place[0])}" if name == "ECE" else "",
        )
        alphas = np.unique(np.concatenate([one.alpha for one in lines]))
        panel.set_xscale("log")
        panel.set_xticks(alphas, [f"{alpha:g}" for alpha in alphas])
        panel.xaxis.set_minor_locator(NullLocator())
    axes[0].set_ylim(bottom=0)
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=MIXED[one.method], marker="o", markersize=4, label=title(one.method))
        for one in lines
    ]
    seeds = np.concatenate([one.ece.seeds for one in lines])
    note(
        figure,
        theme,
        [*handles, Patch(color=theme.band, label="calibrated, 95 %", linewidth=0)],
        bars_say(seeds),
    )
    return figure


def draw_spread(axes: Axes, x: np.ndarray, spread: Spread, colour: str) -> None:
    axes.vlines(x, spread.low, spread.high, color=colour, linewidth=1.2)
    axes.plot(x, spread.mean, color=colour, linewidth=1.5, marker="o", markersize=4)


def draw_null(axes: Axes, lines: Sequence[Mixing], theme: Theme) -> None:
    """The mean null band of the methods at each alpha."""
    alphas = np.unique(np.concatenate([one.alpha for one in lines]))

    def ends(side: str) -> list[float]:
        return [
            float(
                np.mean(
                    [getattr(one.ece, side)[one.alpha == a][0] for one in lines if a in one.alpha]
                )
            )
            for a in alphas
        ]

    axes.fill_between(
        alphas, ends("null_low"), ends("null_high"), color=theme.band, linewidth=0, zorder=0
    )


@dataclass(frozen=True)
class Gamma:
    """The gamma figure.

    `references` are ECEs that have no gamma, each an array of one, where the rows have them.
    """

    place: Place
    gamma: np.ndarray
    ece: Spread
    references: dict[str, Spread]  # "held-out" and "vanilla"


def prepare_gamma(rows: Iterable[Row]) -> Gamma:
    """ECE over gamma with the feedback of the training rows.

    Beside it the same head with held-out feedback, and vanilla.
    """
    swept = [
        row
        for row in done(rows)
        if row["run"]["method"] == "maccal" and row["run"].get("feedback") == "training"
    ]
    swept = [
        row
        for row in swept
        if all(change.startswith("gamma=") for change in changes(row) - FEEDBACK)
    ]
    chosen = needed(swept, "runs of MaC-Cal with feedback from the training rows", "gamma")
    place = one_place(chosen, "gamma")
    groups = by_seed(chosen, lambda row: float(row["run"]["stage2"]["gamma"]))
    gammas = sorted(groups)
    alone = by_seed(
        [row for row in plain(rows) if place_of(row) == place], lambda row: row["run"]["method"]
    )
    references = {"held-out": "maccal", "vanilla": "vanilla"}
    known = {
        name: spread_of([alone[method]], "ece")
        for name, method in references.items()
        if method in alone
    }
    return Gamma(
        place, np.array(gammas), spread_of([groups[gamma] for gamma in gammas], "ece"), known
    )


def plot_gamma(data: Gamma, theme: Theme | None = None) -> Figure:
    """One panel; the references are horizontal lines with their range, named at their right end."""
    theme = theme or Theme()
    figure, ((axes,),) = canvas(theme, 1, 1, 3.5)
    axes.fill_between(
        data.gamma, data.ece.null_low, data.ece.null_high, color=theme.band, linewidth=0
    )
    draw_spread(axes, data.gamma, data.ece, theme.under)
    names = {"held-out": ("held-out feedback", SERIES[2]), "vanilla": (title("vanilla"), theme.ink)}
    for name, spread in data.references.items():
        axes.axhspan(
            float(spread.low[0]),
            float(spread.high[0]),
            color=names[name][1],
            alpha=0.12,
            linewidth=0,
        )
        axes.axhline(
            float(spread.mean[0]), color=names[name][1], linewidth=1.2, linestyle=(0, (4, 2))
        )
    dress(axes, theme, "gamma", "ECE", f"{data.place[1]}, {set_title(data.place[0])}")
    axes.set(xlim=(data.gamma[0] - 0.02, data.gamma[-1] + 0.02), ylim=(0, None))
    handles = [
        Line2D(
            [],
            [],
            color=theme.under,
            marker="o",
            markersize=4,
            label="feedback from the training rows",
        )
    ]
    patch = Patch(color=theme.band, label="calibrated, 95 %", linewidth=0)
    note(
        figure,
        theme,
        [*handles, patch],
        bars_say(np.concatenate([data.ece.seeds, *(s.seeds for s in data.references.values())])),
    )
    right = axes.get_xlim()[1]
    lay_out(figure)
    name_ends(
        axes,
        [
            Label(names[name][0], right, float(s.mean[0]), names[name][1])
            for name, s in data.references.items()
        ],
    )
    return figure


@dataclass(frozen=True)
class SparsityPath:
    """A run of MaC-Cal: the share of weights dropped, epoch by epoch."""

    place: Place
    seed: int
    epoch: np.ndarray
    sparsity: np.ndarray


def prepare_sparsity(rows: Iterable[Row]) -> list[SparsityPath]:
    """The paths of MaC-Cal's runs with its own settings, by data set, network and seed."""
    chosen = needed(
        [r for r in plain(rows) if r["run"]["method"] == "maccal" and r.get("keep")],
        "runs of MaC-Cal",
        "sparsity",
    )
    paths = [
        SparsityPath(
            place_of(r),
            r["run"]["seed"],
            np.arange(1, len(r["keep"]) + 1),
            1 - np.array(r["keep"], dtype=np.float64),
        )
        for r in chosen
    ]
    return sorted(paths, key=lambda path: (path.place, path.seed))


def plot_sparsity(paths: Sequence[SparsityPath], theme: Theme | None = None) -> Figure:
    """A line a run, a colour a data set.

    The network is named at the mean of its seeds' ends, unless there are too many.
    """
    theme = theme or Theme()
    figure, ((axes,),) = canvas(theme, 1, 1, 3.5)
    colours = dict(zip(dict.fromkeys(path.place[0] for path in paths), SERIES * 3, strict=False))
    ends: dict[Place, list[float]] = {}
    for path in paths:
        axes.plot(
            path.epoch, path.sparsity, color=colours[path.place[0]], linewidth=1.2, alpha=0.85
        )
        ends.setdefault(path.place, []).append(float(path.sparsity[-1]))
    dress(axes, theme, "epoch of stage II", "weights dropped")
    last = max(int(path.epoch[-1]) for path in paths)
    axes.set(xlim=(1 if last > 1 else 0, last), ylim=(0, 1))
    note(
        figure,
        theme,
        [Line2D([], [], color=colour, label=set_title(data)) for data, colour in colours.items()],
        "a line a run",
    )
    if len(ends) > NAMES:
        return figure
    lay_out(figure)
    name_ends(
        axes,
        [
            Label(place[1], last, float(np.mean(values)), colours[place[0]])
            for place, values in ends.items()
        ],
    )
    return figure
