"""Whole files or none; damage, planted links and fifos are noticed; locks end with a process."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from maccal import io
from maccal.io import FileError, locked, locks, sweep, write, write_all, write_with

TENSORS = {"w": torch.arange(6.0).view(2, 3), "b": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)}
KINDS = {
    "json": (
        lambda path: io.write_json(
            path, "row 1", {"ece": 0.0625, "name": "a", "none": None, "list": [1, 2.5]}
        ),
        lambda path: io.read_json(path, "row 1"),
    ),
    "lines": (
        lambda path: io.write_lines(
            path, "history 1", [{"epoch": 1, "loss": 0.25}, {"epoch": 2, "loss": 0.125}]
        ),
        lambda path: io.read_lines(path, "history 1"),
    ),
    "sealed": (
        lambda path: io.write_sealed(path, "checkpoint 1", bytes(range(256))),
        lambda path: io.read_sealed(path, "checkpoint 1"),
    ),
    "tensors": (
        lambda path: io.write_tensors(path, "head 1", TENSORS, seed=1, words="three notes"),
        lambda path: [
            {name: value.tolist() for name, value in part.items()} if i == 0 else part
            for i, part in enumerate(io.read_tensors(path, "head 1"))
        ],
    ),
}


def test_writes_text_and_bytes_into_new_folders(tmp_path):
    assert write(tmp_path / "a" / "b.txt", "ä").read_bytes() == "ä".encode()
    assert write(tmp_path / "a" / "b.txt", b"\x00\x01").read_bytes() == b"\x00\x01"


def test_several_files_are_written_together_or_not_at_all(tmp_path):
    """The second cannot be written: the first is as it was, and nothing is left lying about."""
    first = write(tmp_path / "a" / "row.json", "old")
    write(tmp_path / "file", "no folder")
    wrong = {
        tmp_path / "file" / "page.html": f"^{tmp_path / 'file'}: a file, where a folder is needed",
        tmp_path / "a": f"^{tmp_path / 'a'}: cannot be written: it is a folder",
    }
    for second, message in wrong.items():
        with pytest.raises(FileError, match=message):
            write_all({first: "new", second: "page"})
        assert first.read_text() == "old"
        assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "file", "row.json"]
    write_all({first: "new", tmp_path / "b" / "page.html": b"page"})
    assert (first.read_text(), (tmp_path / "b" / "page.html").read_bytes()) == ("new", b"page")


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    target = write(tmp_path / "row.json", "old")

    def fails(part):
        part.write_text("half of the ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_with(target, fails)
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["row.json"]


def test_a_planted_link_is_never_written_through(tmp_path):
    victim = write(tmp_path / "victim", "precious")
    for name in (f".row.json.{os.getpid()}.part", ".row.json.part"):
        (tmp_path / name).symlink_to(victim)
    write(tmp_path / "row.json", "new")
    assert victim.read_text() == "precious"
    (tmp_path / "link.json").symlink_to(victim)
    write(tmp_path / "link.json", "new")  # the link is replaced, not followed
    assert victim.read_text() == "precious"


def test_what_is_written_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, type(tmp_path).replace
    monkeypatch.setattr(os, "fsync", lambda handle: events.append("fsync") or fsync(handle))
    monkeypatch.setattr(
        type(tmp_path),
        "replace",
        lambda self, target: events.append("rename") or replace(self, target),
    )
    write(tmp_path / "row.json", "{}")
    assert events == ["fsync", "rename", "fsync"]  # the bytes, the name, the folder


@pytest.mark.parametrize("kind", KINDS)
def test_every_single_byte_of_damage_is_noticed_or_changes_nothing(kind, tmp_path):
    writer, reader = KINDS[kind]
    path = writer(tmp_path / "file")
    data, value = path.read_bytes(), reader(path)
    noticed = 0
    for place in range(len(data)):
        for change in (0x01, 0x20, 0xFF):
            path.write_bytes(data[:place] + bytes([data[place] ^ change]) + data[place + 1 :])
            try:
                assert reader(path) == value
            except FileError:
                noticed += 1
    assert noticed > 2.5 * len(data)  # only white space may differ
    for size in range(len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(FileError):
            reader(path)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_file_or_another_kind_is_refused(kind, tmp_path):
    reader = KINDS[kind][1]
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "absent"):
        with pytest.raises(FileError, match=r"not a regular file|no such file"):
            reader(path)
    for other, (writer, _) in KINDS.items():
        if other != kind:
            with pytest.raises(FileError, match=r"format|JSON|safetensors"):
                reader(writer(tmp_path / other))


def test_deep_and_doubled_json_is_refused(tmp_path):
    path = write(tmp_path / "row.json", "[" * 100_000)
    with pytest.raises(FileError, match="not JSON"):
        io.read_json(path, "row 1")
    whole = json.dumps(io.sealed({"ece": 0.5}, "row 1"))
    write(path, whole.replace('"ece": 0.5', '"ece": 0.1, "ece": 0.5'))
    with pytest.raises(FileError, match="comes twice"):
        io.read_json(path, "row 1")


def test_tensors_and_notes_come_back(tmp_path):
    path = io.write_tensors(tmp_path / "x", "head 1", TENSORS, seed=3)
    tensors, notes = io.read_tensors(path, "head 1")
    assert notes == {"seed": 3}
    assert all(
        torch.equal(tensors[name], TENSORS[name]) and tensors[name].dtype == TENSORS[name].dtype
        for name in TENSORS
    )
    assert (
        path.read_bytes()
        == io.write_tensors(tmp_path / "y", "head 1", TENSORS, seed=3).read_bytes()
    )
    foreign = tmp_path / "foreign"
    import safetensors.torch

    safetensors.torch.save_file(TENSORS, foreign)
    with pytest.raises(FileError, match="no format"):
        io.read_tensors(foreign, "head 1")


def test_a_file_error_is_one_line_with_the_path_as_it_is():
    """Torch and pandas explain themselves on many lines; a path may have spaces of its own."""
    error = FileError("two  spaces\n.pt", "not weights:\n\tMissing key(s):   a,\r\n\tb")
    assert str(error) == "two  spaces\\n.pt: not weights: Missing key(s): a, b"
    assert error.problem == "not weights: Missing key(s): a, b"


def test_numbers_that_json_cannot_say_are_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        io.write_json(tmp_path / "row.json", "row 1", {"ece": float(np.nan)})
    assert list(tmp_path.iterdir()) == []


HOLD = """
import sys, time
from pathlib import Path
from maccal.io import locked, new_part
folder = Path(sys.argv[1])
with locked(folder), new_part(folder, "x") as part:
    print(part, flush=True)
    time.sleep(600)
