"""The reader of CIFAR's pickles: as published, as saved today, hostile, and at random."""

import os
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maccal.data.readers import pickles
from maccal.data.readers.pickles import READ, read_pickle
from maccal.io import FileError

DATA = np.arange(24, dtype=np.uint8).reshape(4, 6)
CONTENT = {
    b"data": DATA,
    b"labels": [1, 255, 256, 70_000, -1, 1 << 40],
    b"names": [b"a", "b\u00fc"],
    "n": 3,
    7: None,
}


def short(text):
    return b"U" + bytes([len(text)]) + text


# The array as Python 2 and numpy 1 wrote it: the instructions of the published files, in their
# order.
DTYPE = b"cnumpy\ndtype\nq\x0a" + short(b"u1") + b"K\x00K\x01\x87Rq\x0b"
STATE = b"(K\x03" + short(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t"
SHELL = (
    b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85"
    + short(b"b")
    + b"\x87Rq\x09"
)
BYTES = b"T" + struct.pack("<I", DATA.nbytes) + DATA.tobytes()
FRONT = SHELL + b"(K\x01K\x04K\x06\x86" + DTYPE
ARRAY = FRONT + STATE + b"b\x89" + BYTES + b"tb"
LATIN1 = b"X\x06\x00\x00\x00latin1"


def whole(*parts):
    """A dict of one key, `data`, whose value these instructions leave."""
    return b"\x80\x02}q\x01" + short(b"data") + b"q\x02" + b"".join(parts) + b"s."


def same(found, expected):
    assert list(found) == list(expected)
    for key, value in expected.items():
        assert type(found[key]) is type(value)
        assert (
            np.array_equal(found[key], value)
            if isinstance(value, np.ndarray)
            else found[key] == value
        )


def written(tmp_path, data):
    (tmp_path / "batch").write_bytes(data)
    return tmp_path / "batch"


def test_as_published(tmp_path):
    """The pickle module agrees that this is what the publisher wrote."""
    path = written(tmp_path, whole(ARRAY))
    same(read_pickle(path), {b"data": DATA})
    same(pickle.loads(path.read_bytes(), encoding="bytes"), {b"data": DATA})


def older(data):
    """The same as numpy 1 writes it: its modules had another name, one letter shorter."""
    for name in (b"multiarray", b"numeric"):
        new, old = b"numpy._core." + name, b"numpy.core." + name
        count = data.count(bytes([0x8C, len(new)]) + new)
        data = data.replace(bytes([0x8C, len(new)]) + new, bytes([0x8C, len(old)]) + old).replace(
            new, old
        )
        if data[2:3] == b"\x95":  # the frame says how long it is
            data = (
                data[:3]
                + struct.pack("<Q", struct.unpack_from("<Q", data, 3)[0] - count)
                + data[11:]
            )
    return data


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("change", [bytes, older])
@pytest.mark.parametrize(
    "array",
    [DATA, np.asfortranarray(DATA), DATA[::2], DATA[:, ::-1], DATA[:1], DATA.reshape(1, 2, 3, 4)],
)
def test_as_saved_today(tmp_path, protocol, change, array):
    data = change(pickle.dumps({**CONTENT, b"data": array}, protocol))
    assert (b"numpy.core" in data) == (change is older)
    same(read_pickle(written(tmp_path, data)), {**CONTENT, b"data": array})


def test_large_arrays_and_lists(tmp_path):
    """Frames, long strings and more than a thousand items have instructions of their own."""
    content = {
        b"data": np.full((300, 3072), 200, np.uint8),
        b"labels": list(range(5000)),
        b"names": ["x" * 300],
    }
    for protocol in (2, 3, 4, 5):
        same(read_pickle(written(tmp_path, pickle.dumps(content, protocol))), content)


def test_one_array_under_two_names(tmp_path):
    for protocol in (2, 4, 5):
        found = read_pickle(written(tmp_path, pickle.dumps({b"a": DATA, b"b": DATA}, protocol)))
        same(found, {b"a": DATA, b"b": DATA})


# the state of a type of 4,096 bytes
WIDE = b"(K\x03" + short(b"|") + b"NNNJ\x00\x10\x00\x00K\x01K\x00t"
AGAIN = b"(K\x01K\x02K\x0c\x86h\x0b\x89" + BYTES + b"tb"
EVIL = {
    "a type built twice": (
        whole(FRONT + STATE + b"b" + WIDE + b"b\x89" + BYTES + b"tb"),
        "a state",
    ),
    "a type of its own": (whole(FRONT + WIDE + b"b\x89" + BYTES + b"tb"), "a state"),
    # the hole: a type is changed after its array was filled, and numpy reads and writes beyond the
    # array
    "a type changed later": (
        whole(b"]" + ARRAY + b"ah\x0b" + WIDE + b"ba"),
        "a state that no file of images needs",
    ),
    "a type of any size": (
        whole(FRONT.replace(b"u1", b"V1") + WIDE + b"b\x89" + BYTES + b"tb"),
        "something else than",
    ),
    "an array filled twice": (whole(ARRAY + AGAIN), "filled twice"),
    "an array that is too short": (
        whole(ARRAY.replace(b"K\x04K\x06", b"K\x04K\x07")),
        "24 bytes for an array of another shape",
    ),
    "an array below zero": (
        whole(ARRAY.replace(b"K\x04K\x06", b"J\xfc\xff\xff\xffJ\xfa\xff\xff\xff")),
        "another shape",
    ),
    "a shape of the wrong kind": (
        whole(ARRAY.replace(b"K\x04K\x06\x86", b"K\x18")),
        "without a usable shape",
    ),
    "too many dimensions": (
        whole(ARRAY.replace(b"K\x04K\x06\x86", b"(" + b"K\x01" * 40 + b"t")),
        "without a usable shape",
    ),
    "a name": (whole(b"cos\nsystem\n"), "it asks for os.system, which no file of images needs"),
    "a name on the stack": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "it asks for os.system"),
    "a name that is no text": (b"\x80\x04K\x01K\x02\x93.", "a name that is no text"),
    "a name without an end": (whole(b"cnumpy"), "a name without an end"),
    "a call of a string": (whole(short(b"x") + b")R"), "a call that no file"),
    "another codec": (
        whole(b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00zip\x86R"),
        "a call that no file",
    ),
    "text beyond latin1": (
        whole(b"c_codecs\nencode\nX\x03\x00\x00\x00\xe2\x82\xac" + LATIN1 + b"\x86R"),
        "without its operand",
    ),
    "not utf-8": (whole(b"X\x01\x00\x00\x00\xff"), "without its operand"),
    "an unknown instruction": (whole(b"\x81"), "an instruction b'\\x81'"),
    "an extension": (whole(b"\x82\x01"), "an instruction b'\\x82'"),
    "a persistent id": (whole(b"Px\n"), "an instruction b'P'"),
    "a buffer from elsewhere": (whole(b"\x97"), "an instruction b'\\x97'"),
    "an empty stack": (b"\x80\x02a.", "without its operand"),
    "no mark": (b"\x80\x02]e.", "without its operand"),
    "nothing remembered": (whole(b"h\x63"), "without its operand"),
    "a key twice": (
        b"\x80\x02}(" + short(b"a") + b"K\x01" + short(b"a") + b"K\x02u.",
        "a key that comes twice",
    ),
    "a list as a key": (b"\x80\x02}]K\x01s.", "a list as a key"),
    "items for a number": (b"\x80\x02K\x01K\x02a.", "for a list that is none"),
    "pairs for a list": (b"\x80\x02]K\x01K\x02s.", "for a dict that is none"),
    "half a pair": (b"\x80\x02}(K\x01u.", "for a dict that is none"),
    "too long a string": (b"\x80\x02T\xff\xff\xff\xffabc.", "the file ends early"),
    "a huge string": (b"\x80\x04\x8e" + b"\xff" * 8 + b"abc.", "the file ends early"),
    "a huge frame": (b"\x80\x04\x95" + b"\xff" * 8 + b"}.", "the file ends early"),
    "a huge number": (b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".", "more than eight bytes"),
    "more than one value": (b"\x80\x02}}.", "it ends where it should not"),
    "no value": (b"\x80\x02.", "it ends where it should not"),
    "an open mark": (b"\x80\x02(}.", "it ends where it should not"),
    "bytes behind the end": (b"\x80\x02}.more", "it ends where it should not"),
    "no end": (b"\x80\x02}", "the file ends early"),
    "an empty file": (b"", "the file ends early"),
    "protocol 0": (b"(dp0\n.", "no pickle of protocol 2 to 5"),
    "protocol 6": (b"\x80\x06}.", "no pickle of protocol 2 to 5"),
    "floats": (
        pickle.dumps({b"data": np.zeros((2, 3))}, 2),
        "something else than an array of bytes",
    ),
    "floats, protocol 5": (
        pickle.dumps({b"data": np.zeros((2, 3))}, 5),
        "something else than an array of bytes",
    ),
    "objects": (
        pickle.dumps({b"data": np.array([[{}]])}, 2),
        "something else than an array of bytes",
    ),
    "an empty array": (pickle.dumps({b"data": np.zeros((0, 3072), np.uint8)}, 3), "another shape"),
    "no dict": (pickle.dumps([1]), "a pickle of list; expected a dict"),
}


@pytest.mark.parametrize(("data", "message"), EVIL.values(), ids=EVIL)
def test_what_is_refused(tmp_path, data, message):
    path = written(tmp_path, data)
    with pytest.raises(FileError) as caught:
        read_pickle(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_the_byte_is_named(tmp_path):
    with pytest.raises(
        FileError, match=r"which no file of images needs, at byte 13\); download it again"
    ):
        read_pickle(written(tmp_path, whole(b"cos\nsystem\n")))


def test_bombs(tmp_path, monkeypatch):
    """A text that is used again and again, nesting without end, and more instructions than any file
    has.
    """
    text = b"X" + struct.pack("<I", 50_000) + b"a" * 50_000
    encode = b"h\x01h\x02h\x03\x86R"
    start = b"\x80\x02](c_codecs\nencode\nq\x01" + text + b"q\x02" + LATIN1 + b"q\x03"
    with pytest.raises(FileError, match="more bytes than the file has"):
        read_pickle(written(tmp_path, start + encode * 1000 + b"e."))
    deep = b"\x80\x02" + b"(" * 200_000 + b"}" + b"t" * 200_000 + b"."
    with pytest.raises(FileError, match="a pickle of tuple"):
        read_pickle(written(tmp_path, deep))
    with pytest.raises(FileError, match="a tuple as a key"):
        read_pickle(written(tmp_path, b"\x80\x02}" + deep[2:-1] + b"K\x01s."))
    monkeypatch.setattr(pickles, "INSTRUCTIONS", 1000)
    with pytest.raises(FileError, match="more than 1,000 instructions"):
        read_pickle(written(tmp_path, b"\x80\x02" + b"]" * 2000 + b"."))
    monkeypatch.setattr(pickles, "LARGEST", 100)
    with pytest.raises(FileError, match="expected at most 100"):
        read_pickle(tmp_path / "batch")


def test_a_list_within_itself(tmp_path):
    """It is read, and nothing goes round in it."""
    found = read_pickle(written(tmp_path, whole(b"]q\x03h\x03a")))
    assert found[b"data"][0] is found[b"data"]


def test_no_file(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(FileError, match="not a regular file"):
            read_pickle(path)


values = st.recursive(
    st.integers(-(2**62), 2**62)
    | st.binary(min_size=1, max_size=300)
    | st.text(max_size=300)
    | st.none(),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=20,
)


@given(
    st.dictionaries(st.binary(min_size=1) | st.text() | st.integers(-100, 100), values, max_size=6),
    st.integers(2, 5),
)
@settings(max_examples=60)
def test_any_dict_of_plain_values(tmp_path_factory, content, protocol):
    path = tmp_path_factory.getbasetemp() / "plain"
    path.write_bytes(pickle.dumps(content, protocol))
    same(read_pickle(path), content)


SEEDS = [whole(ARRAY), *(pickle.dumps(CONTENT, protocol) for protocol in (2, 3, 4, 5))]
operands = st.binary(max_size=9) | st.sampled_from(
    [DTYPE, STATE, SHELL, BYTES, ARRAY, WIDE, AGAIN, short(b"data"), b"K\x01"]
)
programs = st.lists(
    st.tuples(st.sampled_from([*READ, b"."]), operands).map(b"".join), max_size=30
).map(b"".join)


def only_plain_values(path):
    """Whatever the bytes are: a dict of what this reader makes, or a FileError."""
    try:
        found = read_pickle(path)
    except FileError:
        return
    assert type(found) is dict
    for value in found.values():
        if isinstance(value, np.ndarray):
            assert value.dtype == np.uint8
            assert value.nbytes <= path.stat().st_size
        else:
            assert type(value) in (
                dict,
                list,
                tuple,
                bytes,
                str,
                int,
                bool,
                type(None),
                pickles.Name,
            )


@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=400)
def test_damaged_pickles(tmp_path_factory, seed, changes):
    data = bytearray(seed)
    for place, value in changes:
        data[place % len(data)] = value
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(data)
    only_plain_values(path)


@given(programs)
@settings(max_examples=400)
def test_any_program(tmp_path_factory, program):
    path = tmp_path_factory.getbasetemp() / "program"
    path.write_bytes(b"\x80\x04" + program)
    only_plain_values(path)
