"""CIFAR-10-C and CIFAR-100-C in the publishers' layout: small imitations, whole and damaged."""

import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maccal.data.corruptions import CORRUPTIONS
from maccal.data.readers.cifar_c import images_of, read_cifar_c, shifts
from maccal.io import FileError

EACH = 4  # images a severity


@pytest.fixture
def root(tmp_path):
    """Both sets, of three corruptions and one that is not among the fifteen.

    A pixel says its corruption, severity and row.
    """
    for name, classes in (("CIFAR-10-C", 10), ("CIFAR-100-C", 100)):
        folder = tmp_path / name
        folder.mkdir()
        for number, kind in enumerate(["fog", "snow", "shot_noise", "saturate"]):
            images = np.zeros((5 * EACH, 32, 32, 3), np.uint8)
            images[:, 0, 0, 0] = number * 50 + np.arange(5 * EACH)
            images[:, 2, 3, 1] = 7
            np.save(folder / f"{kind}.npy", images)
        np.save(folder / "labels.npy", np.tile([3, 8, classes - 1, 0], 5).astype(np.uint8))
    return tmp_path


@pytest.mark.parametrize("classes", [10, 100])
def test_one_severity_at_a_time(root, classes):
    """In the order of the registry, whatever the order of the files."""
    found = list(shifts(classes, root))
    assert [(kind, severity) for kind, severity, _ in found] == [
        (kind, severity) for kind in ("shot_noise", "snow", "fog") for severity in range(1, 6)
    ]
    for kind, severity, split in found:
        assert split.images.shape == (EACH, 3, 32, 32)
        assert split.images.dtype == torch.uint8
        assert split.labels.dtype == torch.int64
        start = {"fog": 0, "snow": 50, "shot_noise": 100}[kind] + (severity - 1) * EACH
        assert split.images[:, 0, 0, 0].tolist() == list(range(start, start + EACH))
        assert (split.images[:, 1, 2, 3] == 7).all()
        assert split.labels.tolist() == [3, 8, classes - 1, 0]


def test_pooled(root):
    data = read_cifar_c(10, root)
    parts = [split for _, _, split in shifts(10, root)]
    assert data.train is None
    assert data.val is None
    assert torch.equal(data.test.images, torch.cat([part.images for part in parts]))
    assert torch.equal(data.test.labels, torch.cat([part.labels for part in parts]))


def test_chosen_rows(root):
    assert read_cifar_c(10, root, "fog", 2).test.images[:, 0, 0, 0].tolist() == [4, 5, 6, 7]
    assert read_cifar_c(10, root, "snow").test.images[:, 0, 0, 0].tolist() == list(range(50, 70))
    assert read_cifar_c(10, root, severity=1).test.images[:, 0, 0, 0].tolist() == [
        *range(100, 104),
        *range(50, 54),
        *range(4),
    ]


def test_only_what_is_asked_for_is_read(root):
    """Another corruption's file may be broken."""
    (root / "CIFAR-10-C" / "snow.npy").write_bytes(b"")
    assert len(read_cifar_c(10, root, "fog", 5).test) == EACH


