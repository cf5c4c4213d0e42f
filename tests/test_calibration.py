"""Stage II: the equations' goldens, the hand-written step against autograd, and what the whole is for."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from maccal.calibration import Head, Stage2, calibrate_head, forward, train_step
from maccal.metrics import ece, softmax, top_label


def test_goldens_of_eta():
    """Eq. 13 with T = 40."""
    config = Stage2()
    expected = {1: 0.08912509, 2: 0.07943282, 10: 0.03162278, 20: 0.01, 30: 0.00316228, 40: 0.001}
    assert {t: round(config.eta_at(t), 8) for t in expected} == expected
    assert sum(config.eta_at(t) for t in range(1, 41)) == pytest.approx(0.81135268, abs=5e-9)
    assert replace(config, eta="static").eta_at(40) == 0.1


@pytest.mark.parametrize(
    ("gamma", "conf", "acc", "t", "q"),
    [(0.95, 0.98, 0.995, 1, 0.53475), (0.95, 0.6, 0.95, 1, 0.41087491), (0.9, 0.9, 0.99, 20, 0.509)],
)
def test_goldens_of_single_updates(gamma, conf, acc, t, q):
    """Eq. 12 as printed moves the retention; our reading moves the sparsity by as much."""
    assert Stage2.paper().next_keep(0.5, conf, acc, gamma, t) == pytest.approx(q, abs=5e-9)
    assert Stage2().next_keep(0.5, conf, acc, gamma, t) == pytest.approx(1 - q, abs=5e-9)
    assert replace(Stage2(), adapt="none").next_keep(0.5, conf, acc, gamma, t) == 0.5


def test_golden_of_constant_feedback():
    """As printed, one sign of the gap for nine epochs, and nothing is masked any more."""
    keep, path = 0.5, []
    for epoch in range(1, 10):
        keep = Stage2.paper().next_keep(keep, 1.0, 0.5, 1.0, epoch)
        path.append(round(keep, 6))
    assert path == [0.589125, 0.668558, 0.739352, 0.802448, 0.858682, 0.908801, 0.953469, 0.99328, 1.0]


def autograd_step(weights, biases, masks, optimiser, x, y, config):
    """The twin of train_step: autograd and torch.optim.SGD."""
    if config.masking == "reset":
        for w, m in zip(weights, masks, strict=True):
            w.data.mul_(m)
        used = weights
    elif config.masking == "straight-through":
        used = [w + (w * m - w).detach() for w, m in zip(weights, masks, strict=True)]
    else:
        used = [w * m for w, m in zip(weights, masks, strict=True)]
    hidden = x
    for w, b in zip(used[:-1], biases[:-1], strict=True):
        hidden = F.linear(hidden, w, b).relu()
    optimiser.zero_grad()
    F.cross_entropy(F.linear(hidden, used[-1], biases[-1]), y).backward()
    before = [w.detach().clone() for w in weights]
    momenta = [optimiser.state[w]["momentum_buffer"].clone() if optimiser.state[w] else torch.zeros_like(w) for w in weights]
    if config.masking == "reset" and config.restrict != "none":
        for w, m in zip(weights, masks, strict=True):
            w.grad.mul_(m)
    optimiser.step()
    if config.restrict == "frozen":
        for w, m, old, momentum in zip(weights, masks, before, momenta, strict=True):
            w.data.copy_(torch.where(m > 0, w.data, old))
            optimiser.state[w]["momentum_buffer"].copy_(torch.where(m > 0, optimiser.state[w]["momentum_buffer"], momentum))


@pytest.mark.parametrize("masking", ["forward", "reset", "straight-through"])
@pytest.mark.parametrize("restrict", ["none", "gradient", "frozen"])
@pytest.mark.parametrize("widths", [[6, 4], [6, 9, 4]], ids=["linear", "bottleneck"])
def test_the_step_is_autograd_s(masking, restrict, widths):
    config = Stage2(masking=masking, restrict=restrict)
    generator = torch.Generator().manual_seed(0)
    head = Head(widths, generator)
    weights, biases = ([torch.nn.Parameter(t.clone()) for t in part] for part in (head.weights, head.biases))
    optimiser = torch.optim.SGD([*weights, *biases], lr=0.1, momentum=config.momentum, weight_decay=config.weight_decay)
    for _ in range(4):
        head.draw(0.6, generator)
        x, y = torch.randn(16, 6, generator=generator), torch.randint(4, (16,), generator=generator)
        train_step(head, x, y, 0.1, config)
        autograd_step(weights, biases, head.masks, optimiser, x, y, config)
        for ours, theirs in zip([*head.weights, *head.biases], [*weights, *biases], strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6)


def task(n=1200, dimensions=20, classes=4, seed=0, noise=0.25):
    """Features on which a classifier overfits: few rows, and labels that are wrong in a share of them."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, dimensions))
    y = rng.integers(0, classes, n)
    z = centres[y] + 1.2 * rng.normal(size=(n, dimensions))
    return z, np.where(rng.random(n) < noise, rng.integers(0, classes, n), y)


FAST = Stage2(epochs=12, hidden=64, batch_size=32)


def split():
    z, y = task(3200)
    return (z[:400], y[:400]), (z[400:1200], y[400:1200]), (z[1200:], y[1200:])


