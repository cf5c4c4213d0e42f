"""Published checksums.

Compared when a file is first read, remembered, and not believed when anything has changed.
"""

import logging
import os
import shutil

import numpy as np
import pytest
from test_data import imitation
from test_downloads import md5

from maccal.data import load
from maccal.data.download import transfer, verified
from maccal.data.download.sources import SOURCES, Known, Source
from maccal.io import FileError

NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A small CIFAR-10, published with the checksums of its files; and a memory of its own."""
    monkeypatch.setenv("MACCAL_CACHE", str(tmp_path / "memory"))
    folder = tmp_path / "data"
    imitation(folder, rows=20)
    inside = {name: (folder / "cifar-10-batches-py" / name).read_bytes() for name in NAMES}
    files = {name: Known(len(data), md5(data)) for name, data in inside.items()}
    source = Source(
        "https://localhost/cifar-10-python.tar.gz", 1, "md5:0", "cifar-10-batches-py", files=files
    )
    monkeypatch.setitem(SOURCES, "cifar10", (source,))
    return folder


@pytest.fixture
def hashed(monkeypatch):
    """The names of the files that were hashed."""
    names, digest = [], transfer.digest

    def counting(path, algorithm):
        names.append(path.name)
        return digest(path, algorithm)

    monkeypatch.setattr(transfer, "digest", counting)
    return names


def file(root):
    return root / "cifar-10-batches-py" / "test_batch"


def flip(path, place=30_000):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_once(root, hashed):
    """The second time costs nothing; nothing is written beside the data."""
    before = sorted(root.rglob("*"))
    load("cifar10", root)
    assert sorted(hashed) == sorted(NAMES)
    load("cifar10", root)
    assert len(hashed) == len(NAMES)
    assert sorted(root.rglob("*")) == before


def test_a_flipped_bit(root):
    """In the pixels, where no reader could notice it."""
    flip(file(root))
    with pytest.raises(
        FileError,
        match=r"test_batch: md5 \w+, expected \w+: it is damaged; delete it and download it again",
    ):
        load("cifar10", root)


def test_a_bit_flipped_later(root):
    """Also where the date of the file was set back."""
    load("cifar10", root)
    state = file(root).stat()
    flip(file(root))
    os.utime(file(root), ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(FileError, match="it is damaged"):
        load("cifar10", root)


def test_another_file_in_its_place(root, tmp_path):
    """Of the same size and date."""
    load("cifar10", root)
    other = tmp_path / "other"
    shutil.copy2(file(root), other)
    flip(other)
    shutil.copystat(file(root), other)
    other.replace(file(root))
    with pytest.raises(FileError, match="it is damaged"):
        load("cifar10", root)


@pytest.mark.parametrize(
    "damage",
    [
        lambda memory: memory.unlink(),
        lambda memory: memory.write_bytes(b""),
        lambda memory: memory.write_text('{"format": "maccal verified 1", "files": {}}'),
        lambda memory: memory.write_text(memory.read_text().replace("md5:", "md5;", 1)),
        lambda memory: memory.write_text("[" * 100_000),
        lambda memory: (memory.unlink(), memory.mkdir()),
        lambda memory: (memory.unlink(), os.mkfifo(memory)),
    ],
)
def test_a_memory_that_is_lost_or_damaged(root, hashed, damage):
    """It means to verify again."""
    load("cifar10", root)
    damage(verified.memory())
    load("cifar10", root)
    assert hashed.count("test_batch") == 2
    flip(file(root))
    with pytest.raises(FileError, match="it is damaged"):
        load("cifar10", root)


def test_a_memory_that_cannot_be_written(root, hashed, monkeypatch, tmp_path):
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv("MACCAL_CACHE", str(tmp_path / "no folder" / "below"))
    for _ in range(2):
        assert len(load("cifar10", root).test) == 20
    assert hashed.count("test_batch") == 2


def test_a_copy_is_another_file(root):
    """A fingerprint belongs to one path, and is dropped when its file is gone."""
    load("cifar10", root)
    copy = root.parent / "copy"
    shutil.copytree(root, copy)
    flip(file(copy))
    with pytest.raises(FileError, match="it is damaged"):
        load("cifar10", copy)
    shutil.rmtree(root)
    verified.remember(file(copy), verified.fingerprint(file(copy), Known(1, "md5:0")))
    assert {path.split("/")[-3] for path in verified.recalled()} == {"copy"}


def test_a_file_of_another_size(root, hashed, caplog):
    """It is somebody's own: read, and said once."""
    file(root).write_bytes(file(root).read_bytes().replace(b"labels", b"labels!"))
    with caplog.at_level(logging.WARNING, logger="maccal"):
        for _ in range(2):
            with pytest.raises(FileError, match="not a CIFAR pickle"):
                load("cifar10", root)
    assert "test_batch" not in hashed
    said = [record.getMessage() for record in caplog.records if record.name == "maccal"]
    assert len(said) == 1
    assert "not the" in said[0]
    assert "unverified" in said[0]


def test_where_the_memory_is(monkeypatch, tmp_path):
    monkeypatch.setenv("MACCAL_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert verified.memory() == tmp_path / "maccal" / "verified.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert verified.memory() == tmp_path / ".cache" / "maccal" / "verified.json"


def test_sets_without_checksums():
    """A part of Tiny ImageNet, and the files of CIFAR in its binary form, have none."""
    assert verified.published("tiny-imagenet-200", "wnids.txt") is None
    assert verified.published("cifar-10-batches-bin", "test_batch.bin") is None
    assert verified.published("svhn", "test_32x32.mat") == Known(
        64_275_384, "md5:eb5a983be6a315427106f1b164d9cef3"
    )
    assert verified.published("CIFAR-100-C", "fog.npy").size == 153_600_128


def test_cifar_c_is_verified(tmp_path, monkeypatch):
    monkeypatch.setenv("MACCAL_CACHE", str(tmp_path / "memory"))
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.zeros(5, np.uint8))
    np.save(folder / "fog.npy", np.zeros((5, 32, 32, 3), np.uint8))
    files = {
        path.name: Known(path.stat().st_size, md5(path.read_bytes())) for path in folder.iterdir()
    }
    monkeypatch.setitem(
        SOURCES,
        "cifar10-c",
        (Source("https://localhost/c.tar", 1, "md5:0", "CIFAR-10-C", files=files),),
    )
    assert len(load("cifar10-c", tmp_path).test) == 5
    flip(folder / "fog.npy", 5000)
    with pytest.raises(FileError, match=r"fog.npy: md5 .* it is damaged"):
        load("cifar10-c", tmp_path)
