"""Any feedback for any calibrator: what is looked at, what is aimed at, and that it is met."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from maccal.calibration import CALIBRATORS, Feedback, Stage2, Task, calibrate, calibrate_head
from maccal.calibration.feedback import feedback_of
from maccal.calibration.heads import history_of
from maccal.calibration.looks import KNOWN, looked_at
from maccal.calibration.tst import TwoStage
from maccal.features.table import FeatureTable
from maccal.features.views import FAMILIES

FAST = {
    "maccal": Stage2(epochs=12, lr=0.05),
    "tst": TwoStage(epochs=3, width=8),
    "vtst": TwoStage(variational=True, epochs=3, width=8),
    "temperature": CALIBRATORS["temperature"].choices,
    "vector": CALIBRATORS["vector"].choices,
    "matrix": CALIBRATORS["matrix"].choices,
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
@pytest.mark.parametrize("name", ["temperature", "vector", "matrix"])
def test_what_scales_the_classifier_meets_its_target_exactly(name, kind):
    """Where no held-out label says more, the mean confidence is what the feedback asks for."""
    work = task(kind)
    head = CALIBRATORS[name].fit(FAST[name], work)
    looked_at = {"unlabelled": rows(400, 1), "views": rows(400, 1)}.get(kind, rows(600, 0))
    seen = float((head(looked_at[0]).argmax(1) == looked_at[1]).double().mean())
    sure = float(head(looked_at[0]).double().softmax(1).amax(1).mean())
    assert sure == pytest.approx(work.feedback.target(seen, gamma=0.97), abs=1e-6)


def test_a_temperature_divides_the_weights():
    head = CALIBRATORS["temperature"].fit(FAST["temperature"], task("views"))
    temperature = history_of(head)[0]["temperature"]
    torch.testing.assert_close(head.weight * temperature, too_sure().weight)


def test_no_temperature_reaches_every_target():
    train = FeatureTable(*rows(600, 0), "z")
    for accuracy in (0.2, 1.0):
        feedback = feedback_of(train, unlabelled=rows(50, 1)[0], accuracy=accuracy)
        with pytest.raises(ValueError, match="no scale of the logits makes the mean confidence"):
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
    model, loader = nn.Sequential(nn.Flatten(), too_sure()).eval(), [rows(300, 0)]
    by_views = calibrate(model, loader, config=FAST["maccal"], views="mix")
    assert history_of(by_views[1])[-1]["target"] < 1
    plain = calibrate(model, loader, config=replace(FAST["maccal"], gamma=0.8), views=False)
    last = history_of(plain[1])[-1]
    assert last["target"] == pytest.approx(0.8 * last["accuracy"])
    with pytest.raises(ValueError, match="views stand in for held-out labels"):
        calibrate(model, loader, val=loader, views=True)


def test_views_that_cannot_be_made_are_an_error_only_where_they_are_asked_for():
    words = nn.Sequential(nn.Embedding(20, 5), nn.Flatten(), nn.Linear(5, 3)).eval()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(20, (90, 1), generator=generator)
    with torch.no_grad():
        words[0].weight.copy_(torch.eye(5)[torch.arange(20) % 3])
        words[2].weight.copy_(5 * torch.eye(3, 5))
    loader = [(tokens, tokens[:, 0] % 3)]
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


def images(count=400, seed=0):
    """Three classes that differ in brightness, with much noise."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (count,), generator=generator)
    x = torch.randn(count, 1, 8, 8, generator=generator) + 0.12 * y[:, None, None, None]
    return x, y


def bright(scale):
    """The log-odds of the brightness, times a scale."""
    head = nn.Linear(64, 3)
    with torch.no_grad():
        mean = torch.tensor([0.0, 0.12, 0.24])
        head.weight.copy_(scale * mean[:, None].expand(3, 64))
        head.bias.copy_(-scale * 32 * mean**2)
    return nn.Sequential(nn.Flatten(), head).eval()


@pytest.mark.filterwarnings("ignore:only .* of its training rows are right")
@pytest.mark.parametrize("scale", [0.05, 20.0])
@pytest.mark.parametrize("views", [None, "mirror", "shift", "mix", torch.fliplr])
def test_a_temperature_from_views_cures_both(scale, views):
    """Neither over- nor underconfidence is left: the confidence on the view is the accuracy."""
    model, loader = bright(scale), [images()]
    head = calibrate(model, loader, calibrator="temperature", views=views)[1]
    same = calibrate(bright(1.0), loader, calibrator="temperature", views=views)[1]
    torch.testing.assert_close(head.weight, same.weight, rtol=1e-3, atol=1e-5)
    assert head.feedback["source"] == "views"
    assert head.feedback["rows"] == 400


def test_nothing_is_silent(caplog):
    """A log record, a dict on the head, and a warning where views cannot be trusted."""
    model, loader = bright(5.0), [images()]
    with (
        caplog.at_level("INFO", logger="maccal"),
        pytest.warns(UserWarning, match="pass val= or accuracy="),
    ):
        head = calibrate(model, loader, calibrator="temperature")[1]
    card = head.feedback
    assert [record.getMessage() for record in caplog.records] == [card["words"]]
    assert card["view"] in ("mirror + mix 0.7", "shift + mix 0.7", "mirror + shift + mix 0.7")
    assert card["words"].startswith(f"feedback from views of the training rows ({card['view']})")
    assert f"{100 * card['within']:.2f} points by the other views" in card["words"]
    assert 0 < card["aimed"] < 1
    held = calibrate(model, loader, val=loader, calibrator="temperature")[1].feedback
    assert held["within"] == pytest.approx(2 * (held["aimed"] * (1 - held["aimed"]) / 400) ** 0.5)
    known = calibrate(model, loader, accuracy=0.5, calibrator="temperature")[1].feedback
    assert known["aimed"] == pytest.approx((0.5 * held["aimed"]) ** 0.5)
    assert known["within"] is None


@pytest.mark.filterwarnings("ignore:only .* of its training rows are right")
def test_tables_have_no_good_view():
    model, loader = nn.Sequential(nn.Flatten(), too_sure()).eval(), [rows(400, 0)]
    with pytest.warns(UserWarning, match="no good view of such rows is known"):
        head = calibrate(model, loader, calibrator="temperature", views=True)[1]
    assert head.feedback["view"] == "swap 0.2"


def test_the_middle_view_is_aimed_at():
    """Views of rising noise: the second; the others tell how sure it is."""
    head = too_sure()
    noisy = [rows(400, 1, noise) for noise in (1.0, 3.0, 2.0)]
    look = looked_at(FAMILIES["mirror"], [*noisy, rows(400, 2, 0.1)], head)
    assert look.number == 2
    assert look.known > KNOWN
    own = look.confidences[look.view]
    right = float((head(noisy[2][0]).argmax(1) == noisy[2][1]).double().mean())
    assert own == pytest.approx(right, abs=1e-6)
    others = [value for name, value in look.confidences.items() if name != "unchanged"]
    assert look.within == pytest.approx(max(abs(own - value) for value in others))
    assert look.warning.startswith("views of the training rows disagree")
    same = looked_at(FAMILIES["mirror"], [noisy[1]] * 3 + [noisy[1]], head)
    assert same.within == 0
    assert same.warning is None
