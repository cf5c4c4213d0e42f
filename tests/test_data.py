"""Data sets in their publishers' formats: the real ones, small imitations, and files that are wrong or hostile."""

import hashlib
import os
import pickle
import shutil

import numpy as np
import pytest
import torch

from maccal.data import DATASETS, load
from maccal.data.cifar import published_split
from maccal.data.split import stratified
from maccal.io import FileError


def test_the_published_split():
    """The goldens of the paper's code base."""
    held, kept = published_split(50_000)
    assert held[:5].tolist() == [26247, 35067, 34590, 16668, 12196]
    assert kept[:5].tolist() == [45573, 39021, 36044, 45885, 19497]
    assert held.sum() == 122592196
    assert hashlib.sha256(held.astype("<i8").tobytes()).hexdigest().startswith("43b49072da2ed7dd")
    assert sorted([*held, *kept]) == list(range(50_000))


@pytest.mark.parametrize(
    ("name", "sizes", "shape", "classes", "some"),
    [
        ("cifar10", (45_000, 5_000, 10_000), (3, 32, 32), 10, "airplane"),
        ("cifar100", (45_000, 5_000, 10_000), (3, 32, 32), 100, "apple"),
        ("tiny-imagenet", None, (3, 64, 64), 40, None),
        ("svhn", (0, 0, 10_000), (3, 32, 32), 10, "0"),
        ("digits", (1_097, 200, 500), (1, 8, 8), 10, "0"),
    ],
)
def test_the_real_sets(request, name, sizes, shape, classes, some):
    data = load(name, None if name == "digits" else request.getfixturevalue("real"))
    parts = [data.train, data.val, data.test]
    if sizes:
        assert tuple(0 if part is None else len(part) for part in parts) == sizes
    for part in parts:
        if part is not None:
            assert part.images.dtype == torch.uint8
            assert part.images.shape == (len(part), *shape)
            assert part.labels.dtype == torch.int64
            assert part.labels.unique().tolist() == list(range(classes))
    assert len(data.classes) == classes
    assert some is None or data.classes[0] == some


def test_tiny_imagenet_holds_out_fifty_a_class(real):
    """The rest trains; the published validation images of these classes are the test; no name comes twice."""
    data = load("tiny-imagenet", real)
    assert torch.bincount(data.val.labels).tolist() == [50] * 40
    files = [len(list(folder.rglob("*.JPEG"))) for folder in (real / "tiny-imagenet-200" / "train").iterdir()]
    assert len(data.train) == sum(files) - 50 * 40
    assert len(data.test) == len((real / "tiny-imagenet-200" / "val" / "val_annotations.txt").read_text().splitlines())
    assert len(set(data.classes)) == 40


def test_every_set_is_tested():
    assert set(DATASETS) == {"cifar10", "cifar100", "tiny-imagenet", "svhn", "digits", "cifar10-c", "cifar100-c"}


def imitation(folder, classes=10, binary=False, rows=1100):
    """A CIFAR of a few rows; five training files for ten classes, one for a hundred."""
    rng = np.random.default_rng(0)
    count = 5 if classes == 10 else 1
    made = []
    for part in range(count + 1):
        data, labels = rng.integers(0, 256, (rows, 3072), np.uint8), rng.integers(0, classes, rows)
        made.append((data, labels))
        names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"] if classes == 10 else ["train", "test"]
        if binary:
            target = folder / ("cifar-10-batches-bin" if classes == 10 else "cifar-100-binary")
            target.mkdir(parents=True, exist_ok=True)
            ahead = [labels] if classes == 10 else [labels // 5, labels]
            np.column_stack([*ahead, data]).astype(np.uint8).tofile(target / f"{names[part]}.bin")
            meta = "batches.meta.txt" if classes == 10 else "fine_label_names.txt"
            (target / meta).write_text("\n".join(f"c{i}" for i in range(classes)) + "\n")
        else:
            target = folder / ("cifar-10-batches-py" if classes == 10 else "cifar-100-python")
            target.mkdir(parents=True, exist_ok=True)
            key = b"labels" if classes == 10 else b"fine_labels"
            (target / names[part]).write_bytes(pickle.dumps({b"data": data, key: labels.tolist()}, 2))
            meta, field = ("batches.meta", b"label_names") if classes == 10 else ("meta", b"fine_label_names")
            (target / meta).write_bytes(pickle.dumps({field: [f"c{i}".encode() for i in range(classes)]}, 2))
    return made


@pytest.mark.parametrize("classes", [10, 100])
def test_binary_files_hold_the_same(tmp_path, classes):
    rows = 1100 if classes == 10 else 5500
    imitation(tmp_path / "a", classes, rows=rows)
    imitation(tmp_path / "b", classes, binary=True, rows=rows)
    first, second = (load(f"cifar{classes}", tmp_path / folder) for folder in "ab")
    for part in ("train", "val", "test"):
        a, b = getattr(first, part), getattr(second, part)
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)
    assert first.classes == second.classes == tuple(f"c{i}" for i in range(classes))


