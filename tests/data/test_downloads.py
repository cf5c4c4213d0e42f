"""Data sets from a publisher's server.

A small one from a server of our own, and the registry against real files.
"""

import hashlib
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from test_archives import pack
from webserver import dropping, serving, status

from maccal.data import DATASETS, load
from maccal.data.download import SOURCES, Source, check, data_root, get, listing
from maccal.data.download.sources import ENDINGS, LIMIT, Known
from maccal.io import FileError

INSIDE = {"toy-1/a.bin": bytes(range(256)) * 40, "toy-1/b/c.txt": b"sea"}
PLAIN = b"plain" * 1000


def md5(data):
    return f"md5:{hashlib.md5(data).hexdigest()}"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of two sets: `toy`, an archive, and `flat`, two files."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    packed = pack(tmp_path / "toy.tar.gz", INSIDE).read_bytes()
    (tmp_path / "toy.tar.gz").unlink()
    with serving() as made:
        made.files |= {"/x/toy.tar.gz": packed, "/one.mat": PLAIN, "/two.mat": PLAIN[::-1]}
        known = {
            "a.bin": Known(len(INSIDE["toy-1/a.bin"]), md5(INSIDE["toy-1/a.bin"])),
            "b/c.txt": Known(),
        }
        toy = Source(
            made.url("/x/toy.tar.gz"),
            len(packed),
            md5(packed),
            "toy-1",
            unpacked=100_000,
            files=known,
        )
        flat = [
            Source(made.url(f"/{n}.mat"), len(PLAIN), md5(made.files[f"/{n}.mat"]), "flat")
            for n in ("one", "two")
        ]
        monkeypatch.setitem(SOURCES, "toy", (toy,))
        monkeypatch.setitem(SOURCES, "flat", tuple(flat))
        yield made


def files(root):
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


def state(name, root):
    return next(row.here for row in listing(root) if row.name == name)


def test_get_an_archive(server, tmp_path):
    """Unpacked, checked, and the archive gone; a second time nothing is fetched."""
    root = tmp_path / "data"
    assert state("toy", root) == "no"
    assert get("toy", root) == root / "toy-1"
    assert {name: (root / name).read_bytes() for name in files(root)} == INSIDE
    assert check("toy", root) == []
    assert state("toy", root) == "yes"
    get("toy", root)
    assert len(server.ranges) == 1


def test_get_files(server, tmp_path):
    """Only those that are not there."""
    server.script = [status(404)]
    with pytest.raises(FileError, match=r"flat/one.mat: http://.*/one.mat answers 404"):
        get("flat", tmp_path)
    assert get("flat", str(tmp_path)) == tmp_path / "flat"
    assert files(tmp_path) == {"flat/one.mat", "flat/two.mat"}
    (tmp_path / "flat" / "two.mat").unlink()
    assert state("flat", tmp_path) == "partly"
    server.ranges.clear()
    get("flat", tmp_path)
    assert len(server.ranges) == 1


def test_get_goes_on_where_it_stopped(server, tmp_path):
    server.script = [dropping(100)]
    with pytest.raises(FileError, match=r"100 bytes are kept in toy\.tar\.gz\.part"):
        get("toy", tmp_path, pauses=())
    assert state("toy", tmp_path) == "partly"
    get("toy", tmp_path)
    assert server.ranges == [None, "bytes=100-"]
    assert server.sent == SOURCES["toy"][0].size


def test_archives_that_are_kept_are_used(server, tmp_path):
    get("toy", tmp_path, keep=True)
    assert files(tmp_path) == {"toy.tar.gz", *INSIDE}
    shutil.rmtree(tmp_path / "toy-1")
    get("toy", tmp_path, keep=True)
    assert len(server.ranges) == 1
    shutil.rmtree(tmp_path / "toy-1")
    (tmp_path / "toy.tar.gz").write_bytes(b"x")
    with pytest.raises(FileError, match=r"toy.tar.gz: 1 bytes, expected [\d,]+; delete it"):
        get("toy", tmp_path)


def test_what_is_there_is_not_overwritten(server, tmp_path):
    """Nor is anything fetched for it."""
    for path in (tmp_path / "toy-1" / "a.bin", tmp_path / "flat" / "one.mat"):
        path.parent.mkdir()
        path.write_bytes(b"mine")
    for name, match in (
        ("toy", r"toy-1: is there but .*a.bin: 4 bytes, expected 10,240.*move it"),
        ("flat", "one.mat: is there but"),
    ):
        with pytest.raises(FileError, match=match):
            get(name, tmp_path)
    assert files(tmp_path) == {"toy-1/a.bin", "flat/one.mat"}
    assert server.ranges == []


def test_an_archive_that_cannot_be_unpacked(server, tmp_path, monkeypatch):
    """The verified download stays, the folder does not appear."""
    source = SOURCES["toy"][0]
    monkeypatch.setitem(
        SOURCES, "toy", (Source(source.url, source.size, source.checksum, "toy-1", unpacked=1000),)
    )
    with pytest.raises(FileError, match=r"toy.tar.gz: toy-1/a.bin: more than 1,000 bytes"):
        get("toy", tmp_path)
    assert files(tmp_path) == {"toy.tar.gz"}
    assert [p.name for p in tmp_path.iterdir()] == ["toy.tar.gz"]


