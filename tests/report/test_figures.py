"""The paper's figures: which rows each takes, what it makes of them, and what is drawn."""

import dataclasses
import json
from functools import cache

import numpy as np
import pytest
from matplotlib.figure import Figure
from pictures import saved

from maccal.bench.grids import GAMMAS, GRIDS, jobs
from maccal.bench.lines import Book, Setting
from maccal.bench.scales import SCALES
from maccal.bench.titles import set_title, title
from maccal.evaluation import masks as geometry
from maccal.evaluation.older import changes, stages
from maccal.evaluation.row import Ran, Row
from maccal.methods.registry import METHODS
from maccal.metrics import Bins, summary, top_label
from maccal.report import figures
from maccal.report.figures.drawing import WIDTH, apart, bars_say, worded
from maccal.report.figures.selection import complete, left_out, spreads
from maccal.report.look import Theme

HERE = Setting("cifar10", 0, "resnet8")
PARTS = ("shift", "keep", "trained")
HALF = {"accuracy": 0.01, "ece": 0.005, "aece": 0.006, "mce": 0.05}


def row(
    method, seed=1, *, ece=0.05, data="cifar10", model="resnet8", described=None, limit=None, **more
):
    """A row as runs.described makes it: accuracy 1 - ece, aece twice and mce four times the ece.

    The null band is 0.01 to 0.02.
    """
    numbers = {"accuracy": 1 - ece, "ece": ece, "aece": 2 * ece, "mce": 4 * ece}
    for key, half in HALF.items():
        middle = numbers[key]
        numbers |= {f"{key}_low": middle - half, f"{key}_high": middle + half}
        numbers |= {f"{key}_null_low": 0.01, f"{key}_null_high": 0.02}
    place = f"{data}.{limit}-{model}" if limit else f"{data}-{model}"
    name = f"{place}-{described or method}-s{seed}"
    first, second = stages(method)
    run = {"data": data, "model": model, "limit": limit, "seed": seed}
    about = Ran(
        data,
        model,
        first,
        second,
        seed,
        limit=limit,
        settings=more.pop("settings", {}),
        calibration=more.pop("stage2", None),
        feedback=more.pop("feedback", None),
        changes=tuple(changes(name, run, second)),
    )
    numbers |= more.pop("numbers", {})
    more["keep"] = tuple(more.get("keep") or ())
    return Row(name, ran=about, numbers=numbers, **{"trained": {"seconds": 100.0}, **more})


def shifted(*table, severities=(1, 3)):
    """Pooled, the ECE is the mean of the corruptions' here."""
    kinds, pooled = [f"kind {i}" for i in range(len(table))], np.mean(table, 0).tolist()
    return {
        "n": 50,
        "kinds": kinds,
        "severities": list(severities),
        "ece": [*map(list, table)],
        "ece_pooled": pooled,
        "ece_mean": [1.5 * ece for ece in pooled],
        "source": "made",
    }


def same(one, other):
    """Equal to the last bit, arrays and all."""
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return (
        np.array_equal(one, other, equal_nan=True) if isinstance(one, np.ndarray) else one == other
    )


def texts(figure):
    return [
        text.get_text()
        for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))
        if text.get_text()
    ]


def fine(figure, tmp_path):
    """A figure of a page's width that can be saved, whose legend covers no panel and whose words
    are all on the page.
    """
    assert isinstance(figure, Figure)
    assert figure.get_figwidth() == WIDTH
    figure.savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 5000
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.axison]
    assert not any(
        legend.get_window_extent().padded(-1).overlaps(box)
        for legend in figure.legends
        for box in boxes
    )
    page = figure.bbox.padded(3)
    assert all(
        page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        for box in boxes
    )
    return texts(figure)


# rows


def test_a_row_says_what_is_not_the_methods_own():
    mixed = row("mixup+maccal", described="mixup,alpha=0.5+maccal,gamma=0.9", limit=10_000)
    failed = Row("cifar10-resnet8-mit-s1", error="out of memory")
    others = [row("maccal"), row("ls+maccal"), row("fl", described="fl,gamma=1")]
    book = Book.of([mixed, failed, *others])
    assert [line.variant for line in book.plain] == ["maccal"]
    assert book.failures == (failed,)


@pytest.mark.parametrize("grid", GRIDS)
def test_the_variants_are_those_of_the_grids(grid):
    """Every run of a grid with a method's own settings is told from those with others."""
    made = [job.config for job in jobs(["table1", grid], "paper", (1,))]
    book = Book.of([Row(config.name, ran=config.ran) for config in made])
    assert len(book.lines) == len(made)
    for config in made:
        line = book.get(Setting(config.data, 0, config.model), config.described_method)
        plain = config.described_method == config.plan.name and "+" not in config.method
        assert line.is_plain == plain
    assert set(METHODS) <= {one.config.method for one in jobs("table1", "cpu", (1,))}


def test_only_complete_seeds_count():
    rows = [
        row("ls", 1),
        row("ls", 2),
        row("ls", 1, data="cifar100"),
        row("fl", 2),
        row("fl", 1, data="cifar100"),
    ]
    lines = Book.of(rows).plain
    groups = complete(lines)
    (found,) = groups.values()
    assert [(line.method, line.setting.data, list(line.runs)) for line in found] == [
        ("ls", "cifar10", [1]),
        ("ls", "cifar100", [1]),
    ]
    assert left_out(lines, groups) == ("fl",)


def test_no_run_hides_another_in_a_figure():
    """The same method and seed: which of the two would be drawn?"""
    twins = [dataclasses.replace(row("ls"), name=name) for name in ("one", "other")]
    with pytest.raises(ValueError, match="one and other are runs of the same method and seed"):
        figures.draw_all(twins)
    more = {"feedback": "training", "data": "cifar100"}
    same_gamma = [
        row("maccal", described=f"maccal,{words}training", stage2=stage2, **more)
        for words, stage2 in (("", {"gamma": 0.9}), ("gamma=0.9,", {"gamma": 0.9}))
    ]
    with pytest.raises(ValueError, match="have the same place in the figure; pass one of them"):
        figures.prepare_gamma(same_gamma)


