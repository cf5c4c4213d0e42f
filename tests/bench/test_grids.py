"""The paper's tables and figures as grids: what they need, what is there, what is missing."""

from dataclasses import replace
from itertools import product

import pytest

from maccal.bench import paper
from maccal.bench.grids import (
    GAMMAS,
    GRIDS,
    Job,
    collect,
    jobs,
    plan,
    remaining,
)
from maccal.bench.lines import Book
from maccal.bench.scales import SCALES, SEEDED
from maccal.bench.titles import VARIANTS
from maccal.calibration.stage2 import ABLATION, Stage2
from maccal.cli.bench import bench
from maccal.data import DATASETS
from maccal.evaluation.row import Row, write_row
from maccal.io import write_json
from maccal.methods.registry import METHODS, YARDSTICKS
from maccal.models import MODELS
from maccal.training.recipe import RECIPES


def names(grid, scale="paper", seeds=(1,)):
    return {
        (job.config.data, job.config.model, job.config.method) for job in jobs(grid, scale, seeds)
    }


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("grid", [*GRIDS, "all"])
def test_every_grid(grid, scale):
    wanted = jobs(grid, scale, (1, 2))
    made = [job.config.name for job in wanted]
    assert len(made) == len(set(made))
    for job in wanted:
        assert job.config.data in DATASETS
        assert job.config.model in MODELS
        assert job.config.plan.first in METHODS
        assert job.first.name in made[: made.index(job.config.name) + 1]  # stage I comes first
    if wanted or grid != "networks":  # which a scale may be without
        once = scale == "full" and grid in ("gamma", "networks")  # no method with more seeds
        assert {job.config.seed for job in wanted} == ({1} if once else {1, 2})


def test_table_1_has_every_cell_of_the_papers():
    cells = {cell for cell in names("table1") if cell[2] not in YARDSTICKS}
    assert {(row["data"], row["model"], row["method"]) for row in paper.table("table1")} == cells


def test_the_other_tables_have_theirs():
    assert {(row["method"], row["data"]) for row in paper.table("ood")} <= {
        (m, d) for d, _, m in names("ood")
    }
    combined = {(f"{row['method']}+maccal", row["data"]) for row in paper.table("combine")}
    assert combined <= {(m, d) for d, _, m in names("combine")}
    assert {(row["data"], row["model"], row["method"]) for row in paper.table("cost")} <= names(
        "cost"
    )
    ablations = [job for job in jobs("ablation", "paper", (1,)) if job.config.stage2]
    # under both readings; on each set also the linear head, MaC-Cal as it is and as printed
    assert len(ablations) == 2 * len(paper.table("ablation")) + 2 * 3
    assert {job.config.model for job in ablations} == {"densenet121"}


def test_the_paper_scale_is_the_papers_protocol():
    for job in jobs("all", "paper", (1,)):
        assert job.config.limit is None
        assert replace(job.config.recipe, precision="auto") == RECIPES[job.config.data]


def test_runs_are_shared():
    every = jobs("all", "paper", (1,))
    assert len(every) < sum(len(jobs(grid, "paper", (1,))) for grid in GRIDS) / 1.5
    both = next(job for job in every if job.config.name == "cifar10-resnet50-maccal-s1")
    assert both.extras == {"ood", "shift", "motivation"}


def row(job, seconds=100.0, **parts):
    trained, numbers = {"seconds": seconds}, {"ece": 0.1}
    return Row(job.config.name, ran=job.config.ran, trained=trained, numbers=numbers, **parts)


def put(runs, job, file, content):
    folder = runs / job.config.name
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Row):
        write_row(folder / file, content)
    else:
        write_json(folder / file, "error 1", content)


def test_the_plan(tmp_path):
    wanted = jobs("sparsity", "cpu", (1, 2))
    assert len(wanted) == 8
    assert plan(wanted, tmp_path).seconds is None
    first, second = [job for job in wanted if job.config.seed == 1 and job.config.data == "cifar10"]
    put(tmp_path, first, "row.json", row(first, 100))
    put(tmp_path, second, "row.json", row(second, 7))
    other = next(
        job
        for job in wanted
        if job.config.seed == 2 and job.config.method == "maccal" and job.config.data == "cifar10"
    )
    put(tmp_path, other, "error.json", {"error": "no room"})
    found = plan([job for job in wanted if job.config.data == "cifar10"], tmp_path)
    assert [found.count(state) for state in ("done", "failed", "missing")] == [2, 1, 1]
    assert found.seconds == 107
    assert plan(wanted, tmp_path).seconds is None  # nothing is known of CIFAR-100
    rows = collect(wanted, tmp_path)
    assert [r.name for r in rows] == sorted(r.name for r in rows)
    assert [r.error for r in rows if r.error] == ["no room"]


def test_a_run_is_done_when_all_is_measured(tmp_path):
    job = next(job for job in jobs("ood", "cpu", (1,)) if job.config.method == "maccal")
    put(tmp_path, job, "row.json", row(job))
    assert job.state(tmp_path) == "missing"
    put(tmp_path, job, "row.json", row(job, ood={}))
    assert job.state(tmp_path) == "done"
    assert Job(job.config, job.extras | {"shift"}).state(tmp_path) == "missing"


