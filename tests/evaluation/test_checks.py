"""What is wrong with a row is said by file, line and field, when it is read."""

import copy
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from maccal.cli.report import placed_rows, report
from maccal.evaluation.row import (
    ROW,
    ROWS,
    Ran,
    Row,
    distinct,
    read_rows,
    row_of,
    write_row,
    write_rows,
)
from maccal.io import FileError, sealed, write_lines

RESULTS = Path(__file__).parents[2] / "results" / "bench-cpu.jsonl"
FOUND = read_rows(RESULTS)
# as JSON has them
CONTENTS = [json.loads(json.dumps(row.content)) for row in FOUND]
MAPPED = next(row for row in CONTENTS if "inference" in row.get("motivation", {}))
SHIFTED = next(row for row in CONTENTS if "shift" in row and "ood" in row)
GONE = object()
HUGE = 10**400
NAN = math.nan


def changed(key, value, row=CONTENTS[0]):
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
    for row, content in zip(FOUND, CONTENTS, strict=True):
        assert row_of(content, Path("rows.jsonl")) == row
    failed = {"name": "x", "error": "out of memory\n\tat line 3"}
    assert row_of(failed, Path("rows.jsonl")) == Row("x", error=failed["error"])


def test_predictions_of_a_stranger_are_a_row_without_a_run():
    stranger = row_of(changed("ran", GONE), Path("p.row.json"))
    assert stranger.ran is None
    assert stranger.numbers == FOUND[0].numbers


WRONG = {
    "name": (GONE, 5, None, "", "a\x00b", "two\nlines", "half \ud800", "x" * 301),
    "ran": (None, [], "x"),
    "ran.data": (GONE, 1, None),
    "ran.model": (GONE, ["resnet"]),
    "ran.first": (GONE, None, {}),
    "ran.second": (GONE, 3, {}),
    "ran.seed": (GONE, "1", 1.5, True, None, HUGE),
    "ran.limit": ("x", -3, 2.5),
    "ran.recipe": (None, []),
    "ran.settings": (None, []),
    "ran.calibration": ([], "x"),
    "ran.changes": (None, "gamma", [1]),
    "made_with": (None, []),
    "made_with.commit": (3, "a\nb"),
    "made_with.threads": ("2", -1),
    "measured": (None, []),
    "measured.n": ("x", -1, 1.5),
    "numbers": (GONE, None, []),
    "numbers.ece": (GONE, "0.1", NAN, math.inf, 1e308, HUGE, None, True, -0.1, 5.0, {}),
    "numbers.ece_low": (NAN, None, "x"),
    "numbers.mce_null_high": (None, 2),
    "numbers.nll": ("x", HUGE, NAN),
    "numbers.brier": ("x", True, []),
    "trained": (None, 5),
    "trained.seconds": ("x", -1, 0, 1e300, NAN),
    "verdict": (5, None),
    "diagram": ("x", None, [[1, 2]], [[1, NAN, 1]], [[1, 0.5, 1.5]], [1]),
    "keep": ("abc", [NAN], [-2]),
    "files": (None, "x"),
    "notes": (None, "x"),
}


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values]
)
def test_what_is_wrong_is_named(key, value):
    words = rf"(no '{key}'|{key} is .*; expected )" if key != "name" else "(name is|a row without)"
    with pytest.raises(FileError, match=f"^rows.jsonl: line 7: {words}"):
        row_of(changed(key, value), Path("rows.jsonl"), "line 7: ")


@pytest.mark.parametrize("key", ["mine", "ran.mine", "made_with.mine", "measured.mine"])
def test_what_is_no_field_of_a_row(key):
    with pytest.raises(FileError, match=rf"^rows.jsonl: line 7: {key} is no field of a row"):
        row_of(changed(key, 1), Path("rows.jsonl"), "line 7: ")


@pytest.mark.parametrize(
    "key", ["ran.limit", "ran.calibration", "ran.feedback", "numbers.nll", "made_with.commit"]
)
def test_what_may_be_null(key):
    row_of(changed(key, None), Path("rows.jsonl"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shift", "x"),
        ("shift.kinds", [1]),
        ("shift.severities", []),
        ("shift.ece_pooled", [0.1]),
        ("shift.ece_mean", [0.1]),
        ("shift.overall.ece", 1.5),
        ("shift.overall.ece_pooled_mean", "x"),
        ("ood", 5),
        ("ood.mean.auroc", "x"),
    ],
)
def test_other_images(key, value):
    with pytest.raises(FileError, match=re.escape(key.split(".")[0])):
        row_of(changed(key, value, SHIFTED), Path("rows.jsonl"))


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
        row_of(changed(f"motivation.{key}", value, MAPPED), Path("rows.jsonl"))