def test_several_seeds_show_their_standard_deviation_and_one_its_interval():
    """0.02, 0.06 and 0.01: 0.01, 0.03 and 0.02 from their mean, so that the variance is 0.0007."""
    rows = [row("ls", seed, ece=ece) for seed, ece in ((1, 0.02), (2, 0.06), (3, 0.01))]
    fl, ls = Book.of([*rows, row("fl", ece=0.04)]).lines
    spread = spreads([[ls], [fl]], "ece")
    deviation = 0.0007**0.5
    assert spread.mean.tolist() == pytest.approx([0.03, 0.04])
    assert spread.low.tolist() == pytest.approx([0.03 - deviation, 0.035])
    assert spread.high.tolist() == pytest.approx([0.03 + deviation, 0.045])
    assert (spread.null_low.tolist(), spread.null_high.tolist()) == (
        pytest.approx([0.01] * 2),
        pytest.approx([0.02] * 2),
    )
    assert spread.seeds.tolist() == [3, 1]


def test_words():
    assert (title("vtst", "maccal"), title("temperature")) == ("VTST + MaC-Cal", "Temperature")
    assert (set_title("tiny-imagenet"), set_title("mine", 500)) == (
        "Tiny-ImageNet",
        "mine, 500 images",
    )
    assert bars_say(np.array([1, 1])) == "bars: 95 % interval of each run"
    assert [worded(value) for value in (2, 120, 7200)] == ["2 s", "2 min", "2 h"]


def test_labels_are_pushed_apart():
    wanted = [3.0, 1.0, 1.2, 9.0, 1.1]
    placed = apart(wanted, 1.0)
    # four touch: their mean stays where it was
    assert placed.tolist() == pytest.approx([3.075, 0.075, 2.075, 9.0, 1.075])
    assert np.diff(np.sort(placed)).min() >= 1 - 1e-12
    assert apart([], 1.0).tolist() == []


# averages


def average_rows():
    rows = [row("maccal", s, ece=0.01 * s, data=d) for s in (1, 2) for d in ("cifar10", "cifar100")]
    rows += [
        row("vanilla", s, ece=e, data=d)
        for s, d, e in ((1, "cifar10", 0.1), (1, "cifar100", 0.2), (2, "cifar10", 0.5))
    ]
    return [
        *rows,
        row("mit", 1),
        row("ls", 1, data="cifar100"),
        row("maccal", 3, ece=0.9, described="maccal,gamma=0.5"),
        Row("x", error="failed"),
    ]


def test_averages():
    """Vanilla's second seed lacks CIFAR-100, MIT and LS have one of the sets, and a run with
    another gamma does not count.
    """
    data = figures.prepare_averages(average_rows())
    assert data.methods == ("maccal", "vanilla")
    assert data.left_out == ("ls", "mit")
    assert data.settings == (HERE, Setting("cifar100", 0, "resnet8"))
    assert data.measures["ece"].mean.tolist() == pytest.approx([0.015, 0.15])
    deviation = 0.01 / 2**0.5  # of 0.01 and 0.02
    assert data.measures["ece"].low.tolist() == pytest.approx([0.015 - deviation, 0.145])
    assert data.measures["mce"].mean.tolist() == pytest.approx([0.06, 0.6])
    high = data.measures["accuracy"].high.tolist()
    assert high == pytest.approx([0.985 + deviation, 0.86])
    assert data.measures["aece"].seeds.tolist() == [2, 1]


def test_averages_as_drawn(tmp_path):
    figure = figures.plot_averages(figures.prepare_averages(average_rows()))
    words = fine(figure, tmp_path)
    assert [axes.get_xlabel() for axes in figure.axes] == ["accuracy", "ECE", "AECE", "MCE"]
    assert [len(axes.patches) for axes in figure.axes] == [0, 2, 2, 2]  # null bands
    assert {"MaC-Cal", "Vanilla", "calibrated, 95 %"} <= set(words)
    assert any(
        "LS, MIT left out where runs are missing" in text.replace("\n", " ") for text in words
    )


def test_trials_and_single_seeds_leave_the_averages_alone():
    """A network with vanilla alone beside MaC-Cal, and a data set of one seed."""
    rows = average_rows()
    alone = figures.prepare_averages(rows)
    rows += [row("vanilla", model="resnet50"), row("maccal", model="resnet50", ece=0.4)]
    tiny = [row(name, data="tiny-imagenet", ece=0.3) for name in ("vanilla", "ls", "maccal")]
    assert same(figures.prepare_averages(rows + tiny), alone)
    board = figures.prepare_leaderboard(rows + tiny)
    assert [panel.setting.data for panel in board.panels] == [
        "cifar10",
        "cifar100",
        "tiny-imagenet",
    ]
    assert [panel.data for panel in figures.prepare_cost(rows + tiny)] == [
        "CIFAR-10",
        "CIFAR-100",
        "Tiny-ImageNet",
    ]


# shift


def shift_rows():
    tables = {
        "vanilla": [(0.1, 0.2), (0.3, 0.6), (0.2, 0.9)],
        "maccal": [(0.01, 0.02), (0.03, 0.04), (0.05, 0.09)],
    }
    rows = [row(name, 1, ece=0.05, shift=shifted(*table)) for name, table in tables.items()]
    rows += [row("maccal", 2, ece=0.07, shift=shifted((0.03, 0.06), (0.05, 0.08), (0.07, 0.1)))]
    rows += [
        row(name, 1, ece=e, shift=shifted((e, e), (e, e), (e, e)))
        for name, e in (("ls", 0.3), ("fl", 0.2), ("mit", 0.4))
    ]
    return [*rows, row("ls", 1, data="cifar100", shift=shifted((0.5, 0.6))), row("tst")]


