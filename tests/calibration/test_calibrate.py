"""calibrate(model, loader): the classifier is replaced and nothing else.

The trap of a model left in train mode.
"""

import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from maccal.calibration import calibrate, calibrate_head
from maccal.calibration.stage2 import Stage2
from maccal.features.extraction import extract

FAST = Stage2(epochs=6, hidden=16, batch_size=32)
FIXED = Stage2(epochs=6, hidden=16, batch_size=32, statistics="deployed")


def data(n=300, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=generator)
    return torch.randn(n, 1, 8, 8, generator=generator) + y[:, None, None, None] * 0.7, y


def loader(n=300, shuffle=False, **options):
    return DataLoader(TensorDataset(*data(n, **options)), 50, shuffle=shuffle)


def network(classes=3):
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
    ]
    return nn.Sequential(*layers, nn.Linear(8, classes))


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_but_the_classifier_changes(training):
    """Weights, BatchNorm statistics and modes are as before, in the copy and in the original, train
    mode or not.
    """
    model = network().train(training)
    model[1].eval()  # a mode of its own, as fine-tuners do
    before, modes = state(model), [m.training for m in model.modules()]
    calibrated = calibrate(model, loader(), val=loader(seed=1), config=FAST)
    assert same(state(model), before)
    assert [m.training for m in model.modules()] == modes
    assert isinstance(model[6], nn.Linear)
    assert type(calibrated) is nn.Sequential
    assert [m.training for m in calibrated[:6].modules()][1:] == modes[1:7]
    assert same(
        {k: v for k, v in state(calibrated).items() if not k.startswith("6.")},
        {k: v for k, v in before.items() if k[0] != "6"},
    )
    assert not any(m._forward_hooks for m in calibrated.modules())


def test_it_is_calibrate_head_on_the_features():
    model, train, val = network().eval(), loader(), loader(seed=1)
    calibrated = calibrate(model, train, val=val, config=FAST, seed=5)
    head = calibrate_head(*extract(model, train), val=extract(model, val), config=FAST, seed=5)
    x, _ = data(20, seed=2)
    assert torch.equal(calibrated(x), head(model[:6](x)))
    assert calibrated[6].history == head.history


def test_in_place():
    model = network()
    assert calibrate(model, loader(), val=loader(seed=1), config=FAST, inplace=True) is model
    assert len(model[6]) == 3


def test_no_global_state_is_touched():
    model, train = network(), list(loader())
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    calibrate(model, train, config=FAST)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_a_class_that_training_never_shows_keeps_its_output():
    """The last of four classes has no rows: the new head still has four outputs."""
    assert calibrate(network(4).eval(), loader(), config=FAST)(data(2)[0]).shape == (2, 4)


def test_a_loader_that_shuffles_between_passes():
    """Features and labels of a pass belong together, whatever the order of the next."""
    torch.manual_seed(1)
    model = network().eval()
    x, y = data(400, seed=3)
    heads = [
        calibrate(model, loader(shuffle=s), val=loader(seed=1), config=FAST) for s in (False, True)
    ]
    right = [float((head(x).argmax(1) == y).double().mean()) for head in heads]
    assert right[0] > 0.8
    assert right[1] == pytest.approx(right[0], abs=0.03)


def test_feedback_without_labels():
    """Changed images stand for unseen ones; tokens cannot be, and gamma serves.

    A known accuracy is used as it is.
    """
    model = network().eval()
    model[6].weight.data *= 1000  # sure of everything
    history = calibrate(model, loader(), config=FAST)[6].history
    assert history[-1]["target"] == history[-1]["accuracy"]
    model[6].weight.data *= 1e-6  # sure of nothing: views make it surer
    history = calibrate(model, loader(), config=FAST)[6].history
    assert history[-1]["target"] == history[-1]["accuracy"] > 0.5
    history = calibrate(model, loader(), config=FIXED)[6].history
    assert history[-1]["target"] == pytest.approx(FIXED.gamma * history[-1]["accuracy"])
    known = calibrate(model, loader(), accuracy=0.8, config=FAST)[6].history
    assert known[-1]["target"] == pytest.approx((0.8 * known[-1]["accuracy"]) ** 0.5)
    torch.manual_seed(0)
    words = nn.Sequential(nn.Embedding(9, 6), nn.Flatten(), nn.Linear(12, 3))
    tokens = [(torch.randint(9, (50, 2)), torch.arange(50) % 3) for _ in range(4)]
    with pytest.warns(UserWarning, match="gamma x training accuracy is a guess"):
        history = calibrate(words, tokens, config=FAST)[2].history
    assert history[-1]["target"] == pytest.approx(FAST.gamma * history[-1]["accuracy"])


