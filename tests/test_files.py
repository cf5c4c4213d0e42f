import pytest

from maccal.files import write


def test_writes_text_and_bytes_into_new_folders(tmp_path):
    assert write(tmp_path / "a" / "b.txt", "ä").read_bytes() == "ä".encode()
    assert write(tmp_path / "a" / "b.txt", b"\x00\x01").read_bytes() == b"\x00\x01"


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    target = write(tmp_path / "row.json", "old")

    def fails(self, data):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.write_bytes", fails)
    with pytest.raises(OSError, match="disk full"):
        write(target, "new")
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["row.json"]
