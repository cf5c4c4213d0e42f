"""Rows in files: every damage is noticed, a lost line too.

Rows of version 0 are refused with how to upgrade them.
"""

import json
import threading
from pathlib import Path

import pytest
from commands import refused
from commands import run as cli

from maccal.cli.bench import read, save
from maccal.evaluation.row import read_row, read_rows, upgrade, write_row, write_rows
from maccal.io import FileError, write_lines

ROOT = Path(__file__).parents[2]
ROWS = [
    {"name": f"run {place}", "ece": 0.125 * place, "diagram": [[3, 0.5, 0.25]], "none": None}
    for place in range(4)
]


@pytest.fixture
def file(tmp_path):
    return write_rows(tmp_path / "rows.jsonl", ROWS)


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
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
    assert read_rows(old) == ROWS
    assert upgrade(old) == 0


def test_the_command_that_upgrades(tmp_path, monkeypatch, capsys):
    whole = read_rows(ROOT / "results" / "bench-cpu.jsonl")[:3]
    (tmp_path / "old.jsonl").write_text("".join(json.dumps(row) + "\n" for row in whole))
    monkeypatch.chdir(tmp_path)
    cli(monkeypatch, "report", "old.jsonl", "--upgrade")
    assert "old.jsonl: 3 rows of version 0 have checksums now" in capsys.readouterr().out
    assert read_rows(tmp_path / "old.jsonl") == whole


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
    with pytest.raises(FileError, match="a row without a name"):
        read_row(write_row(tmp_path / "row.json", {"ece": 1}))
    with pytest.raises(FileError, match="line 2: a row without a name"):
        read_rows(write_rows(tmp_path / "rows.jsonl", [{"ece": 1}]))
    with pytest.raises(FileError, match="line 2: no format"):
        read_rows(write_lines(tmp_path / "rows.jsonl", "rows 1", ROWS))


def test_a_damaged_file_of_results_is_no_dead_end(file):
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(
        FileError, match=r"its size is wrong.*; restore it, or delete it: rows whose runs are there"
    ):
        read(file)


def test_grids_that_write_one_file_at_once_lose_no_row(tmp_path, monkeypatch):
    """Each reads the file, adds its rows and writes it."""
    monkeypatch.setattr("maccal.cli.bench.collect", lambda wanted, runs: [{"name": str(wanted[0])}])
    file = tmp_path / "results" / "rows.jsonl"
    grids = [threading.Thread(target=save, args=([place], tmp_path, file)) for place in range(8)]
    for grid in grids:
        grid.start()
    for grid in grids:
        grid.join()
    assert sorted(read(file)) == [str(place) for place in range(8)]
