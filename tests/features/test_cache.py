"""Features on disk.

Never anything but what was asked for, nothing half-written, nothing read into memory.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from extraction import Counted, K, Lambda, Stop, X, Y, batches, files, net, same, state, trap
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from maccal.features import mapped
from maccal.features.extraction import Features, extract, replace_head

# passes: three batches, one that finds the head, one that shows that the model is not random
MISS = 3 + 2


def counted():
    return Counted(net())


@pytest.fixture
def large(monkeypatch):
    """Every set counts as too large for memory."""
    monkeypatch.setattr(mapped, "IN_MEMORY", 0)


def mapped_from(tensor):
    """The file whose pages the tensor's memory is, as the kernel sees it."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc/self/maps")
    for line in maps.read_text().splitlines():
        span, *_, name = line.split(maxsplit=5)
        start, stop = (int(end, 16) for end in span.split("-"))
        if start <= tensor.data_ptr() < stop:
            return name
    return None


def test_a_hit_runs_a_few_batches_only(tmp_path):
    model, x = counted(), torch.randn(20_000, 6)
    y = torch.arange(20_000) % K
    made = extract(model, batches(x, y, 200), cache=tmp_path)
    assert model.count == 100 + 2
    # batches of any size are the same rows
    again = extract(model, batches(x, y, 100), cache=str(tmp_path))
    # 1024 rows are 11 batches; two of the chosen rows may share one
    assert 1 + 9 <= model.count - 102 <= 1 + 11
    plain = extract(model, batches(x, y, 200))
    for z, labels in (made, again):
        assert torch.equal(z, plain.z)
        assert torch.equal(labels, plain.y)
    assert isinstance(again, Features)
    assert len(files(tmp_path)) == 1


def test_the_file_is_plain_safetensors(tmp_path):
    for dtype in (torch.float32, torch.bfloat16):
        z, y = extract(
            nn.Sequential(nn.ReLU(), nn.Linear(3, K)),
            [(X[:5, :3], Y[:5])],
            cache=tmp_path / str(dtype),
            dtype=dtype,
        )
        (path,) = (tmp_path / str(dtype)).iterdir()
        with safetensors.safe_open(path, "pt") as file:
            notes = json.loads(file.metadata()["maccal"])
            assert {"format": "maccal features 2", "head": "1"}.items() <= notes.items()
            assert torch.equal(file.get_tensor("z"), z)
            assert torch.equal(file.get_tensor("y"), y)
            assert file.get_tensor("rows").unique().shape == (5,)
        assert z.dtype == dtype
        assert torch.equal(z, X[:5, :3].relu().to(dtype))


def test_z_of_a_large_set_is_a_map_of_a_file_without_a_name(tmp_path, large):
    """Nobody else can cut or change it, and what is written to it stays in memory."""
    model, loader = net(), batches()
    plain = extract(model, loader).z
    for _ in range(2):
        z = extract(model, loader, cache=tmp_path).z
        (path,) = tmp_path.iterdir()
        assert mapped_from(z).startswith(f"{tmp_path}/.")
        assert mapped_from(z).endswith("(deleted)")
        data = path.read_bytes()
        assert torch.equal(z, plain)
        z.add_(1)
        assert path.read_bytes() == data
        assert torch.equal(z, plain + 1)


@pytest.mark.parametrize("in_memory", [0, 1 << 28])
def test_a_shuffling_loader_gets_its_own_order(tmp_path, monkeypatch, in_memory):
    """The label says which row it is.

    Two rows are the same, and one of those comes with another label too.
    """
    x, y = torch.cat([X, X[:1], X[:1]]), torch.cat([Y, Y[:1], Y[:1] + 1])
    monkeypatch.setattr(mapped, "IN_MEMORY", in_memory)
    model = counted()
    plain = extract(model, batches(x, y)).z
    extract(model, batches(x, y), cache=tmp_path)
    for turn in range(3):
        order = torch.randperm(14, generator=torch.Generator().manual_seed(turn))
        z, labels = extract(model, batches(x[order], y[order]), cache=tmp_path)
        assert torch.equal(z, plain[order])
        assert torch.equal(labels, y[order])
        # also when in another order
        assert (mapped_from(z) or "").startswith(str(tmp_path)) == (in_memory == 0)
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    z, labels = extract(model, loader, cache=tmp_path)
    assert torch.equal(z.sort(0).values, plain.sort(0).values)
    assert len(files(tmp_path)) == 1


def change_weight(model, data):
    model.inner[0].weight.data[0, 0] += 1


def change_buffer(model, data):
    model.inner[1].running_var[2] = 2


def change_layer(model, data):
    model.inner[2] = nn.GELU()


def change_option(model, data):
    model.inner[1].eps = 0.1


def change_input(model, data):
    data[0][0][1, 1] += 1


def change_label(model, data):
    data[2][1][0] = (data[2][1][0] + 1) % K


def drop_row(model, data):
    data[2] = (data[2][0][:-1], data[2][1][:-1])


def add_twin(model, data):
    data.append(data[0])


