"""The benchmark report: means, ranks, tests and verdicts by hand.

The page harmless, the same twice, and used in a real browser.
"""

import json
import math
import os
import random
import re
import subprocess
import sys
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pytest
from made_up_rows import HERE, SHAPE, row, seeded

from maccal.bench.claims import claims
from maccal.bench.contrasts import contrast
from maccal.bench.grids import jobs
from maccal.bench.lines import Book, Setting, spread
from maccal.bench.standing import standing
from maccal.calibration.stage2 import ABLATION, Stage2
from maccal.cli.report import report
from maccal.evaluation.row import Row, row_of, write_rows
from maccal.methods.registry import COMBINATIONS, METHODS
from maccal.report.board import HEADINGS, board
from maccal.report.figures import FIGURES, draw_all, rendered
from maccal.report.figures.board import prepare_leaderboard
from maccal.report.leaderboard import leaderboard_page
from maccal.report.tables import tables

NASTY = "<script>alert('x')</script><img src=x onerror=alert(1)> & \"quotes\" </script><!--"


def line(rows, variant="maccal"):
    return Book.of(rows).get(HERE, variant)


def test_mean_and_spread_over_seeds():
    found = line(seeded("maccal", [0.02, 0.03, 0.04]))
    assert (found.mean("ece"), found.spread("ece")) == pytest.approx((0.03, 0.01))
    assert math.isnan(line(seeded("maccal", [0.02])).spread("ece"))
    assert math.isnan(found.mean("ood.mean.auroc"))


def test_one_aggregator():
    """Several lines are averaged seed by seed, over the seeds that all of them have.

    Of one seed the spread is the run's own interval.
    """
    one = line(seeded("maccal", [0.02, 0.04, 0.09]))
    elsewhere = [row("maccal", seed, 0.06, data="cifar100") for seed in (1, 2)]
    other = Book.of(elsewhere).get(Setting("cifar100", 0, "resnet8"), "maccal")
    found = spread([one, other], "ece")
    assert (found.mean, found.deviation, found.seeds) == pytest.approx(
        (0.045, 0.0070711, 2), rel=1e-4
    )
    assert (found.low, found.high) == pytest.approx(
        (0.045 - 0.0070711, 0.045 + 0.0070711), rel=1e-4
    )
    alone = spread([line(seeded("maccal", [0.02]))], "ece")
    assert (alone.low, alone.high, alone.seeds) == pytest.approx((0.015, 0.025, 1))
    assert (alone.null_low, alone.null_high) == (0.005, 0.012)
    assert math.isnan(alone.deviation)


def test_no_run_hides_another():
    twins = [replace(row("ls"), name=name) for name in ("one", "other")]
    with pytest.raises(ValueError, match="one and other are runs of the same method and seed"):
        Book.of(twins)
    assert len(Book.of([twins[0], twins[0]]).lines) == 1


def test_another_recipe_is_another_line():
    """The recipe that most runs of a setting have is the usual one, whatever its precision."""

    def with_recipe(made, **recipe):
        return replace(made, name=made.name + str(recipe), ran=replace(made.ran, recipe=recipe))

    rows = [
        with_recipe(row("vanilla", 1), epochs=350, precision="bf16"),
        with_recipe(row("vanilla", 2), epochs=350, precision="fp32"),
        with_recipe(row("maccal", 1), epochs=350, precision="bf16"),
        with_recipe(row("vanilla", 1, seconds=7), epochs=45, precision="bf16"),
        with_recipe(row("maccal", 1, seconds=1), epochs=45, precision="bf16"),
    ]
    book = Book.of(rows)
    assert [one.variant for one in book.lines] == [
        "maccal",
        "vanilla",
        "vanilla,epochs=45",
        "vanilla,epochs=45+maccal",
    ]
    assert book.lines[3].made.title == "MaC-Cal\nepochs=45"
    assert book.seconds(book.lines[3]) == {1: 8}
    assert [one.is_plain for one in book.lines] == [True, True, False, False]


def test_the_paired_test_by_hand():
    """Differences of -2, -3 and -4 points.

    T = -3 / (1 / sqrt 3), and with two degrees of freedom p = 1 - t / sqrt(t^2 + 2).
    """
    rows = seeded("vanilla", [0.06, 0.06, 0.06]) + seeded("maccal", [0.04, 0.03, 0.02])
    found = contrast([line(rows)], [line(rows, "vanilla")])
    t = 3 * math.sqrt(3)
    assert found.difference == pytest.approx(-0.03)
    assert found.p_value == pytest.approx(1 - t / math.sqrt(t * t + 2))
    assert (found.seeds, found.real) == (3, True)


def test_only_shared_seeds_count():
    rows = [
        row("vanilla", 1, 0.06),
        row("vanilla", 2, 0.08),
        row("maccal", 2, 0.05),
        row("maccal", 3, 0.01),
    ]
    found = contrast([line(rows)], [line(rows, "vanilla")])
    assert (found.difference, found.seeds) == (pytest.approx(-0.03), 1)
    assert contrast([line(rows[2:])], [line(rows[:1], "vanilla")]) is None


def test_one_seed_is_judged_by_intervals():
    """Intervals of +- 1.96 points each: a standard error of sqrt 2 points, and z = -3 / sqrt 2."""
    rows = [row("vanilla", 1, 0.08, width=0.0392), row("maccal", 1, 0.05, width=0.0392)]
    found = contrast([line(rows)], [line(rows, "vanilla")])
    assert found.p_value == pytest.approx(math.erfc(3 / math.sqrt(2) / math.sqrt(2)), rel=1e-3)
    assert (found.how, found.real) == ("intervals of one seed", True)


