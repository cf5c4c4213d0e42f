"""Files of predictions that are damaged or hostile.

A FileError or ValueError each, in bounded memory, and never other numbers.
"""

import io
import json
import os
import struct
import zipfile
from decimal import Decimal

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from commands import refused, run
from hypothesis import given, settings
from hypothesis import strategies as st

from maccal.evaluation import tables
from maccal.evaluation.arrays import load_npz
from maccal.evaluation.predictions import read
from maccal.io import FileError

RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(3), 12)
LABELS = RNG.integers(0, 3, 12)


def npz(folder, compressed=False, **arrays):
    (np.savez_compressed if compressed else np.savez)(
        folder / "m.npz", **{"probs": PROBS, "labels": LABELS, **arrays}
    )
    return folder / "m.npz"


def member(shape, kind="<f8", data=b"", version=1):
    """An array whose header says this shape, and whose bytes are these."""
    header = (
        str({"descr": kind, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    )
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(header)) + header + data


def zipped(folder, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(folder / "m.npz", "w", method) as archive:
        for name, data in members:
            archive.writestr(f"{name}.npy", data)
    return folder / "m.npz"


def plain(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


GOOD = [("labels", plain(LABELS)), ("probs", plain(PROBS))]


def test_an_unused_array_is_not_read(tmp_path):
    """It says it has 12 GB, and has none; it could as well have them."""
    path = zipped(tmp_path, [*GOOD, ("other", member((1_500_000_000,)))])
    assert np.array_equal(read(path).scores, PROBS)


def test_a_small_file_of_a_large_array(tmp_path, monkeypatch):
    """More than a hundred times the file, and more than is granted to any.

    Refused, and the message says how to allow it.
    """
    path = npz(tmp_path, compressed=True, probs=np.zeros((500_000, 3)))
    monkeypatch.setenv("MACCAL_LARGEST", "1000000")
    problem = r"probs would need 12,000,000 bytes of memory, and has [\d,]+ in the file"
    with pytest.raises(FileError, match=f"{problem}; .*MACCAL_LARGEST"):
        read(path)
    monkeypatch.setenv("MACCAL_LARGEST", "12000000")
    assert read(path).scores.shape == (500_000, 3)
    monkeypatch.setenv("MACCAL_LARGEST", "a lot")
    with pytest.raises(ValueError, match="MACCAL_LARGEST is 'a lot'; expected a number of bytes"):
        read(path)


def test_a_file_as_large_as_its_array_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("MACCAL_LARGEST", "0")
    assert np.array_equal(read(npz(tmp_path)).scores, PROBS)


def encrypted(path):
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(mark) + offset] |= 1
    path.write_bytes(data)


def unknown_method(path):
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        data[data.index(mark) + offset] = 99
    path.write_bytes(data)


def broken_zlib(path):
    data = bytearray(path.read_bytes())
    start = data.index(b"probs.npy") + 40
    data[start : start + 20] = b"\xff" * 20
    path.write_bytes(data)


def flipped(path):
    data = bytearray(path.read_bytes())
    data[data.index(PROBS[3].tobytes())] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "compressed", "message"),
    [
        (encrypted, False, "probs is encrypted, or compressed in an unknown way"),
        (unknown_method, False, "probs is encrypted, or compressed in an unknown way"),
        (broken_zlib, True, "not a readable .npz file"),
        (flipped, False, "not a readable .npz file .*CRC"),
    ],
)
def test_broken_npz(tmp_path, damage, compressed, message):
    path = npz(tmp_path, compressed)
    damage(path)
    with pytest.raises(FileError, match=message):
        read(path)


HEADERS = {
    "too large": (
        member((1_500_000_000,)),
        "0 bytes for an array of 12,000,000,000; it is damaged",
    ),
    "bytes behind": (plain(PROBS) + b"more", "292 bytes for an array of 288"),
    "cut off": (plain(PROBS)[:-1], "287 bytes for an array of 288"),
    "below zero": (member((-1, -36), data=bytes(288)), "it is damaged"),
    "objects": (member((36,), "|O", bytes(288)), "holds Python objects"),
    "version": (member((36,), data=bytes(288), version=3), "version"),
    "not a type": (member((36,), "nothing", bytes(288)), "not a readable"),
    "not a header": (b"\x93NUMPY\1\0\5\0hello", "not a readable"),
    "deep": (b"\x93NUMPY\2\0" + struct.pack("<I", 9000) + b"(" * 9000, "not a readable"),
    "long": (b"\x93NUMPY\2\0" + struct.pack("<I", 20_000) + b" " * 20_000, "not a readable"),
    "nothing": (b"", "not a readable"),
}


