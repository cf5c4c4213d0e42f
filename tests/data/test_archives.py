"""Archives that are well, hostile, or damaged: all of one or nothing of it."""

import contextlib
import gzip
import io
import os
import shutil
import stat
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maccal.data.download import archives
from maccal.data.download.archives import unpack
from maccal.io import FileError

FILES = {"set/a.txt": b"alpha", "set/deep/er/b.bin": bytes(range(256)) * 5000, "set/empty": b""}
KINDS = ["s.tar", "s.tar.gz", "s.zip"]


def info(name, size=0, **fields):
    made = tarfile.TarInfo(name)
    made.size = size
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def tar(path, members):
    """Members are (TarInfo, bytes)."""
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as tape:
        for header, data in members:
            tape.addfile(header, io.BytesIO(data))
    return path


def pack(path, files):
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, data in files.items():
                packed.writestr(name, data)
        return path
    return tar(path, [(info(name, len(data)), data) for name, data in files.items()])


def refused(tmp_path, archive, match, limit=10**7, expected=()):
    """It raises, naming the archive; nothing was written but what was there before."""
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    with pytest.raises(FileError, match=match) as caught:
        unpack(archive, root, "set", limit=limit, expected=expected)
    assert archive.name in str(caught.value)
    assert list(root.iterdir()) == []
    assert {p.name for p in tmp_path.iterdir()} == {"root", archive.name}


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_it(tmp_path, kind):
    archive = pack(tmp_path / kind, {**FILES, "beside.txt": b"not of the set"})
    folder = unpack(
        archive, tmp_path / "not" / "yet", "set", limit=10**7, expected=["a.txt", "deep/er/b.bin"]
    )
    assert {
        f"set/{p.relative_to(folder).as_posix()}": p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file()
    } == FILES
    assert [p.name for p in folder.parent.iterdir()] == ["set"]
    assert not (folder / "a.txt").stat().st_mode & stat.S_IXUSR


def test_folders_may_be_listed(tmp_path):
    members = [
        (info("./", type=tarfile.DIRTYPE), b""),
        *[(info("./set/", type=tarfile.DIRTYPE), b"")] * 2,
        (info("./set/a", 1), b"a"),
    ]
    assert (
        unpack(tar(tmp_path / "s.tar", members), tmp_path, "set", limit=10) / "a"
    ).read_bytes() == b"a"


BAD_NAMES = [
    "../evil",
    "set/../../evil",
    "/tmp/evil",
    "C:/evil",
    "C:evil",
    "set\\..\\..\\evil",
    "\\\\host\\evil",
    "set/.. /evil",
    "se\nt",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BAD_NAMES)
def test_paths_that_leave(tmp_path, kind, name):
    archive = pack(tmp_path / kind, {"set/a": b"a", name: b"evil"})
    refused(tmp_path, archive, "not a relative path|leaves the folder")


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"type": tarfile.SYMTYPE, "linkname": "/tmp"}, "a link; only files and folders"),
        ({"type": tarfile.LNKTYPE, "linkname": "set/a"}, "a link; only files and folders"),
        ({"type": tarfile.CHRTYPE}, "a device"),
        ({"type": tarfile.BLKTYPE}, "a device"),
        ({"type": tarfile.FIFOTYPE}, "a device, pipe"),
        ({"type": tarfile.GNUTYPE_SPARSE}, "a device, pipe or sparse file"),
        ({"type": b"?"}, "set/x"),
    ],
)
def test_tar_members_that_are_no_files(tmp_path, fields, match):
    """Nor what would be written through a link."""
    archive = tar(
        tmp_path / "s.tar",
        [(info("set/a", 1), b"a"), (info("set/x", **fields), b""), (info("set/x/evil", 1), b"e")],
    )
    refused(tmp_path, archive, match)


def zipped(path, name, data=b"", **fields):
    made = zipfile.ZipInfo(name)
    made.compress_type = zipfile.ZIP_DEFLATED
    for field, value in fields.items():
        setattr(made, field, value)
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("set/a", b"a")
        packed.writestr(made, data)
    return path


