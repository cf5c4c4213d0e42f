"""Faults on purpose: a sample of each part finds no defect, and each part can find one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import maccal
import maccal.metrics
from faults import crowd, damage, disk, fuzz, kills, load, page
from faults.__main__ import KIND, PARTS
from faults.commands import differences, snapshot
from faults.events import Events
from faults.functions import CALLS, QUIET, Call, range_error
from faults.sandbox import forked, trials, waited
from faults.specimens import FORMATS, Format
from faults.tally import DEFECTS, Outcome, Tally
from maccal.io import read_json

ROOT = Path(__file__).parents[1]
# it has threads, says Python 3.12
forking = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A little of every part, in a process of its own."""
    file = tmp_path_factory.mktemp("faults") / "reliability.json"
    command = [sys.executable, "-m", "faults", "--sample", "--out", str(file)]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return read_json(file, KIND)["parts"]


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_sample_finds_no_defect(sample, part):
    assert page.size(sample[part]) >= 4
    assert sample[part]["defects"] == []
    assert {word: page.counted(sample[part], word) for word in DEFECTS} == dict.fromkeys(DEFECTS, 0)


@pytest.mark.slow
def test_the_sample_is_one(sample):
    """Every format is damaged, every function called, every reader fuzzed, and the kills hit."""
    quick = {form.name for form in FORMATS if form.share == 1}
    assert quick <= set(sample["damage"]["outcomes"])
    assert set(CALLS) <= set(sample["fuzz"]["outcomes"])
    assert quick <= set(sample["fuzz"]["outcomes"])
    assert sum(sample["kills"]["figures"]["kills"].values()) >= 4


def test_every_public_name_is_called_or_said_why_not():
    assert set(maccal.__all__) | set(maccal.metrics.__all__) <= set(CALLS) | set(QUIET)


# Each part can fail


def sound(folder, formats):
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "file").write_bytes(bytes(range(256)) * 4)


def careless(folder):
    return (folder / "file").read_bytes()[100:700]


def brittle(folder):
    data = (folder / "file").read_bytes()
    if data != bytes(range(256)) * 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return data


def checking(folder):
    data = (folder / "file").read_bytes()
    if data != bytes(range(256)) * 4:
        raise ValueError("file: damaged")
    return data


@forking
def test_damage_reports_a_reader_that_ignores_it_and_one_that_dies():
    tally = Tally(1)
    readers = {"careless": careless, "brittle": brittle, "checking": checking}
    damage.damage(
        1,
        120,
        tally,
        tuple(Format(name, "mine", "file", read) for name, read in readers.items()),
        sound,
    )
    assert tally.counts["careless"]["silent"] > 10
    assert tally.counts["careless"]["silent"] + tally.counts["careless"]["harmless"] == 41
    assert dict(tally.counts["brittle"]) == {"crash": 41}
    assert dict(tally.counts["checking"]) == {"noticed": 41}
    assert all("signal 9" in defect.about for defect in tally.defects if defect.group == "brittle")


def failing(error):
    def read():
        raise error

    return read


@pytest.mark.parametrize(
    ("read", "word"),
    [
        (lambda: 1, "harmless"),
        (lambda: 2, "silent"),
        (failing(ValueError("x: damaged")), "noticed"),
        (failing(ValueError("")), "wrong"),
        (failing(ValueError("two\nlines")), "wrong"),
        (failing(KeyError("x")), "crash"),
        (failing(MemoryError()), "crash"),
        (failing(RecursionError()), "crash"),
    ],
)
def test_words_of_damage(read, word):
    assert damage.judged(read, 1)[0] == word


def test_a_warning_and_the_right_result_is_notice_but_a_wrong_result_is_silent():
    def warned(result):
        import warnings

        warnings.warn("damaged; made again", stacklevel=2)
        return result

    assert damage.judged(lambda: warned(1), 1)[0] == "noticed"
    assert damage.judged(lambda: warned(2), 1)[0] == "silent"


@pytest.mark.parametrize("kind", damage.KINDS)
def test_damage_changes_the_bytes_and_is_repeatable(kind):
    number = list(damage.KINDS).index(kind)
    data = bytes(range(256)) * 20
    trial = damage.Trial(FORMATS[0], number, seed=3)
    assert trial.kind == kind
    assert trial.damaged(data) == trial.damaged(data) != data


def torn(folder, events):
    """A program that overwrites its result in place, and keeps a scratch file."""

    def work():
        if events is not None:
            events.watch()
        (folder / "scratch").write_text("x")
        done = folder / "result"
        if not done.is_file():
            with done.open("w") as file:
                file.write("first half, ")
                file.flush()
                (folder / "other").mkdir(exist_ok=True)
                file.write("second half")
        (folder / "scratch").unlink()
        (folder.parent / "events").write_text(str(events.count if events is not None else 0))

    return forked(work)


@forking
def test_kills_report_a_program_that_cannot_be_killed():
    tally = Tally(1)
    kills.kills(1, 8, tally, (kills.Workload("torn", torn),))
    assert sum(tally.figures["kills"].values()) >= 6  # it may end before a random kill
    assert tally.counts["torn"]["silent"] >= 1  # half a result is taken for a whole one
    assert tally.counts["torn"]["same"] >= 1


