"""The state on the disk: whole or not there, damage noticed, several processes."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from faults.events import Events
from faults.sandbox import forked, waited
from maccal.io import FileError
from maccal.monitoring import Monitor

ROOT = Path(__file__).parents[2]
# it has threads, says Python 3.12
forking = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def rows(seed, n=20):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.6, 1, n)
    return np.stack([p, 1 - p], 1), (rng.random(n) > p).astype(int)


@pytest.fixture
def state(tmp_path):
    p, y = rows(0, 200)
    watch = Monitor.create(tmp_path / "state", probs=p, labels=y, least_accuracy=0.5)
    watch.add(*rows(1), time="2026-03-01")
    watch.add(rows(2)[0], ids=range(20), time="2026-03-02")
    watch.label(range(10), rows(2)[1][:10], time="2026-03-03")
    return tmp_path / "state"


def standing(folder):
    return Monitor.open(folder).standing()


def test_what_is_read_is_what_was_told(state):
    found = standing(state)
    again = Monitor(Monitor.open(state).settings)
    again.add(*rows(1), time="2026-03-01")
    again.add(rows(2)[0], ids=range(20), time="2026-03-02")
    again.label(range(10), rows(2)[1][:10], time="2026-03-03")
    assert again.standing() == found
    assert (found.rows, found.labelled, found.waiting) == (40, 30, 10)
    assert [alarm.name for alarm in found.alarms] == ["calibration", "accuracy", "drift"]


def test_two_open_monitors_see_each_other(state):
    first, second = Monitor.open(state), Monitor.open(state)
    first.add(*rows(3))
    with pytest.raises(ValueError, match="this very batch is in the monitor already"):
        second.add(*rows(3))
    second.add(*rows(4))
    first.refresh()
    assert first.standing() == second.standing() == standing(state)
    assert first.standing().rows == 80


def test_merging_folders_can_be_repeated(state, tmp_path):
    p, y = rows(0, 200)
    other = Monitor.create(tmp_path / "other", probs=p, labels=y, least_accuracy=0.5)
    other.add(*rows(7))
    watch = Monitor.open(state)
    watch.merge(other)
    once = standing(state)
    watch.merge(other)
    assert standing(state) == once
    assert once.rows == 60
    other.merge(watch)
    assert Monitor.open(tmp_path / "other").standing().known == once.known


@forking
@pytest.mark.slow
def test_a_merge_that_is_killed_can_be_repeated(state, tmp_path):
    """It leaves a state with the first of the events, and then takes the others."""
    p, y = rows(0, 200)
    other = Monitor.create(tmp_path / "other", probs=p, labels=y, least_accuracy=0.5)
    other.add(rows(7)[0], ids=range(50, 70))
    other.label(range(50, 70), rows(7)[1])
    found = set()
    for at, folder in enumerate(copies_of(state)):
        ended = killed(folder, at, False, lambda folder=folder: Monitor.open(folder).merge(other))
        found.add(standing(folder).labelled)
        Monitor.open(folder).merge(other)
        assert (standing(folder).rows, standing(folder).labelled) == (60, 50)
        if ended == 0:
            break
    assert {30, 50} <= found


def killed(folder, at, power, work):
    """Run the work in a process that ends before the file event of this number."""

    def process():
        Events(folder, at, power).watch()
        work()

    return waited(forked(process), 60)


@forking
@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("change", ["add", "label"])
def test_killed_at_every_file_event(state, change, power):
    """The state is the one before or the one after, and the same command makes it the one after."""

    def work(folder):
        watch = Monitor.open(folder)
        if change == "add":
            watch.add(*rows(9), time="2026-03-04")
        else:
            watch.label(range(10, 20), rows(2)[1][10:], time="2026-03-04")

    before = standing(state)
    copies = copies_of(state)
    alone = next(copies)
    work(alone)
    after = standing(alone)
    assert before != after
    seen = set()
    for at, folder in enumerate(copies):
        ended = killed(folder, at, power, lambda folder=folder: work(folder))
        if ended == 0:
            break
        assert ended == -9
        found = standing(folder)
        assert found in (before, after)
        seen.add(found == after)
        if found == before:
            work(folder)
        assert standing(folder) == after
        left = {path.suffix for path in (folder / "events").iterdir()}
        assert left <= {".event", ".part"}
    assert at >= 4
    assert seen == {True, False}


def copies_of(state):
    """One copy of the folder after the other."""
    number = 0
    while True:
        target = state.parent / f"copy{number}"
        shutil.copytree(state, target)
        yield target
        number += 1


def files(state):
    return [*sorted((state / "events").iterdir()), state / "settings.json"]


@pytest.mark.parametrize("which", range(4))
def test_a_flipped_bit_anywhere_is_noticed(state, which):
    path = files(state)[which]
    data = path.read_bytes()
    rng = np.random.default_rng(which)
    for position in rng.choice(len(data), 25, replace=False):
        changed = bytearray(data)
        changed[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        with pytest.raises(FileError):
            Monitor.open(state)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(FileError):
        Monitor.open(state)
    path.write_bytes(data)
    Monitor.open(state)


@pytest.mark.parametrize("which", [0, 1])
def test_a_lost_event_is_noticed(state, which):
    files(state)[which].unlink()
    with pytest.raises(FileError, match="is lost; restore its file"):
        Monitor.open(state)


def test_an_event_under_another_name_is_noticed(state):
    path = files(state)[0]
    path.rename(path.with_name("9" + path.name[1:]))
    with pytest.raises(FileError, match="it was written as"):
        Monitor.open(state)


def test_no_monitor(tmp_path, state):
    with pytest.raises(FileError, match="no monitor; make one with"):
        Monitor.open(tmp_path)
    with pytest.raises(ValueError, match="is a monitor already; its settings are fixed"):
        Monitor.create(state)


def test_lost_settings_are_no_invitation_to_begin_anew(state):
    """With other settings the events that are there would mean something else."""
    (state / "settings.json").unlink()
    for begin in (Monitor.open, Monitor.create):
        with pytest.raises(FileError, match="it has events and no settings"):
            begin(state)


ADD = """
import sys
import numpy as np
from maccal.monitoring import Monitor
watch = Monitor.open(sys.argv[1])
for batch in range(8):
    p = np.full(5, 0.75)
    watch.add(np.stack([p, 1 - p], 1), np.zeros(5, int), name=f"{sys.argv[2]} {batch}")
"""


@pytest.mark.distributed
def test_processes_append_side_by_side(state):
    started = []
    for name in ("a", "b", "c"):
        words = [sys.executable, "-c", ADD, str(state), name]
        started.append(subprocess.Popen(words, cwd=ROOT))
    assert [process.wait(120) for process in started] == [0, 0, 0]
    found = standing(state)
    assert (found.batches, found.rows) == (26, 160)