def test_no_room(server, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("usage", "free")(free=10))
    with pytest.raises(FileError, match=r"GB needed, 0.0 GB free; make room"):
        get("toy", tmp_path)
    assert server.ranges == []


def test_progress(server, tmp_path, monkeypatch, capsys):
    """Lines on a terminal, and none elsewhere or when they are not wanted."""
    get("toy", tmp_path / "a")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    get("toy", tmp_path / "b", progress=False)
    assert capsys.readouterr() == ("", "")
    get("toy", tmp_path / "c")
    assert "toy.tar.gz" in capsys.readouterr().err


def test_check(server, tmp_path):
    def reader(root):
        return (root / "toy-1" / "b" / "c.txt").read_bytes().decode("ascii")

    assert check("toy", tmp_path) == [
        f"{tmp_path / 'toy-1'}: no such folder; `maccal data get toy` downloads it"
    ]
    assert "c.txt" in check("toy", tmp_path, reader)[0]
    get("toy", tmp_path)
    assert check("toy", tmp_path, reader) == []
    # no checksum is known: the reader finds it
    (tmp_path / "toy-1" / "b" / "c.txt").write_bytes(b"\xff")
    assert "can't decode" in check("toy", tmp_path, reader)[0]
    data = bytearray(INSIDE["toy-1/a.bin"])
    data[500] ^= 1
    (tmp_path / "toy-1" / "a.bin").write_bytes(data)
    (tmp_path / "toy-1" / "b" / "c.txt").unlink()
    first, second = check("toy", tmp_path, reader)
    assert first == f"toy-1/a.bin: md5 {md5(data)[4:]}, expected {md5(INSIDE['toy-1/a.bin'])[4:]}"
    assert second == "toy-1/b/c.txt: no such file"


def test_the_real_sets(real, tmp_path):
    """The registry's sizes and checksums are those of the real files.

    One flipped bit is found, by the check and on reading.
    """
    whole = [
        row for row in listing(real) if row.name in ("cifar10", "cifar100") and row.here == "yes"
    ]
    assert whole
    for row in whole:
        assert check(row.name, real, DATASETS[row.name]) == []
        assert get(row.name, real) == row.where
    copy = tmp_path / "cifar-10-batches-py"
    shutil.copytree(real / copy.name, copy, copy_function=os.link)
    data = bytearray((copy / "test_batch").read_bytes())
    data[20_000_000] ^= 1
    (copy / "test_batch").unlink()  # this name of the file; the other one stays
    (copy / "test_batch").write_bytes(data)
    (problem,) = check("cifar10", tmp_path, DATASETS["cifar10"])
    assert problem.startswith("cifar-10-batches-py/test_batch: md5 ")
    with pytest.raises(
        FileError, match=r"test_batch: md5 .*it is damaged; delete it and download it again"
    ):
        load("cifar10", tmp_path)


def test_the_registry():
    assert set(SOURCES) == {
        "cifar10",
        "cifar100",
        "tiny-imagenet",
        "svhn",
        "cifar10-c",
        "cifar100-c",
    }
    assert set(DATASETS) - {"digits"} <= set(SOURCES)
    lengths = {"md5": 32, "sha256": 64}
    for source in [source for sources in SOURCES.values() for source in sources]:
        assert source.url.startswith(("https://", "http://"))
        assert source.file.endswith((*ENDINGS, ".mat"))
        known = [Known(source.size, source.checksum), *source.files.values()]
        for algorithm, digits in (entry.checksum.split(":") for entry in known if entry.checksum):
            assert len(digits) == lengths[algorithm]
            assert set(digits) <= set("0123456789abcdef")
        if source.is_archive:
            assert sum(entry.size or 0 for entry in source.files.values()) < source.unpacked < LIMIT
    for name in ("cifar10-c", "cifar100-c"):
        files = SOURCES[name][0].files
        assert len({entry.checksum for entry in files.values()}) == len(files) == 20
        room = SOURCES[name][0].size - sum(entry.size for entry in files.values())
        # a plain .tar: headers and padding are the only difference
        assert 0 < room < 30 * 1024 + 10_240


def test_listing(tmp_path):
    rows = {row.name: row for row in listing(tmp_path)}
    assert list(rows) == list(SOURCES)
    assert rows["svhn"].size == 182_040_794 + 64_275_384
    assert rows["svhn"].host == "ufldl.stanford.edu"
    assert rows["cifar10"].where == tmp_path / "cifar-10-batches-py"
    assert {row.here for row in rows.values()} == {"no"}


def test_unknown_names(tmp_path):
    for call in (get, check):
        with pytest.raises(
            ValueError, match="no data set 'mnist' to download; there are cifar10, "
        ):
            call("mnist", tmp_path)


def test_where_the_files_go(monkeypatch):
    """The argument, else $MACCAL_DATA, else the cache."""
    monkeypatch.delenv("MACCAL_DATA", raising=False)
    assert data_root() == Path.home() / ".cache" / "maccal"
    monkeypatch.setenv("MACCAL_DATA", "~/sets")
    assert data_root() == Path.home() / "sets"
    assert data_root("here") == Path("here")