def test_shift():
    first, second, mean, _ = figures.prepare_shift(shift_rows())
    assert (first.data, second.data, mean.data) == ("CIFAR-10", "CIFAR-100", "CIFAR-10")
    assert [first.together, second.together, mean.together] == ["ece_pooled"] * 2 + ["ece_mean"]
    assert mean.ece[:, 0].tolist() == first.ece[:, 0].tolist()  # the images as they are
    assert mean.ece[:, 1:] == pytest.approx(1.5 * first.ece[:, 1:])
    assert first.images == "50 test images, corrupted here"
    assert first.severities.tolist() == [0, 1, 3]
    assert first.methods == ("vanilla", "ls", "mit", "fl", "maccal")
    assert first.ece[0].tolist() == pytest.approx([0.05, 0.2, 1.7 / 3])
    # seeds: 0.03, 0.05 and 0.05, 0.08
    assert first.ece[4].tolist() == pytest.approx([0.06, 0.04, 0.065])
    deviation = np.array([0.02, 0.02, 0.03]) / 2**0.5  # of two numbers so far apart
    assert first.low[4].tolist() == pytest.approx(first.ece[4] - deviation)
    assert first.high[4].tolist() == pytest.approx(first.ece[4] + deviation)
    assert (first.best, first.null, first.seeds.tolist()) == (
        "fl",
        pytest.approx((0.01, 0.02)),
        [1, 1, 1, 1, 2],
    )
    assert second.best == "ls"


def test_networks_are_averaged():
    tables = {
        "resnet8": [(0.1, 0.1), (0.5, 0.5), (0.2, 0.2)],
        "resnet20": [(0.7, 0.7), (0.1, 0.1), (0.1, 0.1)],
    }
    panel, _ = figures.prepare_shift(
        [row("ls", model=model, shift=shifted(*table)) for model, table in tables.items()]
    )
    assert panel.ece[0, 1:].tolist() == pytest.approx([0.85 / 3, 0.85 / 3])


def test_shift_as_drawn(tmp_path):
    figure = figures.plot_shift(figures.prepare_shift(shift_rows()))
    words = fine(figure, tmp_path)
    assert [len(axes.lines) for axes in figure.axes] == [5, 1] * 2
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["CIFAR-10", "CIFAR-100"] * 2
    assert {"ECE, corruptions pooled", "ECE, mean over corruptions", "severity"} <= set(words)
    # every line is named where it ends, in both rows
    for name in ("Vanilla", "MaC-Cal", "FL", "MIT"):
        assert words.count(name) == 2
    assert words.count("LS") == 4
    assert any("others: 50 test images, corrupted here; bands" in text for text in words)


def test_who_made_the_corrupted_images():
    one, other = shifted((0.1, 0.2)), shifted((0.1, 0.2))
    other |= {"n": 2000, "source": "published"}
    words = [figures.prepare_shift([row("ls", shift=part)])[0].images for part in (one, other)]
    assert words == ["50 test images, corrupted here", "2,000 test images, published"]
    both = [row("ls", shift=one), row("fl", shift=other)]
    assert figures.prepare_shift(both)[0].images == (
        "50 to 2,000 test images, published or corrupted here"
    )


def test_different_corruptions_are_not_mixed():
    rows = [row("ls", shift=shifted((0.1, 0.2))), row("fl", shift=shifted((0.1,), severities=(1,)))]
    with pytest.raises(
        ValueError,
        match="runs on CIFAR-10 saw different corruptions; run `maccal bench shift` again",
    ):
        figures.prepare_shift(rows)


# mixup and gamma


def mixup_rows():
    rows = [
        row("mixup", s, ece=a / 10 + s / 100, described=f"mixup,alpha={a:g}", settings={"alpha": a})
        for a in (2.0, 0.5)
        for s in (1, 2)
    ]
    rows += [
        row("mixup", 1, ece=0.03, settings={"alpha": 1.0}),
        row("mit", 1, ece=0.02, settings={"alpha": 1.0}),
    ]
    rows += [
        row(
            "mixup+maccal", 1, ece=0.01, described="mixup,alpha=0.5+maccal", settings={"alpha": 0.5}
        )
    ]
    rows += [
        row(
            "mixup+maccal",
            1,
            ece=0.9,
            described="mixup,alpha=0.5+maccal,gamma=0.9",
            settings={"alpha": 0.5},
            stage2={"gamma": 0.9},
        )
    ]
    return [
        *rows,
        row("mixup", 1, data="cifar100", settings={"alpha": 1.0}),
        row("ls", settings={"alpha": 0.05}),
    ]


def test_mixup():
    place, (mixup, mit, ours) = figures.prepare_mixup(mixup_rows())
    assert place == HERE
    assert [one.method for one in (mixup, mit, ours)] == ["mixup", "mit", "mixup+maccal"]
    assert mixup.alpha.tolist() == [0.5, 1, 2]
    assert mixup.ece.mean.tolist() == pytest.approx([0.065, 0.03, 0.215])
    deviation = 0.01 / 2**0.5  # of two seeds
    low, high = mixup.ece.low.tolist(), mixup.accuracy.high.tolist()
    assert low == pytest.approx([0.065 - deviation, 0.025, 0.215 - deviation])
    assert high == pytest.approx([0.935 + deviation, 0.98, 0.785 + deviation])
    assert (ours.alpha.tolist(), ours.ece.mean.tolist()) == ([0.5], [0.01])


def test_mixup_as_drawn(tmp_path):
    figure = figures.plot_mixup(figures.prepare_mixup(mixup_rows()))
    words = fine(figure, tmp_path)
    assert [axes.get_ylabel() for axes in figure.axes] == ["ECE", "accuracy"]
    assert [len(axes.lines) for axes in figure.axes] == [3, 3]
    assert figure.axes[0].lines[0].get_ydata().tolist() == pytest.approx([0.065, 0.03, 0.215])
    assert {"mixup", "MIT", "mixup + MaC-Cal", "0.5", "resnet8, CIFAR-10"} <= set(words)


def gamma_rows():
    def swept(gamma, seed, ece, described):
        stage2 = {"gamma": gamma, "statistics": "deployed"}
        return row(
            "maccal",
            seed,
            ece=ece,
            described=described,
            stage2=stage2,
            feedback="training",
            data="cifar100",
        )

    rows = [
        swept(0.9, s, 0.03 + s / 100, "maccal,statistics=deployed,gamma=0.9,training")
        for s in (1, 2)
    ]
    rows += [
        swept(0.97, 1, 0.02, "maccal,statistics=deployed,training"),
        swept(0.5, 1, 0.7, "maccal,q0=0.1,gamma=0.5,training"),
    ]
    rows += [
        row("maccal", s, ece=0.01 * s, data="cifar100", stage2={"gamma": 0.97}, feedback="held-out")
        for s in (1, 2)
    ]
    return [
        *rows,
        row("vanilla", ece=0.2, data="cifar100"),
        row("vanilla", ece=0.9),
        row("maccal", ece=0.9),
    ]


