"""One file over HTTP, from a server that behaves and from servers that do not."""

import hashlib
import shutil
import threading
from collections import namedtuple

import numpy as np
import pytest
from webserver import (
    dropping,
    endless,
    ranged,
    redirect,
    reset,
    serving,
    shifted,
    status,
    unannounced,
    whole,
)

from maccal.data.download import transfer
from maccal.data.download.sources import Known
from maccal.data.download.transfer import fetch, need_space
from maccal.io import FileError

DATA = np.random.default_rng(0).bytes(1_000_000)
MD5 = hashlib.md5(DATA).hexdigest()
GOOD = Known(len(DATA), f"md5:{MD5}")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as made:
        made.files["/f.bin"] = DATA
        yield made


def run(server, tmp_path, *script, known=GOOD, pauses=(0, 0), report=lambda done, total: None):
    server.script = list(script)
    return fetch(server.url("/f.bin"), tmp_path / "f.bin", known, pauses=pauses, report=report)


def fails(match, server, tmp_path, *script, **settings):
    """It raises, and no file has the final name; returns what is left of the part."""
    with pytest.raises(FileError, match=match):
        run(server, tmp_path, *script, **settings)
    assert not (tmp_path / "f.bin").exists()
    part = tmp_path / "f.bin.part"
    return part.read_bytes() if part.exists() else None


@pytest.mark.parametrize("checksum", [f"md5:{MD5}", f"sha256:{hashlib.sha256(DATA).hexdigest()}"])
@pytest.mark.parametrize("size", [len(DATA), None])
def test_a_whole_file(server, tmp_path, checksum, size):
    told = []
    path = run(
        server,
        tmp_path,
        known=Known(size, checksum),
        report=lambda done, total: told.append((done, total)),
    )
    assert path.read_bytes() == DATA
    assert [p.name for p in tmp_path.iterdir()] == ["f.bin"]
    assert server.ranges == [None]
    assert told[0] == (0, len(DATA))
    assert told[-1] == (len(DATA), len(DATA))


@pytest.mark.parametrize("behave", [dropping(400_000), reset(400_000)])
def test_a_dropped_connection_is_resumed(server, tmp_path, behave):
    """From where it stopped: no byte that arrived is fetched again."""
    assert run(server, tmp_path, behave).read_bytes() == DATA
    first, second = server.ranges
    assert first is None
    start = int(second.removeprefix("bytes=").removesuffix("-"))
    assert 0 < start <= 400_000
    assert server.sent == 400_000 + len(DATA) - start
    if behave.__qualname__.startswith("dropping"):
        assert start == 400_000


def test_tries_that_bring_bytes_do_not_count(server, tmp_path):
    """Ten drops with two pauses: each one got further."""
    assert run(server, tmp_path, *[dropping(50_000)] * 10).read_bytes() == DATA
    assert server.sent == len(DATA)


def test_the_next_run_goes_on(server, tmp_path):
    assert fails(
        r"500.*; 300,000 bytes are kept in f.bin.part, try again",
        server,
        tmp_path,
        dropping(300_000),
        *[status(500)] * 3,
    )
    server.ranges.clear()
    assert run(server, tmp_path).read_bytes() == DATA
    assert server.ranges == ["bytes=300000-"]
    assert server.sent == len(DATA)