@pytest.mark.parametrize(
    ("mode", "match"),
    [(stat.S_IFLNK, "a link"), (stat.S_IFIFO, "pipe"), (stat.S_IFCHR, "a device")],
)
def test_zip_members_that_are_no_files(tmp_path, mode, match):
    refused(
        tmp_path,
        zipped(
            tmp_path / "s.zip",
            "set/x",
            b"/tmp",
            create_system=3,
            external_attr=(mode | 0o777) << 16,
        ),
        match,
    )


def test_a_zip_with_a_zero_byte_in_a_name(tmp_path):
    """zipfile itself would take the name to end there."""
    archive = pack(tmp_path / "s.zip", {"set/a": b"a", "set/b?c": b"b"})
    archive.write_bytes(archive.read_bytes().replace(b"b?c", b"b\0c"))
    refused(tmp_path, archive, "not a relative path")


def test_bombs(tmp_path, monkeypatch):
    """A declared size is enough to refuse; too many files are, too."""
    refused(
        tmp_path,
        zipped(tmp_path / "s.zip", "set/zeros", bytes(10**7)),
        r"set/zeros: more than 1,000,000 bytes",
        limit=10**6,
    )
    (tmp_path / "s.zip").unlink()
    (tmp_path / "s.tar").write_bytes(info("set/huge", 1 << 60).tobuf(tarfile.GNU_FORMAT))
    refused(tmp_path, tmp_path / "s.tar", "set/huge: more than")
    (tmp_path / "s.tar").unlink()
    refused(
        tmp_path,
        tar(tmp_path / "s.tar.gz", [(info("set/zeros", 10**7), bytes(10**7))]),
        "set/zeros: more than",
        limit=10**6,
    )
    (tmp_path / "s.tar.gz").unlink()
    monkeypatch.setattr(archives, "MEMBERS", 2)
    refused(tmp_path, pack(tmp_path / "s.tar", FILES), "set/empty: more than")


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_header_of_gigabytes(tmp_path, kind, packed):
    """It is refused before it is read.

    A sparse file of 4 GB, or a few compressed bytes that unpack to more than they should.
    """
    header = info("set/a", 1 << 32, type=kind).tobuf(tarfile.GNU_FORMAT)
    if packed:
        archive = tmp_path / "s.tar.gz"
        archive.write_bytes(gzip.compress(header + bytes(10**6)))
    else:
        archive = tmp_path / "s.tar"
        archive.write_bytes(header)
        os.truncate(archive, 1 << 33)
    refused(tmp_path, archive, "a header that is too long")


