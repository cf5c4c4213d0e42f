"""MATLAB files: as scipy reads them, and as nobody should have written them."""

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from maccal.data.readers.matlab import read_mat
from maccal.data.readers.svhn import from_mat
from maccal.io import FileError

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (32, 32, 3, 5)).astype(np.uint8)
Y = np.array([[1], [10], [3], [4], [5]])
LIMITS = {"X": 100_000, "y": 100}


def saved(compressed=False, **content):
    buffer = io.BytesIO()
    savemat(buffer, {"X": X, "y": Y, **content}, do_compression=compressed)
    return buffer.getvalue()


def written(tmp_path, data):
    (tmp_path / "t.mat").write_bytes(data)
    return tmp_path / "t.mat"


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_as_scipy_reads_it(tmp_path, compressed, kind):
    """Other variables, of any kind, are passed over."""
    path = written(
        tmp_path,
        saved(
            compressed, y=Y.astype(kind), text="words", cells={"a": [1, "b"]}, other=np.ones((3, 3))
        ),
    )
    found, expected = read_mat(path, LIMITS), loadmat(path)
    assert set(found) == {"X", "y"}
    for name, array in found.items():
        assert array.dtype == expected[name].dtype
        assert np.array_equal(array, expected[name])


def test_digits(tmp_path):
    """The digit 0 is class 10 in the file."""
    split = from_mat(written(tmp_path, saved(y=Y.astype(np.uint8))))
    assert split.labels.tolist() == [1, 0, 3, 4, 5]
    assert np.array_equal(split.images.numpy(), X.transpose(3, 2, 0, 1))


def compressed_of(data):
    """A file of one variable, from the bytes that its compressed form unpacks to."""
    packed = zlib.compress(data)
    return saved()[:128] + struct.pack("<II", 15, len(packed)) + packed


def variable(shape, size, name=b"X", kind=9, data=b""):
    """An array of uint8 (class 9) that says it has this shape and so many bytes."""
    flags = struct.pack("<IIII", 6, 8, kind, 0)
    sizes = struct.pack(f"<II{len(shape)}i", 5, 4 * len(shape), *shape)
    front = (
        flags
        + sizes
        + bytes(-len(sizes) % 8)
        + struct.pack("<HH", 1, len(name))
        + name.ljust(4, b"\0")
    )
    return struct.pack("<II", 14, 0) + front + struct.pack("<II", 2, size) + data


WRONG = {
    "nothing": (b"", "no header"),
    "another version": (saved()[:124] + b"\0\2IM" + saved()[128:], "no header"),
    "cut off": (saved()[:-100], "unfinished part"),
    "cut off, compressed": (saved(True)[:-100], "unfinished part"),
    "a bomb": (
        compressed_of(variable((32, 32, 3, 10**6), 3072 * 10**6, data=bytes(10**7))),
        "X has 32 x 32 x 3 x 1000000 numbers",
    ),
    "a shape that lies": (
        compressed_of(variable((32, 32, 3, 2), 3072, data=bytes(3072))),
        "3,072 bytes for an array of another size",
    ),
    "less than it says": (
        compressed_of(variable((32, 32, 3, 2), 6144, data=bytes(6000))),
        "ends early",
    ),
    "a shape below zero": (
        compressed_of(variable((-32, -32, 3, 2), 6144, data=bytes(6144))),
        "expected 1 to",
    ),
    "a cell": (
        compressed_of(variable((2, 2), 4, kind=1, data=bytes(4))),
        "no array of real numbers",
    ),
    "a long name": (
        compressed_of(struct.pack("<II", 14, 0) + struct.pack("<II", 6, 2**31)),
        "front is cut off",
    ),
    "complex": (saved(X=X * 1j), "no array of real numbers"),
    "text": (saved(X="text"), "no array of real numbers"),
    "a structure": (saved(X={"a": 1}), "no array of real numbers"),
    "twice": (saved() + saved()[128:], "X comes twice"),
    "too large": (saved(y=np.ones((1000, 1))), "y has 1000 x 1 numbers; expected 1 to 100"),
}


@pytest.mark.parametrize(("data", "message"), WRONG.values(), ids=WRONG)
def test_wrong_files(tmp_path, data, message):
    with pytest.raises(FileError, match=f"t.mat: not a readable .mat file .*{message}"):
        read_mat(written(tmp_path, data), LIMITS)


def test_a_flipped_bit_in_compressed_numbers(tmp_path):
    """Its checksum is compared."""
    data = bytearray(saved(True))
    data[128 + 8 + 10_000] ^= 1
    with pytest.raises(FileError, match=r"not a readable .mat file"):
        read_mat(written(tmp_path, data), LIMITS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"y": Y[1:]}, "images of shape"),
        ({"y": Y * 1.5}, r"labels outside 1 \.\. 10"),
        ({"y": Y * 0}, r"labels outside 1 \.\. 10"),
        ({"y": Y * np.nan}, r"labels outside 1 \.\. 10"),
        ({"X": X.astype(float)}, "images of shape"),
        ({"X": X[:16]}, "images of shape"),
        ({"X": X[..., 0]}, "images of shape"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_wrong_contents(tmp_path, content, message):
    with pytest.raises(FileError, match=message):
        from_mat(written(tmp_path, saved(**content)))


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=200)
def test_any_damage(tmp_path_factory, compressed, changes):
    """In the fronts of the variables, where the sizes are."""
    data = bytearray(SEEDS[compressed])
    for place, value in changes:
        data[-(place % len(data))] = value
    path = tmp_path_factory.getbasetemp() / "damaged.mat"
    path.write_bytes(data)
    try:
        found = read_mat(path, LIMITS)
    except FileError:
        return
    assert all(array.size <= LIMITS[name] for name, array in found.items())


SEEDS = [saved(value, X=X[:2, :2, :, :1], y=Y[:1]) for value in (False, True)]