@pytest.mark.parametrize(
    "change",
    [
        change_weight,
        change_buffer,
        change_layer,
        change_option,
        change_input,
        change_label,
        drop_row,
        add_twin,
    ],
)
def test_any_change_is_a_miss(change, tmp_path):
    model, data = counted(), [(x.clone(), y.clone()) for x, y in batches()]
    extract(model, data, cache=tmp_path)
    change(model, data)
    model.count = 0
    made = extract(model, data, cache=tmp_path)
    assert model.count >= len(data) + 2
    plain = extract(model, data)
    assert torch.equal(made.z, plain.z)
    assert torch.equal(made.y, plain.y)
    assert len(files(tmp_path)) == 2


def test_what_is_part_of_the_key(tmp_path):
    """Storage type and autocast make entries of their own.

    The head's own weights and a wrapper do not.
    """
    model = counted()
    extract(model, batches(), cache=tmp_path)
    extract(model, batches(), cache=tmp_path, dtype=torch.float16)
    extract(model, batches(), cache=tmp_path, autocast=torch.bfloat16)
    assert len(files(tmp_path)) == 3
    model.inner[4].weight.data.zero_()
    extract(nn.DataParallel(model), batches(), cache=tmp_path)
    extract(model, batches(), cache=tmp_path, head="inner.4")
    assert len(files(tmp_path)) == 3
    with pytest.raises(ValueError, match="no module 'fc'"):
        extract(model, batches(), cache=tmp_path, head="fc")
    replace_head(model, "inner.4", nn.Linear(8, 3))
    with pytest.raises(ValueError, match=r"label 3 in row 3 is outside 0 .. 2"):
        extract(model, batches(), cache=tmp_path)


def test_a_loader_that_augments_never_hits_and_costs_one_batch(tmp_path):
    class Noisy:
        read = 0

        def __iter__(self):
            for x, y in batches():
                self.read += 1
                yield x + torch.randn(x.shape), y

    model, loader = counted(), Noisy()
    for turn in range(3):
        extract(model, loader, cache=tmp_path)
        assert len(files(tmp_path)) == turn + 1
    assert model.count == 3 * MISS
    assert loader.read == 3 * 3 + 2


def damage_truncate(data):
    return data[:-40]


def damage_grow(data):
    return data + b"\0"


def damage_features(data):
    return data[:4200] + bytes([data[4200] ^ 1]) + data[4201:]


def damage_rows(data):
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def damage_head(data):
    return data.replace(b"inner.4", b"inner.0")


def damage_padding(data):
    return data[:4000] + b"x" + data[4001:]


def damage_length(data):
    return b"\1" + data[1:]


def damage_all(data):
    return b""


@pytest.mark.parametrize(
    "damage",
    [
        damage_truncate,
        damage_grow,
        damage_features,
        damage_rows,
        damage_head,
        damage_padding,
        damage_length,
        damage_all,
    ],
)
def test_a_damaged_file_is_extracted_again(damage, tmp_path):
    model = counted()
    plain = extract(model, batches(), cache=tmp_path).z.clone()
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    assert damage(data) != data
    path.write_bytes(damage(data))
    model.count = 0
    with pytest.warns(UserWarning, match=r"is damaged, .* extracted again"):
        z = extract(model, batches(), cache=tmp_path).z
    assert model.count >= MISS
    assert torch.equal(z, plain)
    assert path.read_bytes() == data
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("error", [RuntimeError, Stop])
def test_an_interrupted_extraction_leaves_nothing(error, tmp_path):
    class Fails:
        def __iter__(self):
            yield from batches()
            assert len(files(tmp_path)) == 1  # on its way
            raise error

    model = trap()
    before = state(model)
    with pytest.raises(error):
        extract(model, Fails(), cache=tmp_path)
    assert files(tmp_path) == []
    assert same(state(model), before)


def test_what_a_killed_process_leaves_is_removed_by_the_next(tmp_path):
    script = f"""
import os, sys, torch
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from extraction import batches, net
from maccal.features.extraction import extract
class Killed:
    def __iter__(self):
        yield from batches()
        os.kill(os.getpid(), 9)
torch.manual_seed(0)
extract(net(), Killed(), cache={str(tmp_path)!r})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    (litter,) = files(tmp_path)
    assert litter.endswith(".part")
    model = net()
    plain = extract(model, batches()).z
    for _ in range(2):
        assert torch.equal(extract(model, batches(), cache=tmp_path).z, plain)
        assert [name.endswith(".safetensors") for name in files(tmp_path)] == [True]


def test_a_cache_needs_rows_that_can_be_read_again(tmp_path):
    with pytest.raises(ValueError, match="an iterator, which can be read once"):
        extract(net(), iter(batches()), cache=tmp_path)
    model = Lambda(lambda self, x, extra: self.fc(x), fc=nn.Linear(6, K))
    with pytest.raises(ValueError, match="inputs of type object have no fingerprint"):
        extract(model, [(X, object(), Y)], cache=tmp_path)
    for extra in (None, 1.5, "text", torch.ones(3), {"a": [X, "b"]}):
        extract(model, [(X, extra, Y)], cache=tmp_path)
        extract(model, [(X, extra, Y)], cache=tmp_path)
    assert len(files(tmp_path)) == 5
