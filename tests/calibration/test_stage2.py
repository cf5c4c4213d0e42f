"""The choices of stage II: the equations' goldens, the named readings, and what is refused."""

from dataclasses import replace
from itertools import pairwise

import pytest

from maccal.calibration.stage2 import ABLATION, Stage2

FRESH = Stage2().settled(trained=False)


def test_goldens_of_eta():
    """Eq. 13 with T = 40."""
    config = FRESH
    expected = {1: 0.08912509, 2: 0.07943282, 10: 0.03162278, 20: 0.01, 30: 0.00316228, 40: 0.001}
    assert {t: round(config.eta_at(t), 8) for t in expected} == expected
    assert sum(config.eta_at(t) for t in range(1, 41)) == pytest.approx(0.81135268, abs=5e-9)
    assert replace(config, eta="static").eta_at(40) == 0.1


@pytest.mark.parametrize(
    ("gamma", "conf", "acc", "t", "q"),
    [
        (0.95, 0.98, 0.995, 1, 0.53475),
        (0.95, 0.6, 0.95, 1, 0.41087491),
        (0.9, 0.9, 0.99, 20, 0.509),
    ],
)
def test_goldens_of_single_updates(gamma, conf, acc, t, q):
    """Eq. 12 as printed moves the retention; our reading moves the sparsity by as much."""
    assert Stage2.paper().next_keep(0.5, conf - gamma * acc, t) == pytest.approx(q, abs=5e-9)
    assert FRESH.next_keep(0.5, conf - gamma * acc, t) == pytest.approx(1 - q, abs=5e-9)
    assert replace(FRESH, adapt="none").next_keep(0.5, conf - gamma * acc, t) == 0.5


def test_golden_of_constant_feedback():
    """As printed, one sign of the gap for nine epochs, and nothing is masked any more."""
    keep = 0.5
    path = []
    for epoch in range(1, 10):
        keep = Stage2.paper().next_keep(keep, 0.5, epoch)
        path.append(round(keep, 6))
    assert path[:5] == [0.589125, 0.668558, 0.739352, 0.802448, 0.858682]
    assert path[5:] == [0.908801, 0.953469, 0.99328, 1.0]


def test_a_head_never_loses_all_its_weights():
    assert FRESH.next_keep(0.02, 0.5, 1) == 0.01
    assert FRESH.next_keep(0.98, -0.5, 1) == 1.0


def test_choices_that_depend_on_the_start():
    assert [FRESH.start, FRESH.epochs, FRESH.lr, FRESH.adapt, FRESH.centre] == [
        "fresh",
        40,
        0.1,
        "sparsity",
        True,
    ]
    trained = Stage2().settled(trained=True)
    assert [trained.start, trained.epochs, trained.lr, trained.adapt, trained.centre] == [
        "trained",
        5,
        3e-4,
        "solved",
        False,
    ]
    assert Stage2().settled(trained=True, rows=1_280_000).epochs == 1
    assert Stage2(hidden=32).settled(trained=True) == replace(FRESH, hidden=32)
    assert Stage2(masking="reset").settled(trained=True).adapt == "sparsity"
    assert Stage2(epochs=7, lr=0.5).settled(trained=True).epochs == 7
    for config in (FRESH, trained):
        assert config.settled(trained=True) == config == config.settled(trained=False)


def test_the_rates():
    config = Stage2(lr=0.2)
    assert [config.lr_at(step, 100) for step in (0, 50, 100)] == pytest.approx([0.2, 0.1, 0.0])
    assert replace(config, schedule="constant").lr_at(99, 100) == 0.2


def test_the_paper_as_printed():
    paper = Stage2.paper(gamma=0.7)
    words = [paper.schedule, paper.inference, paper.adapt, paper.statistics]
    assert words == ["constant", "dense", "retention", "masked"]
    assert [paper.lr, paper.momentum, paper.weight_decay] == [0.1, 0.9, 5e-4]
    assert [paper.epochs, paper.q0, paper.gamma] == [40, 0.5, 0.7]
    assert Stage2.paper(refresh="batch").refresh == "batch"


def test_the_ablation_adds_one_thing_per_row():
    """A mask, gradients to kept weights only, a hidden layer, feedback, the decay of eta."""
    rows = [Stage2.ablation(name) for name in ABLATION]
    assert len(rows) == 6
    assert rows[0].q0 == 1
    assert rows[0].adapt == "none"
    changed = [differing(a, b) for a, b in pairwise(rows[1:])]
    assert changed == [{"masking", "restrict"}, {"hidden"}, {"adapt", "eta"}, {"eta"}]
    assert replace(rows[-1], hidden=None) == FRESH
    assert Stage2.ablation("masked", epochs=3).epochs == 3


def differing(a, b):
    """The names of the choices in which two configs differ."""
    return {name for name in vars(a) if getattr(a, name) != getattr(b, name)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"masking": "dropout"},
            "masking is 'dropout'; choose one of forward, reset, regrow, straight",
        ),
        ({"adapt": "newton"}, "adapt is 'newton'; choose one of solved, sparsity, retention, none"),
        ({"start": "trained", "hidden": 8}, "has no hidden layer; hidden is 8"),
        ({"start": "fresh", "adapt": "solved"}, "adapt='solved' needs inference='expected'"),
        ({"inference": "dense", "adapt": "solved"}, "adapt='solved' needs inference='expected'"),
        ({"epochs": 0}, "epochs is 0; at least one is needed"),
        ({"hidden": 0}, "hidden is 0"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"q0": 0.0}, "q0 is 0.0"),
        ({"q0": 1.5}, "q0 is 1.5"),
        ({"gamma": -1.0}, "gamma is -1.0"),
        ({"gamma": 0.0}, "gamma is 0.0; expected a share above 0 and at most 1"),
        ({"gamma": 2.0}, "gamma is 2.0; expected a share above 0 and at most 1"),
        ({"epochs": 1.5}, "epochs is 1.5; expected a whole number"),
        ({"lr": "fast"}, "lr is 'fast'; expected a number from 0"),
        ({"momentum": float("inf")}, "momentum is inf"),
    ],
    ids=str,
)
def test_nonsense_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Stage2(**changes)


def test_an_unknown_row():
    with pytest.raises(ValueError, match="no row 'final'; the rows are vanilla, masked"):
        Stage2.ablation("final")