@forking
def test_a_power_cut_loses_what_was_not_flushed(tmp_path):
    def work(flushed):
        Events(tmp_path, at=2 if flushed else 1, power=True).watch()
        file = (tmp_path / "file").open("wb")
        file.write(bytes(100))
        file.flush()
        if flushed:
            os.fsync(file.fileno())
        (tmp_path / "next").mkdir()

    for flushed, left in ((True, 100), (False, 50)):
        assert waited(forked(lambda flushed=flushed: work(flushed))) == -9
        assert (tmp_path / "file").stat().st_size == left


@pytest.mark.parametrize(
    ("ended", "found", "word"),
    [
        (0, {"a": "1"}, "same"),
        (0, {"a": "2"}, "silent"),
        (0, {}, "wrong"),
        (0, {"a": "1", ".a.part": "0"}, "wrong"),
        (2, {"a": "1"}, "wrong"),
        (1, {"a": "1"}, "crash"),
        (-11, {"a": "1"}, "crash"),
        (None, {"a": "1"}, "crash"),
    ],
)
def test_words_of_kills(ended, found, word):
    assert kills.judged(ended, found, {"a": "1"})[0] == word


def test_snapshots_leave_out_times_and_nothing_else(tmp_path):
    for name, seconds, ece in (("a", 1.0, 0.5), ("b", 2.0, 0.5), ("c", 1.0, 0.25)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "row.json").write_text(
            json.dumps({"ece": ece, "trained": {"seconds": seconds}})
        )
    a, b, c = (snapshot(tmp_path / name) for name in "abc")
    assert differences(a, b) == ""
    assert differences(c, a) == "another row.json"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (0.5, ""),
        (float("nan"), "NaN"),
        (1.5, "outside"),
        ({"ece": [0.5, np.float64(-1)]}, "outside"),
        (np.array([0.0, 1.0]), ""),
    ],
)
def test_ranges(answer, problem):
    assert problem in range_error(answer, Call(float, None, within=(0, 1)))
    assert problem or range_error(answer, Call(float, None, within=(0, 1))) == ""


def test_words_of_calls():
    def judged(function, known):
        return fuzz.judged(Call(function, None, within=(0, 1)), [], {}, known)[0]

    assert judged(lambda: 0.5, True) == judged(lambda: 0.5, None) == "answered"
    assert (
        judged(lambda: 0.5, False)
        == judged(lambda: 2.0, True)
        == judged(lambda: float("nan"), None)
        == "silent"
    )
    assert (
        judged(failing(ValueError("no")), False)
        == judged(failing(TypeError("no")), None)
        == "refused"
    )
    assert judged(failing(ValueError("math domain error")), True) == "wrong"
    assert judged(failing(IndexError("no")), False) == "crash"


@pytest.mark.slow
@forking
def test_trials_that_hang_or_die_are_counted_and_the_rest_goes_on():
    def work(task):
        while task == "hangs":
            pass
        if task == "dies":
            os._exit(3)
        return [Outcome("all", "same")]

    tasks = ["a", "hangs", "b", "dies", "c"]
    found = list(
        trials(tasks, work, name=lambda task: ("all", task), jobs=1, seconds=1, memory=None)
    )
    assert [outcome.word for outcome in found] == ["same", "crash", "same", "crash", "same"]
    assert "no end within 1 s" in found[1].about
    assert "exit code 3" in found[3].about


@forking
def test_a_mistake_of_the_harness_is_no_outcome():
    def work(task):
        raise KeyError("mine")

    with pytest.raises(RuntimeError, match="the harness itself failed"):
        list(trials([1], work, name=lambda task: ("all", ""), jobs=1))


def test_words_of_crowds_disks_and_loads(tmp_path):
    assert [crowd.ended(code)[0] for code in (0, 2, 1, -9, None)] == [
        "same",
        "wrong",
        "crash",
        "crash",
        "crash",
    ]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "old").write_text("half")
    good = disk.Alone({"old": "whole"}, {"old": "new"}, 100)
    for words, part in (
        ("maccal: full", "not whole: old"),
        ("Traceback\nOSError", "not one line"),
        ("", "not one line"),
    ):
        (tmp_path / "said").write_text(words)
        assert part in disk.complaint(disk.COMMANDS[0], good, 2, tmp_path / "work")
    (tmp_path / "said").write_text("maccal: full")
    (tmp_path / "work" / ".a.part").touch()
    assert "left over .a.part" in disk.complaint(disk.COMMANDS[0], good, 2, tmp_path / "work")
    numbers = dict.fromkeys(load.NAMES, 0.5)
    record = {"rows": 10, "counted": 10, "early": 0, "peak": 1, "found": numbers, "wanted": numbers}
    assert load.judged(record)[0] == "same"
    assert load.judged({**record, "counted": 9})[0] == "silent"
    assert load.judged({**record, "found": {**numbers, "ece": 0.6}})[0] == "silent"
    assert load.judged({**record, "peak": 1 << 30})[0] == "wrong"


# The page


def test_the_page_is_made_of_the_figures():
    assert page.PAGE.read_text() == page.page(read_json(page.RESULTS, KIND))


def test_what_was_committed_has_every_part_and_no_defect():
    parts = read_json(page.RESULTS, KIND)["parts"]
    assert set(parts) == set(PARTS)
    assert sum(parts["kills"]["figures"]["kills"].values()) >= 300
    assert page.size(parts["damage"]) >= 10_000
    assert page.size(parts["fuzz"]) >= 100_000
    assert page.size(parts["load"]) >= 1_000_000_000
    for part in parts.values():
        assert {word: page.counted(part, word) for word in DEFECTS} == dict.fromkeys(DEFECTS, 0)
