"""Data sets in their publishers' formats.

The real ones, small imitations, and files that are wrong or hostile.
"""

import hashlib
import io
import os
import pickle
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from maccal.data import DATASETS, load
from maccal.data.readers.cifar import published_split
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


@pytest.mark.slow
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


def test_tiny_imagenet_holds_out_a_tenth_of_each_class(real):
    """The rest trains; the published validation images of these classes are the test.

    Of the published 500 that is 50; here each class has 100. No name comes twice.
    """
    data = load("tiny-imagenet", real)
    assert torch.bincount(data.val.labels).tolist() == [10] * 40
    assert torch.bincount(data.train.labels).tolist() == [90] * 40
    files = [
        len(list(folder.rglob("*.JPEG")))
        for folder in (real / "tiny-imagenet-200" / "train").iterdir()
    ]
    assert len(data.train) == sum(files) - 10 * 40
    assert len(data.test) == len(
        (real / "tiny-imagenet-200" / "val" / "val_annotations.txt").read_text().splitlines()
    )
    assert len(set(data.classes)) == 40


def test_every_set_is_tested():
    assert set(DATASETS) == {
        "cifar10",
        "cifar100",
        "tiny-imagenet",
        "svhn",
        "digits",
        "cifar10-c",
        "cifar100-c",
    }


def imitation(folder, classes=10, binary=False, rows=1100):
    """A CIFAR of a few rows; five training files for ten classes, one for a hundred."""
    rng = np.random.default_rng(0)
    count = 5 if classes == 10 else 1
    made = []
    for part in range(count + 1):
        data, labels = rng.integers(0, 256, (rows, 3072), np.uint8), rng.integers(0, classes, rows)
        made.append((data, labels))
        names = (
            [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
            if classes == 10
            else ["train", "test"]
        )
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
            (target / names[part]).write_bytes(
                pickle.dumps({b"data": data, key: labels.tolist()}, 2)
            )
            meta, field = (
                ("batches.meta", b"label_names") if classes == 10 else ("meta", b"fine_label_names")
            )
            (target / meta).write_bytes(
                pickle.dumps({field: [f"c{i}".encode() for i in range(classes)]}, 2)
            )
    return made


@pytest.mark.slow
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
        (
            lambda f: f.write_bytes(pickle.dumps({b"data": np.zeros((2, 5), np.uint8)})),
            "no uint8 array 'data'",
        ),
        (
            lambda f: f.write_bytes(
                pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]})
            ),
            "2 images but not as many",
        ),
        (
            lambda f: f.write_bytes(
                pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]})
            ),
            "labels outside 0 .. 9",
        ),
        (lambda f: f.unlink(), "test_batch: no such file"),
        (
            lambda f: shutil.rmtree(f.parent),
            "no folder cifar-10-batches-py or cifar-10-batches-bin",
        ),
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


def small_tiny(folder, classes=("n01", "n02"), images=51):
    """Tiny-ImageNet of two classes."""
    folder = folder / "tiny-imagenet-200"
    buffer = io.BytesIO()
    Image.fromarray(np.full((64, 64, 3), 90, np.uint8)).save(buffer, "JPEG")
    for name in classes:
        (folder / "train" / name).mkdir(parents=True)
        for number in range(images):
            (folder / "train" / name / f"{name}_{number}.JPEG").write_bytes(buffer.getvalue())
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "val" / "images" / "val_0.JPEG").write_bytes(buffer.getvalue())
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn01\t0\t0\t1\t1\n")
    (folder / "wnids.txt").write_text("n01\nn02\n")
    (folder / "words.txt").write_text("n01\tcat, feline\nn02\temu\n")
    return folder


def huge_picture():
    """A JPEG that says it has 60,000 x 60,000 pixels."""
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(buffer, "JPEG")
    data = bytearray(buffer.getvalue())
    start = data.index(b"\xff\xc0") + 5
    data[start : start + 4] = (60_000).to_bytes(2, "big") * 2
    return bytes(data)


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("wnids.txt", b"n01\n/\n", "'/' is not the name of a class or a picture"),
        ("wnids.txt", b"n01\n..\n", "'..' is not the name"),
        ("wnids.txt", b"n01\n../../etc\n", "is not the name"),
        ("wnids.txt", b"n01\n" + b"n" * 5000, "is not the name"),
        ("wnids.txt", b"n01\nn\0\n", "is not the name"),
        ("wnids.txt", b"n01\nn01\n", "a class comes twice"),
        ("wnids.txt", b"\xff\xfe", "not a list of names"),
        (
            "val/val_annotations.txt",
            b"../../x.JPEG\tn01\n",
            "is not the name of a class or a picture",
        ),
        ("val/val_annotations.txt", b"val_1.JPEG\tn01\n", "val_1.JPEG: no such file"),
        (
            "val/images/val_0.JPEG",
            huge_picture(),
            "val_0.JPEG: (60000 x 60000 pixels; expected 64 x 64|not a readable JPEG)",
        ),
        ("val/images/val_0.JPEG", b"GIF89a\x40\0\x40\0\0\0\0;", "not a readable JPEG"),
        ("val/images/val_0.JPEG", None, "val_0.JPEG: not a regular file"),
        ("words.txt", None, "words.txt: not a regular file"),
    ],
)
def test_hostile_tiny_imagenet(tmp_path, file, damage, message):
    """No list leads out of the folder, no picture is larger than it should be; None is a fifo."""
    path = small_tiny(tmp_path) / file
    assert load("tiny-imagenet", tmp_path).classes == ("cat", "emu")
    path.unlink()
    os.mkfifo(path) if damage is None else path.write_bytes(damage)
    with pytest.raises(FileError, match=message):
        load("tiny-imagenet", tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "cifar-10-batches-py/test_batch",
        "cifar-10-batches-bin/test_batch.bin",
        "svhn/test_32x32.mat",
    ],
)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_fifos_and_folders(tmp_path, name, make):
    imitation(tmp_path, rows=2, binary="bin" in name)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).unlink(missing_ok=True)
    make(tmp_path / name)
    with pytest.raises(FileError, match="not a regular file"):
        load("svhn" if "svhn" in name else "cifar10", tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([b"a"], "1 class names; expected 10"),
        (["a"] * 10, "no list of names"),
        ([b"\xff"] * 10, "names that are no text"),
        (b"a", "no list"),
    ],
)
def test_wrong_class_names(tmp_path, names, message):
    imitation(tmp_path, rows=2)
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(
        pickle.dumps({b"label_names": names}, 2)
    )
    with pytest.raises(FileError, match=message):
        load("cifar10", tmp_path)


@pytest.mark.parametrize(
    "labels", [[1, True], [0, 2**62], [0, -1], [0, b"1"], [0, [1]], [0, None], (0, 1)]
)
def test_wrong_labels_in_a_pickle(tmp_path, labels):
    imitation(tmp_path, rows=2)
    content = {b"data": np.zeros((2, 3072), np.uint8), b"labels": labels}
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(content, 3))
    with pytest.raises(FileError, match=r"labels outside 0 \.\. 9|not as many labels"):
        load("cifar10", tmp_path)


def test_images_in_the_order_of_fortran(tmp_path):
    """As numpy saves a transposed array."""
    imitation(tmp_path, rows=2)
    rows = np.arange(2 * 3072).reshape(2, 3072).astype(np.uint8)
    content = {b"data": np.asfortranarray(rows), b"labels": [0, 1]}
    for protocol in (2, 5):
        (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(
            pickle.dumps(content, protocol)
        )
        assert np.array_equal(load("cifar10", tmp_path).test.images.reshape(2, 3072).numpy(), rows)


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
