"""Rows of features: the checks, one pass of statistics, and shuffles of sets that do not fit in memory."""

import numpy as np
import pytest
import torch

from maccal.cache import Writer
from maccal.rows import RUN, Rows


def features(n=1000, d=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(n, d, generator=generator) + 7, torch.arange(n) % 4


def small(z, y, pool=256):
    """Rows of a set that is said not to fit, in pools of about `pool` rows."""
    return Rows(z, y, "z", in_memory=0, pool=4 * z.shape[1] * pool)


def test_mean_and_scale():
    """The mean of every feature, one scale for all; exact where the mean is large against the spread."""
    z, y = features()
    rows = Rows(1e4 + z, y, "z")
    double = (1e4 + z).double()
    assert torch.allclose(rows.measured.centre, double.mean(0).float())
    assert rows.measured.scale == pytest.approx(float((double - double.mean(0)).square().mean().sqrt()), rel=1e-6)
    assert Rows(torch.ones(3, 2), torch.tensor([0, 1, 0]), "z").measured.scale == 1


@pytest.mark.parametrize("in_memory", [True, False])
def test_an_epoch_is_every_row_once(in_memory):
    """Each head sees every row with its own label, in its own order, a new one in each epoch; the same seed the same."""
    z, y = features(1003)
    y = torch.arange(1003)
    rows = Rows(z, y, "z") if in_memory else small(z, y)
    rows.use(rows.measured)
    expected = rows.measured(z)
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
    """A file sorted by class: every batch still holds many classes, and neighbours in the file are parted."""
    n = 40 * RUN
    z, y = torch.arange(n, dtype=torch.float32)[:, None].expand(n, 2).contiguous(), torch.arange(n) // (n // 20)
    rows = small(z, y, pool=16 * RUN)
    rows.use(rows.measured)
    batches = list(rows.epoch([torch.Generator().manual_seed(0)], 128))
    assert min(len(label.unique()) for _, label in batches[:16]) >= 8
    order = torch.cat([x[0, :, 0] for x, _ in batches])
    assert float(((order[1:] - order[:-1]).abs() < 1.5 / rows.measured.scale).float().mean()) < 0.02


@pytest.mark.parametrize("kind", ["numpy", "cache", "view"])
def test_mapped_files(tmp_path, kind):
    """Whatever maps a file gives the same rows; a file mapping is opened anew, a view of one is kept as it is."""
    z, y = features()
    z = z.half()
    file = tmp_path / "z.bin"
    np.concatenate([np.zeros((1, 5), np.float16), z.numpy()]).tofile(file)
    if kind == "cache":
        with Writer(tmp_path) as writer:
            writer.add(z, y, y)
            source = writer.finish("weights", "head").map()
    elif kind == "numpy":
        source = np.memmap(file, np.float16, "r", 10, (1000, 5))
    else:
        source = np.memmap(file, np.float16, "r", 0, (1001, 5))[1:]
    rows = small(source, y)
    first, second = rows.open(), rows.open()
    assert torch.equal(first, z)
    assert (first.data_ptr() == second.data_ptr()) == (kind == "view")
    rows.use(rows.measured)
    assert torch.equal(torch.cat([x for x, _ in rows.chunks()]), rows.measured(z))


@pytest.mark.parametrize("row", [0, 1, 9_000])
def test_not_a_number(row):
    z, y = features(10_000)
    z[row, 3] = float("inf")
    with pytest.raises(ValueError, match=f"val row {row} holds a value that is not finite"):
        Rows(z, y, "val")