def test_recorded_rows_stand_for_folders(tmp_path):
    first, second = [job for job in jobs("sparsity", "cpu", (1,)) if job.config.data == "cifar10"]
    both = [first, second]
    recorded = {job.config.name: row(job) for job in both}
    assert plan(both, tmp_path, recorded).count("done") == 2
    assert remaining(both, tmp_path, recorded) == []
    # stage II needs the network, not its row
    assert remaining(both, tmp_path, {first.config.name: row(first)}) == both
    put(tmp_path, first, "row.json", row(first))
    assert remaining(both, tmp_path) == [second]


def test_a_recorded_row_of_another_run_does_not_count(tmp_path):
    """The name of a run does not tell the recipe, nor what the settings were when they were the
    default.
    """
    job = next(job for job in jobs("sparsity", "cpu", (1,)) if job.config.stage2)
    name, own = job.config.name, job.config.ran
    for part, change in {"recipe": {"epochs": 1}, "calibration": {"gamma": 0.5}}.items():
        other = replace(own, **{part: {**getattr(own, part), **change}})
        assert job.state(tmp_path, {name: Row(name, ran=other)}) == "missing"
    elsewhere = replace(own, recipe={**own.recipe, "precision": "fp32"})
    # made on another machine
    assert job.state(tmp_path, {name: Row(name, ran=elsewhere)}) == "done"
    assert job.state(tmp_path, {name: Row(name, error="no room")}) == "missing"


def test_more_seeds_for_some_methods_alone():
    """With seeds 2 and 3 the nine methods on the two CIFARs, with their own settings."""
    first = {job.config.name for job in jobs("all", "full", (1,))}
    every = jobs("all", "full", (1, 2, 3))
    later = [job for job in every if job.config.seed > 1]
    assert len(every) == len(first) + len(later)
    plain = [job for job in later if not job.config.changes]
    assert len(plain) == 2 * 2 * len(SEEDED)
    assert {job.config.method for job in plain} == set(SEEDED)
    assert {job.config.data for job in later} == {"cifar10", "cifar100"}
    assert {job.config.model for job in later} == {"resnet10"}
    assert all(job.config.stage2 == Stage2.paper() for job in later if job.config.changes)
    # what is measured of them is what is measured with the first seed
    extras = {job.config.name: job.extras for job in every}
    for job in plain:
        assert job.extras == extras[replace(job.config, seed=1).name]
    # without the first seed the others are the same
    alone = {job.config.name for job in jobs("all", "full", (2, 3))}
    assert alone == {job.config.name for job in later}


def test_tiny_imagenet_and_the_papers_networks_have_one_seed():
    tiny = [job for job in jobs("table1", "full", (1, 2, 3)) if "tiny" in job.config.data]
    assert {job.config.method for job in tiny} == {*METHODS, "temperature"}
    assert {job.config.seed for job in tiny} == {1}
    tried = jobs("networks", "full", (1, 2, 3))
    assert len(tried) == 4 * 4  # and MaC-Cal as printed
    assert {job.config.recipe.epochs for job in tried if job.config.model == "wrn26_10"} == {1}
    assert "cifar10-resnet50,epochs=5,schedule=cosine-maccal-s1" in {
        job.config.name for job in tried
    }


def test_the_papers_networks_at_each_scale():
    """At the paper's scale they are those of its tables; the small scale is without."""
    tried = {job.config.name for job in jobs("networks", "paper", (1,))}
    assert len(tried) == 16
    assert tried <= {job.config.name for job in jobs("table1", "paper", (1,))}
    assert jobs("networks", "cpu", (1,)) == []


