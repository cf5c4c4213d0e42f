"""Any feedback for any calibrator: what is looked at, what is aimed at, and that it is met."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from maccal.calibration import CALIBRATORS, Feedback, Stage2, Task, calibrate, calibrate_head
from maccal.calibration.feedback import feedback_of
from maccal.calibration.heads import history_of
from maccal.calibration.tst import TwoStage
from maccal.features.table import FeatureTable

FAST = {
    "maccal": Stage2(epochs=12, lr=0.05),
    "tst": TwoStage(epochs=3, width=8),
    "vtst": TwoStage(variational=True, epochs=3, width=8),
    "temperature": CALIBRATORS["temperature"].choices,
}
KINDS = ("held-out", "unlabelled", "accuracy", "views", "training")


def rows(count, seed, noise=2.0):
    """Three overlapping classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=generator)
    centres = 2.0 * torch.eye(3, 5)
    return centres[y] + noise * torch.randn(count, 5, generator=generator), y


def too_sure():
    """A classifier that knows the classes and is three times as sure as it should be."""
    head = nn.Linear(5, 3)
    with torch.no_grad():
        head.weight.copy_(3.0 * torch.eye(3, 5))
        head.bias.zero_()
    return head


def task(kind, **known):
    train = FeatureTable(*rows(600, 0), "z")
    held_out = rows(400, 1)
    given = {
        "held-out": {"val": held_out},
        "unlabelled": {"unlabelled": held_out[0], "accuracy": 0.6},
        "accuracy": {"accuracy": 0.6},
        "views": {"views": held_out, "ceiling": 0.95},
        "training": {},
    }[kind]
    return Task(train, feedback_of(train, **given, **known), 3, too_sure())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALIBRATORS)
def test_any_feedback_for_any_calibrator(name, kind):
    """The new head gives logits of every class, is in eval mode, and says how it came about."""
    work = task(kind)
    assert work.feedback.source == kind
    head = CALIBRATORS[name].fit(FAST[name], work)
    logits = head(rows(50, 2)[0])
    assert logits.shape == (50, 3)
    assert bool(logits.isfinite().all())
    assert not head.training
    assert history_of(head)[0]["epoch"] == 1


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "held-out"])
def test_a_temperature_meets_its_target_exactly(kind):
    """Where no held-out label says more, the mean confidence is what the feedback asks for."""
    work = task(kind)
    head = CALIBRATORS["temperature"].fit(FAST["temperature"], work)
    looked_at = {"unlabelled": rows(400, 1), "views": rows(400, 1)}.get(kind, rows(600, 0))
    seen = float((head(looked_at[0]).argmax(1) == looked_at[1]).double().mean())
    sure = float(head(looked_at[0]).double().softmax(1).amax(1).mean())
    assert sure == pytest.approx(work.feedback.target(seen, gamma=0.97), abs=1e-6)
    temperature = history_of(head)[0]["temperature"]
    torch.testing.assert_close(head.weight * temperature, too_sure().weight)


def test_no_temperature_reaches_every_target():
    train = FeatureTable(*rows(600, 0), "z")
    for accuracy in (0.2, 1.0):
        feedback = feedback_of(train, unlabelled=rows(50, 1)[0], accuracy=accuracy)
        with pytest.raises(ValueError, match="no temperature makes the mean confidence"):
            CALIBRATORS["temperature"].fit(
                FAST["temperature"], Task(train, feedback, 3, too_sure())
            )


def test_unlabelled_rows_choose_the_epoch_whose_confidence_is_nearest():
    work = task("unlabelled")
    head = CALIBRATORS["tst"].fit(replace(FAST["tst"], epochs=8), work)
    gaps = [epoch["gap"] for epoch in history_of(head)]
    sure = float(head(rows(400, 1)[0]).double().softmax(1).amax(1).mean())
    assert abs(sure - 0.6) == pytest.approx(min(gaps), abs=1e-6)


def test_targets_by_hand():
    table = FeatureTable(*rows(40, 0), "z")
    assert Feedback("held-out", table).target(0.7, gamma=0.9) == 0.7
    assert Feedback("views", table, ceiling=0.6).target(0.7, gamma=0.9) == 0.6
    assert Feedback("unlabelled", table, 0.8).target(0.0, gamma=0.9) == 0.8
    assert Feedback("accuracy", None, 0.64).target(1.0, gamma=0.9) == pytest.approx(0.8)
    assert Feedback("training").target(0.5, gamma=0.9) == pytest.approx(0.45)
    assert Feedback("held-out", table).on_training_rows().source == "training"


def model_and_loader():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(5, 5), nn.ReLU(), too_sure())
    x, y = rows(300, 0)
    return model.eval(), [(x[i : i + 50], y[i : i + 50]) for i in range(0, 300, 50)]


def test_views_can_be_asked_for_and_refused():
    model, loader = model_and_loader()
    by_views = calibrate(model, loader, config=FAST["maccal"], views=True)
    assert history_of(by_views[3])[-1]["target"] < 1
    plain = calibrate(model, loader, config=replace(FAST["maccal"], gamma=0.5), views=False)
    last = history_of(plain[3])[-1]
    assert last["target"] == pytest.approx(0.5 * last["accuracy"])
    with pytest.raises(ValueError, match="views stand in for held-out labels"):
        calibrate(model, loader, val=loader, views=True)


def test_views_that_cannot_be_made_are_an_error_only_where_they_are_asked_for():
    words = nn.Sequential(nn.Embedding(20, 5), nn.Flatten(), nn.Linear(5, 3)).eval()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(20, (90, 1), generator=generator)
    loader = [(tokens, torch.arange(90) % 3)]
    with pytest.raises(ValueError, match="cannot be mixed"):
        calibrate(words, loader, views=True)
    with pytest.warns(UserWarning, match="is a guess"):
        calibrate(words, loader, config=FAST["maccal"])
    calibrate(words, loader, config=FAST["maccal"], views=False)  # said, so no warning


def test_a_config_of_another_calibrator():
    model, loader = model_and_loader()
    with pytest.raises(ValueError, match="takes a Temperature"):
        calibrate(model, loader, calibrator="temperature", config=Stage2())
    with pytest.raises(ValueError, match="the calibrators are maccal"):
        calibrate(model, loader, calibrator="platt")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": "0"}, "seed is '0'; expected a whole number"),
        ({"seed": 1.5}, "seed is 1.5; expected a whole number"),
        ({"seed": 1 << 70}, "seed is .*; at most"),
        ({"classes": 10**30}, "classes is .*; at most"),
        ({"classes": np.nan}, "classes is nan; expected a whole number"),
        ({"ceiling": np.nan}, "ceiling is nan; expected a share"),
    ],
)
def test_odd_numbers(wrong, message):
    """Found by `make faults`: torch's own errors had many lines, or were no ValueError."""
    with pytest.raises(ValueError, match=message):
        calibrate_head(*rows(60, 0), val=rows(60, 1), **wrong)
