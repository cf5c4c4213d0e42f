"""Files that are written by the rules of their format and hold what nobody expects: types, shapes,
sizes, text, kinds.

WRITERS    format -> a function of a random generator and the specimen's bytes: a new file's bytes
SPECIAL    things that are no regular file, in the place of one
"""

import contextlib
import io
import json
import os
import pickle
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**63,
    10**400,
    0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "ä\u202e\0",
    "9" * 5000,
    [],
    {},
    [[]],
    [1, "a"],
    {"a": 1},
    [None] * 3,
)
DEEP = "[" * 100_000 + "]" * 100_000


# JSON: a sound object with something else in it, sealed again if it was


def changed(value: Any, rng: random.Random) -> Any:
    """The value with one part, at any depth, replaced, removed or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        if rng.random() < 0.15:
            return {name: part for name, part in value.items() if name != key}
        if rng.random() < 0.15:
            return {**value, rng.choice(["", "extra", "format", "ä"]): rng.choice(ODD)}
        return {**value, key: changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        return [*value[:place], changed(value[place], rng), *value[place + 1 :]]
    return rng.choice(ODD)


def odd_json(rng: random.Random, specimen: bytes) -> bytes:
    from maccal.io import sealed

    values = json.loads(specimen)
    kind = str(values.get("format", "")).removeprefix("maccal ") if isinstance(values, dict) else ""
    if kind:
        values = {key: value for key, value in values.items() if key not in ("format", "checksum")}
    for _ in range(rng.choice((1, 1, 2, 5))):
        values = changed(values, rng)
    if rng.random() < 0.02:
        return f'{{"a": {DEEP}}}'.encode()
    if kind and isinstance(values, dict):
        with contextlib.suppress(ValueError):  # numbers that cannot be sealed
            values = sealed(values, kind)
    return json.dumps(values).encode()


def odd_safetensors(rng: random.Random, specimen: bytes) -> bytes:
    """Another header before the same bytes."""
    size = int.from_bytes(specimen[:8], "little")
    header = json.loads(specimen[8 : 8 + size])
    for _ in range(rng.choice((1, 2, 4))):
        header = changed(header, rng)
    text = json.dumps(header).encode()
    length = rng.choice([len(text)] * 8 + [0, 2**63, 2**64 - 1, len(text) + 1])
    return length.to_bytes(8, "little") + text + specimen[8 + size :]


# Arrays


DESCRIPTIONS = (
    "'<f8'",
    "'<f4'",
    "'<f2'",
    "'>f8'",
    "'<i8'",
    "'<u8'",
    "'|u1'",
    "'|b1'",
    "'|O'",
    "'<U5'",
    "'|S3'",
    "'<c16'",
    "'<M8[s]'",
    "'|V8'",
    "'<f16'",
    "[('probs', '<f8', (3,)), ('labels', '<i8')]",
    "[('a', '|O')]",
    "'f8,f8'",
    "None",
    "'x'",
    "''",
)
SHAPES = (
    "(30, 3)",
    "(30,)",
    "()",
    "(0, 3)",
    "(30, 0)",
    "(1000000000000,)",
    "(-1,)",
    "(2, 3, 4)",
    "(30.0, 3)",
    "30",
    "('a',)",
    "(True, 3)",
    "(4611686018427387904, 4)",
    "(1, 90)",
    "(90, 1)",
)


def odd_npy(rng: random.Random, specimen: bytes = b"") -> bytes:
    order = rng.choice(("False", "False", "True", "1", "None"))
    description = rng.choice(DESCRIPTIONS)
    shape = rng.choice(SHAPES)
    text = f"{{'descr': {description}, 'fortran_order': {order}, 'shape': {shape}, }}"
    if rng.random() < 0.05:
        text = rng.choice(
            (DEEP[:5000], "(" * 500, "{" * 9999, "__import__('os')", text + "\\", "1" * 60_000)
        )
    version = rng.choice((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    data = (text + "\n").encode()
    size = struct.pack(
        "<H" if version[0] == 1 else "<I", min(len(data) + rng.choice((0, 0, 0, 0, 1, -1)), 65535)
    )
    return b"\x93NUMPY" + version + size + data + rng.randbytes(rng.choice((0, 8, 240, 720)))


def sound_npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def some_array(rng: random.Random) -> np.ndarray:
    n, k = rng.choice((0, 1, 30)), rng.choice((0, 1, 3))
    return rng.choice(
        [
            np.full((n, k), 1 / max(k, 1)),
            np.zeros(n, np.int64),
            np.zeros((n, k), np.uint64),
            np.full(n, 2**40),
            np.zeros(()),
            np.full((n, k), np.nan),
            np.array(["a"] * n),
            np.array([{}] * n, object),
            np.zeros((n, 2, k)),
            np.zeros(n, "M8[s]"),
        ]
    )


NAMES = ("probs", "logits", "labels", "z", "y", "weight", "bias", "val_z", "probs", "labels")


def odd_npz(rng: random.Random, specimen: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for _ in range(rng.choice((0, 1, 2, 2, 3, 5))):
            name = rng.choice((*NAMES, "../x", "ä" * 200, "a/b", "a\0")) + rng.choice(
                (".npy", ".npy", ".npy", "")
            )
            data = odd_npy(rng) if rng.random() < 0.3 else sound_npy(some_array(rng))
            method = rng.choice(
                (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
            )
            with_warnings_off(partial(archive.writestr, name, data, method))
    whole = bytearray(buffer.getvalue())
    # flags (encrypted), then the method of compression
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = whole.find(mark)
        if place >= 0 and rng.random() < 0.2:
            whole[place + offset + rng.choice((0, 2))] ^= rng.choice((1, 8, 64, 255))
    return bytes(whole)


def with_warnings_off(work: Callable[[], object]) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work()


def bomb(rng: random.Random, specimen: bytes = b"") -> bytes:
    """Sound predictions and an array that nobody asked for.

    Four gigabytes of zeros in four megabytes.
    """
    block = 1 << 20
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = sound_npy(np.zeros(0))[:0] + b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    text = (
        f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({4000 * block},), }}".ljust(117)
        + "\n"
    )
    first = packer.compress(head + text.encode()) + packer.flush(zlib.Z_FULL_FLUSH)
    one = packer.compress(bytes(block)) + packer.flush(zlib.Z_FULL_FLUSH)
    data = first + one * 4000 + packer.flush()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("probs.npy", sound_npy(np.full((4, 2), 0.5)))
        archive.writestr("labels.npy", sound_npy(np.zeros(4, np.int64)))
        info = zipfile.ZipInfo(rng.choice(("unused.npy", "probs.npy")))
        with_warnings_off(lambda: archive.writestr(info, data))
    raw = buffer.getvalue()
    size = struct.pack("<I", len(head) + len(text) + 4000 * block)
    for mark, method, length in ((b"PK\x03\x04", 8, 22), (b"PK\x01\x02", 10, 24)):
        place = raw.rfind(mark)
        raw = raw[: place + method] + b"\x08\x00" + raw[place + method + 2 :]
        raw = raw[: place + length] + size + raw[place + length + 4 :]
    return raw


# Tables


CELLS = (
    "0",
    "1",
    "2",
    "0.2",
    "0.5",
    "1e400",
    "-1",
    "nan",
    "inf",
    "",
    " ",
    "x",
    "12345678901234567890",
    "9" * 400,
    "0x1p3",
    "١",
    "²",
    '"',
    '"a,b"',
    "'",
    "#",
    "1_0",
    "True",
    "\t",
    "\ufeff0",
    "a" * 200_000,
    "1" * 140_000,
    "\\",
    "0.3333333333333333",
)
HEADERS = (
    "label,prob_0,prob_1,prob_2",
    "labels,logit_0,logit_1,logit_2",
    "label,prob_a,prob_b,prob_c",
    "label,labels,prob_0,prob_1",
    "label,prob_0,logit_1",
    "prob_0,prob_1",
    "label,prob_0,prob_0",
    "label,prob_1,prob_2",
    "label,prob_,prob_1",
    "label",
    "",
    "label,prob_²,prob_1",
    "label," + ",".join(f"prob_{i}" for i in range(3000)),
    ",,,",
    '"label","prob_0","prob_1","prob_2"',
    "label,prob_0,prob_99999999999999999999",
    "\ufefflabel,prob_0,prob_1,prob_2",
)


def odd_csv(rng: random.Random, specimen: bytes = b"") -> bytes:
    lines = [rng.choice(HEADERS[:3] if rng.random() < 0.7 else HEADERS)]
    for _ in range(rng.choice((0, 1, 3, 10))):
        cells = ["0", "0.2", "0.3", "0.5"]
        for _ in range(rng.choice((0, 1, 1, 2))):
            cells[rng.randrange(4)] = rng.choice(CELLS)
        lines.append(",".join(cells[: rng.choice((4, 4, 4, 3, 0))]))
    data = rng.choice(("\n", "\n", "\r\n", "\r")).join(lines).encode(errors="surrogatepass")
    if rng.random() < 0.1:
        place = rng.randrange(len(data) + 1)
        data = data[:place] + rng.choice((b"\xff\xfe", b"\0", b"\x80", b"\n\n\n")) + data[place:]
    return data


def odd_parquet(rng: random.Random, specimen: bytes = b"") -> bytes:
    import datetime
    import decimal

    import pyarrow as pa
    import pyarrow.parquet

    n = rng.choice((0, 1, 5))
    values: list[Any] = [
        [0.5] * n,
        [0] * n,
        [None] * n,
        ["a"] * n,
        [b"a"] * n,
        [True] * n,
        [{"a": 1}] * n,
        [[0.5, 0.5]] * n,
        [[[0.5]]] * n,
        [[0.5, None]] * n,
        [[0.5], [0.5, 0.5], None, [], [1.0]][:n],
        [datetime.date(2020, 1, 1)] * n,
        [2**62] * n,
        [decimal.Decimal("0.5")] * n,
        [float("nan")] * n,
        [[]] * n,
        pa.array([0.5] * n).dictionary_encode(),
        pa.array(["0"] * n).dictionary_encode(),
        pa.array([0.5] * n, pa.float16()),
        pa.array([1] * n, pa.uint64()),
        pa.array([(1, 2)] * n, pa.map_(pa.int64(), pa.int64())) if n == 0 else [0.5] * n,
    ]
    names = [
        "label",
        rng.choice(("prob_0", "probs", "logits", "logit_0")),
        rng.choice(("prob_1", "labels", "x", "logits")),
    ]
    columns = [[0] * n, rng.choice(values), rng.choice(values)]
    if rng.random() < 0.4:
        columns[0] = rng.choice(values)
    if rng.random() < 0.1:
        names[2] = names[1]
    table = pa.Table.from_arrays(
        [column if isinstance(column, pa.Array) else pa.array(column) for column in columns], names
    )
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def many_rows(rng: random.Random, specimen: bytes = b"") -> bytes:
    """A hundred million rows in a few kilobytes: the same numbers over and over."""
    import pyarrow as pa
    import pyarrow.parquet

    part = pa.table(
        {
            "label": pa.array([0] * 100_000, pa.int8()),
            "prob_0": [0.5] * 100_000,
            "prob_1": [0.5] * 100_000,
        }
    )
    buffer = io.BytesIO()
    with pyarrow.parquet.ParquetWriter(buffer, part.schema) as writer:
        writer.write_table(pa.concat_tables([part] * 1000), row_group_size=100_000_000)
    return buffer.getvalue()


# Pickles, matrices and lists of data sets


OPCODES = [
    getattr(pickle, name)
    for name in dir(pickle)
    if name.isupper() and isinstance(getattr(pickle, name), bytes)
]
GLOBALS = (
    b"numpy\nndarray\n",
    b"numpy\ndtype\n",
    b"numpy.core.multiarray\n_reconstruct\n",
    b"_codecs\nencode\n",
    b"os\nsystem\n",
)


def odd_pickle(rng: random.Random, specimen: bytes = b"") -> bytes:
    """Opcodes put into a sound pickle, or alone."""
    parts = []
    for _ in range(rng.choice((1, 2, 5, 20))):
        code = rng.choice(OPCODES)
        tail = (
            rng.choice(GLOBALS)
            if code in (pickle.GLOBAL, pickle.INST)
            else rng.randbytes(rng.choice((0, 1, 4, 8)))
        )
        parts.append(code + tail)
    data = b"".join(parts)
    if rng.random() < 0.7:
        place = rng.choice((0, 2, len(specimen) - 1, rng.randrange(len(specimen))))
        return specimen[:place] + data + specimen[place:]
    return b"\x80\x02" + data + b"."


def other_pickle(rng: random.Random, specimen: bytes = b"") -> bytes:
    """A sound pickle of something else."""
    n = rng.choice((0, 1, 4))
    data: Any = rng.choice(
        [
            np.zeros((n, 3072), np.uint8),
            np.zeros((n, 3072)),
            np.zeros((n, 3)),
            [],
            None,
            b"",
            some_array(rng),
        ]
    )
    labels: Any = rng.choice(
        [
            [0] * n,
            [0.5] * n,
            [10**30] * n,
            [-1] * n,
            ["a"] * n,
            [None] * n,
            [[0]] * n,
            None,
            3,
            {},
            [2**40] * n,
        ]
    )
    content: Any = {
        b"data": data,
        b"labels": labels,
        b"fine_labels": labels,
        b"label_names": labels,
    }
    if rng.random() < 0.1:
        content = rng.choice([[], 3, None, b"x", {}, {"data": 3}])
    return pickle.dumps(content, rng.choice((0, 1, 2, 2, 2, 3, 4, 5)))


def odd_mat(rng: random.Random, specimen: bytes = b"") -> bytes:
    from scipy.io import savemat

    n = rng.choice((0, 1, 6))
    images = rng.choice(
        [
            np.zeros((32, 32, 3, n), np.uint8),
            np.zeros((32, 32, 3), np.uint8),
            np.zeros((3, 3, 3, n)),
            "X",
            {"a": 1},
        ]
    )
    ones = np.ones((n, 1))
    labels = rng.choice(
        [
            ones.astype(np.uint8),
            np.ones(n),
            ones / 2,
            ones * np.nan,
            ones * 0,
            "y",
            ones * 1j,
            np.array([{"a": 1}] * n, object),
        ]
    )
    buffer = io.BytesIO()
    savemat(buffer, {"X": images, "y": labels}, do_compression=rng.random() < 0.5)
    return buffer.getvalue()


def odd_list(rng: random.Random, specimen: bytes = b"") -> bytes:
    words = ("val_0.JPEG", "../../x", "/etc/passwd", "", "ä", "n01", "n02", "\0", "." * 5000, "0")
    lines = [
        "\t".join(rng.choice(words) for _ in range(rng.choice((0, 1, 2, 6))))
        for _ in range(rng.choice((0, 1, 5)))
    ]
    return "\n".join(lines).encode() + rng.choice((b"", b"\n", b"\xff"))


def odd_jpeg(rng: random.Random, specimen: bytes = b"") -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    size = rng.choice(((64, 64), (1, 1), (64, 65), (3000, 3000)))
    kind, mode = rng.choice(
        (
            ("JPEG", "RGB"),
            ("JPEG", "L"),
            ("JPEG", "CMYK"),
            ("PNG", "RGBA"),
            ("PNG", "P"),
            ("GIF", "P"),
            ("BMP", "1"),
        )
    )
    Image.new(mode, size).save(buffer, kind)
    return buffer.getvalue()


Writer = Callable[[random.Random, bytes], bytes]
WRITERS: dict[str, tuple[Writer, ...]] = {
    "config.json": (odd_json,),
    "row.json": (odd_json,),
    "model.safetensors": (odd_safetensors,),
    "head.safetensors": (odd_safetensors,),
    "features of a cache": (odd_safetensors,),
    "predictions .npz": (
        odd_npz,
        odd_npz,
        odd_npz,
        odd_npz,
        odd_npz,
        odd_npz,
        odd_npz,
        odd_npz,
        odd_npz,
        bomb,
    ),
    "predictions .npy": (odd_npy, lambda rng, data: sound_npy(some_array(rng))),
    "labels .npy": (odd_npy, lambda rng, data: sound_npy(some_array(rng))),
    "predictions .csv": (odd_csv,),
    "predictions .parquet": (odd_parquet,),
    "CIFAR-10 pickle": (odd_pickle, other_pickle),
    "CIFAR names": (odd_pickle, other_pickle),
    "SVHN .mat": (odd_mat,),
    "Tiny ImageNet lists": (odd_list,),
    "Tiny ImageNet JPEG": (odd_jpeg,),
    "CIFAR-C images": (odd_npy,),
    "CIFAR-C labels": (odd_npy, lambda rng, data: sound_npy(some_array(rng))),
}


# No regular file at all


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def empty(path: Path) -> None:
    path.touch()


SPECIAL: dict[str, Callable[[Path], None]] = {
    "a folder": folder,
    "a pipe": pipe,
    "a link to itself": loop,
    "a link to nowhere": nowhere,
    "a link to /dev/zero": endless,
    "an empty file": empty,
}
