"""Loaders shared out between processes."""

import subprocess
import sys
from pathlib import Path

import torch
from extraction import X, Y, batches, files, net

from maccal.features.extraction import extract

# passes of both ranks: batches, those that find the head, those that show that the model is not
# random
MISS = 1 + 6 + 1 + 2
RANKS = """
import sys, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
sys.path.insert(0, {tests!r})
from extraction import K, X, Y, Counted, net
from maccal.features.extraction import extract
torch.set_num_threads(1)
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://{folder}/meet", rank=rank, world_size=2)
torch.manual_seed(0)
model = Counted(net())
data = TensorDataset(X[:11], Y[:11])
made = dict()
plain = DataLoader(data, batch_size=2)
made["plain"] = extract(model, plain)
made["counts"] = model.count
dealt = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))
made["dealt"] = extract(torch.nn.parallel.DistributedDataParallel(model), dealt)
made["one batch"] = extract(model, DataLoader(data, batch_size=11))
model.count = 0
made["written"] = extract(model, plain, cache="{folder}/cache")
before = model.count
made["read"] = extract(model, plain, cache="{folder}/cache")
made["read dealt"] = extract(model, dealt, cache="{folder}/cache")
made["reruns"] = model.count - before
generator = torch.Generator().manual_seed(rank)
shuffled = DataLoader(data, batch_size=2, shuffle=True, generator=generator)
for loader in (shuffled, list(plain)[rank:]):
    try:
        extract(model, loader)
    except ValueError as error:
        made.setdefault("errors", []).append(str(error))
for key, value in made.items():
    if isinstance(value, tuple):
        made[key] = tuple(value)
torch.save(made, "{folder}/" + str(rank))
dist.barrier()
dist.destroy_process_group()
"""


def test_two_processes_equal_one_bit_for_bit(tmp_path):
    script = RANKS.format(tests=str(Path(__file__).parents[1]), folder=tmp_path)
    ranks = [subprocess.Popen([sys.executable, "-c", script, str(rank)]) for rank in range(2)]
    try:
        assert [rank.wait(timeout=100) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    torch.manual_seed(0)
    model, x, y = net(), X[:11], Y[:11]
    one, whole = extract(model, batches(x, y, 2)), extract(model, [(x, y)])
    turns = torch.arange(12) % 11  # what the sampler deals out: every second row, one of them twice
    shards = [
        extract(model, batches(x[turns[rank::2]], y[turns[rank::2]], 2)).z for rank in range(2)
    ]
    dealt = torch.stack(shards, 1).flatten(0, 1)[:11]
    expected = {
        "plain": one.z,
        "dealt": dealt,
        "one batch": whole.z,
        "written": one.z,
        "read": one.z,
        "read dealt": one.z,
    }
    for rank in range(2):
        made = torch.load(tmp_path / str(rank))
        for way, z in expected.items():
            assert torch.equal(made[way][0], z), way
            assert torch.equal(made[way][1], y), way
        assert made["counts"] == 1 + 3  # half of six batches, and one that finds the head
        assert ["different orders" in error for error in made["errors"]] == [True, True]
    # two probes
    assert 0 < sum(torch.load(tmp_path / str(rank))["reruns"] for rank in range(2)) < 2 * MISS
    assert len(files(tmp_path / "cache")) == 1