@pytest.mark.parametrize(("data", "message"), HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_wrong_arrays_in_an_npz(tmp_path, data, message, method):
    path = zipped(tmp_path, [GOOD[0], ("probs", data)], method)
    with pytest.raises(FileError, match=message):
        read(path)


@pytest.mark.parametrize(("data", "message"), HEADERS.values(), ids=HEADERS)
def test_wrong_npy(tmp_path, data, message):
    (tmp_path / "m.npy").write_bytes(data)
    (tmp_path / "y.npy").write_bytes(plain(LABELS))
    with pytest.raises(FileError, match=message):
        read(tmp_path / "m.npy", kind="probs", labels=tmp_path / "y.npy")
    (tmp_path / "m.npy").rename(tmp_path / "z.npy")
    (tmp_path / "y.npy").rename(tmp_path / "m.npy")
    with pytest.raises(FileError, match=message):
        read(tmp_path / "m.npy", kind="probs", labels=tmp_path / "z.npy")


def test_an_npz_that_is_called_npy(tmp_path):
    npz(tmp_path).rename(tmp_path / "m.npy")
    with pytest.raises(FileError, match=r"not a readable .npy file"):
        read(tmp_path / "m.npy", kind="probs", labels=tmp_path / "m.npy")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_comes_twice(tmp_path):
    with pytest.raises(FileError, match="probs comes twice"):
        read(zipped(tmp_path, [*GOOD, ("probs", plain(PROBS[::-1]))]))


@pytest.mark.parametrize("compressed", [False, True])
def test_no_flipped_bit_changes_a_number(tmp_path, compressed):
    """Every byte of a small file in turn: refused, or the same numbers."""
    path = npz(tmp_path, compressed)
    data = path.read_bytes()
    refusals = 0
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            found = load_npz(path, ("probs", "labels"))
        except FileError:
            refusals += 1
            continue
        for name, array in found.items():
            assert np.array_equal(array, {"probs": PROBS, "labels": LABELS}[name])
    assert refusals > 0.6 * len(data)


HEADER = "label,prob_0,prob_1\n"
CSV = {
    "a label of 20 digits": (
        HEADER + "0,0.5,0.5\n12345678901234567890,0.5,0.5\n",
        "label '12345678901234567890' in row 1",
    ),
    "a label of 5,000 digits": (
        HEADER + "9" * 5000 + ",0.5,0.5\n",
        r"label '9{60}\.\.\.' in row 0",
    ),
    "minus minus": (HEADER + "--5,0.5,0.5\n", "label '--5' in row 0"),
    "a long field": (
        HEADER + "0,0.5,0.5\n" * 2 + "x" * 200_000 + ",0.5,0.5\n",
        "label 'x{60}\\.\\.\\.' in row 2",
    ),
    "a long number": (HEADER + "0,0.5," + "5" * 200_000 + "z\n", "not a table of numbers"),
    "a long header": (
        "label,prob_" + "x" * 200_000 + ",prob_b\n0,0.5,0.5\n",
        "not a table of numbers .*field larger",
    ),
    "a long name": (
        "x" * 100_000 + ",b\n0,0.5\n",
        r"columns x{60}\.\.\., b \.\.\.; expected one 'label'",
    ),
    "zero bytes": (HEADER + "0,0.5,0.\0005\n", "not a table of numbers"),
    "a label with a zero byte": (HEADER + "0\0,0.5,0.5\n", "label '0.x00' in row 0"),
    "zero bytes in the header": ("label,prob_\0,prob_1,\0\n", "no rows|not a table"),
    "commas for points": (
        HEADER.replace("prob", "logit") + "0,0,5,0,5\n",
        "5 columns below a header of 3; is a comma",
    ),
    "one longer row": (
        HEADER + "0,0.5,0.5\n0,0.5,0.5,0.1\n",
        "number of columns changed from 3 to 4 at row 2",
    ),
    "one shorter row": (
        HEADER + "0,0.5,0.5\n0,1\n",
        "number of columns changed from 3 to 2 at row 2",
    ),
    "all shorter": (HEADER + "0,1\n1,1\n", "2 columns below a header of 3"),
    "an empty cell": (HEADER + "0,,0.5\n", "could not convert string '' to float64 at row 0"),
    "an empty label": (HEADER + ",0.5,0.5\n", "label '' in row 0"),
    "an open quote": (HEADER + '0,0.5,"0.5\n0,0.5,0.5\n', "not a table of numbers"),
    "an open quote in the header": (
        'label,"prob_0,prob_1\n0,0.5,0.5\n',
        "no rows below the header",
    ),
    "blank lines only": (HEADER + "\n\n", "no rows below the header"),
    "a large number of columns": (
        "label,prob_99999999999999999999,prob_1\n0,1,1\n",
        "numbered 1, 9{20}; expected 0 to 1",
    ),
    "both labels": ("label,labels,prob_0,prob_1\n0,1,0.5,0.5\n", "expected one 'label'"),
}


@pytest.mark.parametrize(("text", "message"), CSV.values(), ids=CSV)
def test_wrong_csv(tmp_path, text, message):
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(FileError, match=message) as caught:
        read(path)
    assert len(str(caught.value)) < 700


def test_one_long_label_among_many(tmp_path):
    """Memory for all labels as wide as the longest would be 80 GB."""
    lines = ["0,0.5,0.5\n"] * 200_000
    lines[100_000] = "x" * 100_000 + ",0.5,0.5\n"
    (tmp_path / "m.csv").write_text(HEADER + "".join(lines))
    with pytest.raises(FileError, match="in row 100000 is neither"):
        read(tmp_path / "m.csv")


def test_columns_that_are_not_looked_at(tmp_path):
    """Of any kind; quotes, blanks and a header of several lines are understood."""
    (tmp_path / "m.csv").write_text(
        '"a\nb",label,prob_cat,"prob_a, b",note\r\n1, cat ,0.25,0.75,"x, ""y"""\n2,"a, b",1,0,\n'
    )
    found = read(tmp_path / "m.csv")
    assert found.scores.tolist() == [[0.25, 0.75], [1, 0]]
    assert found.labels.tolist() == [0, 1]
    assert found.classes == ("cat", "a, b")


def parquet(folder, columns, **options):
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "m.parquet", **options)
    return folder / "m.parquet"