def test_two_calibrated_models_do_not_differ():
    rows = seeded("vanilla", [0.0110, 0.0111, 0.0112]) + seeded("maccal", [0.0060, 0.0061, 0.0062])
    found = contrast([line(rows)], [line(rows, "vanilla")])
    assert found.p_value < 0.001
    assert not found.real


def test_standing_by_hand():
    """Ranks 1 and 1.5 (a tie with LS on CIFAR-100).

    The paper's ECE is the mean of its eight networks there, where it is first.
    """
    eces = {
        "cifar10": {"vanilla": 0.05, "ls": 0.03, "maccal": 0.01},
        "cifar100": {"vanilla": 0.10, "ls": 0.04, "maccal": 0.04},
    }
    rows = [
        row(method, 1, ece, data=data)
        for data, column in eces.items()
        for method, ece in column.items()
    ]
    found = standing([*rows, row("mixup", 1, 0.001)])  # measured in one setting only: left out
    assert found.ece == pytest.approx(0.025)
    assert found.ranks == {"vanilla": 3.0, "ls": 1.75, "maccal": 1.25}
    assert found.paper_ece == pytest.approx(0.0165125)
    assert found.paper_rank == 1.0


def test_standing_takes_the_papers_own_network():
    assert standing([row("maccal", model="resnet50")]).paper_ece == pytest.approx(0.0092)
    assert standing([row("maccal", data="digits")]).paper_ece is None
    assert standing([]).ece is None


def claim(rows, start):
    (found,) = [c for c in claims(rows) if c.words.startswith(start)]
    return found


def test_a_name_is_drawn_as_it_is_among_other_figures():
    name = '#010203 #d55e00 url(#x) id="y"'
    html = leaderboard_page([row("vanilla", model=name), row("maccal", model=name)])
    drawn = html.split("<h2>Figures</h2>")[1].split("<h2>Failed runs</h2>")[0]
    assert f">{name}</text>" in drawn
    assert "var(--under)" in drawn


def test_a_title_that_is_not_unicode(tmp_path):
    assert leaderboard_page([row("maccal")], title="\udcff").encode().decode().count(r"\udcff") == 2


def test_nothing_is_claimed_without_rows():
    assert {c.verdict for c in claims([])} == {"not judged"}
    assert {c.verdict for c in claims([Row("x", error="y")])} == {"not judged"}


def everyone(ours, others=(0.050, 0.051, 0.053)):
    return [r for m in METHODS for r in seeded(m, ours if m == "maccal" else others)]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((0.020, 0.021, 0.022), "holds"),
        ((0.070, 0.0712, 0.073), "does not hold"),
        ((0.020, 0.080, 0.049), "cannot be told"),
        ((0.020,), "holds"),
        ((0.049,), "cannot be told"),  # within the intervals of one seed
    ],
)
def test_lowest_of_all(ours, verdict):
    found = claim(everyone(ours), "MaC-Cal has the lowest ECE of all methods, averaged")
    assert found.verdict == verdict
    assert f"{100 * sum(ours) / len(ours):.2f} % over CIFAR-10; " in found.evidence


def test_the_yardstick_has_no_rank_and_refutes_nothing():
    """A temperature on the same held-out labels is said beside the claim.

    It is not one of the methods that are compared.
    """
    rows = everyone((0.020, 0.021, 0.022)) + seeded("temperature", (0.010, 0.011, 0.012))
    found, stands = (
        claim(rows, "MaC-Cal has the lowest ECE of all methods, averaged"),
        standing(rows),
    )
    assert found.verdict == "holds"
    assert "MaC-Cal's feedback sees: 1.10 % (+1.00 points" in found.evidence
    assert stands.temperature == pytest.approx(0.011)
    assert "temperature" not in stands.ranks
    assert "has a mean ECE of 1.10 %" in leaderboard_page(rows, figures={})
    assert standing(everyone((0.02,))).temperature is None


def test_lowest_of_some_is_not_lowest_of_all():
    rows = [r for r in everyone((0.020, 0.021, 0.022)) if r.ran.method != "dfl"]
    found = claim(rows, "MaC-Cal has the lowest ECE of all methods, averaged")
    assert found.verdict == "not judged"
    assert found.evidence.endswith("Not measured everywhere: DFL.")


@pytest.mark.parametrize(
    ("ours", "others", "verdict"),
    [
        ((0.020, 0.021, 0.022), (0.050, 0.051, 0.053), "holds"),
        ((0.020, 0.060, 0.045), (0.050, 0.051, 0.053), "cannot be told"),
        ((0.080, 0.081, 0.082), (0.050, 0.051, 0.053), "does not hold"),
        ((0.020,), (0.050,), "holds"),  # by the intervals of one seed
        ((0.049,), (0.050,), "cannot be told"),
    ],
)
def test_the_best_rank(ours, others, verdict):
    found = claim(everyone(ours, others), "MaC-Cal has the best mean rank")
    assert found.verdict == verdict
    assert ("intervals of one seed" in found.evidence) == (len(ours) == 1)