def test_the_splits_are_not_the_files(root):
    """Writing into a Split changes no file, and the next reading is as before."""
    first = read_cifar_c(10, root, "fog", 1).test
    first.images.add_(1)
    first.labels.add_(1)
    assert read_cifar_c(10, root, "fog", 1).test.images[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def test_class_names(root):
    """The ten are known; the hundred come from CIFAR-100 in either form, or are numbers."""
    assert read_cifar_c(10, root, "fog").classes[::3] == ("airplane", "cat", "frog", "truck")
    assert read_cifar_c(100, root, "fog").classes == tuple(str(i) for i in range(100))
    names = [f"c{i}" for i in range(100)]
    (root / "cifar-100-binary").mkdir()
    (root / "cifar-100-binary" / "fine_label_names.txt").write_text("\n".join(names))
    assert read_cifar_c(100, root, "fog").classes == tuple(names)
    (root / "cifar-100-python").mkdir()
    meta = root / "cifar-100-python" / "meta"
    meta.write_bytes(pickle.dumps({b"fine_label_names": [f"d{i}".encode() for i in range(100)]}, 2))
    assert read_cifar_c(100, root, "fog").classes[:2] == ("d0", "d1")
    meta.write_bytes(pickle.dumps({b"fine_label_names": [b"one"]}, 2))
    with pytest.raises(FileError, match="meta: 1 class names; expected 100"):
        read_cifar_c(100, root, "fog")


def saved(content):
    return lambda file: np.save(file, content, allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (
            "fog.npy",
            lambda f: f.write_bytes(f.read_bytes()[:-1]),
            r"fog.npy: not a whole .npy file .*; download it again",
        ),
        ("fog.npy", lambda f: f.write_bytes(b""), r"fog.npy: not a whole .npy file"),
        (
            "fog.npy",
            lambda f: f.write_bytes(b"PK\x03\x04 a zip file"),
            r"fog.npy: not a whole .npy file",
        ),
        ("fog.npy", saved(np.array([{}], object)), r"fog.npy: not a whole .npy file .*[Oo]bject"),
        ("fog.npy", lambda f: f.write_bytes(pickle.dumps([1])), r"fog.npy: not a whole .npy file"),
        (
            "fog.npy",
            saved(np.zeros((20, 32, 32, 3))),
            "fog.npy: float64 of 20 x 32 x 32 x 3; expected uint8 of N x 32 x 32 x 3",
        ),
        (
            "fog.npy",
            saved(np.zeros((20, 3, 32, 32), np.uint8)),
            "fog.npy: uint8 of 20 x 3 x 32 x 32; expected",
        ),
        ("fog.npy", saved(np.zeros((), np.uint8)), "fog.npy: uint8 of no dimension; expected"),
        (
            "fog.npy",
            saved(np.zeros((15, 32, 32, 3), np.uint8)),
            "fog.npy: 15 images, but labels.npy has 20 labels",
        ),
        ("labels.npy", lambda f: f.unlink(), "labels.npy: no such file; the set is incomplete"),
        (
            "labels.npy",
            saved(np.zeros(20)),
            "labels.npy: float64 of 20; expected whole numbers in one row",
        ),
        ("labels.npy", saved(np.zeros((20, 1), int)), "labels.npy: int64 of 20 x 1; expected"),
        ("labels.npy", saved(np.zeros(19, int)), "labels.npy: int64 of 19; expected"),
        ("labels.npy", saved(np.zeros(0, int)), "labels.npy: "),
        (
            "labels.npy",
            saved(np.full(20, 10)),
            r"labels.npy: labels outside 0 \.\. 9; is this another data set",
        ),
        ("labels.npy", saved(np.full(20, -1)), r"labels.npy: labels outside 0 \.\. 9"),
    ],
)
def test_wrong_files(root, name, damage, message):
    """Each error names the file, before any image is read."""
    damage(root / "CIFAR-10-C" / name)
    with pytest.raises(FileError, match=message):
        read_cifar_c(10, root)
    with pytest.raises(FileError, match=message):
        shifts(10, root)


def test_missing(root, tmp_path):
    with pytest.raises(FileError, match=r"gaussian_noise.npy: no such file; the set is incomplete"):
        read_cifar_c(10, root, "gaussian_noise")
    with pytest.raises(
        FileError, match="no folder CIFAR-10-C; point root at the folder that holds it"
    ):
        read_cifar_c(10, tmp_path / "elsewhere")
    for kind in CORRUPTIONS:
        (root / "CIFAR-10-C" / f"{kind}.npy").unlink(missing_ok=True)
    with pytest.raises(FileError, match="CIFAR-10-C: no file of a corruption"):
        shifts(10, root)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("saturate",), "no corruption 'saturate'"), (("fog", 6), "severity 6")],
)
def test_wrong_arguments(root, arguments, message):
    with pytest.raises(ValueError, match=message):
        read_cifar_c(10, root, *arguments)


@given(st.lists(st.tuples(st.integers(0, 140), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_damage(tmp_path_factory, changes):
    """Of the header, which says how much there is."""
    path = tmp_path_factory.getbasetemp() / "fog.npy"
    np.save(path, np.zeros((5, 32, 32, 3), np.uint8))
    data = bytearray(path.read_bytes())
    for place, value in changes:
        data[place] = value
    path.write_bytes(data)
    try:
        found = images_of(path, 5)
    except FileError:
        return
    assert found.shape == (5, 32, 32, 3)
    assert int(found.sum(dtype=int)) <= 255 * len(changes)


def test_no_file_but_a_fifo(root):
    (root / "CIFAR-10-C" / "fog.npy").unlink()
    os.mkfifo(root / "CIFAR-10-C" / "fog.npy")
    with pytest.raises(FileError, match=r"fog.npy: not a regular file"):
        read_cifar_c(10, root, "fog")
