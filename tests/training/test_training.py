"""Stage I: against a plain loop, killed and resumed, on two processes, and when it goes wrong."""

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from interruption import Stop, stopping
from short_training import PLAIN, SEEN, network, weights

from maccal.data import load
from maccal.io import FileError, write_sealed
from maccal.training import Diverged, Objective, Training, fit, predict
from maccal.training.checkpoint import read_checkpoint
from maccal.training.recipe import Recipe
from maccal.training.steps import batch_ranges


@pytest.fixture(scope="module")
def digits():
    return load("digits", limit=200)


def trained(data, recipe=PLAIN, seed=1, **settings):
    net = network()
    history = fit(net, data.train, recipe, pixels=SEEN, seed=seed, **settings)
    return net, history


@pytest.mark.slow
def test_it_is_sgd(digits):
    """A slow, obvious twin.

    Torch's own optimiser and scheduler, image by image layout, the same order of rows.
    """
    recipe = replace(PLAIN, epochs=4, drops=(0.5,))
    net, history = trained(digits, recipe)
    twin, generator, losses = network(), torch.Generator().manual_seed(1), []
    optimiser = torch.optim.SGD(twin.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [2], gamma=0.1)
    for _ in range(4):
        order, total = torch.randperm(200, generator=generator), 0.0
        for rows in torch.split(order, 32):
            # unused draws
            (
                torch.randint(1, (2, len(rows), 1), generator=generator),
                torch.rand(len(rows), 1, generator=generator),
            )
            x = SEEN(digits.train.images[rows]).contiguous()
            loss = F.cross_entropy(twin(x), digits.train.labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * len(rows)
        schedule.step()
        losses.append(total / 200)
    assert [epoch["loss"] for epoch in history] == pytest.approx(losses, rel=2e-3)
    assert [epoch["lr"] for epoch in history] == pytest.approx([0.05, 0.05, 0.005, 0.005])
    assert float((weights(net) - weights(twin)).norm()) < 0.01 * float(
        (weights(twin) - weights(network())).norm()
    )
    assert not net.training


def test_the_same_seed_gives_the_same_bits(digits):
    recipe = Recipe(epochs=1, batch_size=32, padding=1)
    first, again, other = (weights(trained(digits, recipe, seed)[0]) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_sum_is_a_mean_with_another_rate(digits):
    still = replace(PLAIN, epochs=1, momentum=0, weight_decay=0)
    mean, _ = trained(digits, replace(still, lr=0.32, batch_size=40))
    total, _ = trained(digits, replace(still, lr=0.32 / 40, batch_size=40, reduction="sum"))
    assert float((weights(mean) - weights(total)).abs().max()) < 1e-3
    assert float((weights(mean) - weights(network())).abs().max()) > 0.1


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_a_clipped_step_is_no_longer_than_rate_times_clip(digits, clip):
    recipe = replace(PLAIN, momentum=0, weight_decay=0, reduction="sum", clip=clip, lr=0.1)
    training = Training(network(), digits.train, recipe, SEEN, Objective(), 1, torch.device("cpu"))
    training.begin()
    before = torch.cat([p.detach().flatten().clone() for p in training.network.parameters()])
    training.step()
    after = torch.cat([p.detach().flatten() for p in training.network.parameters()])
    assert float((after - before).norm()) == pytest.approx(0.1 * clip, rel=1e-3)


@pytest.mark.slow
def test_it_learns(digits):
    data = load("digits")
    net, history = trained(data, Recipe(epochs=8, padding=1, flip=False), val=data.val)
    right = (predict(net, data.test.images, SEEN).argmax(1) == data.test.labels).double().mean()
    assert right > 0.93
    assert history[-1]["val_accuracy"] > 0.93
    assert history[-1]["loss"] < history[0]["loss"] / 3
    assert [epoch["epoch"] for epoch in history] == list(range(1, 9))


@pytest.mark.slow
@pytest.mark.parametrize(("watch", "looked"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (9, [5])])
def test_watch(digits, watch, looked):
    """The held-out images are looked at every so many epochs and after the last.

    The training does not depend on it.
    """
    net, history = trained(digits, replace(PLAIN, epochs=5, watch=watch), val=digits.val)
    assert [epoch["epoch"] for epoch in history if "val_accuracy" in epoch] == looked
    assert torch.equal(weights(net), weights(trained(digits, replace(PLAIN, epochs=5))[0]))


def test_bf16_agrees_with_float32(digits):
    narrow, wide = (trained(digits, replace(PLAIN, precision=kind))[1] for kind in ("bf16", "fp32"))
    assert narrow != wide
    assert narrow[0]["loss"] == pytest.approx(wide[0]["loss"], rel=0.03)


def test_every_row_once_an_epoch(digits):
    seen = []

    def inputs(x, y, generator):
        seen.append(x)
        return x, y

    trained(digits, replace(PLAIN, epochs=1), objective=Objective(inputs=inputs))
    whole = torch.cat(seen).flatten(1)
    images = SEEN(digits.train.images).flatten(1)
    assert len(whole) == len(images)
    assert torch.equal(torch.unique(whole, dim=0), torch.unique(images, dim=0))


@pytest.mark.parametrize(
    ("count", "size", "world"),
    [(10, 4, 1), (9, 4, 1), (9, 4, 3), (4, 128, 2), (128, 64, 2), (131, 64, 2)],
)
def test_batches_cover_the_rows(count, size, world):
    ranges = batch_ranges(count, size, world)
    assert [row for first, last in ranges for row in range(first, last)] == list(range(count))
    assert all(last - first >= min(count, size, 2 * world) for first, last in ranges)


def test_more_processes_than_rows(digits, monkeypatch):
    monkeypatch.setattr("maccal.training.steps.my_rank", lambda: (0, 4))
    with pytest.raises(ValueError, match="batch_size is 6 for 4 processes; pass at least 8"):
        Training(
            network(),
            digits.train,
            replace(PLAIN, batch_size=6),
            SEEN,
            Objective(),
            1,
            torch.device("cpu"),
        )


def test_predict_leaves_the_network_as_it_was(digits):
    net = network().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    logits = predict(net, digits.test.images, SEEN, size=70)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    with torch.no_grad():
        torch.testing.assert_close(
            logits, net.eval()(SEEN(digits.test.images)), rtol=1e-4, atol=1e-5
        )


def test_begin_and_end_are_called_with_the_epoch(digits):
    calls = []
    objective = Objective(
        begin=lambda n, e, of: calls.append(("begin", e, of)),
        end=lambda n, e, of: calls.append(("end", e, of)),
    )
    trained(digits, PLAIN, objective=objective)
    assert calls == [("begin", 0, 2), ("end", 0, 2), ("begin", 1, 2), ("end", 1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 7, 8, 12])
def test_resumed_in_the_middle_it_ends_with_the_same_bits(digits, tmp_path, after):
    recipe = Recipe(epochs=2, batch_size=32, padding=1)
    whole, history = trained(digits, recipe, val=digits.val)
    file = tmp_path / "checkpoint.pt"
    with pytest.raises(Stop):
        trained(digits, recipe, val=digits.val, checkpoint=file, every=0, objective=stopping(after))
    torch.rand(3)  # the global generator is part of the state too
    rest, resumed = trained(digits, recipe, val=digits.val, checkpoint=file)
    assert torch.equal(weights(whole), weights(rest))
    assert [{k: v for k, v in e.items() if k != "seconds"} for e in resumed] == [
        {k: v for k, v in e.items() if k != "seconds"} for e in history
    ]


def test_a_finished_training_is_not_done_again(digits, tmp_path):
    net, history = trained(digits, checkpoint=tmp_path / "c.pt")
    again, same = trained(digits, checkpoint=tmp_path / "c.pt", objective=stopping(0))
    assert torch.equal(weights(net), weights(again))
    assert same == history


def test_another_trainings_checkpoint_is_refused(digits, tmp_path):
    trained(digits, checkpoint=tmp_path / "c.pt")
    with pytest.raises(ValueError, match=r"lr is 0\.05 there and 0\.2 here"):
        trained(digits, replace(PLAIN, lr=0.2), checkpoint=tmp_path / "c.pt")
    with pytest.raises(ValueError, match="another training: it is 1 there and 2 here"):
        trained(digits, seed=2, checkpoint=tmp_path / "c.pt")


@pytest.mark.parametrize("content", [b"", b"PK nothing", None])
def test_a_damaged_checkpoint_is_named(digits, tmp_path, content):
    file = tmp_path / "c.pt"
    if content is None:
        trained(digits, checkpoint=file)
        content = file.read_bytes()[:-2000]
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"c\.pt: not a readable checkpoint"):
        trained(digits, checkpoint=file)


def test_a_damaged_bit_of_a_checkpoint_is_noticed(digits, tmp_path):
    """In a hundred places all over the file.

    Before it had a checksum, most of them changed the result without a word.
    """
    file = tmp_path / "c.pt"
    trained(digits, checkpoint=file)
    data = file.read_bytes()
    for place in range(0, len(data), len(data) // 99):
        file.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(
            FileError, match=r"c\.pt: not a readable checkpoint .*; delete it to start again"
        ):
            read_checkpoint(file)


def sealed_state(file, state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_sealed(file, "checkpoint 1", buffer.getvalue())


def test_checkpoints_that_are_not_ours_are_refused(digits, tmp_path):
    file = tmp_path / "c.pt"
    trained(digits, checkpoint=file)
    state = read_checkpoint(file)
    torch.save(state, file)  # without a checksum: version 0, or anybody's
    with pytest.raises(FileError, match="not a readable checkpoint"):
        trained(digits, checkpoint=file)
    others = [
        7,
        [],
        {},
        {"about": 3},
        {"about": {}},
        state | {"network": {}},
        state | {"generators": []},
    ]
    for missing in state:
        others.append({part: value for part, value in state.items() if part != missing})
    for other in others:
        sealed_state(file, other)
        with pytest.raises(FileError, match="a checkpoint of another training") as caught:
            trained(digits, checkpoint=file)
        assert "\n" not in str(caught.value)
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match="not a regular file"):
        trained(digits, checkpoint=tmp_path / "folder")


def test_what_is_said_about_a_training_must_be_the_same_when_it_goes_on(digits, tmp_path):
    trained(digits, checkpoint=str(tmp_path / "c.pt"), about={"run": {"method": "mit"}})
    trained(digits, checkpoint=tmp_path / "c.pt", about={"run": {"method": "mit"}})
    with pytest.raises(FileError, match="method is mit there and vanilla here"):
        trained(digits, checkpoint=tmp_path / "c.pt", about={"run": {"method": "vanilla"}})


def test_the_history_of_a_finished_checkpoint_is_logged(digits, tmp_path):
    logged = []
    _, history = trained(digits, replace(PLAIN, epochs=1), checkpoint=tmp_path / "c.pt")
    trained(
        digits,
        replace(PLAIN, epochs=1),
        checkpoint=tmp_path / "c.pt",
        objective=stopping(0),
        log=logged.append,
    )
    assert logged == [history]


def test_a_checkpoint_that_would_run_code_is_refused(digits, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'owned'}",)

    torch.save({"about": Evil()}, tmp_path / "c.pt")
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        trained(digits, checkpoint=tmp_path / "c.pt")
    assert not (tmp_path / "owned").exists()


def test_a_loss_that_is_no_number_stops_with_the_last_good_state(digits, tmp_path):
    file, steps = tmp_path / "c.pt", 0

    def loss(net, x, y):
        nonlocal steps
        steps += 1
        logits = net(x).float()
        return F.cross_entropy(logits, y) * (float("nan") if steps == 6 else 1), logits

    with pytest.raises(Diverged, match="no longer a finite number, in epoch 1 by batch"):
        trained(digits, checkpoint=file, every=0, objective=Objective(loss=loss))
    state = read_checkpoint(file)
    assert state["batch"] == 5
    assert all(bool(value.isfinite().all()) for value in state["network"].values())
    net, _ = trained(digits, checkpoint=file)
    assert torch.equal(weights(net), weights(trained(digits)[0]))


def test_a_weight_that_is_no_number_is_never_saved(digits, tmp_path):
    """A finite loss can still break the weights; the next checkpoint must not hold them."""
    with pytest.raises(Diverged):
        trained(digits, replace(PLAIN, lr=1e38), checkpoint=tmp_path / "c.pt", every=0)
    assert not (tmp_path / "c.pt").exists() or all(
        bool(v.isfinite().all()) for v in read_checkpoint(tmp_path / "c.pt")["network"].values()
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own code
def test_compiled(digits):
    losses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
        losses.append(
            fit(net, digits.train, replace(PLAIN, epochs=1, compile=compiled), pixels=SEEN)[0][
                "loss"
            ]
        )
        assert list(net.state_dict()) == ["1.weight", "1.bias"]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


KILLS = """
import os, random, signal, sys, time
import torch
import torch._dynamo  # an optimiser's first step imports it, which takes longer than the training
from pathlib import Path
from maccal.data import load
from maccal.training.recipe import Recipe
from maccal.runs import make_run
from maccal.runs import Config
from maccal.training.checkpoint import read_checkpoint
torch.set_num_threads(1)
load("digits")
recipe = Recipe(epochs=12, batch_size=16, padding=1, flip=False, precision="fp32")
config = Config("digits", "resnet8", "vanilla", 1, 192, recipe)
folder, rng, places = Path(sys.argv[1]), random.Random(int(sys.argv[2])), []
file = folder / "killed" / config.name / "checkpoint.pt"

def started(runs):
    child = os.fork()  # this process runs no network itself, so that its children can
    if child == 0:
        make_run(config, runs=runs, every=0)
        os._exit(0)
    return child

def written():
    return file.stat().st_mtime_ns if file.exists() else 0

for _ in range(10):
    child = started(folder / "killed")
    for _ in range(rng.randint(1, 8)):  # checkpoints, one per batch
        before = written()
        while written() == before:
            time.sleep(0.0005)
    time.sleep(rng.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, "it ended before it was killed"
    state = read_checkpoint(file)
    places.append((state["epoch"], state["batch"]))
for runs in ("killed", "whole"):
    assert os.waitpid(started(folder / runs), 0)[1] == 0
print(len(set(places)), sum(batch > 0 for _, batch in places))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_killed_ten_times_it_ends_with_the_same_bits(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path), "0"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    places, inside = map(int, done.stdout.split())
    assert places == 10
    assert inside >= 7  # of them within an epoch
    whole, killed = (
        tmp_path / name / "digits.192-resnet8,epochs=12,batch_size=16-vanilla-s1"
        for name in ("whole", "killed")
    )
    assert (whole / "model.safetensors").read_bytes() == (killed / "model.safetensors").read_bytes()
    assert (whole / "test.npz").read_bytes() == (killed / "test.npz").read_bytes()
    assert sorted(p.name for p in killed.iterdir()) == sorted(p.name for p in whole.iterdir())


def torchrun(folder: Path, *words: str) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "maccal",
        "train",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.distributed
def test_two_processes_train_as_one(tmp_path, monkeypatch):
    """The same batches, BatchNorm over all their rows, one loss curve.

    The last batch of 9 rows is dealt out unevenly.
    """
    from maccal.runs import Config, make_run, read_history

    settings = {"epochs": 3, "batch_size": 64, "padding": 1, "precision": "fp32", "lr": 0.02}
    flags = [
        word
        for key, value in settings.items()
        for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    torchrun(
        tmp_path,
        "--data",
        "digits",
        "--model",
        "resnet8",
        "--limit",
        "585",
        "--runs",
        "two",
        *flags,
    )
    one = make_run(
        Config("digits", "resnet8", "vanilla", 1, 585, Recipe(**settings, flip=False)),
        runs=tmp_path / "one",
    )
    two = tmp_path / "two" / one.name
    assert sorted(p.name for p in two.iterdir()) == sorted(p.name for p in one.iterdir())
    curves = [read_history(run) for run in (one, two)]
    assert [e["loss"] for e in curves[1]] == pytest.approx([e["loss"] for e in curves[0]], rel=1e-3)
    assert [e["accuracy"] for e in curves[1]] == pytest.approx(
        [e["accuracy"] for e in curves[0]], abs=0.004
    )
    first, second = (safetensors.torch.load_file(run / "model.safetensors") for run in (one, two))
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=0.02, atol=5e-3, msg=name)
