"""The paper's tables and figures as grids: what they need, what is there, what is missing."""

from dataclasses import replace

import pytest

from maccal.bench import paper
from maccal.bench.grids import GRIDS, SCALES, Job, collect, jobs, plan, remaining
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
    assert {job.config.seed for job in wanted} == {1, 2}


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
    assert len(ablations) == len(paper.table("ablation")) + 2  # and the linear head on each set
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


def test_unknown_names():
    with pytest.raises(ValueError, match="no grid 'table9'; the grids are table1"):
        jobs("table9", "cpu", (1,))
    with pytest.raises(ValueError, match="no scale 'gpu'; the scales are paper, cpu"):
        jobs("table1", "gpu", (1,))