@pytest.mark.parametrize(
    ("last", "verdict"), [(0.02, "holds"), (0.09, "does not hold"), (0.0501, "cannot be told")]
)
def test_added_to_others(last, verdict):
    rows = []
    for name in COMBINATIONS:
        with_ours = last if name == COMBINATIONS[-1] else 0.02
        rows += [row(name.removesuffix("+maccal"), 1, 0.05), row(name, 1, with_ours)]
    assert claim(rows, "Adding MaC-Cal").verdict == verdict
    assert claim(rows[2:], "Adding MaC-Cal").verdict == (
        "does not hold" if last == 0.09 else "not judged"
    )


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((0.899, 0.898, 0.900), "holds"),
        ((0.870, 0.871, 0.872), "does not hold"),
        ((0.895, 0.880, 0.899), "cannot be told"),
    ],
)
def test_accuracy_kept(ours, verdict):
    rows = [row("maccal", s, accuracy=a) for s, a in enumerate(ours, 1)] + [
        row("vanilla", s, accuracy=0.9) for s in (1, 2, 3)
    ]
    assert claim(rows, "MaC-Cal keeps accuracy").verdict == verdict


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ((5.0, 5.2), "holds"),
        ((40, 41), "does not hold"),
        ((5, 25), "cannot be told"),
        ((5,), "cannot be told"),
    ],
)
def test_cost_of_the_second_stage(times, verdict):
    rows = [
        r
        for s, t in enumerate(times, 1)
        for r in (row("maccal", s, seconds=t), row("vanilla", s, seconds=100.0))
    ]
    assert claim(rows, "The second stage").verdict == verdict


def step_of(name):
    """The settings of a row of Table 5 that are not the default."""
    usual = asdict(Stage2())
    return [key for key, value in asdict(Stage2.ablation(name)).items() if value != usual[key]]


def step_rows(eces):
    made = [row("vanilla", 1, eces[0])]
    for name, ece in list(zip(ABLATION, eces, strict=True))[1:]:
        made.append(
            row(
                "maccal",
                1,
                ece,
                variant=f"maccal,{','.join(f'{key}=x' for key in step_of(name))}",
                stage2=asdict(Stage2.ablation(name)),
                feedback="held-out",
            )
        )
    return made


def test_every_step_of_the_ablation():
    assert (
        claim(
            step_rows([0.20, 0.16, 0.12, 0.08, 0.06, 0.04]),
            "Every step of the ablation lowers ECE, if masks multiply",
        ).verdict
        == "holds"
    )
    assert (
        claim(
            step_rows([0.20, 0.16, 0.12, 0.08, 0.10, 0.04]),
            "Every step of the ablation lowers ECE, if masks multiply",
        ).verdict
        == "does not hold"
    )
    assert (
        claim(
            step_rows([0.20, 0.16, 0.12, 0.08, 0.08, 0.04]),
            "Every step of the ablation lowers ECE, if masks multiply",
        ).verdict
        == "cannot be told"
    )
    assert (
        claim(
            step_rows([0.20, 0.16, 0.12, 0.08, 0.06, 0.04])[2:],
            "Every step of the ablation lowers ECE, if masks multiply",
        ).verdict
        == "not judged"
    )


def gamma_rows(eces):
    heads = {gamma: asdict(Stage2(statistics="deployed", gamma=gamma)) for gamma in eces}
    made = [
        row(
            "maccal",
            1,
            ece,
            variant=f"maccal,gamma={g},training",
            width=0.002,
            stage2=heads[g],
            feedback="training",
        )
        for g, ece in eces.items()
    ]
    return [row("vanilla", 1, 0.2), *made]


def test_sensitivity_to_gamma():
    steady, wild = (
        gamma_rows({0.5: 0.030, 0.9: 0.031, 0.99: 0.033}),
        gamma_rows({0.5: 0.03, 0.9: 0.10, 0.99: 0.25}),
    )
    assert [claim(rows, "MaC-Cal is hardly").verdict for rows in (steady, wild)] == [
        "holds",
        "does not hold",
    ]
    assert [claim(rows, "Without held-out").verdict for rows in (steady, wild)] == [
        "holds",
        "does not hold",
    ]
    assert claim(steady[:3], "MaC-Cal is hardly").verdict == "not judged"


def test_elsewhere_and_shift():
    def parts(auroc, ece):
        mean = {
            "auroc": auroc,
            "auroc_low": auroc - 0.005,
            "auroc_high": auroc + 0.005,
            "fpr95": 0.5,
        }
        overall = {"ece_pooled_mean": ece, "ece": ece + 0.03}
        return {"ood": {"mean": mean}, "shift": {"overall": overall}}

    one = [row("vanilla", 1, **parts(0.85, 0.2)), row("maccal", 1, **parts(0.88, 0.1))]
    tells = "MaC-Cal tells images from elsewhere better than vanilla"
    assert claim(one, tells).verdict == "holds"
    # without seeds or an interval
    lower = "MaC-Cal has a lower ECE than vanilla on corrupted images, "
    for words in ("all corruptions pooled", "mean over corruptions"):
        assert claim(one, lower + words).verdict == "cannot be told"
    two = [*one, row("vanilla", 2, **parts(0.85, 0.21)), row("maccal", 2, **parts(0.80, 0.111))]
    assert claim(two, tells).verdict == "cannot be told"
    for words in ("all corruptions pooled", "mean over corruptions"):
        assert claim(two, lower + words).verdict == "holds"
    assert "10.55 % against 20.50 %" in claim(two, lower + "all corruptions").evidence
    assert "13.55 % against 23.50 %" in claim(two, lower + "mean over").evidence