def test_gamma():
    """A run with another q0 and runs on another data set do not count."""
    (data,) = figures.prepare_gamma(gamma_rows())
    assert data.head == ""
    assert data.setting == Setting("cifar100", 0, "resnet8")
    assert data.gamma.tolist() == [0.9, 0.97]
    assert data.ece.mean.tolist() == pytest.approx([0.045, 0.02])
    deviation = 0.01 / 2**0.5  # of two seeds
    assert data.ece.high.tolist() == pytest.approx([0.045 + deviation, 0.025])
    held_out, vanilla = data.references["held-out"], data.references["vanilla"]
    assert (held_out.mean[0], held_out.low[0], held_out.high[0]) == pytest.approx(
        (0.015, 0.015 - deviation, 0.015 + deviation)
    )
    assert vanilla.mean[0] == pytest.approx(0.2)


def test_gamma_as_drawn(tmp_path):
    figure = figures.plot_gamma(figures.prepare_gamma(gamma_rows()))
    words = fine(figure, tmp_path)
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel(), len(axes.lines)) == ("gamma", "ECE", 3)
    assert {"held-out feedback", "Vanilla", "calibrated, 95 %", "resnet8, CIFAR-100"} <= set(words)
    alone = [one for one in gamma_rows() if one.ran.feedback == "training"]
    assert figures.prepare_gamma(alone)[0].references == {}
    fine(figures.plot_gamma(figures.prepare_gamma(alone)), tmp_path)


def test_the_grids_of_mixup_and_gamma_are_found_whole():
    """The settings that the benchmark gives its runs are those that the figures look for."""
    rows = []
    for job in jobs("mixup", "cpu", (1,)) + jobs("gamma", "cpu", (1,)):
        config = job.config
        more = {"settings": dict(config.settings), "feedback": config.feedback}
        more["stage2"] = None if config.stage2 is None else dataclasses.asdict(config.stage2)
        place = {"data": config.data, "model": config.model, "limit": config.limit}
        rows.append(row(config.method, described=config.described_method, **place, **more))
    _, lines = figures.prepare_mixup(rows)
    assert [one.alpha.tolist() for one in lines] == [list(SCALES["cpu"].alphas)] * 3
    assert figures.prepare_gamma(rows)[0].gamma.tolist() == list(GAMMAS)


# sparsity and cost


def test_sparsity(tmp_path):
    rows = [row("maccal", 2, keep=[0.5, 0.4, 0.25]), row("maccal", 1, keep=[0.5, 0.75, 0.875])]
    rows += [
        row("maccal", 1, data="cifar100", keep=[0.5, 0.25, 0.1]),
        row("maccal", 3, described="maccal,eta=static", keep=[0.5]),
    ]
    paths = figures.prepare_sparsity(rows)
    assert [(path.setting.data, path.seed) for path in paths] == [
        ("cifar10", 1),
        ("cifar10", 2),
        ("cifar100", 1),
    ]
    assert [path.sparsity.tolist() for path in paths] == [
        [0.5, 0.25, 0.125],
        [0.5, 0.6, 0.75],
        [0.5, 0.75, 0.9],
    ]
    assert paths[0].epoch.tolist() == [1, 2, 3]
    figure = figures.plot_sparsity(paths)
    words = fine(figure, tmp_path)
    colours = [line.get_color() for line in figure.axes[0].lines]
    assert colours[0] == colours[1] != colours[2]
    assert words.count("resnet8") == 2
    assert {"epoch of stage II", "weights dropped", "CIFAR-10", "CIFAR-100"} <= set(words)


def test_sparsity_by_every_rule(tmp_path):
    """Solved for in a few epochs; by Eq. 12 in many: each has its style, and is named once."""
    solved = row("maccal", keep=[0.5] * 5)
    fresh = row("maccal", described="maccal,start=fresh", stage2={"start": "fresh"}, keep=[0.4] * 9)
    paths = figures.prepare_sparsity([solved, fresh])
    assert [path.variant for path in paths] == ["maccal", "maccal,start=fresh"]
    figure = figures.plot_sparsity(paths)
    assert [line.get_linestyle() for line in figure.axes[0].lines] == ["-", "--"]
    words = fine(figure, tmp_path)
    assert {"MaC-Cal by itself", "a fresh head, by Eq. 12"} <= set(words)
    assert "as printed" not in words
    assert words.count("resnet8") == 1


def cost_rows():
    rows = [row("vanilla", s, ece=0.1, trained={"seconds": 100.0 * s}) for s in (1, 2)]
    rows += [
        row("maccal", s, ece=0.01 * s, trained={"seconds": 10.0}, stage2={"gamma": 0.97})
        for s in (1, 2, 3)
    ]
    return [
        *rows,
        row("mit", 1, ece=0.03, trained={"seconds": 400.0}),
        row("tst", trained={"epochs": 3}, stage2={"width": 128}),
    ]


def test_cost_counts_both_stages():
    """Stage I of the third seed is not there, and TST was not timed."""
    (panel,) = figures.prepare_cost(cost_rows())
    assert panel.methods == ("vanilla", "mit", "maccal")
    assert panel.seconds.tolist() == [150, 400, 160]
    assert panel.seconds_low.tolist() == [100, 400, 110]
    assert panel.seconds_high.tolist() == [200, 400, 210]
    assert panel.ece.mean.tolist() == pytest.approx([0.1, 0.03, 0.015])


def test_cost_as_drawn(tmp_path):
    rows = [*cost_rows(), *(row("vanilla", data=name, ece=0.2) for name in ("cifar100", "digits"))]
    figure = figures.plot_cost(figures.prepare_cost(rows))
    words = fine(figure, tmp_path)
    assert sum(axes.axison for axes in figure.axes) == 3
    assert {"Vanilla", "MIT", "MaC-Cal", "training, both stages", "5 min"} <= set(words)


