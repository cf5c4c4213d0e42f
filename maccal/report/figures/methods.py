"""All methods side by side.

On each data set, on average, under corruption, and cost against quality.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator

from maccal.bench import paper
from maccal.bench.paper import HEADS
from maccal.report.diagrams import Theme, lay_out, short, style
from maccal.report.figures.drawing import (
    LONGEST,
    OTHERS,
    SERIES,
    SIZE,
    Label,
    bars_say,
    canvas,
    clock,
    dress,
    name_ends,
    name_points,
    note,
    percent,
)
from maccal.report.figures.selection import (  # fmt: skip
    Place,
    Row,
    Spread,
    by_seed,
    done,
    in_order,
    left_out,
    needed,
    place_of,
    plain,
    set_title,
    spread_of,
    title,
    without,
)

MEASURES = {"accuracy": "accuracy", "ece": "ECE", "aece": "AECE", "mce": "MCE"}
PANELS = 24  # that one can still read
FAR = 10  # the highest ECE by the lowest, from where on the leaderboard's axis is logarithmic
HOLLOW: dict[str, Any] = {
    "marker": "D",
    "markersize": 4,
    "markerfacecolor": "none",
    "markeredgewidth": 0.9,
}
# drawn in colour wherever they are; the others in grey
COMPARED = ("vanilla", "temperature", "maccal")

STEPS: tuple[Any, ...] = (np.mean, np.min, np.max)  # over seeds


def colour_of(method: str, theme: Theme) -> str:
    return {"vanilla": theme.ink, "temperature": SERIES[2], "maccal": theme.under}.get(
        method, theme.quiet
    )


def grouped(rows: Sequence[Row], grid: str) -> dict[str, list[list[Row]]]:
    """The complete seeds of every method; ValueError if no method has one."""
    groups = by_seed(rows, lambda row: row["run"]["method"])
    needed(
        [seed[0] for group in groups.values() for seed in group],
        "method with a run on each data set and network",
        grid,
    )
    return groups


@dataclass(frozen=True)
class Panel:
    """A panel of the leaderboard: ECE over the methods, and the paper's, NaN where it has none."""

    place: Place
    ece: Spread
    paper: np.ndarray  # mean over its networks on that data set, as a fraction


@dataclass(frozen=True)
class Leaderboard:
    """The leaderboard figure: methods from the smallest mean ECE over the panels to the largest."""

    methods: tuple[str, ...]
    panels: tuple[Panel, ...]
    left_out: tuple[str, ...]  # methods that lack a run in some place


def prepare_leaderboard(rows: Iterable[Row]) -> Leaderboard:
    """A panel a data set and network.

    The ECE of each method with its own settings that was run in all of them.
    """
    chosen = needed(plain(rows), "run of a method with its own settings", "table1")
    runs: dict[Place, list[Row]] = {}
    for row in chosen:
        runs.setdefault(place_of(row), []).append(row)
    if len(runs) > PANELS:
        raise ValueError(
            f"{len(runs)} data sets and networks; a figure has room for {PANELS}, the table above for all"
        )
    groups = {
        place: by_seed(found, lambda row: str(row["run"]["method"]))
        for place, found in sorted(runs.items())
    }
    names = in_order(set.intersection(*map(set, groups.values())))
    needed(
        [group[name][0][0] for group in groups.values() for name in names],
        "method run on every data set and network",
        "table1",
    )
    means = np.mean(
        [spread_of([group[name] for name in names], "ece").mean for group in groups.values()], 0
    )
    order = [names[place] for place in np.argsort(means, kind="stable")]
    panels = [
        Panel(place, spread_of([group[name] for name in order], "ece"), printed(place[0], order))
        for place, group in groups.items()
    ]
    return Leaderboard(tuple(order), tuple(panels), left_out(chosen, order))


def printed(data: str, methods: Sequence[str]) -> np.ndarray:
    """The paper's mean ECE of each method over its networks on a data set, as a fraction.

    >>> printed("cifar10.10000", ["maccal", "new"]).round(5).tolist()
    [0.01045, nan]
    """
    found: dict[str, list[float]] = {}
    for row in paper.table("table1"):
        if row["data"] == data.partition(".")[0]:
            found.setdefault(row["method"], []).append(row["ece"] / 100)
    return np.array([np.mean(found[name]) if name in found else np.nan for name in methods])


