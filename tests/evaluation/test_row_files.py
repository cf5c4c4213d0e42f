"""Rows in files: every damage is noticed, a lost line too.

Rows of version 0 are refused with how to upgrade them; those of format 1 are read as they are.
"""

import json
import subprocess
import threading
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from commands import refused
from commands import run as cli

from maccal.cli.bench import read, save
from maccal.evaluation import row as rows_module
from maccal.evaluation.older import converted
from maccal.evaluation.provenance import Provenance, commit_of, provenance
from maccal.evaluation.row import (
    DiagramBin,
    Measured,
    Ran,
    Row,
    read_row,
    read_rows,
    row_of,
    upgrade,
    write_row,
    write_rows,
)
from maccal.io import FileError, sealed, write_json, write_lines
from maccal.runs.config import config_of

ROOT = Path(__file__).parents[2]
RAN = Ran(
    "cifar10",
    "resnet8",
    "mixup",
    "maccal",
    2,
    limit=10_000,
    settings={"alpha": 0.5},
    calibration={"gamma": 0.9},
    feedback="training",
    changes=("settings.alpha", "calibration.gamma", "feedback"),
)
ROWS = [
    Row(
        f"run {number}",
        ran=replace(RAN, seed=number),
        made_with=Provenance("0.1.0", torch="2.13.0", precision="bf16"),
        measured=Measured("logits", "test.npz", 500, 10, 15, 1000, 0),
        numbers={"ece": 0.125 * number, "nll": None},
        diagram=(DiagramBin(3, 0.5, 0.25),),
        keep=(0.5, 0.25),
    )
    for number in range(4)
]


def old_content(row):
    """The row as format 1 had it: one flat object, the changes in its name."""
    described = "mixup,alpha=0.5+maccal,gamma=0.9,training"
    return {
        "name": f"cifar10.10000-resnet8-{described}-s{row.ran.seed}",
        "run": row.ran.about,
        "kind": "logits",
        "file": "test.npz",
        "n": 500,
        "classes": 10,
        "bins": 15,
        "resamples": 1000,
        "seed": 0,
        **row.numbers,
        "diagram": [list(one) for one in row.diagram],
        "keep": list(row.keep),
        "versions": {"maccal": "0.1.0", "torch": "2.13.0"},
    }


OLD = [old_content(row) for row in ROWS]
CONVERTED = [
    replace(row, name=old["name"], made_with=replace(row.made_with, precision=None))
    for row, old in zip(ROWS, OLD, strict=True)
]


@pytest.fixture
def file(tmp_path):
    return write_rows(tmp_path / "rows.jsonl", ROWS)


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in OLD))
    return path


def test_rows_come_back_and_a_line_is_a_row_file(file, tmp_path):
    assert read_rows(file) == ROWS
    (tmp_path / "row.json").write_text(file.read_text().splitlines()[2])
    assert read_row(tmp_path / "row.json") == ROWS[1]
    assert json.loads(write_row(tmp_path / "row.json", ROWS[1]).read_text()) == json.loads(
        file.read_text().splitlines()[2]
    )


def test_every_damage_is_noticed(file):
    data = file.read_bytes()
    for place in range(0, len(data), 2):
        file.write_bytes(data[:place] + bytes([data[place] ^ 2]) + data[place + 1 :])
        with pytest.raises(FileError):
            read_rows(file)
    for size in range(0, len(data), 7):
        file.write_bytes(data[:size])
        with pytest.raises(FileError):
            read_rows(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:-1],
        lambda lines: lines + lines[-1:],
        lambda lines: lines[:1] + lines[2:],
    ],
)
def test_a_lost_or_doubled_line_is_noticed(file, change):
    file.write_text("".join(change(file.read_text().splitlines(keepends=True))))
    with pytest.raises(FileError, match=r"rows\.jsonl: its size is wrong"):
        read_rows(file)


def test_rows_of_version_0_are_refused_until_they_are_upgraded(old, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = refused(monkeypatch, capsys, "report", "old.jsonl")
    assert "rows of version 0, which have no checksums" in words
    assert "`maccal report old.jsonl --upgrade` adds them" in words
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(FileError, match="--upgrade"):
        read(old)
    assert upgrade(old) == 4
    assert read_rows(old) == CONVERTED
    assert upgrade(old) == 0


def test_rows_of_format_1_are_read_and_said_to_be_old(tmp_path, capsys):
    """A file of them, and the row of a run: no finished run is lost."""
    file = write_lines(tmp_path / "rows.jsonl", "rows 1", [sealed(one, "row 1") for one in OLD])
    folder = tmp_path / "runs" / "run"
    write_json(folder / "row.json", "row 1", OLD[1])
    rows_module.say_older.cache_clear()
    for _ in "ab":
        assert read_rows(file) == CONVERTED
        assert read_row(folder / "row.json") == CONVERTED[1]
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"maccal: {file}: rows of format 1, read as format 2; "
        f"`maccal report {file} --upgrade` rewrites them",
        f"maccal: {tmp_path / 'runs'}: rows of format 1, read as format 2; "
        "`maccal evaluate RUN` rewrites them",
    ]
    assert upgrade(file) == 4
    assert json.loads(file.read_text().splitlines()[0])["format"] == "maccal rows 2"
    assert (read_rows(file), upgrade(file)) == (CONVERTED, 0)