@pytest.mark.parametrize(
    ("times", "shown"), [((240, 360), ["4 min", "6 min", "8 min"]), ((50, 160), ["1 min", "2 min"])]
)
def test_times_of_a_short_stretch(times, shown):
    """There are few round ones among them, and the axis has some all the same."""
    rows = [
        row(name, trained={"seconds": float(t)})
        for name, t in zip(("ls", "fl"), times, strict=True)
    ]
    figure = figures.plot_cost(figures.prepare_cost(rows))
    low, high = figure.axes[0].get_xlim()
    ticks = [tick for tick in figure.axes[0].get_xticks() if low <= tick <= high]
    assert len(ticks) >= 2
    assert set(shown) <= {worded(tick) for tick in ticks}


def test_names_of_points_do_not_cover_each_other():
    """Sixteen methods of about the same cost."""
    rng = np.random.default_rng(0)
    names = list(METHODS)
    rows = [
        row(name, ece=0.01 + 0.004 * i, trained={"seconds": 600 * rng.uniform(0.95, 1.1)})
        for i, name in enumerate(names)
    ]
    figure = figures.plot_cost(figures.prepare_cost(rows))
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 16
    assert not any(
        one.padded(-1).overlaps(other.padded(-1))
        for i, one in enumerate(boxes)
        for other in boxes[:i]
    )


# motivation


def masked(accuracy, confidence):
    numbers = {"ratio": [0.5, 0.0], "edges": [0, 0.5, 1], "histogram": [[0.25, 0.75], [0.0, 1.0]]}
    spread = {
        "accuracy": accuracy,
        "accuracy_spread": [0.02, 0.01],
        "confidence": confidence,
        "confidence_spread": [0.03, 0.0],
    }
    return {key: np.array(value) for key, value in (numbers | spread).items()}


def test_motivation(tmp_path):
    data = figures.motivation_from(
        masked([0.6, 0.9], [0.7, 0.97]), masked([0.88, 0.9], [0.89, 0.95])
    )
    assert data.inference.ratio.tolist() == [0, 0.5]  # ascending
    assert data.inference.accuracy.tolist() == [0.9, 0.6]
    assert data.inference.accuracy_spread.tolist() == [0.01, 0.02]
    assert data.retraining.confidence.tolist() == [0.95, 0.89]
    assert (data.trained.tolist(), data.inference.histogram.tolist()) == ([0, 1], [0.25, 0.75])
    figure = figures.plot_motivation(data)
    words = fine(figure, tmp_path)
    assert [len(axes.lines) for axes in figure.axes] == [0, 2, 4]
    assert len(figure.axes[0].patches) == 3
    assert {
        "as trained",
        "masked inference",
        "masked retraining",
        "a  50 % masked",
        "weights masked",
    } <= set(words)


def test_motivation_takes_what_geometry_returns(tmp_path):
    rng = np.random.default_rng(0)
    weight, z = rng.normal(size=(3, 8)), rng.normal(size=(60, 8))
    numbers = geometry.masked_inference(
        weight, None, z, (z @ weight.T).argmax(1), [0.0, 0.5], draws=2
    )
    data = figures.motivation_from(numbers, numbers)
    assert data.inference.accuracy[0] == 1
    assert np.array_equal(data.inference.histogram, numbers["histogram"][1])
    fine(figures.plot_motivation(data), tmp_path)


def test_what_motivation_cannot_show():
    good = masked([0.6, 0.9], [0.7, 0.97])
    with pytest.raises(ValueError, match=r"no masking ratio 0.3; the ratios are 0, 0.5"):
        figures.motivation_from(good, good, ratio=0.3)
    with pytest.raises(
        ValueError,
        match=r"no 'ratio' in the numbers of masked_retraining; .* `maccal bench motivation`",
    ):
        figures.motivation_from(good, {})
    with pytest.raises(ValueError, match="histograms of different bins"):
        figures.motivation_from(good, good | {"edges": np.array([0, 0.4, 1])})


@cache
def view(scale):
    rng = np.random.default_rng(3)
    labels = np.arange(300) % 3
    logits = scale * (np.eye(3)[labels] * 2 + rng.normal(size=(300, 3)))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    place = {
        "place": rng.normal(size=(30, 2)),
        "entropy": np.linspace(0, 1, 30) / scale,
        "labels": labels[:30],
        "rows": np.arange(30),
    }
    angles = np.array([[0.0, 90.0, 120.0], [90.0, 0.0, 60.0], [120.0, 60.0, 0.0]])
    numbers = summary(probs, labels, interval=True)
    return (
        {
            "map": place,
            "angles": angles,
            "curve": geometry.calibration_curve(logits, labels),
            "numbers": numbers,
        },
        probs,
        labels,
    )


@pytest.mark.slow
def test_before_and_after(tmp_path):
    before, probs, labels = view(3.0)
    after, *_ = view(0.5)
    data = figures.before_after_from(before, after)
    assert data.before.mean_angle == pytest.approx(90)
    assert data.before.angle_spread == pytest.approx(np.sqrt(600))  # deviations 0, 30 and -30
    assert data.before.deviation[0, 1:].tolist() == pytest.approx([0, 30])
    assert np.isnan(np.diag(data.before.deviation)).all()
    assert data.deviation_top == pytest.approx(30)
    entropies = np.concatenate([np.linspace(0, 1, 30) / 3, np.linspace(0, 2, 30)])
    assert data.entropy_top == pytest.approx(np.quantile(entropies, 0.95))
    sums = Bins.of(*top_label(probs, labels))
    filled = sums.count > 0
    assert data.before.diagram.accuracy == pytest.approx(sums.correct[filled] / sums.count[filled])
    assert data.before.diagram.numbers["ece"] == pytest.approx(sums.ece())
    figure = figures.plot_before_after(data)
    words = fine(figure, tmp_path)
    assert len(figure.axes) == 8  # six panels and two scales
    assert {
        "before",
        "after",
        "logits, by t-SNE",
        "angles 90.0° ± 24.5°",
        "calibrated, 95 %",
        "0",
        "1",
        "2",
    } <= set(words)


