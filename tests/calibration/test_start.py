"""Heads that start from the trained classifier: a temperature at rate zero, a trust region else."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import maccal as mc
from maccal.calibration.heads import load_head, save_head
from maccal.calibration.solving import scale_to


def task(n=3000, noise=0.25, scale=4.0, bias=True):
    """Features, labels, held-out rows, and a classifier whose logits are `scale` times too large.

    The labels are drawn from its softmax at scale one.
    """
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(4, 12))
    offset = rng.normal(size=4) if bias else np.zeros(4)
    z = rng.normal(size=(2 * n, 12)) * 0.7
    chances = torch.from_numpy(z @ weight.T + offset).softmax(1).numpy()
    y = (rng.random((2 * n, 1)) > chances.cumsum(1)).sum(1).clip(0, 3)
    start = ((scale * weight).astype(np.float32), (scale * offset).astype(np.float32))
    z = z.astype(np.float32)
    return z[:n], y[:n], (z[n:], y[n:]), (start if bias else (start[0], None))


def confidence(head, z):
    return float(head(torch.as_tensor(z)).double().softmax(1).amax(1).mean())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("centre", [False, True])
def test_at_rate_zero_it_is_exactly_a_temperature(bias, centre):
    z, y, val, start = task(bias=bias)
    if centre and not bias:
        with pytest.raises(ValueError, match="has no bias, and centred features would give it one"):
            mc.calibrate_head(z, y, start=start, val=val, config=mc.Stage2(centre=True))
        return
    head = mc.calibrate_head(z, y, start=start, val=val, config=mc.Stage2(lr=0.0, centre=centre))
    weight = torch.from_numpy(start[0])
    scores = F.linear(torch.from_numpy(val[0]), weight)
    if bias:
        scores += torch.from_numpy(start[1])
    accuracy = float((scores.argmax(1).numpy() == val[1]).mean())
    temperature = 1 / scale_to(scores, accuracy)
    assert temperature == pytest.approx(4, rel=0.15)
    torch.testing.assert_close(head[0].weight, weight / temperature, rtol=1e-5, atol=1e-6)
    if bias:
        expected = torch.from_numpy(start[1]) / temperature
        torch.testing.assert_close(head[0].bias, expected, rtol=1e-4, atol=1e-5)
    else:
        assert head[0].bias is None


def test_the_confidence_meets_its_target_and_little_else_changes():
    z, y, val, start = task()
    head = mc.calibrate_head(z, y, start=start, val=val)
    last = head.history[-1]
    assert len(head.history) == 5
    assert last["confidence"] == last["target"] == last["accuracy"]
    assert confidence(head, val[0]) == pytest.approx(last["target"], abs=1e-6)
    before = torch.from_numpy(z @ start[0].T + start[1])
    after = head(torch.from_numpy(z))
    changed = float((before.argmax(1) != after.argmax(1)).double().mean())
    assert 0 < changed < 0.05
    assert mc.summary(logits=after, labels=y)["nll"] < mc.summary(logits=before, labels=y)["nll"]


@pytest.mark.parametrize(
    ("feedback", "target"),
    [
        ({"accuracy": 0.6}, None),
        ({"accuracy": 0.6, "unlabelled": "val"}, 0.6),
        ({}, None),
    ],
    ids=["accuracy", "unlabelled", "gamma"],
)
def test_any_feedback(feedback, target):
    z, y, val, start = task()
    if "unlabelled" in feedback:
        feedback = {**feedback, "unlabelled": val[0]}
    config = mc.Stage2(statistics="auto" if feedback else "deployed", gamma=0.9)
    head = mc.calibrate_head(z, y, start=start, config=config, **feedback)
    last = head.history[-1]
    looked_at = val[0] if "unlabelled" in feedback else z
    wanted = {"accuracy": (0.6 * last["accuracy"]) ** 0.5, "gamma": 0.9 * last["accuracy"]}
    expected = target or wanted["accuracy" if feedback else "gamma"]
    assert confidence(head, looked_at) == pytest.approx(expected, abs=1e-6)


def test_an_underconfident_classifier_keeps_more_than_all_its_weights():
    z, y, val, start = task(scale=0.2)
    head = mc.calibrate_head(z, y, start=start, val=val)
    assert head.history[-1]["keep"] > 1
    assert confidence(head, val[0]) == pytest.approx(head.history[-1]["accuracy"], abs=1e-6)


def test_the_control_trains_without_masks():
    z, y, val, start = task()
    masked, plain = [
        mc.calibrate_head(z, y, start=start, val=val, config=mc.Stage2(masking=masking))
        for masking in ("forward", "none")
    ]
    assert not torch.equal(masked[0].weight, plain[0].weight)
    one, two = [
        mc.calibrate_head(z, y, start=start, val=val, config=mc.Stage2(masking="none"), seed=seed)
        for seed in (1, 2)
    ]
    # all that is random without masks is the order of the rows
    torch.testing.assert_close(one[0].weight, two[0].weight, rtol=0.1, atol=0.02)


def test_eq_12_from_the_trained_classifier():
    z, y, val, start = task()
    config = mc.Stage2(adapt="sparsity", epochs=30)
    head = mc.calibrate_head(z, y, start=start, val=val, config=config)
    keeps = [line["keep"] for line in head.history]
    assert keeps[0] == 0.5
    assert keeps[-1] < 0.3
    assert abs(head.history[-1]["confidence"] - head.history[-1]["target"]) < 0.03


def test_rows_without_a_mistake():
    """The accuracy there is known no better than to one mistake in twice as many rows."""
    z, y, _, start = task()
    best = (z @ start[0].T + start[1]).argmax(1)
    head = mc.calibrate_head(z, y, start=start, val=(z[:99], best[:99]), config=mc.Stage2(lr=0.0))
    assert head.history[-1]["target"] == pytest.approx(1 - 0.5 / 100)


def test_same_seed_same_bits_together_or_alone():
    z, y, val, start = task(n=500)
    alone = [mc.calibrate_head(z, y, start=start, val=val, seed=seed) for seed in (1, 2, 1)]
    configs = [mc.Stage2(), mc.Stage2(q0=0.4)]
    both = mc.calibrate_heads(z, y, start=start, val=val, configs=configs, seeds=[1, 2])
    assert torch.equal(alone[0][0].weight, alone[2][0].weight)
    assert not torch.equal(alone[0][0].weight, alone[1][0].weight)
    torch.testing.assert_close(both[0][0].weight, alone[0][0].weight)


def test_a_head_without_bias_is_saved_and_read(tmp_path):
    z, y, val, start = task(n=500, bias=False)
    head = mc.calibrate_head(z, y, start=start, val=val)
    back = load_head(save_head(head, tmp_path / "x.safetensors"))
    assert back[0].bias is None
    assert torch.equal(back(torch.from_numpy(z)), head(torch.from_numpy(z)))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (np.zeros((4, 12)), r"pass start=\(weight, bias or None\)"),
        ((np.zeros((12, 4)), None), "expected classes x features, and z has 12 features"),
        ((np.zeros((4, 12)), np.zeros(3)), "expected one number for each of the 4 rows"),
        ((np.full((4, 12), np.nan), None), "start holds a value that is not finite"),
        ((np.zeros((3, 12)), None), "label 3 is outside 0 .. 2"),
    ],
    ids=["no pair", "transposed", "short bias", "nan", "too few classes"],
)
def test_a_start_that_does_not_fit(start, message):
    z, y, val, _ = task(n=200)
    with pytest.raises(ValueError, match=message):
        mc.calibrate_head(z, y, start=start, val=val)


def test_a_start_that_is_asked_for_and_missing():
    z, y, val, _ = task(n=200)
    with pytest.raises(ValueError, match="needs the classifier as trained"):
        mc.calibrate_head(z, y, val=val, config=mc.Stage2(start="trained"))


def test_a_model_from_its_trained_classifier():
    z, y, val, start = task(n=500)
    model = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(12, 4))
    model[1].load_state_dict({"weight": torch.from_numpy(start[0]), "bias": torch.tensor(start[1])})
    train = [(torch.from_numpy(z), torch.from_numpy(y))]
    held_out = [(torch.from_numpy(val[0]), torch.from_numpy(val[1]))]
    found = mc.calibrate(model, train, val=held_out, config=mc.Stage2(start="trained"))
    expected = mc.calibrate_head(z, y, start=start, val=val)
    assert torch.equal(found[1].weight, expected[0].weight)
    assert found[1].history == expected.history


def test_solving_for_a_scale():
    scores = torch.randn(1000, 5, generator=torch.Generator().manual_seed(0)) * 3
    for target in (0.2001, 0.5, 0.9, 0.999999):
        scale = scale_to(scores, target)
        found = float((scale * scores.double()).softmax(1).amax(1).mean())
        assert found == pytest.approx(target, abs=1e-9)
    with pytest.raises(ValueError, match="no better than chance among 5 classes"):
        scale_to(scores, 0.2)
    for target in (1.0, 1.2, float("nan")):
        with pytest.raises(ValueError, match="are there rows with some mistakes"):
            scale_to(scores, target)
    with pytest.raises(ValueError, match="do the rows have equal logits"):
        scale_to(torch.zeros(3, 2), 0.8)
