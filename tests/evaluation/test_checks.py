"""Rows for the report.

What is wrong with one is said by file, line and key, before anything is drawn.
"""

import copy
import json
import math
import os
import re
from pathlib import Path

import pytest

from maccal.cli.report import placed_rows, report
from maccal.evaluation.checks import check_names, check_row
from maccal.evaluation.row import read_rows, write_rows
from maccal.io import FileError

RESULTS = Path(__file__).parents[2] / "results" / "bench-cpu.jsonl"
ROWS = read_rows(RESULTS)
MAPPED = next(row for row in ROWS if "inference" in row.get("motivation", {}))
SHIFTED = next(row for row in ROWS if "shift" in row and "ood" in row)
GONE = object()
HUGE = 10**400
NAN = math.nan


def changed(key, value, row=ROWS[0]):
    """A copy of a row with one value changed; dots lead into its parts."""
    row = copy.deepcopy(row)
    *parts, last = key.split(".")
    inside = row
    for part in parts:
        inside = inside[part]
    if value is GONE:
        del inside[last]
    else:
        inside[last] = value
    return row


def test_the_rows_of_the_benchmark_are_fine():
    for row in ROWS:
        check_row(row, Path("rows.jsonl"))
    check_row({"name": "x", "error": "out of memory\n\tat line 3"}, Path("rows.jsonl"))


WRONG = {
    "name": (GONE, 5, None, "", "a\x00b", "two\nlines", "half \ud800", "x" * 301),
    "run": (GONE, None, [], "x"),
    "run.data": (GONE, 1, None),
    "run.model": (GONE, ["resnet"]),
    "run.method": (GONE, None, {}),
    "run.seed": (GONE, "1", 1.5, True, None, HUGE),
    "run.limit": ("x", -3, 2.5),
    "run.settings": (None, []),
    "run.stage2": ([], "x"),
    "ece": (GONE, "0.1", NAN, math.inf, 1e308, HUGE, None, True, -0.1, 5.0, {}),
    "ece_low": (NAN, None, "x"),
    "mce_null_high": (None, 2),
    "nll": ("x", HUGE, NAN),
    "trained": (None, 5),
    "trained.seconds": ("x", -1, 0, 1e300, NAN),
    "verdict": (5, None),
    "diagram": ("x", None, [[1, 2]], [[1, NAN, 1]], [[1, 0.5, 1.5]], [1]),
    "keep": ("abc", [NAN], [2]),
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values]
)
def test_what_is_wrong_is_named(key, value):
    with pytest.raises(
        FileError, match=rf"^rows.jsonl: line 7: (no '{key}'|{key} is .*; expected )"
    ):
        check_row(changed(key, value), Path("rows.jsonl"), "line 7: ")


@pytest.mark.parametrize(
    "key", ["run.limit", "run.stage2", "run.feedback", "nll", "motivation", "keep"]
)
def test_what_may_be_null(key):
    check_row(changed(key, None), Path("rows.jsonl"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shift", "x"),
        ("shift.kinds", [1]),
        ("shift.severities", []),
        ("shift.ece_pooled", [0.1]),
        ("shift.overall.ece_pooled_mean", "x"),
        ("ood", 5),
        ("ood.mean.auroc", "x"),
    ],
)
def test_other_images(key, value):
    with pytest.raises(FileError, match=re.escape(key.split(".")[0])):
        check_row(changed(key, value, SHIFTED), Path("rows.jsonl"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("map", []),
        ("map.place", [[1, 2, 3]]),
        ("map.place", "x"),
        ("map.labels", GONE),
        ("map.labels", [0.5] * 1000),
        ("angles", [[1, 2], [3]]),
        ("angles", [["1"]]),
        ("curve.confidence", [NAN] * 15),
        ("curve.edges", [0, 1]),
        ("inference.ratio", []),
        ("inference.histogram", [1]),
        ("retraining.edges", HUGE),
    ],
)
def test_arrays_of_the_motivation(key, value):
    with pytest.raises(FileError, match=rf"motivation\.{key.split('.')[0]}"):
        check_row(changed(f"motivation.{key}", value, MAPPED), Path("rows.jsonl"))


