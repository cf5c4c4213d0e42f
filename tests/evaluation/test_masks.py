"""The arrays behind the paper's first two figures.

Limits, hand arithmetic, and the same bits for the same seed.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from maccal.calibration.mac_cal import calibrate_head
from maccal.evaluation.masks import (
    MOTIVATION,
    calibration_curve,
    logit_map,
    masked_inference,
    masked_retraining,
    prototype_angles,
)
from maccal.metrics import Bins, ece, softmax, summary, top_label

D, K = 24, 4


CENTRES = np.random.default_rng(0).normal(0, 1, (K, D))


def blobs(count, seed):
    """Features of K classes that overlap; every feature tells a little."""
    y = np.arange(count) % K
    return (CENTRES[y] + np.random.default_rng(seed).normal(0, 3, (count, D))).astype(np.float32), y


def classifier():
    return (0.2 * CENTRES).astype(np.float32), np.array([0.3, 0.0, -0.2, 0.1], np.float32)


def test_without_masks_it_is_the_classifier():
    (w, b), (z, y) = classifier(), blobs(500, 1)
    found = masked_inference(w, b, z, y, [0.0], draws=3)
    expected = summary(logits=z @ w.T + b, labels=y)
    for name in ("accuracy", "confidence", "ece"):
        assert found[name][0] == pytest.approx(expected[name], abs=1e-6)
        assert found[f"{name}_spread"][0] == pytest.approx(0, abs=1e-12)
    sums = Bins.of(*top_label(softmax((z @ w.T + b).astype(np.float64)), y))
    assert found["edges"].tolist() == sums.edges.tolist()
    assert found["histogram"][0] == pytest.approx(sums.count / 500)


def test_without_weights_only_the_bias_is_left():
    (w, b), (z, y) = classifier(), blobs(500, 1)
    found = masked_inference(w, b, z, y, [1.0])
    assert found["confidence"][0] == pytest.approx(float(softmax(b[None]).max()))
    assert found["accuracy"][0] == 0.25  # always class 0
    assert np.count_nonzero(found["histogram"]) == 1
    assert masked_inference(w, None, z, y, [1.0])["confidence"][0] == pytest.approx(1 / K)


def test_draws_by_hand():
    """A loop over the masks gives the same numbers; numpy arrays and tensors alike."""
    (w, b), (z, y) = classifier(), blobs(300, 2)
    found = masked_inference(
        torch.from_numpy(w),
        torch.from_numpy(b),
        torch.from_numpy(z),
        torch.from_numpy(y),
        [0.4],
        draws=5,
        seed=7,
    )
    generator, each = torch.Generator().manual_seed(7), []
    for _ in range(5):
        kept = (torch.rand(K, D, generator=generator, dtype=torch.float64) >= 0.4).numpy()
        confidence, correct = top_label(softmax((z @ (w * kept).T + b).astype(np.float64)), y)
        each.append([correct.mean(), confidence.mean(), ece(confidence, correct)])
    for name, column in zip(("accuracy", "confidence", "ece"), np.array(each).T, strict=True):
        assert found[name][0] == pytest.approx(column.mean(), abs=1e-6)
        assert found[f"{name}_spread"][0] == pytest.approx(column.std(ddof=1), abs=1e-6)


def test_a_ratio_does_not_depend_on_the_others():
    arguments = (*classifier(), *blobs(200, 3))
    several = masked_inference(*arguments, [0.2, 0.5, 0.9])
    one = masked_inference(*arguments, [0.5])
    for name in ("accuracy", "confidence", "ece", "histogram"):
        assert several[name][1] == pytest.approx(one[name][0], abs=1e-12)
    assert several["ratio"].tolist() == [0.2, 0.5, 0.9]
    assert several["histogram"].sum(1) == pytest.approx(np.ones(3))
    assert masked_inference(*arguments, [0.5], seed=2)["accuracy"] != one["accuracy"]


def test_the_claim_of_the_figure():
    """Masks at inference take confidence and accuracy.

    Retraining under them takes confidence and leaves the accuracy.
    """
    train, test = blobs(1200, 4), blobs(1000, 5)
    trained = calibrate_head(*train, config=replace(MOTIVATION, epochs=20, q0=1.0))[0]
    at_once = masked_inference(trained.weight, trained.bias, *test, [0.0, 0.3, 0.6])
    again = masked_retraining(train, test, [0.0, 0.3, 0.6])
    for found in (at_once, again):
        assert found["confidence"][0] > found["confidence"][1] > found["confidence"][2]
    assert at_once["accuracy"][1] < at_once["accuracy"][0] - 0.03
    assert again["accuracy"][1] > again["accuracy"][0] - 0.02
    assert set(again) == set(at_once)


def test_retraining_is_stage_two_with_fixed_masks():
    train, test = blobs(400, 6), blobs(300, 7)
    found = masked_retraining(train, test, [0.2, 0.5], seeds=[3, 4])
    each = []
    for seed in (3, 4):
        head = calibrate_head(*train, config=replace(MOTIVATION, q0=0.5), seed=seed)
        assert [epoch["keep"] for epoch in head.history] == [0.5] * 5
        each.append(
            summary(logits=head(torch.from_numpy(test[0])).detach(), labels=test[1])["confidence"]
        )
    assert found["confidence"][1] == pytest.approx(np.mean(each), abs=1e-5)
    assert found["confidence_spread"][1] == pytest.approx(np.std(each, ddof=1), abs=1e-5)


def test_wrong_classifiers_and_ratios():
    (w, b), (z, y) = classifier(), blobs(40, 1)
    with pytest.raises(
        ValueError,
        match=r"weight is \(4, 24\), bias \(4,\) and z \(40, 23\); expected K x D, K and N x D",
    ):
        masked_inference(w, b, z[:, 1:], y, [0.1])
    with pytest.raises(ValueError, match=r"bias \(3,\)"):
        masked_inference(w, b[:3], z, y, [0.1])
    with pytest.raises(ValueError, match=r"label 4 in row 1 is outside 0 \.\. 3"):
        masked_inference(w, b, z, y + 3, [0.1])
    for wrong in ([], [1.1], [-0.1], [math.nan]):
        with pytest.raises(ValueError, match=r"masking ratios are .* from 0 to 1$"):
            masked_inference(w, b, z, y, wrong)
    with pytest.raises(ValueError, match=r"masking ratios are .* from 0 to 0\.99$"):
        masked_retraining((z, y), (z, y), [1.0])
    with pytest.raises(ValueError, match="draws is 0"):
        masked_inference(w, b, z, y, [0.1], draws=0)
    with pytest.raises(ValueError, match="no seeds"):
        masked_retraining((z, y), (z, y), [0.5], seeds=[])
    with pytest.raises(ValueError, match="24 features in train and 23 in test"):
        masked_retraining((z, y), (z[:, 1:], y), [0.5])
    with pytest.raises(ValueError, match="z hold a value that is not finite"):
        masked_inference(w, b, np.where(z == z[0, 0], np.nan, z), y, [0.1])


def test_angles_by_hand():
    x = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [1.0, 1.0], [-5.0, 0.0]])
    y = np.array([0, 0, 1, 2, 3])
    expected = [[0, 90, 45, 180], [90, 0, 45, 90], [45, 45, 0, 135], [180, 90, 135, 0]]
    assert prototype_angles(x, y) == pytest.approx(np.array(expected, float), abs=1e-6)
    assert prototype_angles(
        torch.from_numpy(1000 * x).float(), torch.from_numpy(y), 4
    ) == pytest.approx(np.array(expected, float), abs=1e-4)


@pytest.mark.parametrize("classes", [3, 10])
def test_angles_of_equally_spread_classes(classes):
    """The corners of a simplex.

    At right angles as they stand, at arccos(-1 / (K - 1)) about their middle.
    """
    apart = 1 - np.eye(classes)
    assert prototype_angles(np.eye(classes), np.arange(classes)) == pytest.approx(
        90 * apart, abs=1e-6
    )
    spread = math.degrees(math.acos(-1 / (classes - 1)))
    assert prototype_angles(np.eye(classes), np.arange(classes), centred=True) == pytest.approx(
        spread * apart, abs=1e-5
    )


def test_a_prototype_is_the_mean_of_its_rows():
    """However many rows a class has."""
    z, y = blobs(100, 8)
    rows = np.concatenate([np.arange(100), np.flatnonzero(y == 2)])
    assert prototype_angles(z[rows], y[rows]) == pytest.approx(prototype_angles(z, y), abs=1e-6)
    means = np.array([z[y == k].mean(0) for k in range(K)], np.float64)
    cosine = means[0] @ means[3] / np.linalg.norm(means[0]) / np.linalg.norm(means[3])
    assert prototype_angles(z, y)[0, 3] == pytest.approx(math.degrees(math.acos(cosine)), abs=1e-4)


def test_classes_without_a_direction():
    with pytest.raises(ValueError, match="no row of class 1"):
        prototype_angles(np.eye(3), np.array([0, 2, 2]))
    with pytest.raises(ValueError, match="no row of class 3"):
        prototype_angles(np.eye(3), np.arange(3), 4)
    with pytest.raises(ValueError, match="the prototype of class 0 is zero"):
        prototype_angles(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]]), np.array([0, 0, 1]))


@pytest.mark.slow
def test_map():
    """The same bits again; classes stay apart; the rows do not depend on the logits."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % K
    logits = 12 * np.eye(K)[y] + rng.normal(0, 1, (400, K))
    first, second = (logit_map(logits, y, rows=100) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert first["place"].shape == (100, 2)
    assert np.bincount(first["labels"]).tolist() == [25] * 4
    assert np.array_equal(first["labels"], y[first["rows"]])
    p = softmax(logits[first["rows"]])
    assert first["entropy"] == pytest.approx(-(p * np.log(p)).sum(1))
    distance = np.linalg.norm(first["place"][:, None] - first["place"], axis=2) + np.diag(
        np.full(100, np.inf)
    )
    assert (first["labels"][distance.argmin(1)] == first["labels"]).all()
    after = logit_map(torch.from_numpy(logits / 3).float(), torch.from_numpy(y), rows=100)
    assert np.array_equal(after["rows"], first["rows"])
    assert after["entropy"].mean() > first["entropy"].mean()


def test_maps_of_few_rows():
    logits = np.random.default_rng(0).normal(0, 1, (5, 3))
    assert logit_map(logits, np.array([0, 1, 2, 0, 1]))["place"].shape == (5, 2)
    with pytest.raises(ValueError, match="4 rows of logits; a map needs at least five"):
        logit_map(logits, np.array([0, 1, 2, 0, 1]), rows=4)
    with pytest.raises(ValueError, match="5 rows of logits, all equal"):
        logit_map(np.zeros((5, 3)), np.array([0, 1, 2, 0, 1]))


def test_calibration_curve():
    z, y = blobs(600, 9)
    w, b = classifier()
    curve = calibration_curve(z @ w.T + b, y)
    gaps = np.nan_to_num(np.abs(curve["confidence"] - curve["accuracy"]))
    assert (curve["count"] * gaps).sum() / 600 == pytest.approx(
        summary(logits=z @ w.T + b, labels=y)["ece"], abs=1e-6
    )
    assert np.isnan(curve["accuracy"]).tolist() == (curve["count"] == 0).tolist()
    assert len(curve["edges"]) == 16