def test_what_belongs_together_before_and_after():
    good, *_ = view(3.0)
    with pytest.raises(ValueError, match="maps before and after show different rows"):
        figures.before_after_from(good, good | {"map": good["map"] | {"rows": np.arange(1, 31)}})
    with pytest.raises(
        ValueError, match=r"the curve after has an ECE of 0\.\d+ and its numbers 0\.9000"
    ):
        figures.before_after_from(good, good | {"numbers": good["numbers"] | {"ece": 0.9}})
    with pytest.raises(
        ValueError, match=r"no 'angles' for the classifier before; .* `maccal bench motivation`"
    ):
        figures.before_after_from({"map": good["map"]}, good)
    with pytest.raises(ValueError, match="angles of 1 class after"):
        figures.before_after_from(good, good | {"angles": np.zeros((1, 1))})


def listed(numbers):
    """As JSON has it."""
    return json.loads(json.dumps(numbers, default=lambda value: value.tolist()))


def masked_row(seed=1, accuracy=0.6, **more):
    ways = {
        "inference": masked([accuracy, 0.9], [0.7, 0.97]),
        "retraining": masked([0.88, 0.9], [0.89, 0.95]),
    }
    return row("vanilla", seed, motivation=listed(ways), **more)


def test_motivation_of_rows():
    """The first data set's seeds.

    Not a run of another method, with other settings, or without the part.
    """
    rows = [
        masked_row(3, 0.3),
        masked_row(2, 0.2),
        masked_row(1, 0.1, data="cifar100"),
        row("vanilla", 1),
    ]
    rows += [
        masked_row(1, 0.5, described="vanilla,lr=1"),
        row("ls", motivation=rows[0].motivation),
    ]
    data = figures.prepare_motivation(rows)
    assert (data.setting, data.seeds) == (HERE, (2, 3))
    assert data.inference.accuracy.tolist() == pytest.approx([0.9, 0.25])
    assert data.inference.accuracy_spread.tolist() == pytest.approx([0, 0.05 * 2**0.5])
    assert data.inference.histogram.tolist() == [0.25, 0.75]
    said = "resnet8, CIFAR-10, mean over seeds 2, 3; bands: a standard deviation over seeds"
    assert said in texts(figures.plot_motivation(data))
    alone = figures.prepare_motivation(rows[1:])
    by_hand = figures.motivation_from(
        masked([0.2, 0.9], [0.7, 0.97]), masked([0.88, 0.9], [0.89, 0.95])
    )
    assert same(dataclasses.replace(by_hand, setting=HERE, seeds=(2,)), alone)
    assert any(
        text.startswith("resnet8, CIFAR-10, seed 2; bands: a standard deviation over draws")
        for text in texts(figures.plot_motivation(alone))
    )


def test_masks_of_other_ratios_are_not_averaged():
    rows = [masked_row(1), masked_row(2)]
    ways = {name: dict(way) for name, way in rows[1].motivation.items()}
    ways["inference"]["ratio"] = [0.6, 0.0]
    rows[1] = dataclasses.replace(rows[1], motivation=ways)
    with pytest.raises(ValueError, match="seeds with another 'ratio' of their masks; run"):
        figures.prepare_motivation(rows)


def mapped_row(method, seed=1, scale=1.0, **more):
    shown = dict(view(scale)[0])
    numbers = shown.pop("numbers")
    shown["curve"] = {key: np.nan_to_num(values) for key, values in shown["curve"].items()}
    eces = {key: value for key, value in numbers.items() if key.startswith("ece")}
    return row(method, seed, numbers=eces, motivation=listed(shown), **more)


@pytest.mark.slow
def test_before_and_after_of_rows(tmp_path):
    """Seed 1 has no run of MaC-Cal with a map, so it is seed 2."""
    rows = [
        mapped_row("vanilla", 1, 2.0),
        mapped_row("vanilla", 2, 3.0),
        mapped_row("maccal", 2, 0.5),
        row("maccal", 1),
    ]
    data = figures.prepare_before_after(
        [*rows, mapped_row("maccal", 1, data="cifar100"), mapped_row("maccal", 3)]
    )
    assert (data.setting, data.seeds) == (HERE, (2,))
    by_hand = figures.before_after_from(view(3.0)[0], view(0.5)[0])
    assert (data.entropy_top, data.deviation_top) == (by_hand.entropy_top, by_hand.deviation_top)
    assert np.array_equal(data.after.place, by_hand.after.place)
    assert data.before.diagram.accuracy == pytest.approx(by_hand.before.diagram.accuracy)
    assert data.after.diagram.numbers["ece"] == by_hand.after.diagram.numbers["ece"]
    assert "resnet8, CIFAR-10, seed 2" in fine(figures.plot_before_after(data), tmp_path)


@pytest.mark.slow
def test_before_and_after_over_seeds(tmp_path):
    """The map of the first seed, the mean of the angles, the rows of all seeds in the bins."""
    rows = [mapped_row("vanilla", 1, 3.0), mapped_row("vanilla", 2, 2.0)]
    rows += [mapped_row("maccal", 1, 0.5), mapped_row("maccal", 2, 0.7)]
    data = figures.prepare_before_after(rows)
    assert data.seeds == (1, 2)
    first, second = (figures.before_after_from(view(a)[0], view(a)[0]).before for a in (3.0, 2.0))
    assert np.array_equal(data.before.place, first.place)
    assert data.before.angles == pytest.approx((first.angles + second.angles) / 2)
    eces = [one.diagram.numbers["ece"] for one in (first, second)]
    assert data.before.diagram.numbers["ece"] == pytest.approx(np.mean(eces))
    assert data.before.ece_spread == pytest.approx(np.std(eces, ddof=1))
    confidence = [view(a)[1].max(1).mean() for a in (3.0, 2.0)]
    shares = data.before.diagram.share
    assert (shares * data.before.diagram.confidence).sum() == pytest.approx(np.mean(confidence))
    words = fine(figures.plot_before_after(data), tmp_path)
    assert any("± " in text and "over seeds" in text for text in words)
    assert any("maps are of seed 1" in text for text in words)


# scheme