def test_a_sweep_of_gamma_needs_its_gamma():
    swept = next(
        row
        for row in ROWS
        if row["run"]["method"] == "maccal" and row["run"]["feedback"] == "training"
    )
    with pytest.raises(FileError, match=r"no 'run\.stage2\.gamma'"):
        check_row(changed("run.stage2", None, swept), Path("rows.jsonl"))


def test_one_name_is_one_row():
    """The same row twice counts once; two that differ are refused, for one would hide the other."""
    pairs = [("a line 1", ROWS[0]), ("a line 2", ROWS[1]), ("b line 1", copy.deepcopy(ROWS[0]))]
    assert check_names(pairs) == ROWS[:2]
    with pytest.raises(
        ValueError,
        match=rf"^b line 1 and a line 1 have the same name, {re.escape(ROWS[0]['name'])}",
    ):
        check_names([*pairs[:2], ("b line 1", changed("ece", 0.3))])


FILES = {
    "empty": (b"", "header: not JSON"),
    "blank": (b"\n \n", "header: not JSON"),
    "text": (b"hello\n", "header: not JSON"),
    "a list": (b"[1]\n", "header: list instead of"),
    "null": (b"null\n", "header: NoneType instead of"),
    "deep": (b'{"a":' * 100_000, "header: not JSON"),
    "many digits": (b'{"name": ' + b"1" * 5000 + b"}", "header: not JSON"),
    "binary": (bytes(range(256)), "header: not JSON"),
    "latin": ('{"name": "café"}'.encode("latin-1"), "header: not JSON"),
    "cut off": (RESULTS.read_bytes()[:-9], "its size is wrong"),
    "a line too few": (RESULTS.read_bytes().rpartition(b"\n{")[0] + b"\n", "its size is wrong"),
    "doubled key": (b'{"name": "a", "name": "b"}', "a key comes twice"),
    "of version 0": (json.dumps(ROWS[0]).encode(), "rows of version 0, which have no checksums"),
}


@pytest.mark.parametrize(("data", "problem"), FILES.values(), ids=FILES)
def test_files_that_are_no_rows(tmp_path, data, problem):
    file, page = tmp_path / "rows.jsonl", tmp_path / "page.html"
    file.write_bytes(data)
    with pytest.raises(FileError, match=problem):
        report((file,), out=page)
    assert not page.exists()


@pytest.mark.parametrize(
    ("rows", "problem"), [([], "no rows"), ([changed("run", GONE)], "line 2: no 'run'")]
)
def test_rows_that_the_report_cannot_show(tmp_path, rows, problem):
    write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(FileError, match=problem):
        report((tmp_path / "rows.jsonl",), out=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name, problem in (
        ("fifo", "not a regular file"),
        (".", "not a regular file"),
        ("none", "no such file"),
    ):
        with pytest.raises(FileError, match=problem):
            list(placed_rows(tmp_path / name))


def test_no_file_at_all_and_the_file_itself(tmp_path):
    with pytest.raises(ValueError, match="no file of rows"):
        report((), out=tmp_path / "page.html")
    file = write_rows(tmp_path / "rows.jsonl", ROWS[:1])
    with pytest.raises(ValueError, match="is one of the files of rows"):
        report((file,), out=tmp_path / "." / "rows.jsonl")
    assert read_rows(file) == ROWS[:1]


def test_odd_rows_that_are_fine(tmp_path):
    """One row alone; a method, a data set and a network that nobody knows."""
    new = changed("run", {"data": "moon", "model": "mine", "method": "new", "seed": 1}) | {
        "name": "moon-mine-new-s1"
    }
    file = tmp_path / "rows.jsonl"
    for rows in ([ROWS[0]], [new], [new, ROWS[0]]):
        write_rows(file, rows)
        report((file,), out=tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert all(row["run"]["model"] in page for row in rows)