def test_held_out_feedback_calibrates():
    """Confidence on the held-out rows meets their accuracy; on fresh rows ECE is about half of plain retraining's."""
    train, val, test = split()
    masked = calibrate_head(*train, val=val, config=replace(FAST, epochs=30))
    unmasked = calibrate_head(*train, config=replace(FAST, epochs=30, q0=1.0, adapt="none"))
    last = masked.history[-1]
    assert abs(last["confidence"] - last["accuracy"]) < 0.03
    top = [top_label(softmax(head(torch.tensor(test[0]).float())), torch.tensor(test[1])) for head in (masked, unmasked)]
    assert ece(*top[0]) < 0.6 * ece(*top[1])
    assert top[0][1].sum() > top[1][1].sum()


def test_gamma_sets_the_confidence_in_training():
    train, _, _ = split()
    for gamma in (0.9, 0.8):
        last = calibrate_head(*train, config=replace(FAST, gamma=gamma, epochs=30)).history[-1]
        assert last["confidence"] == pytest.approx(gamma * last["accuracy"], abs=0.04)


def test_the_printed_equations_run_away():
    """Eq. 12 on the retention: overconfident means fewer zeros, until there are none."""
    train, _, _ = split()
    history = calibrate_head(*train, config=Stage2.paper(epochs=20, hidden=64, gamma=0.7)).history
    assert [r["keep"] for r in history] == sorted(r["keep"] for r in history)
    assert history[-1]["keep"] > 0.85


def test_same_seed_same_bits():
    (z, y), _, _ = split()
    first, again, other = (calibrate_head(z, y, config=FAST, seed=s) for s in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert first.history == again.history
    assert not torch.equal(first[0].weight, other[0].weight)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden": None},
        {"standardise": False, "lr": 0.02},
        {"refresh": "epoch"},
        {"masking": "reset", "refresh": "epoch", "hidden": None},
        {"masking": "straight-through"},
        {"restrict": "frozen"},
        {"inference": "dense"},
        {"inference": "last"},
        {"statistics": "masked"},
        {"schedule": "constant", "lr": 0.02},
        {"eta": "static"},
        {"adapt": "none", "q0": 0.7},
    ],
    ids=str,
)
def test_every_reading_runs(changes):
    """Each named option trains a head that beats chance, and records what it did."""
    (z, y), _, (test_z, test_y) = split()
    head = calibrate_head(z, y, config=replace(FAST, **changes))
    accuracy = (head(torch.tensor(test_z).float()).argmax(1).numpy() == test_y).mean()
    assert accuracy > 0.45
    assert [r["epoch"] for r in head.history] == list(range(1, 13))
    assert set(head.history[0]) == {"epoch", "keep", "accuracy", "confidence", "loss"}
    assert all(0.01 <= r["keep"] <= 1 for r in head.history)


@pytest.mark.parametrize("hidden", [None, 16])
def test_folding_is_exact(hidden):
    """The plain layers give, for raw features, what the head gave for standardised ones with the expected weights."""
    (z, y), _, _ = split()
    config = replace(FAST, hidden=hidden)
    head = calibrate_head(10 * z + 3, y, config=config)
    raw = torch.tensor(10 * z + 3).float()
    last = head.history[-1]
    confidence, correct = top_label(softmax(head(raw)), y)
    assert float(confidence.mean()) == pytest.approx(last["confidence"], abs=1e-5)
    assert float(correct.float().mean()) == pytest.approx(last["accuracy"], abs=1e-6)


def test_any_array_will_do():
    (z, y), _, _ = split()
    heads = [
        calibrate_head(a, b, config=FAST)
        for a, b in ((z, y), (torch.tensor(z), torch.tensor(y)), (z.astype(np.float32), y.astype(np.int16)))
    ]
    assert torch.equal(heads[0][0].weight, heads[1][0].weight)
    assert torch.equal(heads[0][0].weight, heads[2][0].weight)


def test_small_and_uneven_data():
    """Fewer rows than a batch; a class that training never shows but held-out rows do."""
    z, y = task(20)
    assert calibrate_head(z, y, config=FAST)[-1].out_features == 4
    labels = np.where(y == 3, 0, y)
    assert calibrate_head(z, labels, val=(z, y), config=FAST)[-1].out_features == 4


@pytest.mark.parametrize(
    ("z", "y", "message"),
    [
        (np.array([[1.0, np.nan], [0.0, 1.0]]), np.array([0, 1]), "z row 0 holds a value that is not finite"),
        (np.ones((3, 2)), np.zeros(3, int), "all labels of z are 0"),
        (np.ones(3), np.array([0, 1, 0]), r"z has shape \(3,\)"),
        (np.ones((3, 2), int), np.array([0, 1, 0]), "expected features"),
        (np.ones((0, 2)), np.zeros(0, int), r"z has shape \(0, 2\)"),
        (np.ones((3, 2)), np.array([0, 1]), "3 rows of predictions but 2 labels"),
        (np.ones((3, 2)), np.array([0, 1, -1]), "label -1 in row 2"),
        (np.ones((3, 2)), np.array([0.0, 1.0, 1.0]), "expected integer class indices"),
    ],
)
def test_bad_input(z, y, message):
    with pytest.raises(ValueError, match=message):
        calibrate_head(z, y, config=FAST)


def test_val_of_another_network():
    z, y = task(50)
    with pytest.raises(ValueError, match="z has 20 features and val 7"):
        calibrate_head(z, y, val=(z[:, :7], y), config=FAST)


def test_forward_is_the_plain_network():
    generator = torch.Generator().manual_seed(0)
    head = Head([5, 8, 3], generator)
    x = torch.randn(4, 5, generator=generator)
    inputs, logits = forward(x, head.weights, head.biases)
    assert torch.allclose(inputs[1], F.linear(x, head.weights[0], head.biases[0]).relu())
    assert torch.allclose(logits, F.linear(inputs[1], head.weights[1], head.biases[1]))