def cell(name, method, column, rows, group=None):
    (sheet,) = [s for s in tables(rows) if s.name == name]
    place = next(
        i for i, c in enumerate(sheet.columns) if c.label == column and group in (None, c.group)
    )
    return dict(sheet.rows)[method][place]


def test_tables_in_the_papers_layout():
    rows = [
        row("maccal", s, e, model="resnet50", seconds=20) for s, e in ((1, 0.01), (2, 0.02))
    ] + step_rows([0.2] * 6)
    rows += [row("vanilla", s, model="resnet50", seconds=100 * s) for s in (1, 2)]
    ours = cell("table1", "MaC-Cal", "resnet50", rows, "CIFAR-10")
    assert (ours.text, ours.spread, ours.paper, ours.best) == ("1.50", "± 0.71", "0.92", True)
    rows += [row("maccal", 1, 0.03)]
    # the mean of 0.92, 1.25, 0.96 and 1.05
    assert cell("table1", "MaC-Cal", "resnet8", rows).paper == "≈ 1.04"
    assert (
        cell("table1", "LS", "resnet50", rows).text,
        cell("table1", "LS", "resnet50", rows).paper,
    ) == ("–", "3.96")
    assert (
        cell("cost", "MaC-Cal", "resnet50", rows).text,
        cell("cost", "MaC-Cal", "resnet50", rows).paper,
    ) == ("170", "14,358")
    assert cell("ablation", "+ Masked Retraining", "ECE", rows).paper == "3.45"
    assert (
        cell("ablation", "the default here: all of it, with a linear head", "ECE", rows).text
        == "3.00"
    )
    assert cell("ood", "PLP", "AUROC", rows).paper == "91.53"


def test_a_yardstick_stands_below_the_papers_methods():
    rows = [row("maccal", 1, 0.03), row("temperature", 1, 0.04, ood={"mean": {"auroc": 0.8}})]
    assert (
        cell("table1", "Temperature", "resnet8", rows).text,
        cell("table1", "Temperature", "resnet8", rows).paper,
    ) == (
        "4.00",
        "",
    )
    assert cell("ood", "Temperature", "AUROC", rows).text == "80.00"
    assert "Temperature" not in dict(tables(rows[:1])[0].rows)


def read_as(words, ece, data="table1", **more):
    """A row of another reading, which says of itself what a run does."""
    made = [job.config for job in jobs(data, "full", (1,)) if job.config.data == "cifar10"]
    (config,) = [config for config in made if config.described_method == words]
    return replace(row(config.method, ece=ece, **more), name=config.name, ran=config.ran)


def test_as_printed_has_a_row_in_every_table():
    """Ours and the paper's own reading, and the other readings of TST and MMCE, where they ran."""
    outside = {"mean": {"auroc": 0.8, "fpr95": 0.5}}
    shifted = {"overall": {"accuracy": 0.7, "ece": 0.2, "ece_pooled_mean": 0.1}}
    more = {"ood": outside, "shift": shifted}
    printed = "as_printed,training"
    rows = [
        read_as("vanilla", 0.5, seconds=100),
        read_as("maccal", 0.01, seconds=5, **more),
        read_as(f"maccal,{printed}", 0.07, seconds=9, **more),
        read_as("tst,as_in_maccal", 0.02),
        read_as("tst", 0.03),
        read_as("mmce,weight=1,form=unweighted", 0.04),
        read_as("ls", 0.05),
        read_as(f"ls+maccal,{printed}", 0.06, "combine"),
    ]
    ours = "MaC-Cal, as printed, training"
    assert cell("table1", ours, "resnet10", rows).text == "7.00"
    assert cell("table1", "TST, as in maccal", "resnet10", rows).text == "2.00"
    assert cell("table1", "MMCE, weight=1, form=unweighted", "resnet10", rows).text == "4.00"
    assert cell("ood", ours, "FPR95", rows).text == "50.00"
    assert cell("combine", "LS", "ECE + MaC-Cal as printed", rows, "CIFAR-10").text == "6.00"
    assert cell("combine", "LS", "ECE + MaC-Cal as printed", rows, "CIFAR-10").paper == ""
    assert cell("cost", ours, "resnet10", rows).text == "109"
    assert cell("shift", ours, "ECE, mean", rows).text == "20.00"
    last = "as printed: Eq. 12 on the retention, all weights at inference"
    whole = read_as(f"maccal,{printed}", 0.07)
    whole = replace(whole, ran=replace(whole.ran, model="resnet8"))
    ablated = [*step_rows([0.2] * 6), whole]
    assert cell("ablation", last, "ECE", ablated, "CIFAR-10, resnet8").text == "7.00"


def test_a_row_says_what_its_settings_were():
    """Where a method was run as it was before its defaults changed."""
    rows = [read_as("maccal", 0.1), read_as("tst,as_in_maccal", 0.3)]
    assert cell("table1", "TST, as in maccal", "resnet10", rows).text == "30.00"
    assert "TST" not in dict(tables(rows)[0].rows)
    assert prepare_leaderboard(rows).ways == "; TST: as in maccal"


def test_errata_are_marked():
    (sheet,) = [s for s in tables([]) if s.name == "combine"]
    assert (
        cell("combine", "DFL", "accuracy + MaC-Cal", [], "Tiny-ImageNet").erratum == "dfl-accuracy"
    )
    assert cell("combine", "DFL", "accuracy", [], "Tiny-ImageNet").erratum == ""
    assert set(sheet.notes) == {"mixup-tiny", "dfl-accuracy", "mit-mean", "dfl-mean"}
    assert all(e.text == "–" for _, entries in sheet.rows for e in entries)