def test_a_sweep_of_gamma_needs_its_gamma():
    swept = next(
        row
        for row in CONTENTS
        if row["ran"]["second"] == "maccal" and row["ran"]["feedback"] == "training"
    )
    with pytest.raises(FileError, match=r"no 'ran\.calibration\.gamma'"):
        row_of(changed("ran.calibration", None, swept), Path("rows.jsonl"))


def test_one_name_is_one_row():
    """The same row twice counts once; two that differ are refused, for one would hide the other."""
    again = copy.deepcopy(FOUND[0])
    pairs = [("a line 1", FOUND[0]), ("a line 2", FOUND[1]), ("b line 1", again)]
    assert distinct(pairs) == FOUND[:2]
    other = replace(FOUND[0], verdict="another")
    with pytest.raises(
        ValueError,
        match=rf"^b line 1 and a line 1 have the same name, {re.escape(FOUND[0].name)}",
    ):
        distinct([*pairs[:2], ("b line 1", other)])


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
    "of version 0": (b'{"name": "a", "ece": 0.5}', "rows of version 0, which have no checksums"),
}


@pytest.mark.parametrize(("data", "problem"), FILES.values(), ids=FILES)
def test_files_that_are_no_rows(tmp_path, data, problem):
    file, page = tmp_path / "rows.jsonl", tmp_path / "page.html"
    file.write_bytes(data)
    with pytest.raises(FileError, match=problem):
        report((file,), out=page)
    assert not page.exists()


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([], "no rows"),
        ([changed("ran", GONE)], "line 2: no 'ran'"),
        ([changed("numbers.ece", 5.0)], "line 2: numbers.ece is 5.0; expected"),
    ],
)
def test_rows_that_the_report_cannot_show(tmp_path, rows, problem):
    write_lines(tmp_path / "rows.jsonl", ROWS, [sealed(row, ROW) for row in rows])
    with pytest.raises(FileError, match=problem):
        report((tmp_path / "rows.jsonl",), out=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name, problem in (
        ("fifo", "not a regular file"),
        (".", "no finished run"),
        ("none", "no such file"),
    ):
        with pytest.raises(FileError, match=problem):
            list(placed_rows(tmp_path / name))


def test_no_file_at_all_and_the_file_itself(tmp_path):
    with pytest.raises(ValueError, match="no file of rows"):
        report((), out=tmp_path / "page.html")
    file = write_rows(tmp_path / "rows.jsonl", FOUND[:1])
    with pytest.raises(ValueError, match="is one of the files of rows"):
        report((file,), out=tmp_path / "." / "rows.jsonl")
    assert read_rows(file) == FOUND[:1]


def test_odd_rows_that_are_fine(tmp_path):
    """One row alone; a method, a data set and a network that nobody knows."""
    new = replace(FOUND[0], name="new", ran=Ran("moon", "mine", "new", None, 1))
    file = tmp_path / "rows.jsonl"
    for rows in ([FOUND[0]], [new], [new, FOUND[0]]):
        write_rows(file, rows)
        report((file,), out=tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert all(row.ran.model in page for row in rows)


def test_folders_of_runs(tmp_path):
    """One run, several, and what is no run; the checksums of a run's files stay with the files."""
    first, second = (replace(row, files={"test.npz": "0"}) for row in FOUND[:2])
    write_row(tmp_path / "runs" / "a" / "row.json", first)
    write_row(tmp_path / "runs" / "b" / "row.json", second)
    (tmp_path / "runs" / "unfinished").mkdir()
    found = dict(placed_rows(tmp_path / "runs"))
    assert list(found.values()) == FOUND[:2]
    assert list(found) == [str(tmp_path / "runs" / name / "row.json") for name in "ab"]
    assert [row for _, row in placed_rows(tmp_path / "runs" / "b")] == FOUND[1:2]
    report((tmp_path / "runs",), out=tmp_path / "page.html")
    assert FOUND[0].ran.model in (tmp_path / "page.html").read_text()
    write_row(tmp_path / "runs" / "c" / "row.json", replace(first, ran=None))
    with pytest.raises(FileError, match=r"c/row.json: no 'ran'; it is not the row of a run"):
        report((tmp_path / "runs",), out=tmp_path / "page.html")