"""


def test_locks_and_parts_end_with_their_process(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    part = type(tmp_path)(holder.stdout.readline().strip())
    try:
        sweep(tmp_path)
        assert part.exists()  # its writer is alive
        asked = []

        def killed():
            asked.append(time.monotonic())
            holder.send_signal(signal.SIGKILL)

        with locked(tmp_path, waiting=killed):
            holder.wait()
            assert len(asked) == 1
            sweep(tmp_path)
            assert not part.exists()
    finally:
        holder.kill()
        holder.stdout.close()
        holder.wait()


def test_the_next_writer_of_a_file_removes_what_a_killed_one_left(tmp_path):
    """Of that file alone: other parts may belong to a writer on another machine."""
    left, other = (
        tmp_path / ".row.json.0123456789abcdef.part",
        tmp_path / ".new.json.0123456789abcdef.part",
    )
    for part in (left, other):
        part.write_text("half of a ro")
    write(tmp_path / "row.json", "{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "row.json"]
    io.write_all({tmp_path / "new.json": "{}"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.json", "row.json"]


def test_no_part_is_removed_where_the_file_system_has_no_locks(tmp_path, monkeypatch):
    """There, nobody knows whether its writer lives."""

    def none(handle, operation):
        raise OSError(errno.ENOLCK, "no locks available")

    left = tmp_path / ".row.json.0123456789abcdef.part"
    left.write_text("half of a ro")
    monkeypatch.setattr(locks.fcntl, "flock", none)
    write(tmp_path / "row.json", "{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [left.name, "row.json"]