def test_a_limited_set_is_a_group_of_its_own():
    rows = [
        row("maccal", model=m, limit=n)
        for m, n in (("resnet8", 10_000), ("resnet20", None), ("resnet50", None))
    ]
    (sheet,) = [s for s in tables(rows) if s.name == "table1"]
    assert sheet.groups[:2] == [("CIFAR-10, 10,000 images", 1), ("CIFAR-10", 5)]
    assert [c.label for c in sheet.columns[:3]] == ["resnet8", "resnet20", "resnet50"]


def test_lines_of_the_board():
    rows = seeded("vanilla", [0.06, 0.06, 0.06]) + seeded("maccal", [0.04, 0.03, 0.02], seconds=5)
    first, second = board(Book.of(rows))
    show = dict(zip((h.label for h in HEADINGS), first["text"], strict=True))
    assert (show["method"], show["ECE"], show["± seeds"], show["seeds"], show["seconds"]) == (
        "MaC-Cal",
        "3.00",
        "1.00",
        "3",
        "105",
    )
    assert (show["− vanilla"], show["− best"], show["paper"]) == (
        "−3.00\np = 0.035, 3 seeds",
        "the best",
        "≈ 1.04",
    )
    assert (show["95 % interval"], show["calibrated"]) == ("2.50 to 3.50", "0.50 to 1.20")
    assert second["text"][8:10] == ["vanilla itself", "+3.00\np = 0.035, 3 seeds"]


def parts_of(job, ece):
    """What a row has beside its numbers: as much as its job asks for."""
    rng, ratios, part = (
        random.Random(job.config.name),
        [0.0, 0.5, 0.9],
        {"auroc": 0.8 + 0.1 * ece, "fpr95": 0.5},
    )
    means = {"accuracy": [0.9, 0.7, 0.3], "confidence": [0.97, 0.8, 0.4]}
    masked = {
        "ratio": ratios,
        "edges": [0, 0.5, 1],
        "histogram": [[0.1 * i, 1 - 0.1 * i] for i in range(3)],
    } | means
    masked |= {f"{key}_spread": [0.01] * 3 for key in means}
    places = {
        "place": [[rng.gauss(i % 3, 0.3), rng.gauss(i % 2, 0.3)] for i in range(60)],
        "entropy": [i / 60 for i in range(60)],
    }
    spots = places | {"labels": [i % 3 for i in range(60)], "rows": list(range(60))}
    curve = {
        "edges": [0, 0.5, 1],
        "count": [0, 1000],
        "confidence": [0, 0.9 + ece],
        "accuracy": [0, 0.9],
    }
    angles = [[0, 80, 100], [80, 0, 90], [100, 90, 0]]
    motivation = {
        "map": spots,
        "angles": angles,
        "curve": curve,
        "inference": masked,
        "retraining": masked,
    }
    shift = {
        "kinds": ["fog"],
        "severities": [1, 2],
        "ece_pooled": [2 * ece, 3 * ece],
        "ece_mean": [2.5 * ece, 4 * ece],
        "n": 500,
        "source": "made",
        "overall": {"ece_pooled_mean": 3 * ece, "ece": 3.3 * ece, "accuracy": 0.6},
    }
    made = {"ood": {"mean": part}, "shift": shift, "motivation": motivation}
    keep = {"keep": [0.5, 0.4, 0.35]} if job.config.method.endswith("maccal") else {}
    return {name: made[name] for name in job.extras} | keep


@cache
def bench_rows(seeds=(1, 2)):
    """Made-up rows of the whole grid at the small scale."""
    rng, made = random.Random(0), []
    for job in jobs("all", "cpu", seeds):
        c = job.config
        ece = max(
            0.004,
            (0.012 if "maccal" in c.method else 0.03 + 0.004 * len(c.method))
            * (1 + rng.gauss(0, 0.15)),
        )
        stage2, extra = c.stage2 and asdict(c.stage2), parts_of(job, ece)
        variant, seconds = c.described_method, 9.0 if stage2 else 240.0 + rng.random()
        about = {
            "data": c.data,
            "model": c.model,
            "limit": c.limit,
            "feedback": c.feedback,
            "stage2": stage2,
            "settings": dict(c.settings),
        }
        made.append(row(c.method, c.seed, ece, variant=variant, seconds=seconds, **about, **extra))
    error = "RuntimeError: the loss is not a number"
    made.append(Row("cifar100.20000-resnet8-cpc-s9", error=error))
    return [row_of(json.loads(json.dumps(one.content)), Path("rows")) for one in made]


@cache
def bench_page(seeds=(1, 2)):
    return leaderboard_page(bench_rows(seeds))


@pytest.mark.slow
def test_same_rows_same_bytes():
    assert bench_page((1,)) == leaderboard_page(bench_rows((1,))[::-1])


@pytest.mark.slow
def test_same_rows_same_bytes_in_another_process(tmp_path):
    """Page and files, whatever the order of sets."""
    write_rows(tmp_path / "rows.jsonl", bench_rows((1,)))
    command = [
        sys.executable,
        "-m",
        "maccal",
        "report",
        "rows.jsonl",
        "--out",
        "page.html",
        "--figures",
        "figures",
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
    )
    assert b"figures: 10 of 10 in figures" in done.stdout
    assert (tmp_path / "page.html").read_text() == bench_page((1,))
    drawn, absent = draw_all(bench_rows((1,)))
    assert absent == {}
    files = {
        f"{name}.{kind}": rendered(figure, kind)
        for name, figure in drawn.items()
        for kind in ("svg", "png")
    }
    assert {file.name: file.read_bytes() for file in (tmp_path / "figures").iterdir()} == files
    assert int.from_bytes(files["gamma.png"][16:20], "big") == round(7.2 * 180)  # pixels across


