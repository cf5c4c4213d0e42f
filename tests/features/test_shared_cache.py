"""One cache and several processes, full disks, and things in the folder that are no entries."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from extraction import K, files
from torch import nn

from maccal.features import mapped
from maccal.features.extraction import extract
from maccal.features.table import FeatureTable, Standard
from maccal.io import FileError

# for other processes: where this file is, and where the helpers of the tests are
FOLDERS = [str(folder) for folder in Path(__file__).parents[:2]]
N = 400
Y = torch.randperm(N, generator=torch.Generator().manual_seed(5)) % K
X = torch.cat([Y[:, None].float(), torch.rand(N, 7, generator=torch.Generator().manual_seed(6))], 1)
# the features are the inputs, and the first of them is the label
MODEL = nn.Sequential(nn.ReLU(), nn.Linear(8, K))


def loader(seed):
    order = torch.randperm(N, generator=torch.Generator().manual_seed(seed))
    return list(zip(X[order].split(50), Y[order].split(50), strict=True))


def matched(made):
    """Whether features and labels belong together, as they are and as a training reads them."""
    rows = FeatureTable(*made, "z").standardised(Standard(torch.zeros(8), 1.0))
    read = torch.cat([x for x, _ in rows.chunks()])
    return torch.equal(made.z[:, 0], made.y.float()) and torch.equal(read[:, 0], made.y.float())


class Meanwhile:
    """A loader during whose last batch something else happens."""

    def __init__(self, seed, happens):
        self.batches, self.happens = loader(seed), happens

    def __iter__(self):
        yield from self.batches
        self.happens()


@pytest.mark.parametrize("in_memory", [0, 1 << 28])
def test_another_writer_finishes_first(tmp_path, monkeypatch, in_memory):
    """Two that write at the same time, in different orders: one name must not stand for both."""
    monkeypatch.setattr(mapped, "IN_MEMORY", in_memory)
    made = []
    outer = extract(
        MODEL,
        Meanwhile(1, lambda: made.append(extract(MODEL, loader(2), cache=tmp_path))),
        cache=tmp_path,
    )
    for features, seed in ((outer, 1), (made[0], 2)):
        assert torch.equal(features.z, extract(MODEL, loader(seed)).z)
        assert matched(features)
    assert len(files(tmp_path)) == 1  # the second to finish found the same features in the folder


@pytest.mark.parametrize("in_memory", [0, 1 << 28])
def test_an_entry_is_replaced_while_its_rows_are_looked_up(tmp_path, monkeypatch, in_memory):
    monkeypatch.setattr(mapped, "IN_MEMORY", in_memory)
    extract(MODEL, loader(1), cache=tmp_path)
    done = []

    def replace():
        if not done:
            done.append(True)
            for path in tmp_path.glob("*.safetensors"):
                path.unlink()
            extract(MODEL, loader(2), cache=tmp_path)

    made = extract(MODEL, Meanwhile(1, replace), cache=tmp_path)
    assert done
    assert torch.equal(made.z, extract(MODEL, loader(1)).z)
    assert matched(made)


FOUR = """
    import multiprocessing, os, sys
    sys.path[:0] = {folders!r}
    from test_shared_cache import MODEL, loader, matched
    import torch
    from maccal.features import mapped
    from maccal.features.extraction import extract

    together = multiprocessing.get_context("fork").Barrier(4)
    children = []
    for child in range(4):
        pid = os.fork()
        if pid:
            children.append(pid)
            continue
        status = 1
        try:
            wrong = 0
            for turn in range(12):
                folder = "{folder}/" + str(turn // 2)
                mapped.IN_MEMORY = (turn // 2 % 2) << 28
                together.wait()
                made = extract(MODEL, loader(100 * turn + child), cache=folder)
                together.wait()
                same = torch.equal(made.z, extract(MODEL, loader(100 * turn + child)).z)
                wrong += not (same and matched(made))
            status = 3 if wrong else 0
        finally:
            os._exit(status)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""


def test_four_processes_at_once(tmp_path):
    """Each with its own shuffle.

    All get features that match their labels, six times new and six times found.
    """
    script = textwrap.dedent(FOUR).format(folders=FOLDERS, folder=tmp_path)
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=120)
    assert done.returncode == 0
    for folder in tmp_path.iterdir():
        assert all(name.endswith(".safetensors") for name in files(folder))
        assert 1 <= len(files(folder)) <= 4


CUT = """
    import os, sys
    sys.path[:0] = {folders!r}
    from pathlib import Path
    from test_shared_cache import MODEL, loader, matched
    from maccal.features import mapped
    from maccal.features.extraction import extract

    for turn, seed in enumerate((1, 1, 2, 1, 1, 2)):  # written, read, read in another order
        mapped.IN_MEMORY = (turn // 3) << 28
        made = extract(MODEL, loader(seed), cache="{folder}")
        (path,) = Path("{folder}").iterdir()
        data = path.read_bytes()
        os.truncate(path, 0)
        assert matched(made)
        if turn == 2:
            path.unlink()
        else:
            path.write_bytes(data)
"""


def test_an_entry_that_is_cut_while_in_use(tmp_path):
    """What was read stays good; a map of the entry itself would end the process with SIGBUS."""
    script = textwrap.dedent(CUT).format(folders=FOLDERS, folder=tmp_path / "cache")
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=120).returncode == 0