def plot_leaderboard(data: Leaderboard, theme: Theme | None = None) -> Figure:
    """A line a method, best at the top, with its ECE in per cent at the end of the line.

    At most four panels in a row.
    """
    theme = theme or Theme()
    count = len(data.panels)
    lines = -(-count // 4)
    columns = -(-count // lines)
    figure, grid = canvas(
        theme, lines, columns, 0.8 + lines * (0.75 + 0.2 * len(data.methods)), sharey=True
    )
    far = any(highest(panel) > FAR * lowest(panel.ece.mean, panel.paper) for panel in data.panels)
    for empty in grid.flatten()[count:]:
        empty.set_axis_off()
    for panel, axes in zip(data.panels, grid.flatten(), strict=False):
        draw_panel(axes, panel, data.methods, theme, far)
        if far:
            axes.xaxis.set_major_locator(
                FixedLocator(ticks(axes.get_xlim(), 6 if columns < 3 else 4))
            )
    for first in grid[:, 0]:
        name_lines(first, data.methods, theme)
    handles: list[Any] = [
        Line2D(
            [],
            [],
            color=theme.quiet,
            marker="o",
            markersize=5,
            linewidth=1.4,
            label="mean ECE, in per cent",
        ),
        Line2D(
            [],
            [],
            color=theme.quiet,
            linestyle="",
            label="the paper's, mean of its networks",
            **HOLLOW,
        ),
        Patch(color=theme.band, label="calibrated, 95 %", linewidth=0),
    ]
    seeds = np.concatenate([panel.ece.seeds for panel in data.panels])
    note(figure, theme, handles, bars_say(seeds) + without(data.left_out))
    return figure


def lowest(*values: np.ndarray) -> float:
    """The smallest that has a place on a logarithmic axis."""
    found = np.concatenate(values)
    return float(np.min(found[found > 0], initial=1.0))


def highest(panel: Panel) -> float:
    return float(np.nanmax([*panel.ece.high, *panel.ece.mean, *panel.ece.null_high, *panel.paper]))


def draw_panel(axes: Axes, panel: Panel, methods: Sequence[str], theme: Theme, far: bool) -> None:
    """A line a method: null band, range, dot and the paper's mark."""
    at = np.arange(len(methods))
    left = 0.8 * lowest(panel.ece.mean, panel.ece.null_low, panel.paper) if far else 0.0
    right = (1.15 if far else 1.04) * highest(panel)
    if "maccal" in methods:
        axes.axhspan(
            methods.index("maccal") - 0.5,
            methods.index("maccal") + 0.5,
            color=theme.under,
            alpha=0.1,
            linewidth=0,
        )
    axes.hlines(at, left, right, color=theme.quiet, linewidth=0.5, alpha=0.25)
    draw_measure(axes, methods, floored(panel.ece, left), theme, null=True)
    axes.plot(panel.paper, at, color=theme.quiet, linestyle="", zorder=2.5, **HOLLOW)
    dress_panel(axes, panel, theme)
    write_numbers(axes, methods, panel.ece.mean, theme)
    axes.set_xscale("log" if far else "linear")
    axes.set_xlim(left, right)
    axes.xaxis.set_minor_locator(NullLocator())
    percent(axes.xaxis, 4)


def dress_panel(axes: Axes, panel: Panel, theme: Theme) -> None:
    """The name of the data set over that of the network, and no axis at the left."""
    style(axes, theme)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("ECE", color=theme.quiet, fontsize=9)
    name, _, images = set_title(panel.place[0]).partition(", ")
    axes.set_title(
        name, loc="left", color=theme.ink, fontsize=10, fontweight="bold", pad=18, parse_math=False
    )
    words = ", ".join(part for part in (panel.place[1], images) if part)
    look: dict[str, Any] = {"color": theme.quiet, "fontsize": SIZE, "parse_math": False}
    axes.annotate(
        short(words, LONGEST),
        (0, 1),
        (0, 6),
        xycoords="axes fraction",
        textcoords="offset points",
        **look,
    )


def write_numbers(axes: Axes, methods: Sequence[str], values: np.ndarray, theme: Theme) -> None:
    """In per cent, right of the axes."""
    where: dict[str, Any] = {
        "xycoords": axes.get_yaxis_transform(),
        "textcoords": "offset points",
        "annotation_clip": False,
    }
    for line, (name, value) in enumerate(zip(methods, values.tolist(), strict=True)):
        look: dict[str, Any] = {
            "color": colour_of(name, theme),
            "fontweight": "bold" if name in COMPARED else "normal",
        }
        axes.annotate(
            f"{100 * value:.2f}",
            (1, line),
            (30, 0),
            ha="right",
            va="center",
            fontsize=SIZE,
            **look,
            **where,
        )


def floored(spread: Spread, left: float) -> Spread:
    """What would lie left of the axis begins at its edge."""
    return replace(
        spread, low=np.maximum(spread.low, left), null_low=np.maximum(spread.null_low, left)
    )


def ticks(limits: tuple[float, float], most: int) -> list[float]:
    """Of a logarithmic axis: 1, 2 and 5 of each power of ten, or 1 and 3, or 1, so that there are
    not too many.

    >>> ticks((0.004, 0.3), 6), ticks((0.004, 0.3), 4)
    ([0.005, 0.01, 0.02, 0.05, 0.1, 0.2], [0.01, 0.03, 0.1, 0.3])
    """
    low, high = limits
    for digits in ((1, 2, 5), (1, 3), (1,)):
        inside = [
            tick
            for power in range(-6, 1)
            for digit in digits
            if low <= (tick := float(f"{digit}e{power}")) <= high
        ]
        if len(inside) <= most:
            break
    return inside


@dataclass(frozen=True)
class Averages:
    """The average-metrics figure.

    Methods from the smallest ECE to the largest, and their measures in that order.
    """

    methods: tuple[str, ...]
    measures: dict[str, Spread]
    places: tuple[Place, ...]
    left_out: tuple[str, ...]  # methods that lack a run in some place with every seed


def prepare_averages(rows: Iterable[Row]) -> Averages:
    """Accuracy, ECE, AECE and MCE of each method with its own settings, averaged over all data sets
    and networks of the rows.
    """
    chosen = needed(plain(rows), "run of a method with its own settings", "table1")
    groups = grouped(chosen, "table1")
    names = in_order(groups)
    order = [
        names[place]
        for place in np.argsort(
            spread_of([groups[name] for name in names], "ece").mean, kind="stable"
        )
    ]
    measures = {key: spread_of([groups[name] for name in order], key) for key in MEASURES}
    return Averages(
        tuple(order),
        measures,
        tuple(sorted({place_of(row) for row in chosen})),
        left_out(chosen, order),
    )


def plot_averages(data: Averages, theme: Theme | None = None) -> Figure:
    """A panel a measure, a line a method, best calibrated at the top.

    Grey is where a calibrated model would score.
    """
    theme = theme or Theme()
    figure, (panels,) = canvas(
        theme, 1, len(MEASURES), 1.35 + 0.21 * len(data.methods), sharey=True
    )
    figure.set_layout_engine("constrained", w_pad=0.05, h_pad=0.05, wspace=0.06)
    for axes, (key, name) in zip(panels, MEASURES.items(), strict=True):
        draw_measure(axes, data.methods, data.measures[key], theme, null=key != "accuracy")
        dress(axes, theme, name, "")
        percent(axes.xaxis, 3)
        axes.yaxis.set_major_locator(NullLocator())
        if key != "accuracy":
            axes.set_xlim(left=0)
    name_lines(panels[0], data.methods, theme)
    handles = [Patch(color=theme.band, label="calibrated, 95 %", linewidth=0)]
    note(
        figure,
        theme,
        handles,
        f"{averaged_over(data.places)}; {bars_say(data.measures['ece'].seeds)}{without(data.left_out)}",
    )
    return figure


def name_lines(axes: Axes, methods: Sequence[str], theme: Theme) -> None:
    """The methods beside the axes, from the top down."""
    axes.set_yticks(
        range(len(methods)), [short(title(name), LONGEST) for name in methods], parse_math=False
    )
    axes.set_ylim(len(methods) - 0.5, -0.5)
    for tick, name in zip(axes.get_yticklabels(), methods, strict=True):
        tick.set(color=colour_of(name, theme), fontweight="bold" if name in COMPARED else "normal")


def averaged_over(places: Sequence[Place]) -> str:
    sets = dict.fromkeys(set_title(data) for data, _ in places)
    return (
        f"mean over {len(places)} networks ({'; '.join(sets)})"
        if len(places) > 1
        else f"{places[0][1]}, {set_title(places[0][0])}"
    )


def draw_measure(
    axes: Axes, methods: Sequence[str], spread: Spread, theme: Theme, null: bool
) -> None:
    at = np.arange(len(methods))
    if null:
        axes.barh(
            at,
            spread.null_high - spread.null_low,
            0.62,
            spread.null_low,
            color=theme.band,
            linewidth=0,
        )
    colours = [colour_of(name, theme) for name in methods]
    axes.hlines(at, spread.low, spread.high, color=colours, linewidth=1.4)
    axes.scatter(spread.mean, at, s=22, c=colours, edgecolor=theme.paper, linewidth=0.6, zorder=3)


@dataclass(frozen=True)
class Shift:
    """A panel of the shift figure: methods x severities, 0 being the test images as they are."""

    data: str
    severities: np.ndarray
    methods: tuple[str, ...]
    ece: np.ndarray  # of all corruptions together; mean over seeds
    low: np.ndarray  # range over seeds
    high: np.ndarray
    seeds: np.ndarray
    # of the test images as they are, mean over runs: the corrupted ones have none in the rows
    null: tuple[float, float]
    best: str  # of those that are not drawn in colour anyway, by the mean over severities 1 and up
    left_out: tuple[str, ...]


def prepare_shift(rows: Iterable[Row]) -> list[Shift]:
    """A panel a data set: ECE of all corruptions together, averaged over networks and then over
    seeds.

    An ECE of few images is large by chance alone, so the fifteen corruptions are pooled;
    `shift.ece` of the rows has them apart."""
    found = [row for row in done(rows) if "shift" in row]
    chosen = needed(
        [row for row in plain(rows) if "shift" in row] if found else [], "corrupted images", "shift"
    )
    return [
        shift_of(data, [r for r in chosen if place_of(r)[0] == data])
        for data in sorted({place_of(r)[0] for r in chosen})
    ]


def shift_of(data: str, rows: Sequence[Row]) -> Shift:
    if len({(tuple(row["shift"]["kinds"]), tuple(row["shift"]["severities"])) for row in rows}) > 1:
        raise ValueError(
            f"runs on {data} saw different corruptions; run `maccal bench shift` again for those that saw fewer"
        )
    groups = grouped(rows, "shift")
    names = in_order(groups)
    paths = [np.array([severities_of(seed) for seed in groups[name]]) for name in names]
    ece, low, high = (np.array([step(path, axis=0) for path in paths]) for step in STEPS)
    null = [float(np.mean([row[f"ece_null_{side}"] for row in rows])) for side in ("low", "high")]
    others = [place for place, name in enumerate(names) if name not in COMPARED] or list(
        range(len(names))
    )
    best = names[min(others, key=lambda place: ece[place, 1:].mean())]
    severities = np.array([0, *rows[0]["shift"]["severities"]])
    seeds, missing = np.array([len(path) for path in paths]), left_out(rows, names)
    return Shift(
        data, severities, tuple(names), ece, low, high, seeds, (null[0], null[1]), best, missing
    )


def severities_of(rows: Sequence[Row]) -> np.ndarray:
    """The clean ECE, then that of all corruptions at each severity, means over networks."""
    corrupted = np.mean([row["shift"]["ece_pooled"] for row in rows], 0)
    return np.array([np.mean([row["ece"] for row in rows]), *corrupted])


def plot_shift(panels: Sequence[Shift], theme: Theme | None = None) -> Figure:
    """Grey lines are the other methods.

    Those in colour are named where they end, with their range over seeds.
    """
    theme = theme or Theme()
    figure, (axes,) = canvas(theme, 1, len(panels), 3.6)
    named = []
    for place, (panel, one) in enumerate(zip(panels, axes, strict=True)):
        dress(
            one,
            theme,
            "severity",
            "ECE, all corruptions" if place == 0 else "",
            set_title(panel.data),
        )
        ends = draw_shift(one, panel, theme)
        one.set(xlim=(-0.35, panel.severities[-1] + 0.1), ylim=(0, None), xticks=panel.severities)
        named.append((one, ends))
    seeds = np.concatenate([panel.seeds for panel in panels])
    words = (
        f"severity 0: the test images as they are; {bars_say(seeds, 'bands', 'none for one seed')}"
    )
    words += without(name for panel in panels for name in panel.left_out)
    handles: list[Any] = [
        Line2D([], [], color=theme.quiet, alpha=OTHERS, label="other methods", linewidth=1)
    ]
    note(
        figure,
        theme,
        [*handles, Patch(color=theme.band, label="calibrated at severity 0, 95 %", linewidth=0)],
        words,
    )
    for one, ends in named:
        lay_out(figure)
        name_ends(one, ends)
    return figure


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
        axes.plot(
            panel.severities, ece, color=colour, linewidth=1.8, marker="o", markersize=3, zorder=3
        )
        ends.append(Label(title(name), float(panel.severities[-1]), float(ece[-1]), colour))
    return ends


@dataclass(frozen=True)
class Cost:
    """A panel of the cost figure: arrays over the methods."""

    data: str
    methods: tuple[str, ...]
    seconds: np.ndarray  # of both stages, mean over networks, median over seeds
    seconds_low: np.ndarray
    seconds_high: np.ndarray
    ece: Spread
    left_out: tuple[str, ...]


def prepare_cost(rows: Iterable[Row]) -> list[Cost]:
    """A panel a data set: seconds of training against ECE. What stage I took is added to runs that
    are a stage II.

    A run whose stage I is not among the rows is left out.
    """
    timed = [row for row in plain(rows) if "seconds" in row.get("trained", {})]
    whole = {row["name"]: row["trained"]["seconds"] for row in timed}
    totals = {
        row["name"]: total for row in timed if (total := total_seconds(row, whole)) is not None
    }
    chosen = needed(
        [row for row in timed if row["name"] in totals], "timed run with its stage I", "cost"
    )
    return [
        cost_of(data, [r for r in chosen if place_of(r)[0] == data], totals)
        for data in sorted({place_of(r)[0] for r in chosen})
    ]


def total_seconds(row: Row, whole: dict[str, float]) -> float | None:
    """None if the time of stage I is not known. Of a method alone, that is vanilla's."""
    if row["run"].get("stage2") is None:
        return whole[row["name"]]
    data, model = place_of(row)
    first = (
        whole.get(f"{data}-{model}-vanilla-s{row['run']['seed']}")
        if row["run"]["method"] in HEADS
        else None
    )
    return None if first is None else first + whole[row["name"]]


def cost_of(data: str, rows: Sequence[Row], totals: dict[str, float]) -> Cost:
    groups = grouped(rows, "cost")
    names = in_order(groups)
    times = [
        np.array([np.mean([totals[row["name"]] for row in seed]) for seed in groups[name]])
        for name in names
    ]
    middle, low, high = (
        np.array([step(time) for time in times]) for step in (np.median, np.min, np.max)
    )
    return Cost(
        data,
        tuple(names),
        middle,
        low,
        high,
        spread_of([groups[name] for name in names], "ece"),
        left_out(rows, names),
    )


def plot_cost(panels: Sequence[Cost], theme: Theme | None = None) -> Figure:
    """A point a method: the lower the better calibrated, the farther left the cheaper."""
    theme = theme or Theme()
    columns, rows = min(2, len(panels)), -(-len(panels) // 2)
    figure, grid = canvas(theme, rows, columns, 0.6 + 3.8 * rows)
    axes = grid.flatten()[: len(panels)]
    for empty in grid.flatten()[len(panels) :]:
        empty.set_axis_off()
    for place, (panel, one) in enumerate(zip(panels, axes, strict=True)):
        dress(
            one,
            theme,
            "training, both stages",
            "" if place % columns else "ECE",
            set_title(panel.data),
        )
        draw_cost(one, panel, theme)
    seeds = np.concatenate([panel.ece.seeds for panel in panels])
    missing = without(name for panel in panels for name in panel.left_out)
    note(
        figure,
        theme,
        [Patch(color=theme.band, label="calibrated, 95 %", linewidth=0)],
        bars_say(seeds) + missing,
    )
    lay_out(figure)
    for panel, one in zip(panels, axes, strict=True):
        points = zip(panel.methods, panel.seconds.tolist(), panel.ece.mean.tolist(), strict=True)
        bars = zip(
            panel.seconds_low.tolist(),
            panel.ece.low.tolist(),
            panel.seconds_high.tolist(),
            panel.ece.high.tolist(),
            strict=True,
        )
        name_points(
            one,
            [Label(title(name), x, y, colour_of(name, theme)) for name, x, y in points],
            list(bars),
        )
    return figure


def draw_cost(axes: Axes, panel: Cost, theme: Theme) -> None:
    axes.axhspan(
        float(panel.ece.null_low.mean()),
        float(panel.ece.null_high.mean()),
        color=theme.band,
        linewidth=0,
    )
    colours = [colour_of(name, theme) for name in panel.methods]
    axes.vlines(panel.seconds, panel.ece.low, panel.ece.high, color=colours, linewidth=1, alpha=0.7)
    axes.hlines(
        panel.ece.mean, panel.seconds_low, panel.seconds_high, color=colours, linewidth=1, alpha=0.7
    )
    axes.scatter(
        panel.seconds,
        panel.ece.mean,
        s=24,
        c=colours,
        edgecolor=theme.paper,
        linewidth=0.6,
        zorder=3,
    )
    axes.set_xscale("log")
    axes.set(
        xlim=(0.8 * panel.seconds_low.min(), 1.6 * panel.seconds_high.max()),
        ylim=(0, 1.08 * panel.ece.high.max()),
    )
    clock(axes.xaxis)
