"""Stage II as a whole: what it is for, every reading, every kind of feedback, what it refuses."""

import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from maccal.calibration.estimator import MaCCalClassifier
from maccal.calibration.mac_cal import calibrate_head, calibrate_heads
from maccal.calibration.stage2 import ABLATION, Stage2
from maccal.calibration.two_stage import two_stage_head
from maccal.metrics import ece, softmax, top_label

# many tests only need some head
pytestmark = pytest.mark.filterwarnings("ignore:without held-out rows")


def task(n=1200, dimensions=20, classes=4, seed=0, noise=0.25):
    """Features on which a classifier overfits.

    Few rows, and labels that are wrong in a share of them.
    """
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
    """Confidence on the held-out rows meets their accuracy.

    On fresh rows ECE is about half of plain retraining's.
    """
    train, val, test = split()
    masked = calibrate_head(*train, val=val, config=replace(FAST, epochs=30))
    unmasked = calibrate_head(*train, config=replace(FAST, epochs=30, q0=1.0, adapt="none"))
    last = masked.history[-1]
    assert abs(last["confidence"] - last["accuracy"]) < 0.03
    top = [
        top_label(softmax(head(torch.tensor(test[0]).float())), torch.tensor(test[1]))
        for head in (masked, unmasked)
    ]
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
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)
    )
    assert first.history == again.history
    assert not torch.equal(first[0].weight, other[0].weight)


def changed(name, value, **both):
    """An option, and settings that the head with it and the one without it share."""
    return pytest.param({name: value}, both, id=f"{name}={value}")


READINGS = [
    changed("hidden", None),
    changed("standardise", False, lr=0.02),
    changed("refresh", "epoch"),
    changed("masking", "reset", refresh="epoch", hidden=None),
    changed("masking", "straight-through"),
    changed("restrict", "none", masking="reset", refresh="epoch", hidden=None),
    changed("restrict", "frozen"),
    changed("inference", "dense"),
    changed("inference", "last"),
    changed("statistics", "masked"),
    changed("schedule", "constant", lr=0.02),
    # with a bound that the gap reaches
    changed("eta", "static", eta_init=0.02),
    changed("adapt", "none", q0=0.7),
    changed("adapt", "retention"),
]


@pytest.mark.parametrize(("changes", "both"), READINGS)
def test_every_reading_does_something(changes, both):
    """Each option makes another head, and one that has learnt: of four classes, chance has 25 %."""
    (z, y), _, (test_z, test_y) = split()
    usual = replace(FAST, **both)
    head, other = (calibrate_head(z, y, config=c) for c in (replace(usual, **changes), usual))
    unseen = torch.tensor(test_z).float()
    assert not torch.allclose(head(unseen), other(unseen), atol=1e-3)
    accuracy = (head(unseen).argmax(1).numpy() == test_y).mean()
    assert accuracy > 0.4
    assert [record["epoch"] for record in head.history] == list(range(1, 13))
    for record in head.history:
        assert set(record) == {"epoch", "keep", "accuracy", "confidence", "target", "loss"}
        assert 0.01 <= record["keep"] <= 1
        assert record["target"] == pytest.approx(usual.gamma * record["accuracy"])
    if changes == {"adapt": "none"}:
        assert {record["keep"] for record in head.history} == {0.7}


def test_what_inference_uses():
    """Of one and the same training: W, keep x W, or a random share keep of the weights in W."""
    (z, y), _, _ = split()
    config = replace(FAST, hidden=None, adapt="none", q0=0.7, standardise=False, lr=0.02)
    dense, expected, last = (
        calibrate_head(z, y, config=replace(config, inference=name))[0].weight
        for name in ("dense", "expected", "last")
    )
    torch.testing.assert_close(expected, 0.7 * dense)
    left = last != 0
    assert torch.equal(last[left], dense[left])
    assert float(left.double().mean()) == pytest.approx(0.7, abs=0.18)  # 3.5 errors of 80 weights