def test_figures_that_lack_rows_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    write_rows(tmp_path / "rows.jsonl", [row("vanilla")])
    report((tmp_path / "rows.jsonl",), out=tmp_path / "page.html", figures=tmp_path / "figures")
    words = capsys.readouterr().out
    lack = (
        "Fig. 6: mixup, MIT and MaC-Cal over alpha: no runs of mixup with several alphas "
        "among the rows; run `maccal bench mixup`"
    )
    assert f"left out: {lack}\n" in words
    assert f"figures: 4 of 10 in {tmp_path / 'figures'}" in words.replace("\n", "")
    assert sorted(file.name for file in (tmp_path / "figures").iterdir()) == [
        f"{name}.{kind}"
        for name in ("averages", "cost", "leaderboard", "scheme")
        for kind in ("png", "svg")
    ]
    page = (tmp_path / "page.html").read_text()
    assert f"<li>{lack}</li>" in page.replace("&#39;", "'")
    assert page.count('<div role="img"') == 4


def test_no_figures_if_told_so():
    html = leaderboard_page([row("vanilla")], figures={})
    assert "<h2>Figures</h2>" not in html


def test_nothing_from_outside_and_nothing_hostile():
    figure = '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><text>gamma</text></svg>'
    hostile = row(NASTY, 1, model=NASTY, data=NASTY, verdict=NASTY, stage2={NASTY: NASTY})
    html = leaderboard_page(
        [hostile, Row(NASTY, error=NASTY)], figures={NASTY: figure}, title=NASTY
    )
    assert not re.search(
        r"https?://|//cdn|@import|url\((?!#)|\ssrc=(?!x)",
        html.replace('xmlns="http://www.w3.org/2000/svg"', ""),
    )
    assert html.count("<script") == 2  # the data and the script
    assert "<img" not in html
    assert "<?xml" not in html
    (made,) = json.loads(html.split('id="board">')[1].split("</script>")[0])
    assert made["text"][2] == NASTY


def test_standing_says_its_intervals():
    html = leaderboard_page(everyone((0.020, 0.021, 0.022)), figures={})
    assert "95 % interval 1.8" in html
    assert " %, over 3 seeds" in html
    one = leaderboard_page(everyone((0.02,), (0.05,)), figures={})
    assert re.search(r"95 % interval 1\.[45]\d to 2\.[45]\d %, bootstrap of one seed", one)
    tiny = [row("maccal", data="tiny-imagenet"), row("vanilla", data="tiny-imagenet")]
    apart = leaderboard_page([*everyone((0.020, 0.021, 0.022)), *tiny], figures={})
    assert "judged by themselves: Tiny-ImageNet, resnet8." in apart


def test_a_short_training_of_the_papers_network_says_so():
    def trained(epochs):
        one = row("vanilla", model="resnet50")
        return replace(one, ran=replace(one.ran, recipe={"epochs": epochs}))

    words = "CIFAR-10, resnet50, 5 epochs"
    assert words in leaderboard_page([trained(5)], figures={})
    assert "fewer epochs:" not in leaderboard_page([trained(350)], figures={})


def test_corrupted_images_in_numbers():
    overall = {"accuracy": 0.6, "ece": 0.12, "ece_pooled_mean": 0.08}
    shift = {"n": 500, "source": "made", "overall": overall}
    rows = [row("vanilla", shift=shift), row("maccal")]
    found = [cell("shift", "Vanilla", name, rows).text for name in ("accuracy", "ECE, pooled")]
    assert [*found, cell("shift", "Vanilla", "ECE, mean", rows).text] == ["60.00", "8.00", "12.00"]
    assert cell("shift", "MaC-Cal", "ECE, mean", rows).text == "–"
    (sheet,) = [one for one in tables(rows) if one.name == "shift"]
    assert sheet.about.endswith("CIFAR-10: 500 test images, corrupted here.")


# Several scales on one page


def two_scales(**more):
    small = [row("maccal", ece=0.03, limit=1000), row("vanilla", ece=0.2, limit=1000)]
    return leaderboard_page({"full": seeded("maccal", [0.02, 0.021]), "cpu": small}, **more)


def test_one_part_for_each_scale():
    html = two_scales(figures={})
    assert html == two_scales(figures={})
    boards = re.findall(r'id="(\w*-?)board">(.*?)</script>', html)
    assert [prefix for prefix, _ in boards] == ["", "part2-"]
    assert [len(json.loads(text)) for _, text in boards] == [1, 2]
    assert html.index("Scale full") < html.index("Scale cpu")
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert 'id="scales"' not in leaderboard_page([row("maccal")], figures={})