def two(**changes):
    return {"label": [0, 1], "prob_0": [0.5, 0.25], "prob_1": [0.5, 0.75], **changes}


LISTS = pyarrow.list_(pyarrow.float64())
PARQUET = {
    "both labels": (
        {"probs": [[0.5, 0.5]], "label": [0], "labels": [1]},
        "2 columns of labels; expected one",
    ),
    "no labels": ({"probs": [[0.5, 0.5]]}, "0 columns of labels"),
    "both labels beside columns": (two(labels=[1, 0]), "expected one 'label'"),
    "structures": (
        two(prob_1=[{"a": 1}, {"a": 2}]),
        "column prob_1 holds struct<a: int64>; expected numbers: float64",
    ),
    "structures as labels": (
        two(label=[{"a": 1}, {"a": 2}]),
        "column label holds struct<a: int64>; expected class indices",
    ),
    "structures as lists": (
        {"probs": [{"a": 1}], "label": [0]},
        "column probs holds struct<a: int64>; expected numbers: lists",
    ),
    "nulls": (two(prob_0=[None, 0.25]), "column prob_0 has empty cells; remove those rows"),
    "nulls as labels": (two(label=[0, None]), "column label has empty cells"),
    "nulls only": (two(label=pyarrow.nulls(2)), "column label holds null"),
    "null lists": ({"probs": [[0.5, 0.5], None], "label": [0, 1]}, "column probs has empty cells"),
    "nulls in lists": (
        {"probs": [[0.5, 0.5], [1.0, None]], "label": [0, 1]},
        "a list in probs has empty cells",
    ),
    "empty lists": (
        {"probs": pyarrow.array([[], []], LISTS), "label": [0, 1]},
        "differ in length, or are empty",
    ),
    "lists of lists": (
        {"probs": [[[0.5], [0.5]]], "label": [0]},
        "expected numbers: lists of float64",
    ),
    "no lists": (
        {"probs": [0.5], "label": [0]},
        "column probs holds double; expected numbers: lists of float64",
    ),
    "lists of text": ({"probs": [["a", "b"]], "label": [0]}, "expected numbers: lists of float64"),
    "text": (two(prob_1=["a", "b"]), "column prob_1 holds string"),
    "a dictionary of text": (
        two(prob_1=pyarrow.array(["a", "b"]).dictionary_encode()),
        "column prob_1 holds dictionary",
    ),
    "decimals": (two(prob_1=[Decimal("0.5"), Decimal("0.75")]), "column prob_1 holds decimal128"),
    "dates": (two(prob_1=np.array(["2020-01-01"] * 2, "M8[s]")), "column prob_1 holds timestamp"),
    "labels of floats": (
        two(label=[0.0, 1.0]),
        "column label holds double; expected class indices",
    ),
    "labels of lists": (two(label=[[0], [1]]), "column label holds list"),
    "labels of no class": (two(label=["a", "0"]), "label 'a' in row 0 is neither"),
    "labels beyond int64": (
        two(label=np.array([0, 2**64 - 1], np.uint64)),
        "label '18446744073709551615' in row 1",
    ),
    "a label of many digits": (two(label=["0", "9" * 5000]), "in row 1 is neither"),
    "no rows": ({name: np.array([]) for name in two()}, "no rows"),
}


