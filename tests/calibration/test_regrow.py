"""Masks that zero the weights when they are drawn: the weights then grow again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import maccal as mc
from maccal.calibration.stage2 import ABLATION, PRESETS, Stage2

RESTRICTED = Stage2.ablation("restricted", "regrow")


def by_heart(n=2000, classes=10, width=64, seed=0):
    """Training rows that are far apart, unseen ones that are not, and a classifier too sure."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, width))
    parts = []
    for noise in (0.5, 3.0):
        y = rng.integers(0, classes, n)
        z = centres[y] + noise * rng.normal(size=(n, width))
        parts.append((z.astype(np.float32), y))
    start = (0.5 * centres).astype(np.float32), np.zeros(classes, np.float32)
    return parts[0], parts[1], start


def fitted(config, seed=1):
    (z, y), unseen, start = by_heart()
    head = mc.calibrate_head(z, y, start=start, val=unseen, config=config, seed=seed)
    return head, mc.summary(logits=head(torch.from_numpy(unseen[0])), labels=unseen[1])


def test_without_a_mask_or_a_rate_it_is_the_classifier():
    head, _ = fitted(replace(RESTRICTED, q0=1.0, lr=0.0))
    start = by_heart()[2]
    torch.testing.assert_close(head[0].weight, torch.from_numpy(start[0]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keep", [0.2, 0.5])
def test_what_is_dropped_is_zero_until_it_grows(keep):
    """Frozen weights stay zero for the epoch; without a restriction all of them are back."""
    frozen, _ = fitted(replace(RESTRICTED, restrict="frozen", epochs=1, q0=keep))
    zero = float((frozen[0].weight == 0).double().mean())
    assert zero == pytest.approx(1 - keep, abs=4 * (keep * (1 - keep) / 640) ** 0.5)
    free, _ = fitted(replace(RESTRICTED, restrict="none", epochs=1, q0=keep))
    assert bool((free[0].weight != 0).all())


def test_masks_last_an_epoch_and_weights_come_back_in_the_next():
    """In one epoch nothing dropped moves; in two, what the second mask keeps has grown."""
    one, two = [
        fitted(replace(RESTRICTED, restrict="frozen", epochs=epochs))[0] for epochs in (1, 2)
    ]
    assert RESTRICTED.refresh == "epoch"
    assert Stage2().settled(trained=True).refresh == "batch"
    back = (one[0].weight == 0) & (two[0].weight != 0)
    assert 0.15 < float(back.double().mean()) < 0.35  # a half of a half


def test_it_is_sgd_on_the_weights_that_are_left():
    """A slow, obvious twin: zero once, then torch's own optimiser with masked gradients."""
    (z, y), _, start = by_heart()
    config = replace(RESTRICTED, epochs=1, standardise=False, batch_size=len(z), momentum=0.0)
    head = mc.calibrate_head(z, y, start=start, config=config)
    frozen = mc.calibrate_head(z, y, start=start, config=replace(config, lr=0.0))
    mask = (frozen[0].weight != 0).float()
    weight = (torch.from_numpy(start[0]) * mask).requires_grad_(True)
    bias = torch.zeros(10, requires_grad=True)
    logits = torch.from_numpy(z) @ weight.T + bias
    torch.nn.functional.cross_entropy(logits, torch.from_numpy(y)).backward()
    step = 0.1 * (mask * weight.grad + config.weight_decay * weight.detach())
    torch.testing.assert_close(head[0].weight, weight.detach() - step, rtol=1e-4, atol=1e-6)


def redundant(noise, seed, n=1500, classes=10, width=256):
    """Features that say the same many times over, as a network's do."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    hints = 2 * np.eye(classes)[y] + noise * rng.normal(size=(n, classes))
    spread = np.random.default_rng(9).normal(size=(classes, width))
    return np.maximum(hints @ spread, 0).astype(np.float32), y


def test_the_first_three_rows_of_table_5():
    """As the paper has them: ECE falls from row to row, and accuracy with it."""
    train, (z, y) = redundant(0.6, 0), redundant(1.2, 1)
    vanilla = mc.calibrate_head(*train, config=Stage2.ablation("vanilla", epochs=20, lr=0.3))
    start = (vanilla[0].weight, vanilla[0].bias)
    heads = [vanilla]
    for row in ("masked", "restricted"):
        config = Stage2.ablation(row, "regrow", q0=0.2)
        heads.append(mc.calibrate_head(*train, start=start, config=config))
    found = [mc.summary(logits=head(torch.from_numpy(z)), labels=y) for head in heads]
    eces = [numbers["ece"] for numbers in found]
    assert eces[0] > 2 * eces[1] > 2 * eces[2]
    assert found[0]["accuracy"] > found[1]["accuracy"] > found[2]["accuracy"]


def test_the_rows_of_both_readings():
    """They differ in the masks and where they begin; the steps from row to row are the same."""
    for row in ABLATION:
        forward, regrow = Stage2.ablation(row), Stage2.ablation(row, reading="regrow")
        assert regrow.masking == "regrow"
        same = ("hidden", "adapt", "q0", "restrict", "eta")
        assert all(getattr(forward, name) == getattr(regrow, name) for name in same)
        assert regrow.start == ("trained" if regrow.hidden is None else "fresh")
        assert forward.start == "fresh"
        assert PRESETS[row] == forward
        assert PRESETS[f"{row}-regrow"] == regrow
    with pytest.raises(ValueError, match="no reading 'backward'; choose one of forward, regrow"):
        Stage2.ablation("masked", "backward")


def test_keep_is_not_solved_for_where_the_weights_are_used_as_they_are():
    assert Stage2(masking="regrow").settled(trained=True).adapt == "sparsity"
    with pytest.raises(ValueError, match="masking other than 'reset' and 'regrow'"):
        Stage2(masking="regrow", adapt="solved")