def test_an_interruption_leaves_the_part(server, tmp_path):
    def stop(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(server, tmp_path, report=stop)
    left = (tmp_path / "f.bin.part").read_bytes()
    assert left
    assert DATA.startswith(left)
    assert run(server, tmp_path).read_bytes() == DATA
    assert server.ranges == [None, f"bytes={len(left)}-"]


def test_a_complete_part_is_not_asked_for(server, tmp_path):
    (tmp_path / "f.bin.part").write_bytes(DATA)
    assert run(server, tmp_path).read_bytes() == DATA
    assert server.ranges == []


def test_a_part_that_is_too_long_starts_over(server, tmp_path):
    (tmp_path / "f.bin.part").write_bytes(DATA + b"x")
    assert run(server, tmp_path).read_bytes() == DATA
    assert server.ranges == [None]
    (tmp_path / "f.bin").unlink()
    # and where the size is not known the server says so
    (tmp_path / "f.bin.part").write_bytes(DATA + b"x")
    assert run(server, tmp_path, known=Known(None, GOOD.checksum)).read_bytes() == DATA
    assert server.ranges == [None, f"bytes={len(DATA) + 1}-", None]


@pytest.mark.parametrize("behave", [whole, shifted(7), shifted(-300_000)])
def test_servers_that_cannot_resume(server, tmp_path, behave):
    (tmp_path / "f.bin.part").write_bytes(DATA[:300_000])
    assert run(server, tmp_path, behave).read_bytes() == DATA
    assert server.ranges[0] == "bytes=300000-"


def test_a_server_that_never_finishes(server, tmp_path):
    """It cannot resume and always stops at the same byte, or each time at another.

    That is no progress, so it ends.
    """

    def short(upto):
        return lambda handler, data, start: whole(handler, data, start, upto)

    left = fails("it stopped after", server, tmp_path, short(500), short(300), short(500), ranged)
    assert left == DATA[:500]
    assert len(server.ranges) == 3


def test_without_a_length_the_size_or_the_checksum_decides(server, tmp_path):
    assert run(server, tmp_path, unannounced()).read_bytes() == DATA
    (tmp_path / "f.bin").unlink()
    # short of the size: resumed
    assert run(server, tmp_path, unannounced(300_000)).read_bytes() == DATA
    assert server.ranges[-1] == "bytes=300000-"
    (tmp_path / "f.bin").unlink()
    assert (
        fails(
            rf"md5 \w+, expected {MD5}",
            server,
            tmp_path,
            unannounced(300_000),
            known=Known(None, GOOD.checksum),
        )
        is None
    )


def test_a_wrong_checksum(server, tmp_path):
    """Says which, deletes the part, and says what to do."""
    server.files["/f.bin"] = DATA[:-1] + b"?"
    found = hashlib.md5(server.files["/f.bin"]).hexdigest()
    assert (
        fails(
            rf"f.bin.part: md5 {found}, expected {MD5}; it is deleted: try again", server, tmp_path
        )
        is None
    )


def test_a_wrong_size(server, tmp_path):
    """An offer of another size, such as a login page, is not taken and costs nothing that was
    there; neither is too much of it.
    """
    (tmp_path / "f.bin.part").write_bytes(DATA[:1000])
    server.files["/f.bin"] = b"<html>log in" * 100
    assert (
        fails(r"f.bin: .* offers 1,200 bytes, expected 1,000,000", server, tmp_path, whole)
        == DATA[:1000]
    )
    assert (
        fails(
            r"f.bin.part: 1,[0-2]\d\d,\d\d\d bytes, expected 1,000,000", server, tmp_path, endless
        )
        is None
    )


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_refusals_are_final(server, tmp_path, code):
    assert fails(rf"f.bin: http://.*/f.bin answers {code} ", server, tmp_path, status(code)) is None
    assert len(server.ranges) == 1


@pytest.mark.parametrize("code", [429, 500, 503])
def test_troubles_that_pass(server, tmp_path, code):
    assert run(server, tmp_path, status(code), status(code)).read_bytes() == DATA
    assert len(server.ranges) == 3


def test_pauses_grow(server, tmp_path, monkeypatch):
    slept = []
    monkeypatch.setattr(transfer.time, "sleep", slept.append)
    fails("500", server, tmp_path, *[status(500)] * 9, pauses=transfer.PAUSES)
    assert slept == [1, 2, 4, 8]


def test_nobody_there(tmp_path):
    with serving() as server:
        url = server.url("/f.bin")
    with pytest.raises(FileError, match=r"cannot be read \(.*refused.*\); try again"):
        fetch(url, tmp_path / "f.bin", GOOD, pauses=(0,))


def test_a_silent_server(server, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "TIMEOUT", 0.1)
    event = threading.Event()
    try:
        fails("timed out", server, tmp_path, lambda *_: event.wait(5), pauses=())
    finally:
        event.set()


def test_redirects_keep_the_range(server, tmp_path):
    (tmp_path / "f.bin.part").write_bytes(DATA[:1000])
    server.files["/moved"] = DATA
    assert run(server, tmp_path, redirect("/moved")).read_bytes() == DATA
    assert server.ranges == ["bytes=1000-", "bytes=1000-"]


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/f", "data:,x"])
def test_only_the_web(server, tmp_path, place):
    with pytest.raises(FileError, match="is not an http or https address"):
        fetch(place, tmp_path / "f.bin", GOOD)
    assert (
        fails("302|unknown url type|not allowed", server, tmp_path, redirect(place), pauses=())
        is None
    )


def test_room_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: namedtuple("usage", "free")(free=2_000_000_000)
    )
    need_space(tmp_path / "not" / "yet", 2_000_000_000)
    with pytest.raises(FileError, match=r"2.5 GB needed, 2.0 GB free"):
        need_space(tmp_path / "not" / "yet", 2_500_000_000)