@pytest.mark.parametrize(("columns", "message"), PARQUET.values(), ids=PARQUET)
def test_wrong_parquet(tmp_path, columns, message):
    path = parquet(tmp_path, columns)
    with pytest.raises(FileError, match=message):
        read(path)


def test_columns_of_one_name(tmp_path):
    table = pyarrow.Table.from_arrays(
        [pyarrow.array([0, 1])] * 3, names=["label", "prob_0", "prob_0"]
    )
    pyarrow.parquet.write_table(table, tmp_path / "m.parquet")
    with pytest.raises(FileError, match="two columns have the same name"):
        read(tmp_path / "m.parquet")


def test_many_rows_in_a_small_file(tmp_path, monkeypatch):
    """Run lengths make a table of any number of rows from a few bytes.

    The number is known before they are read.
    """
    rows = 200_000
    path = parquet(
        tmp_path, {"label": np.zeros(rows, int), "prob_0": np.ones(rows), "prob_1": np.zeros(rows)}
    )
    assert path.stat().st_size < 40_000
    monkeypatch.setenv("MACCAL_LARGEST", "1000000")
    # it must not come to that
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", None)
    with pytest.raises(
        FileError,
        match=r"200,000 rows and 3 columns would need 4,800,000 bytes .* set MACCAL_LARGEST",
    ):
        read(path)
    long = pyarrow.array([np.zeros(rows)] * 3)
    with pytest.raises(FileError, match=r"column probs would need 4,800,000 bytes"):
        read(parquet(tmp_path, {"label": [0, 1, 0], "probs": long}))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 65_536, 65_537, 150_000])
def test_parquet_in_batches(tmp_path, rows):
    """Every row in its place, whatever the batch and the group it is in.

    Labels as indices, names and dictionaries.
    """
    probs = RNG.dirichlet(np.ones(2), rows)
    labels = RNG.integers(0, 2, rows)
    names = np.array(["a.b", "c"])[labels]
    scores = {"prob_a.b": probs[:, 0], "prob_c": probs[:, 1].astype(np.float32)}
    forms = [
        labels.astype(np.uint8),
        names,
        pyarrow.array(names).dictionary_encode(),
        labels.astype(str),
    ]
    for form in forms:
        found = read(
            parquet(tmp_path, {"x": ["y"] * rows, **scores, "label": form}, row_group_size=50_000)
        )
        assert np.array_equal(found.labels, labels)
        assert np.array_equal(found.scores[:, 0], probs[:, 0])
        assert found.scores.dtype == np.float64
    for kind in (LISTS, pyarrow.large_list(pyarrow.float64()), pyarrow.list_(pyarrow.float64(), 2)):
        lists = pyarrow.array(list(probs), kind)
        found = read(parquet(tmp_path, {"probs": lists, "labels": labels}, row_group_size=70_000))
        assert np.array_equal(found.scores, probs)
        assert np.array_equal(found.labels, labels)


def test_a_class_named_like_an_index(tmp_path):
    """A label is a class name first, in either format."""
    columns = {"label": [3, 0], "prob_cat": [0.5, 0.5], "prob_3": [0.5, 0.5]}
    assert read(parquet(tmp_path, columns)).labels.tolist() == [1, 0]
    (tmp_path / "m.csv").write_text("label,prob_cat,prob_3\n3,0.5,0.5\n0,0.5,0.5\n")
    assert read(tmp_path / "m.csv").labels.tolist() == [1, 0]