@pytest.mark.parametrize("hidden", [None, 16])
def test_folding_is_exact(hidden):
    """The plain layers give, for raw features, what the head gave for standardised ones with the
    expected weights.
    """
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
        for a, b in (
            (z, y),
            (torch.tensor(z), torch.tensor(y)),
            (z.astype(np.float32), y.astype(np.int16)),
        )
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
        (
            np.array([[1.0, np.nan], [0.0, 1.0]]),
            np.array([0, 1]),
            "z row 0 holds a value that is not finite",
        ),
        (np.ones((3, 2)), np.zeros(3, int), "all labels of z are 0"),
        (np.ones(3), np.array([0, 1, 0]), r"z has shape \(3,\) and dtype float64"),
        (np.ones((3, 2), int), np.array([0, 1, 0]), "expected floating-point features"),
        (np.ones((0, 2)), np.zeros(0, int), r"z has shape \(0, 2\)"),
        (np.ones((3, 2)), np.array([0, 1]), "3 rows of predictions but 2 labels"),
        (np.ones((3, 2)), np.array([0, 1, -1]), "label -1 in row 2"),
        (np.ones((3, 2)), np.array([0.0, 1.0, 1.0]), "expected integer class indices"),
    ],
)
def test_bad_input(z, y, message):
    with pytest.raises(ValueError, match=message):
        calibrate_head(z, y, config=FAST)


NO_LABELS = {
    "z": ({"y": None}, "the labels of z are None; pass a class index for each row: 50"),
    "val": (
        {"val": (task(30)[0], None)},
        r"labels of val are None; pass .* accuracy= and unlabelled=z",
    ),
    "val alone": ({"val": (task(30)[0],)}, r"val has 1 parts; expected .* val=\(z, y\)"),
    "val bare": ({"val": task(30)[0]}, r"val is a ndarray; expected .* val=\(z, y\)"),
    "objects": ({"y": [None] * 50}, "labels has dtype object"),
}


@pytest.mark.parametrize("case", NO_LABELS)
def test_labels_that_are_not_there(case):
    """They were taken as zeros."""
    z, y = task(50)
    changes, message = NO_LABELS[case]
    arguments = {"y": y} | changes
    doors = [
        lambda: calibrate_head(z, config=FAST, **arguments),
        lambda: calibrate_heads(z, configs=[FAST], seeds=[1], **arguments),
        lambda: two_stage_head(z, **arguments),
    ]
    for door in doors:
        with pytest.raises(ValueError, match=message):
            door()


def test_an_estimator_needs_labels():
    z, _ = task(50)
    with pytest.raises(ValueError, match="requires y to be passed"):
        MaCCalClassifier().fit(z, None)
    with pytest.raises(ValueError, match=r"Unknown label type|object"):
        MaCCalClassifier().fit(z, np.array([None] * 50))


def test_val_of_another_network():
    z, y = task(50)
    with pytest.raises(ValueError, match="z has 20 features and val 7"):
        calibrate_head(z, y, val=(z[:, :7], y), config=FAST)


@pytest.mark.parametrize("row", ABLATION)
def test_every_row_of_the_ablation_runs(row):
    (z, y), _, (test_z, test_y) = split()
    head = calibrate_head(z, y, config=Stage2.ablation(row, epochs=12, batch_size=32))
    assert len(head) == (1 if row in ("vanilla", "masked", "restricted") else 3)
    assert (head(torch.tensor(test_z).float()).argmax(1).numpy() == test_y).mean() > 0.4


def test_heads_together_are_heads_alone():
    """Seeds, gammas, widths and unlike readings in one call.

    Each head is the one its own call gives.
    """
    (z, y), val, _ = split()
    configs = [
        FAST,
        replace(FAST, gamma=0.8, hidden=24),
        FAST,
        replace(FAST, hidden=None),
        replace(FAST, standardise=False, lr=0.02),
        replace(FAST, statistics="deployed"),
    ]
    seeds = [1, 1, 2, 1, 1, 3]
    together = calibrate_heads(z, y, val=val, configs=configs, seeds=seeds)
    for head, config, seed in zip(together, configs, seeds, strict=True):
        alone = calibrate_head(z, y, val=val, config=config, seed=seed)
        assert [tuple(p.shape) for p in head.parameters()] == [
            tuple(p.shape) for p in alone.parameters()
        ]
        assert all(
            torch.allclose(a, b, atol=2e-4)
            for a, b in zip(head.parameters(), alone.parameters(), strict=True)
        )
        assert head.history[-1]["keep"] == pytest.approx(alone.history[-1]["keep"], abs=1e-3)
    with pytest.raises(ValueError, match="2 configs but 1 seeds"):
        calibrate_heads(z, y, configs=[FAST, FAST], seeds=[1])


