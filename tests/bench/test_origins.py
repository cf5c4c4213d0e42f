"""A second stage may stand on another training of its stage I than the row beside it."""

from dataclasses import replace

import pytest
from made_up_rows import row

from maccal.bench.grids import collect, jobs, plan, remaining
from maccal.bench.origins import origins
from maccal.cli.bench import bench
from maccal.evaluation.row import Row, read_rows, write_row, write_rows
from maccal.io import write_tensors
from maccal.report.leaderboard import leaderboard_page
from maccal.runs.origin import stands_on

ONE, OTHER = "1" * 32, "2" * 32


def on(made, network, precision=None):
    recipe = {} if precision is None else {"precision": precision}
    return replace(made, stage1=network, ran=replace(made.ran, recipe=recipe))


@pytest.mark.parametrize(
    ("own", "first", "known"),
    [
        ((ONE,), (ONE,), True),
        ((ONE,), (OTHER,), False),
        ((None,), (ONE,), None),
        ((ONE,), (None,), None),
        ((None, "fp32"), (ONE, "bf16"), False),  # rows of before tell their precision
        ((None, "fp32"), (ONE, "fp32"), None),
        ((None, "fp32"), (ONE,), None),
    ],
)
def test_what_rows_say(own, first, known):
    vanilla = on(row("vanilla"), *first)
    assert stands_on(on(row("maccal"), *own), vanilla) is known
    assert stands_on(vanilla, None) is True
    assert stands_on(row("maccal"), None) is None


def test_the_page_names_them():
    rows = [on(row("vanilla"), ONE), on(row("ls"), OTHER), on(row("maccal"), ONE)]
    assert origins(rows).words == ""
    rows += [on(row("tst"), OTHER), on(row("ls+maccal"), OTHER), row("temperature")]
    rows.append(on(row("fl+maccal"), OTHER))  # without the row of its stage I: nothing beside it
    found = origins(rows)
    assert found.elsewhere == ["cifar10-resnet8-tst-s1"]
    assert found.unknown == 1
    assert found.words in leaderboard_page(rows, figures={})
    assert "1 second stage stands on another training of its stage I" in found.words
    many = [replace(on(row("tst", seed), OTHER)) for seed in range(1, 6)]
    many += [on(row("vanilla", seed), ONE) for seed in range(1, 6)]
    assert origins(many).words.startswith("5 second stages stand on another training of their ")
    assert origins(many).words.endswith("tst-s3, ….")


def made_of(job, network):
    """The row of a job, as collected."""
    numbers, trained = {"ece": 0.1}, {"seconds": 1.0}
    own = Row(job.config.name, ran=job.config.ran, numbers=numbers, trained=trained)
    return replace(own, stage1=network)


def put(runs, job, network):
    """A folder with what tells on which network its run stands."""
    folder = runs / job.config.name
    folder.mkdir(parents=True)
    made = made_of(job, None)
    if job.config.stage2 is None:
        write_row(folder / "row.json", replace(made, files={"model.safetensors": network}))
        return
    write_row(folder / "row.json", made)
    write_tensors(folder / "model.safetensors", "model 1", {}, source=network)


def pair():
    return [job for job in jobs("sparsity", "cpu", (1,)) if job.config.data == "cifar10"]


def test_what_stands_on_another_training_is_missing(tmp_path, capsys):
    first, second = pair()
    names = [job.config.name for job in (first, second)]
    rows = {names[0]: made_of(first, OTHER), names[1]: made_of(second, ONE)}
    assert plan([first, second], tmp_path, rows).states[names[1]] == "missing"
    # both are to be made: a row is no network
    assert remaining([first, second], tmp_path, rows) == [first, second]
    alike = {**rows, names[0]: made_of(first, ONE)}
    assert plan([first, second], tmp_path, alike).count("done") == 2
    # stage I, trained again in its folder, counts before what was recorded of it
    put(tmp_path, first, OTHER)
    assert plan([first, second], tmp_path, alike).states[names[1]] == "missing"
    assert remaining([first, second], tmp_path, alike) == [second]
    # rows of before do not say, and are done
    before = {**alike, names[1]: made_of(second, None)}
    assert plan([first, second], tmp_path, before).count("done") == 2
    write_rows(tmp_path / "bench-cpu.jsonl", rows.values())
    bench(("sparsity",), "cpu", (1,), show_plan=True, runs=tmp_path / "no", results=tmp_path)
    assert "They count as missing." in capsys.readouterr().err


def test_collected_rows_say_where_they_stand(tmp_path):
    """Folders hold it, those that were made before rows had it too."""
    first, second = pair()
    put(tmp_path, first, ONE)
    put(tmp_path, second, ONE)
    found = collect([first, second], tmp_path)
    assert [one.stage1 for one in found] == [ONE, ONE]
    assert [one.files for one in found] == [None, None]
    file = write_rows(tmp_path / "rows.jsonl", found)
    assert read_rows(file) == found
    # without its network it is not known; from another one it is not collected
    (tmp_path / second.config.name / "model.safetensors").write_bytes(b"damaged")
    assert [one.stage1 for one in collect([second], tmp_path)] == [None]
    write_tensors(tmp_path / second.config.name / "model.safetensors", "model 1", {}, source=OTHER)
    assert collect([second], tmp_path) == []