@pytest.mark.parametrize("suffix", ["npz", "npy", "csv", "parquet"])
def test_fifos_and_folders(tmp_path, suffix, monkeypatch, capsys):
    os.mkfifo(tmp_path / f"fifo.{suffix}")
    (tmp_path / f"folder.{suffix}").mkdir()
    for name in ("fifo", "folder"):
        with pytest.raises(FileError, match="not a regular file"):
            read(tmp_path / f"{name}.{suffix}")
    assert "not a regular file" in refused(
        monkeypatch, capsys, "evaluate", str(tmp_path / f"fifo.{suffix}")
    )
    np.save(tmp_path / "m.npy", PROBS)
    os.mkfifo(tmp_path / "y.npy")
    with pytest.raises(FileError, match=r"y.npy: not a regular file"):
        read(tmp_path / "m.npy", kind="probs", labels=tmp_path / "y.npy")


def test_names_that_are_not_text(tmp_path, monkeypatch, capsys):
    """A file name of other bytes than UTF-8 is shown with escapes, and the page and row are
    written.
    """
    probs = RNG.dirichlet(np.ones(3), 200)
    path = tmp_path / os.fsdecode(b"caf\xe9.npz")
    np.savez(tmp_path / "m.npz", probs=probs, labels=RNG.integers(0, 3, 200))
    (tmp_path / "m.npz").rename(path)
    run(monkeypatch, "evaluate", str(path), "--resamples", "20", "--out", str(tmp_path / "out"))
    assert "caf\\udce9" in capsys.readouterr().out
    written = {file.name: file.read_text() for file in (tmp_path / "out").iterdir()}
    assert set(written) == {"caf\\udce9.report.html", "caf\\udce9.row.json"}
    assert "caf\\udce9" in written["caf\\udce9.report.html"]
    assert json.loads(written["caf\\udce9.row.json"])["name"] == "caf\\udce9"
    path.write_bytes(b"nothing")
    assert "caf\\udce9.npz: not a readable .npz file" in refused(
        monkeypatch, capsys, "evaluate", str(path)
    )
    assert "caf\\udce9.txt: " in refused(
        monkeypatch, capsys, "evaluate", str(path.with_suffix(".txt"))
    )


def seeds():
    buffers = []
    for array in (PROBS, LABELS):
        buffers.append((".npy", plain(array)))
    for compressed in (False, True):
        buffer = io.BytesIO()
        (np.savez_compressed if compressed else np.savez)(buffer, probs=PROBS, labels=LABELS)
        buffers.append((".npz", buffer.getvalue()))
    buffers.append((".csv", (HEADER + '0,0.25,0.75\n"1",0.5,0.5\n').encode()))
    for columns in (two(), two(label=["0", "1"]), {"probs": [[0.5, 0.5]], "label": [0]}):
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
        buffers.append((".parquet", buffer.getvalue()))
    return buffers


pieces = st.binary(max_size=8) | st.sampled_from(
    [b"\xff" * 8, b"-1", b"9" * 25, b'"', b",", b"\n", b"\0" * 4, b"\x7f\xff\xff\xff"]
)


@pytest.mark.slow
@given(
    st.sampled_from(seeds()),
    st.lists(st.tuples(st.integers(0, 10_000), pieces, st.booleans()), min_size=1, max_size=4),
)
@settings(max_examples=300)
def test_any_damage(tmp_path_factory, seed, changes):
    """Bytes written over or put in between: an answer, or a ValueError, and nothing else."""
    suffix, data = seed[0], bytearray(seed[1])
    for place, piece, over in changes:
        start = place % (len(data) + 1)
        data[start : start + len(piece) * over] = piece
    path = tmp_path_factory.getbasetemp() / f"damaged{suffix}"
    path.write_bytes(data)
    try:
        found = read(path, kind="probs", labels=path if suffix == ".npy" else None)
        found.bins()
    except ValueError:
        return
    assert len(found.scores) == len(found.labels)


@given(st.text(st.sampled_from('01.,-e"\nlabeprob_x \r'), max_size=60))
@settings(max_examples=300)
def test_any_csv(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text(HEADER + text)
    try:
        found = tables.read_csv(path)
    except FileError:
        return
    assert found.arrays["probs"].shape == (len(found.arrays["labels"]), 2)