def test_a_header_that_goes_on(tmp_path):
    """The old form of sparse files has a list of any length."""
    first = bytearray(info("set/a", 1, type=tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    first[482] = 1  # it is continued
    more = (b"0" * 504 + b"\x01" + bytes(7)) * 1000
    first[148:156] = b" " * 8
    first[148:156] = b"%06o\0 " % sum(first)
    (tmp_path / "s.tar").write_bytes(bytes(first) + more)
    refused(tmp_path, tmp_path / "s.tar", "a header that is too long")


def test_long_names_are_no_attack(tmp_path):
    name = "set/" + "/".join(["n" * 200] * 10)
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=kind) as tape:
            tape.addfile(info(name, 3), io.BytesIO(b"abc"))
        (tmp_path / "s.tar").write_bytes(buffer.getvalue())
        folder = unpack(tmp_path / "s.tar", tmp_path / str(kind), "set", limit=10)
        assert (folder.parent / name).read_bytes() == b"abc"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_cannot_be_bounded(tmp_path, method):
    refused(
        tmp_path,
        zipped(tmp_path / "s.zip", "set/x", b"x", compress_type=method),
        f"compressed by method {method}",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_archive_but_a_fifo(tmp_path, kind):
    os.mkfifo(tmp_path / kind)
    refused(tmp_path, tmp_path / kind, "not a regular file")


@given(
    st.sampled_from(KINDS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=100)
def test_any_damage(tmp_path_factory, kind, changes):
    """All of it or nothing."""
    base = tmp_path_factory.mktemp("damage")
    archive = pack(base / kind, {"set/a.txt": b"alpha", "set/b": b"beta" * 300})
    data = bytearray(archive.read_bytes())
    for place, value in changes:
        data[place % len(data)] = value
    archive.write_bytes(data)
    with contextlib.suppress(FileError):
        unpack(archive, base / "root", "set", limit=10**5)
    assert {path.name for path in (base / "root").iterdir()} <= {"set"}
    shutil.rmtree(base)


@pytest.mark.parametrize("claimed", [10, 2 * 10**6])
def test_a_zip_that_lies_about_sizes(tmp_path, claimed):
    """Smaller than what is there: no more than that is read, and the sum does not agree. Larger.

    It is found to be short.
    """
    archive = zipped(tmp_path / "s.zip", "set/zeros", bytes(10**6))
    archive.write_bytes(
        archive.read_bytes().replace((10**6).to_bytes(4, "little"), claimed.to_bytes(4, "little"))
    )
    refused(tmp_path, archive, "cannot be unpacked, at set/zeros")


@pytest.mark.parametrize("second", ["set/a", "set/./a", "set//a"])
def test_names_that_come_twice(tmp_path, second):
    refused(
        tmp_path,
        tar(tmp_path / "s.tar", [(info("set/a", 1), b"1"), (info(second, 1), b"2")]),
        "comes twice",
    )


def test_a_file_that_is_a_folder_too(tmp_path):
    refused(
        tmp_path,
        tar(tmp_path / "s.tar", [(info("set/a", 1), b"1"), (info("set/a/b", 1), b"2")]),
        "at set/a/b",
    )


def test_an_encrypted_zip(tmp_path):
    archive = pack(tmp_path / "s.zip", {"set/a": b"a"})
    data = bytearray(archive.read_bytes())
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(mark) + offset] |= 1
    archive.write_bytes(data)
    refused(tmp_path, archive, "encrypted")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"not an archive at all " * 50,
        lambda data: b"",
        lambda data: data[:600] + bytes(b ^ 255 for b in data[600:]),
    ],
)
def test_damaged_archives(tmp_path, kind, damage):
    archive = pack(tmp_path / kind, FILES)
    archive.write_bytes(damage(archive.read_bytes()))
    refused(tmp_path, archive, "cannot be unpacked|holds no", expected=["empty"])


def test_archives_of_something_else(tmp_path):
    refused(
        tmp_path,
        pack(tmp_path / "s.tar", {"other/a": b"a"}),
        r"holds no set/; is it incomplete, or another set\?",
    )
    (tmp_path / "s.tar").unlink()
    refused(
        tmp_path,
        pack(tmp_path / "s.tar", FILES),
        r"holds no set/c.txt",
        expected=["a.txt", "c.txt"],
    )
    (tmp_path / "s.tar").rename(tmp_path / "s.rar")
    refused(tmp_path, tmp_path / "s.rar", "not a .tar, .tar.gz or .zip file")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interruption_leaves_nothing(tmp_path, monkeypatch, error):
    archive, write, calls = pack(tmp_path / "s.tar", FILES), archives.write, []

    def stopping(member, path):
        calls.append(path)
        if len(calls) == 2:
            raise error
        write(member, path)

    monkeypatch.setattr(archives, "write", stopping)
    with pytest.raises(
        (KeyboardInterrupt, FileError), match=r"^$|at set/deep/er/b.bin .*No space left"
    ):
        unpack(archive, tmp_path / "root", "set", limit=10**7)
    assert len(calls) == 2
    assert list((tmp_path / "root").iterdir()) == []


def test_what_is_there_stays(tmp_path):
    archive = pack(tmp_path / "s.tar", FILES)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine").write_text("precious")
    with pytest.raises(FileError, match=r"set: is already there; move it away to unpack s.tar"):
        unpack(archive, tmp_path, "set", limit=10**7)
    assert [p.name for p in (tmp_path / "set").iterdir()] == ["mine"]