def test_the_plan_counts_the_seeds_there_are(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    places = {"runs": tmp_path, "results": tmp_path}
    bench(("all",), "full", (1, 2, 3), show_plan=True, **places)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    counts = {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}
    assert counts["networks"] == 16
    table = [job for job in jobs("table1", "full", (1, 2, 3)) if not job.config.changes]
    assert len(table) == 3 * 17 + 2 * 2 * len(SEEDED)
    for name, count in counts.items():
        assert count == len(jobs(name, "full", (1, 2, 3)))


def test_tiny_imagenet_trains_longer_and_its_runs_have_plain_names():
    """Of the 40 classes that are there; no run says what a cosine rate does not use."""
    for job in jobs("all", "full", (1,)):
        changes = job.config.recipe_changes
        if "tiny" in job.config.data:
            assert changes == ["epochs=30", "schedule=cosine"]
        elif job.config.model == "resnet10":
            assert changes == ["epochs=16", "schedule=cosine"]
        assert "drops" not in job.config.name


def test_some_methods_and_data_sets_alone():
    """In every reading, and with the stage I that they need."""
    found = jobs("all", "full", (1, 2), only=("mixup", "vanilla+maccal"), data=("cifar100",))
    assert {job.config.data for job in found} == {"cifar100"}
    methods = {(job.config.method, job.config.seed) for job in found}
    assert methods == set(product(("vanilla", "maccal", "mixup"), (1, 2)))
    every = {job.config.name: job for job in jobs("all", "full", (1, 2))}
    for job in found:
        # a stage I that is but needed is measured no further
        wanted = frozenset() if job.config.method == "vanilla" else every[job.config.name].extras
        assert job.extras == wanted
    readings = {job.config.described_method for job in found}
    assert {"maccal,as_printed,training", "maccal,mixed"} <= readings
    assert jobs("gamma", "cpu", (1,), data=("cifar10",), only=("plp",)) == []
    # one after the other they make the whole
    parts = [jobs("table1", "cpu", (1,), data=(name,)) for name in ("cifar10", "cifar100")]
    whole = {job.config.name for job in jobs("table1", "cpu", (1,))}
    assert {job.config.name for part in parts for job in part} == whole


def test_what_cannot_be_asked_for(tmp_path):
    with pytest.raises(ValueError, match="no method 'vanila'; the methods are vanilla, acls"):
        jobs("all", "full", (1,), only=("vanila",))
    with pytest.raises(ValueError, match="no data 'tiny-imagenet' at this scale; it has cifar10, "):
        jobs("all", "cpu", (1,), data=("tiny-imagenet",))
    with pytest.raises(ValueError, match="ood at --scale full has no such runs"):
        bench(("ood",), "full", only=("ls",), runs=tmp_path, results=tmp_path)


def test_unknown_names():
    with pytest.raises(ValueError, match="no grid 'table9'; the grids are table1"):
        jobs("table9", "cpu", (1,))
    with pytest.raises(ValueError, match="no scale 'gpu'; the scales are paper, full, cpu"):
        jobs("table1", "gpu", (1,))


def described(grid, scale="paper", data="cifar100"):
    """The methods of the grid on the network of the ablation, as the names of the runs say them."""
    model = SCALES[scale].last
    configs = [job.config for job in jobs(grid, scale, (1,))]
    return [c.described_method for c in configs if (c.data, c.model) == (data, model)]


def test_other_readings_stand_beside():
    """The authors' settings are the methods' own; MaC-Cal as printed is in every grid that has it.

    As printed is to the letter: statistics of the training rows, a bottleneck, a constant rate.
    """
    table = described("table1")
    beside = {"tst,as_in_maccal", "vtst,as_in_maccal", "maccal,as_printed,training"}
    assert set(VARIANTS.values()) - set(table) == set()
    assert beside | {"tst", "vtst", "maccal", "mmce", "mmce,weight=1,form=unweighted"} <= set(table)
    for grid in GRIDS:
        made = [job.config for job in jobs(grid, "paper", (1,)) if job.config.plan.second]
        words = [config.described_method for config in made]
        with_ours = [config for config in made if config.described_method.endswith("maccal")]
        if with_ours:
            assert any("maccal,as_printed,training" in word for word in words), grid
    printed = next(
        job.config
        for job in jobs("table1", "paper", (1,))
        if job.config.described_method == "maccal,as_printed,training"
    )
    assert printed.stage2 == Stage2.paper()
    assert printed.feedback == "training"


def test_both_readings_of_the_ablation():
    found = [job.config.stage2 for job in jobs("ablation", "paper", (1,)) if job.config.stage2]
    for row, reading in product(ABLATION, ("forward", "regrow")):
        assert found.count(Stage2.ablation(row, reading)) == 2  # one on each set


def test_gamma_is_swept_on_both_sets_with_both_heads():
    for data, hidden in product(("cifar10", "cifar100"), (None, 512)):
        gammas = []
        for job in jobs("gamma", "paper", (1,)):
            config = job.config
            swept = config.data == data and config.feedback == "training"
            if swept and config.stage2.hidden == hidden:
                gammas.append(config.stage2.gamma)
        assert gammas == list(GAMMAS)
    starts = {
        job.config.stage2.hidden: job.config.stage2.start
        for job in jobs("gamma", "paper", (1,))
        if job.config.stage2
    }
    assert starts == {None: "trained", 512: "fresh"}


def test_the_recorded_scale_keeps_its_own_way():
    """What the methods' own was when its rows were made; no other readings."""
    words = described("all", "cpu")
    assert {"maccal,start=fresh", "tst,as_in_maccal", "mmce,form=weighted"} <= set(words)
    assert not {"maccal", "tst", "mmce"} & set(words)
    assert not any("regrow" in word or "as_printed" in word for word in words)


def test_an_earlier_way_stands_for_a_method_only_where_its_own_was_not_run():
    earlier = next(job.config for job in jobs("sparsity", "cpu", (1,)) if job.config.stage2)
    own = replace(earlier, stage2=Stage2()).planned()
    rows = [Row(config.name, ran=config.ran) for config in (earlier, own)]
    (alone,) = Book.of(rows[:1]).lines
    assert (alone.variant, alone.is_plain) == ("maccal", True)
    assert alone.made.title == "MaC-Cal\nstart=fresh"
    assert alone.ran.changes == ()
    assert sorted(line.variant for line in Book.of(rows).lines) == ["maccal", "maccal,start=fresh"]