def test_linear_head_and_names():
    """hidden=None leaves a plain nn.Linear under the old names.

    Dtype and device are the old head's.
    """
    model = network().double().eval()
    train = [(x.double(), y) for x, y in loader()]
    calibrated = calibrate(
        model, train, config=Stage2(epochs=4, hidden=None, statistics="deployed"), head="6"
    )
    assert isinstance(calibrated[6], nn.Linear)
    assert calibrated.state_dict().keys() == model.state_dict().keys()
    assert calibrated[6].weight.dtype == torch.float64
    calibrated.load_state_dict(copy.deepcopy(calibrated.state_dict()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: (m, []), "train is empty"),
        (lambda m: (nn.Sequential(m, nn.Softmax(1)), loader()), "make it return logits"),
        (lambda m: (m, [(x, y + 1) for x, y in loader()]), "seem to count from 1"),
        (lambda m: (m, [(x * float("nan"), y) for x, y in loader()]), "finite"),
        (lambda m: (m, [(x, y * 0) for x, y in loader()]), "all labels of train are 0"),
        (lambda m: (m, [(x, y[:-1]) for x, y in loader()]), "must match one to one"),
    ],
)
def test_bad_input_leaves_the_model_alone(change, message):
    """Even in place: the head is replaced last."""
    model = network()
    before = state(model)
    with pytest.raises(ValueError, match=message):
        calibrate(*change(model), config=FIXED, inplace=True)
    assert same(state(model), before)
    assert model.training


def test_val_and_accuracy():
    with pytest.raises(ValueError, match="val or accuracy, not both"):
        calibrate(network(), loader(), val=loader(), accuracy=0.9)


def test_what_is_wrong_with_val_is_said_of_val():
    for val, message in (
        ([], "val: the loader is empty"),
        ([(x, y.float()) for x, y in loader()], "val: labels have dtype torch.float32"),
        ([(x * float("nan"), y) for x, y in loader()], "val: no row of the first batch has finite"),
    ):
        with pytest.raises(ValueError, match=message):
            calibrate(network(), loader(), val=val, config=FIXED)


def test_a_handful_of_held_out_rows_is_warned_of():
    model = network().eval()
    few = []
    for x, _ in loader():
        said = model(x[:4]).argmax(1)
        wrong = torch.tensor([0, 0, 0, 1])
        few.append((x[:4], (said + wrong) % 3))
    with pytest.warns(UserWarning, match=r"24 rows: .*; more held-out rows would say it better"):
        calibrate(model, loader(), val=few, calibrator="temperature")


def test_an_iterator():
    with pytest.raises(ValueError, match="train is an iterator, which can be read once"):
        calibrate(network(), iter(loader()))


@pytest.mark.distributed
def test_two_processes(tmp_path):
    """Under torchrun, each rank with half of the rows.

    All come to the same classifier, as one process does.
    """
    script = tmp_path / "ranks.py"
    script.write_text(RANKS.format(tests=str(Path(__file__).parent), out=str(tmp_path)))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert same(first, second)
    x, y = data(400, seed=3)
    alone = calibrate(network().eval(), loader(), config=FAST)
    together = calibrate(network().eval(), loader(), config=replace(FAST, epochs=1))
    together.load_state_dict(first)
    right = [float((model(x).argmax(1) == y).double().mean()) for model in (alone, together)]
    assert right[1] == pytest.approx(right[0], abs=0.03)


RANKS = """
import sys
import torch
import torch.distributed as dist
sys.path.insert(0, {tests!r})
from test_calibrate import FAST, data, network
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from maccal.calibration import calibrate

torch.set_num_threads(1)
dist.init_process_group("gloo")
rows = TensorDataset(*data())
train = DataLoader(rows, 50, sampler=DistributedSampler(rows, shuffle=False))
model = calibrate(network().eval(), train, config=FAST)
torch.save(model.state_dict(), f"{out}/{{dist.get_rank()}}.pt")
dist.destroy_process_group()
"""