@pytest.mark.parametrize(
    ("method", "name", "first", "second", "changes"),
    [
        ("ls", "ls", "ls", None, []),
        ("maccal", "maccal,mixed", "vanilla", "maccal", ["feedback"]),
        ("fl", "fl,gamma=1", "fl", None, ["settings.gamma"]),
        ("fl+tst", "fl,gamma=1+tst,lr=0.1", "fl", "tst", ["settings.gamma", "calibration.lr"]),
        ("new", "new", "new", None, []),
    ],
)
def test_what_was_run_comes_from_the_old_name(method, name, first, second, changes):
    run = {"data": "cifar10", "model": "resnet8", "method": method, "seed": 1, "stage2": None}
    old = {"name": f"cifar10-resnet8-{name}-s1", "run": run, "ece": 0.5}
    ran = converted(old, Path("x"))["ran"]
    assert (ran["first"], ran["second"], ran["changes"]) == (first, second, changes)
    assert row_of(converted(old, Path("x")), Path("x")).ran.method == method
    assert converted({**old, "name": "mine"}, Path("x"))["ran"]["changes"] == []


def test_the_committed_rows_lost_nothing():
    """The rows of the benchmark, which were converted once."""
    for row in read_rows(ROOT / "results" / "bench-cpu.jsonl"):
        assert len(row.numbers) > 80
        config = config_of(row.ran.about)
        assert row.name == config.name
        assert row.ran.changes == config.ran.changes


def test_a_failed_run_comes_back(tmp_path):
    failed = Row("run", error="out of memory\n\tat line 3")
    assert read_rows(write_rows(tmp_path / "rows.jsonl", [failed])) == [failed]


def test_provenance(tmp_path):
    """The commit is git's own, of a work tree too; None where there is no checkout."""
    assert commit_of(tmp_path) is None
    found = provenance(2, "bf16")
    assert (found.threads, found.precision, found.torch) == (2, "bf16", version("torch"))
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    if git.returncode == 0:
        assert found.commit == commit_of(ROOT) == git.stdout.strip()
    head = tmp_path / ".git"
    (head / "refs" / "heads").mkdir(parents=True)
    (head / "HEAD").write_text("ref: refs/heads/main\n")
    (head / "packed-refs").write_text("# pack-refs\n0123 refs/heads/main\n")
    commit_of.cache_clear()
    assert commit_of(tmp_path) == "0123"
    (head / "refs" / "heads" / "main").write_text("4567\n")
    commit_of.cache_clear()
    assert commit_of(tmp_path) == "4567"
    commit_of.cache_clear()


def test_the_command_that_upgrades(tmp_path, monkeypatch, capsys):
    bands = {f"ece_{end}": 0.01 for end in ("low", "high", "null_low", "null_high")}
    old = "".join(json.dumps({**one, **bands}) + "\n" for one in OLD[:3])
    (tmp_path / "old.jsonl").write_text(old)
    monkeypatch.chdir(tmp_path)
    cli(monkeypatch, "report", "old.jsonl", "--upgrade")
    words = "old.jsonl: 3 rows of an older format are of this one now"
    assert words in capsys.readouterr().out
    found = read_rows(tmp_path / "old.jsonl")
    expected = [replace(row, numbers={**row.numbers, **bands}) for row in CONVERTED[:3]]
    assert [row.numbers for row in found] == [row.numbers for row in expected]
    # by its name of today: a row that does not say where the head started has a fresh one
    assert found[0].name == expected[0].name.replace("+maccal", "+maccal,start=fresh")
    assert found[0].ran.calibration["start"] == "fresh"


def test_a_damaged_file_is_never_upgraded(file, old):
    """Nor one that lost its header, its first lines, or a checksum."""
    lines = file.read_text().splitlines(keepends=True)
    for wrong in (lines[1:], lines[:-1], [line.replace("checksum", "checksun") for line in lines]):
        file.write_text("".join(wrong))
        with pytest.raises(FileError):
            upgrade(file)
        assert file.read_text() == "".join(wrong)
    for text in (
        "",
        "\n",
        "[]\n",
        "{}\n",
        '{"name": 3}\n',
        '{"name": "a"\n',
        '{"name": "a", "name": "b"}\n',
        "[" * 100_000,
    ):
        old.write_text(text)
        with pytest.raises(FileError):
            upgrade(old)


def test_rows_without_a_name_are_refused(tmp_path):
    for number in (1, 2):
        nameless = sealed({"ece": 1}, f"row {number}")
        with pytest.raises(FileError, match="a row without a name"):
            read_row(write_json(tmp_path / "row.json", f"row {number}", {"ece": 1}))
        with pytest.raises(FileError, match="line 2: a row without a name"):
            read_rows(write_lines(tmp_path / "rows.jsonl", f"rows {number}", [nameless]))
        with pytest.raises(FileError, match="line 2: no format"):
            read_rows(write_lines(tmp_path / "rows.jsonl", f"rows {number}", OLD))


def test_a_damaged_file_of_results_is_no_dead_end(file):
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(
        FileError, match=r"its size is wrong.*; restore it, or delete it: rows whose runs are there"
    ):
        read(file)


def test_grids_that_write_one_file_at_once_lose_no_row(tmp_path, monkeypatch):
    """Each reads the file, adds its rows and writes it."""
    monkeypatch.setattr("maccal.cli.bench.collect", lambda wanted, runs: [Row(str(wanted[0]))])
    file = tmp_path / "results" / "rows.jsonl"
    grids = [threading.Thread(target=save, args=([number], tmp_path, file)) for number in range(8)]
    for grid in grids:
        grid.start()
    for grid in grids:
        grid.join()
    assert sorted(read(file)) == [str(number) for number in range(8)]