@pytest.fixture
def patience():
    """What hangs fails."""

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put_fifo(path, entry):
    os.mkfifo(path)


def put_folder(path, entry):
    path.mkdir()


def put_link(path, entry):
    path.symlink_to(entry)


def put_dangling_link(path, entry):
    path.symlink_to("nowhere")


@pytest.mark.parametrize("put", [put_fifo, put_folder, put_link, put_dangling_link])
def test_what_is_not_a_file_is_left_alone(put, tmp_path, patience):
    cache = tmp_path / "cache"
    plain = extract(MODEL, loader(1), cache=cache).z
    (entry,) = cache.iterdir()
    place = entry.rename(tmp_path / "elsewhere") and entry
    put(place, tmp_path / "elsewhere")
    put(cache / ".features.part", tmp_path / "elsewhere")
    data = (tmp_path / "elsewhere").read_bytes()
    with pytest.warns(UserWarning, match="it is left alone, and not read"):
        made = extract(MODEL, loader(1), cache=cache)
    assert torch.equal(made.z, plain)
    assert files(cache) == sorted([".features.part", place.name])
    assert (tmp_path / "elsewhere").read_bytes() == data


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 4088,
        b"{}",
        b'{"z": {"shape": [1e999, 2], "dtype": "F32"}}',
        b"\xff" * 4088,
        b'{"z": 1}',
    ],
)
def test_a_header_of_nonsense_is_damage(text, tmp_path):
    plain = extract(MODEL, loader(1), cache=tmp_path).z
    (entry,) = tmp_path.iterdir()
    data = entry.read_bytes()
    entry.write_bytes(data[:8] + text.ljust(4088) + data[4096:])
    with pytest.warns(
        UserWarning, match="is damaged, .* it is deleted, and the features are extracted again"
    ):
        assert torch.equal(extract(MODEL, loader(1), cache=tmp_path).z, plain)
    assert entry.read_bytes() == data


def test_an_entry_under_the_name_of_another(tmp_path):
    """The rows are right and the checksums too, but the weights are not."""
    torch.manual_seed(1)
    models = [nn.Sequential(nn.Linear(8, 8), nn.Linear(8, K)) for _ in range(2)]
    for model in models:
        extract(model, loader(1), cache=tmp_path)
    first, second = sorted(tmp_path.iterdir())
    first.replace(second)
    with pytest.warns(UserWarning, match="its name is wrong: it is damaged"):
        made = [extract(model, loader(1), cache=tmp_path).z for model in models]
    for z, model in zip(made, models, strict=True):
        assert torch.equal(z, extract(model, loader(1)).z)
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("in_memory", [0, 1 << 28])
@pytest.mark.parametrize("room", [4096, 5000, 4096 + N * 32, 4096 + N * 40])
def test_a_full_disk_leaves_nothing(room, in_memory, tmp_path, monkeypatch):
    """In the first batch, in the last, in the labels: an error of one line, and no part stays."""
    monkeypatch.setattr(mapped, "IN_MEMORY", in_memory)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(
            FileError, match=r"features cannot be written there \(File too large\); make room"
        ):
            extract(MODEL, loader(1), cache=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files(tmp_path) == []
    assert matched(extract(MODEL, loader(1), cache=tmp_path))


def test_a_cache_that_cannot_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileError, match="features cannot be written there"):
            extract(MODEL, loader(1), cache=place)
    assert (tmp_path / "file").read_text() == "mine"
