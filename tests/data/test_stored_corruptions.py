"""Corrupted images kept on disk: the same bits, made once, damaged files made again."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from maccal.data.corruptions import Corrupt, folder_of, stored

IMAGES = torch.randint(
    256, (12, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
)
FOG = Corrupt("fog", 3)


@pytest.fixture
def made(monkeypatch):
    """Every corruption that is made, by its kind; each takes a moment."""
    calls, corrupt = [], Corrupt.__call__

    def slowly(self, images):
        calls.append(self.kind)
        time.sleep(0.05)
        return corrupt(self, images)

    monkeypatch.setattr(Corrupt, "__call__", slowly)
    return calls


def test_the_same_bits(made, tmp_path):
    folder = folder_of(IMAGES, tmp_path)
    expected = FOG(IMAGES)
    made.clear()
    for _ in range(3):
        assert torch.equal(stored(FOG, IMAGES, folder), expected)
    assert made == ["fog"]
    assert [file.name for file in folder.glob("*.images")] == ["fog-3-s1.images"]
    assert stored(FOG, IMAGES, folder).is_contiguous()
    stored(FOG, IMAGES, folder)[0] = 0  # the caller's own
    assert torch.equal(stored(FOG, IMAGES, folder), expected)


def test_other_images_seeds_and_severities_have_files_of_their_own(tmp_path):
    folder = folder_of(IMAGES, tmp_path)
    assert folder_of(IMAGES[:11], tmp_path) != folder
    assert folder_of(IMAGES.flip(0), tmp_path) != folder
    assert folder_of(IMAGES.reshape(12, 3, 16, 64), tmp_path) != folder
    assert folder_of(IMAGES.clone(), tmp_path) == folder
    for corrupt in (FOG, Corrupt("fog", 4), Corrupt("fog", 3, seed=2)):
        assert torch.equal(stored(corrupt, IMAGES, folder), corrupt(IMAGES))
    assert len(list(folder.glob("*.images"))) == 3
    # one channel shown three times has no bytes of its own
    grey = IMAGES[:, :1].expand(-1, 3, -1, -1)
    place = folder_of(grey, tmp_path)
    assert torch.equal(stored(FOG, grey, place), FOG(grey))


def test_a_damaged_file_is_made_again(made, tmp_path):
    folder = folder_of(IMAGES, tmp_path)
    expected = stored(FOG, IMAGES, folder)
    file = folder / "fog-3-s1.images"
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:-1] + b"?", b"", b"half a file"):
        file.write_bytes(damaged)
        assert torch.equal(stored(FOG, IMAGES, folder), expected)
        assert file.read_bytes() == whole
    assert len(made) == 5


def test_of_several_at_once_one_makes_it(made, tmp_path):
    """Locks are of open files, so that threads stand for processes here."""
    folder = folder_of(IMAGES, tmp_path)
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: stored(FOG, IMAGES, folder), range(6)))
    assert made == ["fog"]
    assert all(torch.equal(one, found[0]) for one in found)
    assert not list(folder.glob(".*.part"))


def test_images_that_cannot_be_corrupted(tmp_path):
    with pytest.raises(ValueError, match="pass a uint8 tensor of grey levels"):
        folder_of(IMAGES.float(), tmp_path)
    assert not list(tmp_path.iterdir())