def test_the_scheme_needs_no_rows(tmp_path):
    data = figures.prepare_scheme()
    assert same(data, figures.prepare_scheme(board_rows()))
    assert 0 < data.mask.sum() < data.mask.size
    figure = figures.plot_scheme(data)
    words = fine(figure, tmp_path)
    said = " ".join(words).replace("\n", " ")
    for part in ("Stage I:", "Stage II:", "body, frozen", "weights × mask", "keep fewer", "learns"):
        assert part in said
    (axes,) = figure.axes
    # every step stands within the drawing, and no two cover each other
    for steps in (data.first, data.second):
        for box in steps:
            assert axes.get_xlim()[0] <= box.x < box.right <= axes.get_xlim()[1]
            assert axes.get_ylim()[0] <= box.y < box.y + box.height <= axes.get_ylim()[1]
    dark = figures.plot_scheme(data, Theme(ink="#010203", under="#040506"))
    colours = {patch.get_edgecolor() for patch in dark.axes[0].patches}
    assert any(colour[:3] == pytest.approx((4 / 255, 5 / 255, 6 / 255)) for colour in colours)


# leaderboard


def board_rows():
    """Means of maccal 0.015 and 0.03, ls 0.02 and 0.02, vanilla 0.1 and 0.3.

    MIT has no run on CIFAR-100.
    """
    eces = {"cifar10": {"maccal": (0.01, 0.02), "ls": (0.02,), "vanilla": (0.1,), "mit": (0.001,)}}
    eces["cifar100"] = {"maccal": (0.03,), "ls": (0.01, 0.01, 0.04), "vanilla": (0.3,)}
    rows = [
        row(method, seed, ece=ece, data=data, limit=None if data == "cifar10" else 500)
        for data, column in eces.items()
        for method, values in column.items()
        for seed, ece in enumerate(values, start=1)
    ]
    return [
        *rows,
        row("maccal", 3, ece=0.9, described="maccal,gamma=0.5"),
        row("ls+maccal", ece=0.001),
    ]


def test_leaderboard():
    data = figures.prepare_leaderboard(board_rows())
    # means over the panels: 0.02, 0.0225 and 0.2
    assert data.methods == ("ls", "maccal", "vanilla")
    assert data.left_out == ("mit",)
    first, second = data.panels
    assert (first.setting, second.setting) == (HERE, Setting("cifar100", 500, "resnet8"))
    assert first.ece.mean.tolist() == pytest.approx([0.02, 0.015, 0.1])
    # one seed: its interval; two: a standard deviation
    deviation = 0.01 / 2**0.5
    assert first.ece.low.tolist() == pytest.approx([0.015, 0.015 - deviation, 0.095])
    assert first.ece.high.tolist() == pytest.approx([0.025, 0.015 + deviation, 0.105])
    assert second.ece.mean.tolist() == pytest.approx([0.02, 0.03, 0.3])
    assert (second.ece.null_low.tolist(), second.ece.null_high.tolist()) == (
        pytest.approx([0.01] * 3),
        pytest.approx([0.02] * 3),
    )
    assert first.paper[1] == pytest.approx((0.92 + 1.25 + 0.96 + 1.05) / 400)
    assert first.paper[2] == pytest.approx((4.11 + 4.06 + 4.02 + 3.68) / 400)
    assert second.paper[2] == pytest.approx((14.36 + 17.85 + 11.74 + 16.04) / 400)


def test_leaderboard_as_drawn(tmp_path):
    figure = figures.plot_leaderboard(figures.prepare_leaderboard(board_rows()))
    words = fine(figure, tmp_path)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "LS",
        "MaC-Cal",
        "Vanilla",
    ]
    assert figure.axes[0].yaxis_inverted()
    for axes, eces in zip(figure.axes, ([0.02, 0.015, 0.1], [0.02, 0.03, 0.3]), strict=True):
        dots = axes.collections[-1].get_offsets()
        assert dots[:, 0].tolist() == pytest.approx(eces)
        assert dots[:, 1].tolist() == [0, 1, 2]
        assert axes.get_xscale() == "log"  # 10 and 15 times
    assert figure.axes[0].lines[0].get_xdata()[1] == pytest.approx(0.01045)
    assert {"CIFAR-10", "CIFAR-100", "resnet8", "resnet8, 500 images", "1.50", "30.00"} <= set(
        words
    )
    assert any("MIT left out where runs are missing" in text for text in words)


@pytest.mark.slow
@pytest.mark.parametrize("panels", [1, 5])
def test_leaderboards_of_few_and_many_networks(panels, tmp_path):
    """All close together: an axis from zero, and five panels in two rows of three.

    An ECE of nothing has its place.
    """
    rows = [
        row(name, ece=0.03 + 0.001 * n, model=f"net{n}", data="mine")
        for n in range(panels)
        for name in METHODS
    ]
    figure = figures.plot_leaderboard(figures.prepare_leaderboard(rows))
    fine(figure, tmp_path)
    assert sum(axes.axison for axes in figure.axes) == panels
    assert figure.axes[0].get_xlim()[0] == 0
    fine(
        figures.plot_leaderboard(
            figures.prepare_leaderboard(
                [*rows, *(row("new", ece=0.0, model=f"net{n}", data="mine") for n in range(panels))]
            )
        ),
        tmp_path,
    )


# all

OF_ROWS = {
    "leaderboard": (figures.prepare_leaderboard, board_rows, "table1"),
    "motivation": (
        figures.prepare_motivation,
        lambda: [masked_row(1, 0.1), masked_row(2, 0.2)],
        "motivation",
    ),
    "before_after": (
        figures.prepare_before_after,
        lambda: [mapped_row(name, seed) for name in ("vanilla", "maccal") for seed in (1, 2)],
        "motivation",
    ),
    "averages": (figures.prepare_averages, average_rows, "table1"),
    "shift": (figures.prepare_shift, shift_rows, "shift"),
    "mixup": (figures.prepare_mixup, mixup_rows, "mixup"),
    "gamma": (figures.prepare_gamma, gamma_rows, "gamma"),
    "sparsity": (
        figures.prepare_sparsity,
        lambda: [row("maccal", s, keep=[0.5, 0.4]) for s in (1, 2)],
        "sparsity",
    ),
    "cost": (figures.prepare_cost, cost_rows, "cost"),
}