def test_a_known_accuracy():
    """With unlabelled rows their mean confidence meets it.

    Without, training confidence meets the geometric mean.
    """
    train, (val_z, val_y), _ = split()
    config = replace(FAST, epochs=30)
    right = (
        calibrate_head(*train, val=(val_z, val_y), config=config)(torch.tensor(val_z).float())
        .argmax(1)
        .numpy()
        == val_y
    ).mean()
    last = calibrate_head(*train, accuracy=right, unlabelled=val_z, config=config).history[-1]
    assert last["target"] == right
    assert last["confidence"] == pytest.approx(right, abs=0.03)
    last = calibrate_head(*train, accuracy=right, config=config).history[-1]
    assert last["target"] == pytest.approx((right * last["accuracy"]) ** 0.5)
    assert last["confidence"] == pytest.approx(last["target"], abs=0.03)


def test_gamma_is_called_a_guess():
    """Whoever passes neither rows nor an accuracy is told, unless they ask for gamma by name or
    nothing adapts.
    """
    train, val, _ = split()
    with pytest.warns(UserWarning, match="is a guess; pass val= or accuracy="):
        calibrate_head(*train, config=FAST)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrate_head(*train, accuracy=0.7, config=FAST)
        calibrate_head(*train, val=val, config=FAST)
        calibrate_head(*train, config=replace(FAST, statistics="deployed"))
        calibrate_head(*train, config=replace(FAST, adapt="none"))


def test_a_ceiling():
    """The confidence that is asked for stays below it, whatever the accuracy."""
    train, val, _ = split()
    history = calibrate_head(*train, val=val, ceiling=0.4, config=FAST).history
    assert {r["target"] for r in history} == {0.4}
    assert history[-1]["keep"] < history[0]["keep"]


def test_the_bound_decays():
    """With a large gap the first steps of keep are as large as Eq.

    13 allows, the later ones smaller; static ones stay large.
    """
    train, val, _ = split()
    runs = [
        calibrate_head(*train, val=val, ceiling=0.01, config=replace(FAST, eta=eta)).history
        for eta in ("decay", "static")
    ]
    steps = [[a["keep"] - b["keep"] for a, b in pairwise(run)] for run in runs]
    assert steps[0][:4] == pytest.approx([FAST.eta_at(t) for t in (1, 2, 3, 4)])
    assert steps[1][:4] == pytest.approx([0.1] * 4)


def test_whose_statistics():
    """auto is held-out rows where there are some; a named choice is obeyed."""
    train, val, _ = split()
    n = len(train[1])
    auto, deployed, masked = (
        calibrate_head(*train, val=val, config=replace(FAST, statistics=s)).history
        for s in ("auto", "deployed", "masked")
    )
    assert [r["accuracy"] * len(val[1]) % 1 for r in auto] == pytest.approx([0] * 12, abs=1e-6)
    assert auto[-1]["target"] == auto[-1]["accuracy"]
    for history in (deployed, masked):
        assert [round(r["accuracy"] * n, 6) % 1 for r in history] == [0] * 12
        assert history[-1]["target"] == pytest.approx(0.97 * history[-1]["accuracy"])
    assert deployed[-1]["accuracy"] > masked[-1]["accuracy"]
    held_out = calibrate_head(*train, val=val, config=replace(FAST, statistics="held-out")).history
    assert held_out == auto


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"accuracy": 93.7}, "accuracy is 93.7; pass the share"),
        ({"unlabelled": np.ones((3, 20))}, "pass accuracy= too"),
        (
            {"accuracy": 0.9, "val": (np.ones((3, 20)), np.array([0, 1, 0]))},
            "val or accuracy, not both",
        ),
        ({"accuracy": 0.9, "unlabelled": np.ones((3, 7))}, "z has 20 features and unlabelled 7"),
        ({"config": Stage2(statistics="held-out")}, "needs held-out rows"),
    ],
    ids=str,
)
def test_feedback_that_makes_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        calibrate_head(*task(50), **arguments)


def test_labels_that_count_from_one():
    """A class without rows is allowed.

    When it is class 0 alone, the labels probably count from one.
    """
    z, y = task(100)
    with pytest.warns(UserWarning, match="no row has label 0, and all of 1 .. 4 occur"):
        calibrate_head(z, y + 1, config=FAST)
    head = calibrate_head(z, np.where(y == 2, 3, y), config=FAST)
    assert head[-1].out_features == 4
    assert float(softmax(head(torch.tensor(z).float()))[:, 2].max()) < 0.2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_of_any_precision(dtype):
    """Stored short, trained in float32: the same head as from the same numbers in float32."""
    z, y = task(300)
    short = torch.tensor(z).to(dtype)
    heads = [calibrate_head(features, y, config=FAST) for features in (short, short.float())]
    assert all(p.dtype == torch.float32 for p in heads[0].parameters())
    assert all(
        torch.equal(a, b) for a, b in zip(heads[0].parameters(), heads[1].parameters(), strict=True)
    )
