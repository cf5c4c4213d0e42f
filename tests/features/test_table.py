"""Tables of features: checks, statistics in one pass, shuffles of sets larger than memory."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from maccal.features import mapped
from maccal.features.mapped import MAPPED, FeatureFile, own_copy
from maccal.features.table import RUN, FeatureTable, Standard
from maccal.io import FileError


def features(n=1000, d=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(n, d, generator=generator) + 7, torch.arange(n) % 4


def small(z, y, pool=256):
    """Rows of a set that is said not to fit, in pools of about `pool` rows."""
    return FeatureTable(z, y, "z", in_memory=0, pool=4 * z.shape[1] * pool)


def test_mean_and_scale():
    """The mean of every feature, one scale for all.

    Exact where the mean is large against the spread.
    """
    z, y = features()
    table = FeatureTable(1e4 + z, y, "z")
    double = (1e4 + z).double()
    assert torch.allclose(table.measured.centre, double.mean(0).float())
    assert table.measured.scale == pytest.approx(
        float((double - double.mean(0)).square().mean().sqrt()), rel=1e-6
    )
    assert FeatureTable(torch.ones(3, 2), torch.tensor([0, 1, 0]), "z").measured.scale == 1


@pytest.mark.parametrize("in_memory", [True, False])
def test_one_table_standardised_twice(in_memory):
    """Neither changes the other, or the table."""
    z, y = features()
    table = FeatureTable(z, y, "z") if in_memory else small(z, y)
    standards = [table.measured, Standard(torch.ones(5), 2.0)]
    both = [table.standardised(standard) for standard in standards]
    for rows, standard in zip(both, standards, strict=True):
        assert torch.equal(torch.cat([x for x, _ in rows.chunks()]), standard(z))
    assert torch.equal(table.raw(0), z[:1024])


@pytest.mark.parametrize("in_memory", [True, False])
def test_an_epoch_is_every_row_once(in_memory):
    """Each head sees every row with its own label, in its own order, a new one in each epoch.

    The same seed the same.
    """
    z, y = features(1003)
    y = torch.arange(1003)
    table = FeatureTable(z, y, "z") if in_memory else small(z, y)
    rows = table.standardised(table.measured)
    expected = table.measured(z)
    orders = []
    for seeds in ((1, 2), (1, 2)):
        generators = [torch.Generator().manual_seed(s) for s in seeds]
        for _ in range(2):
            batches = list(rows.epoch(generators, 64))
            assert len(batches) == rows.steps(64)
            labels = torch.cat([label for _, label in batches], 1)
            assert torch.equal(torch.cat([x for x, _ in batches], 1), expected[labels])
            assert torch.equal(labels.sort(1).values, torch.arange(1003).expand(2, -1))
            orders.append(labels)
    assert torch.equal(orders[0], orders[2])
    assert torch.equal(orders[1], orders[3])
    assert not torch.equal(orders[0], orders[1])
    assert not torch.equal(orders[0][0], orders[0][1])


def test_large_sets_are_mixed_across_the_file():
    """A file sorted by class.

    Every batch still holds many classes, and neighbours in the file are parted.
    """
    n = 40 * RUN
    z, y = (
        torch.arange(n, dtype=torch.float32)[:, None].expand(n, 2).contiguous(),
        torch.arange(n) // (n // 20),
    )
    table = small(z, y, pool=16 * RUN)
    rows = table.standardised(table.measured)
    batches = list(rows.epoch([torch.Generator().manual_seed(0)], 128))
    assert min(len(label.unique()) for _, label in batches[:16]) >= 8
    order = torch.cat([x[0, :, 0] for x, _ in batches])
    assert (
        float(((order[1:] - order[:-1]).abs() < 1.5 / table.measured.scale).float().mean()) < 0.02
    )


def raw(source, y):
    """All rows, as they come out of pools that do not fit in memory."""
    return torch.cat(
        [x for x, _ in small(source, y).standardised(Standard(torch.zeros(5), 1.0)).chunks()]
    )


def map_of(kind, z, y, folder):
    """The same rows, mapped in different ways."""
    file = folder / "z.bin"
    np.concatenate([np.zeros((1, 5), np.float16), z.numpy()]).tofile(file)
    if kind == "cache":
        return own_copy([memoryview(file.read_bytes())[10:]], (1000, 5), torch.float16, folder)
    if kind == "fortran":
        z.numpy().T.tofile(file)
        return np.memmap(file, np.float16, "r", 0, (1000, 5), "F")
    if kind == "view":
        return np.memmap(file, np.float16, "r", 0, (1001, 5))[1:]
    return np.memmap(file, np.float16, kind, 10, (1000, 5))


@pytest.mark.parametrize("kind", ["r", "r+", "c", "view", "fortran", "cache"])
def test_mapped_files(tmp_path, monkeypatch, kind):
    """Whatever maps a file gives the same rows.

    The file is read, so that no page of the map stays in memory.
    """
    monkeypatch.setattr(mapped, "IN_MEMORY", 0)
    z, y = features()
    z = z.half()
    source = map_of(kind, z, y, tmp_path)
    assert isinstance(small(source, y).source, FeatureFile) == (kind in ("r", "r+", "cache"))
    assert torch.equal(raw(source, y), z.float())


@pytest.mark.parametrize("kind", ["r+", "c", "cache"])
def test_what_was_written_to_a_map_counts(tmp_path, monkeypatch, kind):
    """Also where it does not reach the file."""
    monkeypatch.setattr(mapped, "IN_MEMORY", 0)
    z, y = features()
    z = z.half()
    source = map_of(kind, z, y, tmp_path)
    source[3:7] = 5
    z[3:7] = 5
    assert torch.equal(raw(source, y), z.float())


def test_only_the_mapped_tensor_itself_has_a_file(tmp_path, monkeypatch):
    """Not its copies and views, and it no more once it was written to."""
    monkeypatch.setattr(mapped, "IN_MEMORY", 0)
    z, y = features()
    source = map_of("cache", z.half(), y, tmp_path)
    assert isinstance(MAPPED.file_of(source), FeatureFile)
    for other in (source.clone(), source[1:], pickle.loads(pickle.dumps(source))):
        assert MAPPED.file_of(other) is None
    source[0, 0] = 1
    assert MAPPED.file_of(source) is None


def test_a_map_whose_file_was_replaced_or_deleted(tmp_path):
    """The map is what was asked for, not what has its name now."""
    z, y = features()
    z = z.half()
    source = map_of("r", z, y, tmp_path)
    (tmp_path / "other").mkdir()
    other = map_of("r", z.flip(0), y, tmp_path / "other")
    Path(other.filename).replace(source.filename)
    assert torch.equal(raw(source, y), z.float())
    Path(source.filename).unlink()
    assert torch.equal(raw(source, y), z.float())


def test_a_file_that_is_cut_is_an_error(tmp_path):
    """A map of it would end the process: SIGBUS."""
    z, y = features()
    source = map_of("r", z.half(), y, tmp_path)
    table = small(source, y)
    rows = table.standardised(table.measured)
    os.truncate(source.filename, 5000)
    with pytest.raises(FileError, match=r"z\.bin: has become shorter"):
        list(rows.epoch([torch.Generator().manual_seed(0)], 64))
    with pytest.raises(FileError, match=r"z\.bin: has become shorter"):
        small(source, y)


@pytest.mark.parametrize("row", [0, 1, 9_000])
def test_not_a_number(row):
    z, y = features(10_000)
    z[row, 3] = float("inf")
    with pytest.raises(ValueError, match=f"val row {row} holds a value that is not finite"):
        FeatureTable(z, y, "val")


def test_a_label_that_is_no_class_index():
    """One such label would ask for terabytes."""
    with pytest.raises(ValueError, match=r"label 1,099,511,627,775 of z is no class index"):
        FeatureTable(torch.ones(3, 2), torch.tensor([0, 1, (1 << 40) - 1]), "z")