@pytest.mark.parametrize(("prepare", "rows", "grid"), OF_ROWS.values(), ids=OF_ROWS)
def test_the_order_of_the_rows_does_not_matter(prepare, rows, grid):
    assert same(prepare(rows()), prepare(rows()))
    assert same(prepare(rows()), prepare(rows()[::-1]))


@pytest.mark.parametrize(("prepare", "rows", "grid"), OF_ROWS.values(), ids=OF_ROWS)
@pytest.mark.parametrize(
    "found",
    [[], [Row("x", error="failed")], [row("ls+maccal", keep=None)]],
    ids=["none", "failed", "other"],
)
def test_what_is_missing_names_its_grid(prepare, rows, grid, found):
    assert grid in GRIDS
    with pytest.raises(ValueError, match=rf"among the rows; run `maccal bench {grid}`"):
        prepare(found)


def test_all_figures_in_the_order_of_the_paper():
    made = {}
    for _, rows, _ in OF_ROWS.values():
        for one in rows():
            before = made.setdefault(one.name, one)
            parts = {part: getattr(one, part) or getattr(before, part) for part in PARTS}
            made[one.name] = dataclasses.replace(before, **parts)
    assert set(figures.FIGURES) == {*OF_ROWS, "scheme"}
    assert next(iter(figures.FIGURES)) == "leaderboard"
    numbers = [entry.title.split(":")[0] for entry in figures.FIGURES.values()]
    assert numbers == ["Leaderboard", *(f"Fig. {n}" for n in range(1, 9)), "Cost"]
    drawn, absent = figures.draw_all(
        dataclasses.replace(one, motivation=None) for one in made.values()
    )
    assert list(drawn) == [name for name in figures.FIGURES if name in drawn]
    assert set(absent) == {"motivation", "before_after"}
    assert (
        absent["motivation"]
        == "no vanilla run with a masked head among the rows; run `maccal bench motivation`"
    )


@pytest.mark.slow
def test_a_hundred_networks(tmp_path):
    """More panels than one can read are left out, and say so.

    Lines are drawn, and named while there is room.
    """
    rows = [row("maccal", model=f"net{number}", keep=[0.5, 0.4]) for number in range(100)]
    drawn, absent = figures.draw_all(rows)
    assert (
        absent["leaderboard"]
        == "100 data sets and networks; a figure has room for 24, the table above for all"
    )
    assert not any(text.startswith("net") for text in fine(drawn["sparsity"], tmp_path))
    assert "net7" in fine(figures.draw_all(rows[:20])[0]["sparsity"], tmp_path)


def test_nothing_is_drawn_of_nothing():
    drawn, absent = figures.draw_all(iter([]))
    assert list(drawn) == ["scheme"]
    assert {name: reason.split("`")[1].split()[-1] for name, reason in absent.items()} == {
        name: grid for name, (_, _, grid) in OF_ROWS.items()
    }
    short = []
    for one in average_rows():
        numbers = {key: value for key, value in one.numbers.items() if key != "mce_low"}
        short.append(dataclasses.replace(one, numbers=numbers))
    assert (
        figures.draw_all(short)[1]["averages"]
        == "rows without 'mce_low'; make them again with `maccal bench`"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_the_same_figure_has_the_same_bytes(kind):
    one, other = (
        figures.rendered(
            figures.plot_before_after(figures.before_after_from(view(3.0)[0], view(0.5)[0])), kind
        )
        for _ in "ab"
    )
    assert one == other


def elsewhere(rows):
    return [dataclasses.replace(one, ran=dataclasses.replace(one.ran, model="x")) for one in rows]


def test_a_figure_is_about_one_network():
    with pytest.raises(
        ValueError,
        match="rows of the grid mixup from resnet8 on CIFAR-10, x on CIFAR-10; pass those of one",
    ):
        figures.prepare_mixup(mixup_rows() + elsewhere(mixup_rows()))


def test_gamma_on_several_networks_and_heads(tmp_path):
    """One panel per network, one line per head."""
    wide = []
    for one in gamma_rows()[:3]:
        choices = {**one.ran.calibration, "hidden": 512}
        changes = (*one.ran.changes, "calibration.hidden")
        ran = dataclasses.replace(one.ran, calibration=choices, changes=changes)
        wide.append(dataclasses.replace(one, name=f"{one.name} wide", ran=ran))
    lines = figures.prepare_gamma(gamma_rows() + elsewhere(gamma_rows()) + wide)
    assert [(one.setting.model, one.head) for one in lines] == [
        ("resnet8", ""),
        ("resnet8", "hidden=512"),
        ("x", ""),
    ]
    figure = figures.plot_gamma(lines)
    words = fine(figure, tmp_path)
    assert [len(axes.lines) for axes in figure.axes] == [4, 3]
    assert "feedback from the training rows, hidden=512" in words


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_saves_everywhere(suffix, tmp_path):
    """In its own size, with its labels, and in its colours."""
    figure = figures.plot_gamma(figures.prepare_gamma(gamma_rows()))
    file = tmp_path / f"gamma.{suffix}"
    figure.savefig(file, dpi=100)
    picture = saved(file)
    assert picture.inches == pytest.approx(figure.get_size_inches(), abs=0.02)
    label = figure.axes[0].get_ylabel()
    assert label
    assert picture.words is None or label in picture.words
    assert Theme().band in picture.colours


def test_the_theme_is_followed():
    theme = Theme(ink="#010203", paper="#fefdfc", band="#abcdef")
    figure = figures.plot_averages(figures.prepare_averages(average_rows()), theme)
    assert figure.get_facecolor() == pytest.approx((254 / 255, 253 / 255, 252 / 255, 1))
    assert figure.axes[1].patches[0].get_facecolor() == pytest.approx(
        (0xAB / 255, 0xCD / 255, 0xEF / 255, 1)
    )


def test_names_are_text_not_formulas(tmp_path):
    odd = [row(r"$\frac{", ece=0.02), row("vanilla", ece=0.1, data="cifar10")]
    for name in ("cost", "averages", "leaderboard"):
        entry = figures.FIGURES[name]
        assert r"$\frac{" in fine(entry.plot(entry.prepare(odd), None), tmp_path)