def test_files_of_several_scales_share_a_page(tmp_path, capsys):
    """A file of the same name is the same scale, and a row that both have counts once."""
    (tmp_path / "a").mkdir()
    write_rows(tmp_path / "bench-full.jsonl", [row("vanilla"), row("maccal", 1, 0.02)])
    write_rows(tmp_path / "bench-cpu.jsonl", [row("vanilla", limit=100)])
    write_rows(
        tmp_path / "a" / "bench-cpu.jsonl", [row("vanilla", limit=100), row("ls", limit=100)]
    )
    files = [tmp_path / name for name in ("bench-full.jsonl", "bench-cpu.jsonl")]
    page = tmp_path / "page.html"
    report((*files, tmp_path / "a" / "bench-cpu.jsonl"), out=page, figures=tmp_path / "figures")
    boards = re.findall(r'id="(?:\w*-?)board">(.*?)</script>', page.read_text())
    assert [len(json.loads(text)) for text in boards] == [2, 2]
    words = capsys.readouterr().out
    assert words.index("\nfull\n") < words.index("\ncpu\n")
    assert (tmp_path / "figures" / "full" / "scheme.svg").exists()
    assert (tmp_path / "figures" / "cpu" / "scheme.svg").exists()
    # two different rows of one name are refused within a scale, and stand beside each other in two
    write_rows(tmp_path / "a" / "bench-cpu.jsonl", [row("vanilla", 1, 0.3, limit=100)])
    with pytest.raises(ValueError, match="have the same name"):
        report((files[1], tmp_path / "a" / "bench-cpu.jsonl"), out=page)