def test_planes_and_rows_are_where_they_belong(tmp_path):
    """A row of 3,072 bytes is the red plane, the green, the blue, each line by line."""
    made = imitation(tmp_path)
    test = load("cifar10", tmp_path).test
    assert test.images[7, 1, 2, 3] == made[-1][0][7, 1024 + 2 * 32 + 3]


class Hostile:
    def __reduce__(self):
        return os.system, ("touch hacked",)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.write_bytes(f.read_bytes()[:1000]), "test_batch: not a CIFAR pickle"),
        (lambda f: f.write_bytes(pickle.dumps(Hostile())), "asks for posix.system"),
        (lambda f: f.write_bytes(pickle.dumps([1, 2])), "a pickle of list"),
        (lambda f: f.write_bytes(pickle.dumps({b"data": np.zeros((2, 5), np.uint8)})), "no uint8 array 'data'"),
        (
            lambda f: f.write_bytes(pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]})),
            "2 images but not as many",
        ),
        (lambda f: f.write_bytes(pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]})), "labels outside 0 .. 9"),
        (lambda f: f.unlink(), "test_batch: no such file"),
        (lambda f: shutil.rmtree(f.parent), "no folder cifar-10-batches-py or cifar-10-batches-bin"),
    ],
)
def test_wrong_pickles(tmp_path, monkeypatch, damage, message):
    """Each error names the file; code in a pickle does not run."""
    monkeypatch.chdir(tmp_path)
    imitation(tmp_path)
    damage(tmp_path / "cifar-10-batches-py" / "test_batch")
    with pytest.raises(FileError, match=message):
        load("cifar10", tmp_path)
    assert not (tmp_path / "hacked").exists()


def test_wrong_files_of_other_sets(tmp_path):
    imitation(tmp_path, binary=True)
    file = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FileError, match=r"data_batch_3.bin: .* not a whole number of rows"):
        load("cifar10", tmp_path)
    with pytest.raises(FileError, match=r"test_32x32.mat: no such file"):
        load("svhn", tmp_path)
    (tmp_path / "test_32x32.mat").write_bytes(b"nothing")
    with pytest.raises(FileError, match=r"not a readable .mat file"):
        load("svhn", tmp_path)
    with pytest.raises(FileError, match=r"wnids.txt: no such file"):
        load("tiny-imagenet", tmp_path)


def test_a_broken_picture(tmp_path, real):
    shutil.copytree(real / "tiny-imagenet-200", tmp_path / "tiny-imagenet-200")
    picture = next((tmp_path / "tiny-imagenet-200" / "train").rglob("*.JPEG"))
    picture.write_bytes(picture.read_bytes()[:100])
    with pytest.raises(FileError, match=rf"{picture.name}: not a readable JPEG"):
        load("tiny-imagenet", tmp_path)


def test_a_part_of_the_training_images():
    data, again, other = (load("digits", limit=100, seed=seed) for seed in (1, 1, 2))
    assert len(data.train) == 100
    assert set(torch.bincount(data.train.labels).tolist()) <= {9, 10, 11}
    assert torch.equal(data.train.images, again.train.images)
    assert not torch.equal(data.train.images, other.train.images)
    assert len(data.test) == 500
    with pytest.raises(ValueError, match="2000 of 1097 images asked for"):
        load("digits", limit=2000)
    with pytest.raises(ValueError, match="no data set 'mnist'"):
        load("mnist")


def test_shares_are_even():
    """Of unequal classes each gives its share, within a row."""
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    rows = stratified(labels, 50, np.random.default_rng(0))
    assert np.bincount(labels[rows]).tolist() == [30, 15, 5]
    assert len(set(rows)) == 50


def test_where_the_files_are(tmp_path, monkeypatch):
    """The argument, else $MACCAL_DATA."""
    imitation(tmp_path / "named")
    monkeypatch.setenv("MACCAL_DATA", str(tmp_path / "named"))
    assert len(load("cifar10").test) == 1100
    with pytest.raises(FileError, match="elsewhere"):
        load("cifar10", tmp_path / "elsewhere")
