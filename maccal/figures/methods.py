"""All methods side by side: averages over data sets and networks, calibration under corruption, and cost against quality."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from maccal.figures.drawing import (
    OTHERS,
    SERIES,
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
from maccal.figures.selection import (
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
)  # fmt: skip
from maccal.methods import method as plan_of
from maccal.plots import Theme

MEASURES = {"accuracy": "accuracy", "ece": "ECE", "aece": "AECE", "mce": "MCE"}
COMPARED = ("vanilla", "temperature", "maccal")  # drawn in colour wherever they are; the others in grey

STEPS: tuple[Any, ...] = (np.mean, np.min, np.max)  # over seeds


def colour_of(method: str, theme: Theme) -> str:
    return {"vanilla": theme.ink, "temperature": SERIES[2], "maccal": theme.under}.get(method, theme.quiet)


def grouped(rows: Sequence[Row], grid: str) -> dict[str, list[list[Row]]]:
    """The complete seeds of every method; ValueError if no method has one."""
    groups = by_seed(rows, lambda row: row["run"]["method"])
    needed([seed[0] for group in groups.values() for seed in group], "method with a run on each data set and network", grid)
    return groups


@dataclass(frozen=True)
class Averages:
    """The average-metrics figure: methods from the smallest ECE to the largest, and their measures in that order."""

    methods: tuple[str, ...]
    measures: dict[str, Spread]
    places: tuple[Place, ...]
    left_out: tuple[str, ...]  # methods that lack a run in some place with every seed


def prepare_averages(rows: Iterable[Row]) -> Averages:
    """Accuracy, ECE, AECE and MCE of each method with its own settings, averaged over all data sets and networks of the rows."""
    chosen = needed(plain(rows), "run of a method with its own settings", "table1")
    groups = grouped(chosen, "table1")
    names = in_order(groups)
    order = [names[place] for place in np.argsort(spread_of([groups[name] for name in names], "ece").mean, kind="stable")]
    measures = {key: spread_of([groups[name] for name in order], key) for key in MEASURES}
    return Averages(tuple(order), measures, tuple(sorted({place_of(row) for row in chosen})), left_out(chosen, order))


def plot_averages(data: Averages, theme: Theme | None = None) -> Figure:
    """A panel a measure, a line a method, best calibrated at the top; grey is where a calibrated model would score."""
    theme = theme or Theme()
    figure, (panels,) = canvas(theme, 1, len(MEASURES), 1.35 + 0.21 * len(data.methods), sharey=True)
    for axes, (key, name) in zip(panels, MEASURES.items(), strict=True):
        draw_measure(axes, data.methods, data.measures[key], theme, null=key != "accuracy")
        dress(axes, theme, name, "")
        percent(axes.xaxis, 3)
        axes.yaxis.set_major_locator(NullLocator())
        if key != "accuracy":
            axes.set_xlim(left=0)
    panels[0].set_yticks(range(len(data.methods)), [title(name) for name in data.methods])
    panels[0].set_ylim(len(data.methods) - 0.5, -0.5)
    for tick, name in zip(panels[0].get_yticklabels(), data.methods, strict=True):
        tick.set(color=colour_of(name, theme), fontweight="bold" if name in COMPARED else "normal")
    handles = [Patch(color=theme.band, label="calibrated, 95 %", linewidth=0)]
    note(figure, theme, handles, f"{averaged_over(data.places)}; {bars_say(data.measures['ece'].seeds)}{without(data.left_out)}")
    return figure


def averaged_over(places: Sequence[Place]) -> str:
    sets = dict.fromkeys(set_title(data) for data, _ in places)
    return (
        f"mean over {len(places)} networks ({'; '.join(sets)})" if len(places) > 1 else f"{places[0][1]}, {set_title(places[0][0])}"
    )


def draw_measure(axes: Axes, methods: Sequence[str], spread: Spread, theme: Theme, null: bool) -> None:
    at = np.arange(len(methods))
    if null:
        axes.barh(at, spread.null_high - spread.null_low, 0.62, spread.null_low, color=theme.band, linewidth=0)
    colours = [colour_of(name, theme) for name in methods]
    axes.hlines(at, spread.low, spread.high, color=colours, linewidth=1.4)
    axes.scatter(spread.mean, at, s=22, c=colours, edgecolor=theme.paper, linewidth=0.6, zorder=3)


@dataclass(frozen=True)
class Shift:
    """A panel of the shift figure: methods x severities, 0 being the test images as they are."""

    data: str
    severities: np.ndarray
    methods: tuple[str, ...]
    median: np.ndarray  # over corruptions; mean over seeds
    low: np.ndarray  # range over seeds
    high: np.ndarray
    seeds: np.ndarray
    null: tuple[float, float]  # of the test images as they are, mean over runs: the corrupted ones have none in the rows
    best: str  # of those that are not drawn in colour anyway, by the mean over severities 1 and up
    left_out: tuple[str, ...]


def prepare_shift(rows: Iterable[Row]) -> list[Shift]:
    """A panel a data set: ECE averaged over networks, then the median over corruptions, then the mean over seeds.

    Severity 0 has all test images; where corruptions were made of fewer, ECE is a little larger for that alone.
    """
    found = [row for row in done(rows) if "shift" in row]
    chosen = needed([row for row in plain(rows) if "shift" in row] if found else [], "corrupted images", "shift")
    return [shift_of(data, [r for r in chosen if place_of(r)[0] == data]) for data in sorted({place_of(r)[0] for r in chosen})]


def shift_of(data: str, rows: Sequence[Row]) -> Shift:
    if len({(tuple(row["shift"]["kinds"]), tuple(row["shift"]["severities"])) for row in rows}) > 1:
        raise ValueError(f"runs on {data} saw different corruptions; run `maccal bench shift` again for those that saw fewer")
    groups = grouped(rows, "shift")
    names = in_order(groups)
    paths = [np.array([severities_of(seed) for seed in groups[name]]) for name in names]
    median, low, high = (np.array([step(path, axis=0) for path in paths]) for step in STEPS)
    null = [float(np.mean([row[f"ece_null_{side}"] for row in rows])) for side in ("low", "high")]
    others = [place for place, name in enumerate(names) if name not in COMPARED] or list(range(len(names)))
    best = names[min(others, key=lambda place: median[place, 1:].mean())]
    severities = np.array([0, *rows[0]["shift"]["severities"]])
    seeds, missing = np.array([len(path) for path in paths]), left_out(rows, names)
    return Shift(data, severities, tuple(names), median, low, high, seeds, (null[0], null[1]), best, missing)


def severities_of(rows: Sequence[Row]) -> np.ndarray:
    """The clean ECE, then the median over corruptions at each severity, of the mean over networks."""
    corrupted = np.median(np.mean([row["shift"]["ece"] for row in rows], 0), 0)
    return np.array([np.mean([row["ece"] for row in rows]), *corrupted])


def plot_shift(panels: Sequence[Shift], theme: Theme | None = None) -> Figure:
    """Grey lines are the other methods; those in colour are named where they end, with their range over seeds."""
    theme = theme or Theme()
    figure, (axes,) = canvas(theme, 1, len(panels), 3.6)
    named = []
    for place, (panel, one) in enumerate(zip(panels, axes, strict=True)):
        dress(one, theme, "severity", "ECE, median over corruptions" if place == 0 else "", set_title(panel.data))
        ends = draw_shift(one, panel, theme)
        one.set(xlim=(-0.35, panel.severities[-1] + 0.1), ylim=(0, None), xticks=panel.severities)
        named.append((one, ends))
    seeds = np.concatenate([panel.seeds for panel in panels])
    words = f"severity 0: the test images as they are; {bars_say(seeds, 'bands', 'none for one seed')}"
    words += without(name for panel in panels for name in panel.left_out)
    handles: list[Any] = [Line2D([], [], color=theme.quiet, alpha=OTHERS, label="other methods", linewidth=1)]
    note(figure, theme, [*handles, Patch(color=theme.band, label="calibrated at severity 0, 95 %", linewidth=0)], words)
    for one, ends in named:
        name_ends(one, ends)
    return figure


def draw_shift(axes: Axes, panel: Shift, theme: Theme) -> list[Label]:
    """The lines; returns the ends of those to be named."""
    axes.bar(0, panel.null[1] - panel.null[0], 0.5, panel.null[0], color=theme.band, linewidth=0)
    ends = []
    for name, median, low, high in zip(panel.methods, panel.median, panel.low, panel.high, strict=True):
        if name not in (*COMPARED, panel.best):
            axes.plot(panel.severities, median, color=theme.quiet, alpha=OTHERS, linewidth=1)
            continue
        colour = SERIES[3] if name not in COMPARED else colour_of(name, theme)
        axes.fill_between(panel.severities, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(panel.severities, median, color=colour, linewidth=1.8, marker="o", markersize=3, zorder=3)
        ends.append(Label(title(name), float(panel.severities[-1]), float(median[-1]), colour))
    return ends


@dataclass(frozen=True)
class Cost:
    """A panel of the cost figure: arrays over the methods."""

    data: str
    methods: tuple[str, ...]
    seconds: np.ndarray  # of both stages, mean over networks and seeds
    seconds_low: np.ndarray
    seconds_high: np.ndarray
    ece: Spread
    left_out: tuple[str, ...]


def prepare_cost(rows: Iterable[Row]) -> list[Cost]:
    """A panel a data set: seconds of training against ECE. What stage I took is added to runs that are a stage II.

    A run whose stage I is not among the rows is left out. Stage II is cheaper where the features were extracted before.
    """
    timed = [row for row in plain(rows) if "seconds" in row.get("trained", {})]
    whole = {row["name"]: row["trained"]["seconds"] for row in timed}
    totals = {row["name"]: total for row in timed if (total := total_seconds(row, whole)) is not None}
    chosen = needed([row for row in timed if row["name"] in totals], "timed run with its stage I", "cost")
    return [
        cost_of(data, [r for r in chosen if place_of(r)[0] == data], totals) for data in sorted({place_of(r)[0] for r in chosen})
    ]


def total_seconds(row: Row, whole: dict[str, float]) -> float | None:
    """None if the time of stage I is not known."""
    if row["run"].get("stage2") is None:
        return whole[row["name"]]
    data, model = place_of(row)
    first = whole.get(f"{data}-{model}-{plan_of(row['run']['method']).first}-s{row['run']['seed']}")
    return None if first is None else first + whole[row["name"]]


def cost_of(data: str, rows: Sequence[Row], totals: dict[str, float]) -> Cost:
    groups = grouped(rows, "cost")
    names = in_order(groups)
    times = [np.array([np.mean([totals[row["name"]] for row in seed]) for seed in groups[name]]) for name in names]
    mean, low, high = (np.array([step(time) for time in times]) for step in STEPS)
    return Cost(data, tuple(names), mean, low, high, spread_of([groups[name] for name in names], "ece"), left_out(rows, names))


def plot_cost(panels: Sequence[Cost], theme: Theme | None = None) -> Figure:
    """A point a method: the lower the better calibrated, the farther left the cheaper."""
    theme = theme or Theme()
    columns, rows = min(2, len(panels)), -(-len(panels) // 2)
    figure, grid = canvas(theme, rows, columns, 0.6 + 3.8 * rows)
    axes = grid.flatten()[: len(panels)]
    for empty in grid.flatten()[len(panels) :]:
        empty.set_axis_off()
    for place, (panel, one) in enumerate(zip(panels, axes, strict=True)):
        dress(one, theme, "training, both stages", "" if place % columns else "ECE", set_title(panel.data))
        draw_cost(one, panel, theme)
    seeds = np.concatenate([panel.ece.seeds for panel in panels])
    missing = without(name for panel in panels for name in panel.left_out)
    note(figure, theme, [Patch(color=theme.band, label="calibrated, 95 %", linewidth=0)], bars_say(seeds) + missing)
    for panel, one in zip(panels, axes, strict=True):
        points = zip(panel.methods, panel.seconds.tolist(), panel.ece.mean.tolist(), strict=True)
        name_points(one, [Label(title(name), x, y, colour_of(name, theme)) for name, x, y in points], panel.ece.low, panel.ece.high)
    return figure


def draw_cost(axes: Axes, panel: Cost, theme: Theme) -> None:
    axes.axhspan(float(panel.ece.null_low.mean()), float(panel.ece.null_high.mean()), color=theme.band, linewidth=0)
    colours = [colour_of(name, theme) for name in panel.methods]
    axes.vlines(panel.seconds, panel.ece.low, panel.ece.high, color=colours, linewidth=1, alpha=0.7)
    axes.hlines(panel.ece.mean, panel.seconds_low, panel.seconds_high, color=colours, linewidth=1, alpha=0.7)
    axes.scatter(panel.seconds, panel.ece.mean, s=24, c=colours, edgecolor=theme.paper, linewidth=0.6, zorder=3)
    axes.set_xscale("log")
    axes.set(xlim=(0.8 * panel.seconds_low.min(), 1.6 * panel.seconds_high.max()), ylim=(0, 1.08 * panel.ece.high.max()))
    clock(axes.xaxis)