def test_an_empty_page():
    html = leaderboard_page([])
    absent = html.split('id="absent"')[1]
    assert absent.count("run `maccal bench ") == len(FIGURES) - 1  # the scheme needs no rows
    assert "MaC-Cal has not been measured yet." in html
    assert ">nan" not in html


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page from a file.

    When the test ends, nothing may have been requested beside it or complained about.
    """
    path, requests, complaints = tmp_path / "a report with spaces & ümlauts.html", [], []

    def open_page(html, **context):
        path.write_text(html, encoding="utf-8")
        view = browser.new_context(**context).new_page()
        # pictures within the page are asked for like files
        view.on("request", lambda request: requests.append(request.url))
        view.on("console", lambda message: complaints.append(message.text))
        view.on("pageerror", lambda error: complaints.append(str(error)))
        view.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        view.goto(path.as_uri(), wait_until="load")
        return view

    yield open_page
    assert [url for url in requests if not url.startswith("data:image/png;")] == [path.as_uri()]
    assert complaints == []


def column(view, place):
    return view.locator(
        f"#leaderboard tbody tr[data-line] > :nth-child({place + 1})"
    ).all_inner_texts()


def test_sorting_and_filtering(opened):
    view = opened(bench_page())
    eces = [float(text) for text in column(view, 3)]
    assert eces == sorted(eces)
    heads = view.locator("#leaderboard thead th")
    for place in range(len(HEADINGS)):
        heads.nth(place).locator("button").press("Enter")
        assert heads.nth(place).get_attribute("aria-sort") == "ascending"
        assert view.locator("#leaderboard [aria-sort]").count() == 1
    # MaC-Cal and vanilla, the means of four networks
    for direction, first in (("ascending", "≈ 1.04"), ("descending", "≈ 15.00")):
        heads.nth(7).locator("button").click()
        assert heads.nth(7).get_attribute("aria-sort") == direction
        # what the paper does not have comes last both times
        assert (column(view, 7)[0], column(view, 7)[-1]) == (first, "–")
    view.select_option("#data", "CIFAR-10, 10,000 images")
    assert set(column(view, 1)) == {"CIFAR-10\n10,000 images"}
    view.fill("#search", "mbls maccal")
    assert column(view, 0) == []
    view.fill("#search", "mbls mac-cal")
    assert column(view, 0) == ["MbLS + MaC-Cal\nstart=fresh"]
    assert view.locator("#status").inner_text().startswith("1 of ")


def test_a_diagram_by_keyboard(opened):
    view = opened(bench_page())
    button = view.locator("#leaderboard tbody button").first
    button.focus()
    view.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    assert view.locator("tr.detail svg.diagram").count() == 2  # one a seed
    assert view.locator("tr.detail svg.diagram").first.locator("circle").count() == len(SHAPE)
    assert "batch_size 128" in view.locator("tr.detail dl").inner_text()
    view.locator("#leaderboard thead button").nth(10).click()
    assert view.locator("tr.detail").count() == 1  # stays open when sorted
    view.locator("#leaderboard button[aria-expanded=true]").focus()
    view.keyboard.press("Escape")
    assert view.locator("tr.detail").count() == 0
    view.locator("#leaderboard tbody button").first.focus()
    view.keyboard.press("ArrowDown")
    assert view.evaluate("document.activeElement.closest('tr').rowIndex") == 2


def test_hostile_names_do_nothing(opened):
    view = opened(
        leaderboard_page(
            [row(NASTY, 1, model=NASTY, data=NASTY, verdict=NASTY, stage2={NASTY: NASTY})],
            title=NASTY,
        )
    )
    view.locator("#leaderboard tbody button").click()
    assert NASTY in view.locator("tr.detail dl").inner_text()
    assert view.locator("img").count() == 0


def test_ten_thousand_lines_sort(opened):
    """By any column, and only the first of them are drawn."""
    eces = [0.01 + (i * 7919 % 10_000) / 1e5 for i in range(10_000)]
    rows = [
        row("maccal", 1, ece, variant=f"maccal,gamma={i}", stage2={"gamma": i})
        for i, ece in enumerate(eces)
    ]
    view = opened(leaderboard_page(rows))
    assert view.locator("#status").inner_text() == "10,000 of 10,000 lines, the first 200 shown"
    assert view.locator("#leaderboard tbody tr").count() == 200
    shown = [f"{100 * ece:.2f}" for ece in sorted(eces)]
    assert column(view, 3) == shown[:200]
    heads = view.locator("#leaderboard thead button")
    for place in (0, 3, 5, 13):
        heads.nth(place).click()
    assert column(view, 13)[0] == "0.410"
    heads.nth(13).click()
    assert column(view, 13)[0] == "0.510"


def test_the_rest_of_the_lines_on_demand(opened):
    view = opened(
        leaderboard_page(
            [row("maccal", variant=f"maccal,gamma={i}", stage2={"gamma": i}) for i in range(210)]
        )
    )
    assert view.locator("#leaderboard tbody tr").count() == 200
    view.locator("#more").press("Enter")
    assert view.locator("#leaderboard tbody tr").count() == 210
    assert view.locator("#more").is_hidden()
    view.fill("#search", "gamma=20")
    assert view.locator("#status").inner_text() == "11 of 210 lines"


@pytest.mark.parametrize("width", [390, 1400])
def test_the_switch_between_scales(opened, width):
    """The first is shown first; each has its own leaderboard, which sorts by itself."""
    view = opened(two_scales(), viewport={"width": width, "height": 900})
    first, second = view.locator("#part"), view.locator("#part2-part")
    assert (first.is_visible(), second.is_visible()) == (True, False)
    assert view.locator("#status").inner_text() == "1 of 1 lines"
    view.get_by_label("cpu", exact=True).first.check()
    assert (first.is_visible(), second.is_visible()) == (False, True)
    rows = view.locator("#part2-leaderboard tbody tr[data-line]")
    assert view.locator("#part2-status").inner_text() == "2 of 2 lines"
    assert rows.first.inner_text().startswith("MaC-Cal")
    view.locator("#part2-leaderboard thead button").nth(3).click()
    assert rows.first.inner_text().startswith("Vanilla")
    rows.first.locator("button.open").click()
    assert second.locator("tr.detail svg.diagram").count() == 1
    assert view.evaluate("document.documentElement.scrollWidth") <= width
    ids = view.evaluate("[...document.querySelectorAll('[id]')].map(node => node.id)")
    assert len(ids) == len(set(ids))
    view.locator("#scales input").first.focus()
    view.locator("#scales input").nth(1).press("ArrowLeft")
    assert (first.is_visible(), second.is_visible()) == (True, False)


def test_without_a_script_all_scales_are_shown(opened):
    view = opened(two_scales(figures={}), java_script_enabled=False)
    for words in ("Scale full", "Scale cpu"):
        assert view.get_by_text(words, exact=True).is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_readable_in_both_schemes_and_widths(opened, scheme, width):
    view = opened(bench_page((1,)), color_scheme=scheme, viewport={"width": width, "height": 900})
    ink, paper = (
        view.evaluate(f"getComputedStyle(document.querySelector('.card')).{what}")
        for what in ("color", "backgroundColor")
    )
    brightness = [
        sum(int(n) for n in re.findall(r"\d+", colour)[:3]) / 765 for colour in (ink, paper)
    ]
    assert abs(brightness[0] - brightness[1]) > 0.6
    assert (brightness[1] > 0.5) == (scheme == "light")
    assert view.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_once_with_words_in_both_schemes(opened, scheme):
    view = opened(bench_page((1,)), color_scheme=scheme)
    drawn = view.locator(".drawn")
    assert drawn.locator("h3").all_inner_texts() == [entry.title for entry in FIGURES.values()]
    assert drawn.locator("figcaption").all_inner_texts() == [
        entry.caption for entry in FIGURES.values()
    ]
    images = view.get_by_role("img")
    for entry in FIGURES.values():
        assert (
            images.and_(view.locator(f'[aria-label="{entry.title}"]')).locator("svg").count() == 1
        )
    assert drawn.locator("svg").count() == len(FIGURES)
    assert view.locator("#absent").count() == 0
    described = (
        "nodes => nodes.map(node => "
        "document.getElementById(node.getAttribute('aria-describedby')).textContent)"
    )
    assert drawn.locator("[role=img]").evaluate_all(described) == [
        entry.caption for entry in FIGURES.values()
    ]
    ids = view.evaluate("[...document.querySelectorAll('[id]')].map(node => node.id)")
    assert len(ids) == len(set(ids))
    links = (
        "[...document.querySelectorAll('use')].every(node => "
        "document.getElementById(node.getAttribute('xlink:href').slice(1)))"
    )
    assert view.evaluate(links)
    paper = view.evaluate(
        "getComputedStyle(document.querySelector("
        "'#figure-leaderboard svg #leaderboard-patch_1 path')).fill"
    )
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 25, 29)"}[scheme]
    pictures = view.evaluate(
        "[...document.querySelectorAll('.drawn image')]"
        ".map(node => node.getAttribute('xlink:href').slice(0, 22))"
    )
    assert set(pictures) == {"data:image/png;base64,"}
    assert "#0072b2" not in view.evaluate(
        "[...document.querySelectorAll('.drawn')].map(node => node.outerHTML).join()"
    )


def test_prints_whole_and_dark_on_white(opened):
    # A4 on its side
    view = opened(bench_page(), color_scheme="dark", viewport={"width": 1032, "height": 700})
    view.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    view.emulate_media(media="print")
    assert (
        view.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    assert view.evaluate("document.querySelector('#leaderboard').offsetWidth") <= 1032
    assert view.locator("#leaderboard tbody tr").count() == len(Book.of(bench_rows()).lines)
    assert view.locator(".controls").first.is_hidden()
