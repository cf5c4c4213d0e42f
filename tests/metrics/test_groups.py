"""Groups and classes: numbers as those of the rows alone, and false alarms that stay rare."""

import math

import numpy as np
import pytest
import torch
from binomial import at_most

import maccal as mc
from maccal.metrics import ece, top_label
from maccal.metrics.groups import maximal_bound


def made_up(rng, rows, classes=4, sharpness=1.0):
    """Calibrated where sharpness is 1: labels are drawn from the softmax of the same logits."""
    logits = 2 * rng.normal(size=(rows, classes))
    probs = mc.softmax(logits)
    draws = (probs.cumsum(1) < rng.random((rows, 1))).sum(1)
    return mc.softmax(sharpness * logits), np.minimum(draws, classes - 1)


def test_a_group_has_the_numbers_of_its_rows():
    rng = np.random.default_rng(0)
    probs, labels = made_up(rng, 900)
    groups = rng.choice(["b", "a", "c"], 900)
    lines = mc.by_group(probs, labels, groups)
    assert [line["group"] for line in lines] == ["a", "b", "c"]
    for line in lines:
        own = groups == line["group"]
        confidence, correct = top_label(probs[own], labels[own])
        assert line["rows"] == own.sum()
        assert line["accuracy"] == correct.mean()
        assert line["confidence"] == pytest.approx(confidence.mean())
        assert line["ece"] == ece(confidence, correct)
        assert line["ece_low"] <= line["ece"] <= line["ece_high"]
        assert line["p_holm"] >= line["p_value"]
    whole = mc.summary(probs, labels, interval=True)
    (alone,) = mc.by_group(probs, labels, np.zeros(900, int))
    for key in ("accuracy", "confidence", "ece"):
        assert alone[key] == pytest.approx(whole[key])
    for key in ("ece_low", "ece_high", "ece_null_low", "ece_null_high"):
        assert alone[key] == pytest.approx(whole[key], abs=0.006)  # another thousand draws
    assert alone["p_value"] == alone["p_holm"] == pytest.approx(whole["p_value"], abs=0.08)


def test_logits_torch_and_seeds():
    rng = np.random.default_rng(1)
    probs, labels = made_up(rng, 300)
    groups = np.arange(300) % 3
    first = mc.by_group(probs, labels, groups, seed=4)
    assert first == mc.by_group(
        torch.tensor(probs), torch.tensor(labels), torch.tensor(groups), seed=4
    )
    from_logits = mc.by_group(logits=np.log(probs), labels=labels, groups=groups, seed=4)
    for one, other in zip(first, from_logits, strict=True):
        assert one["ece"] == pytest.approx(other["ece"])
    assert first != mc.by_group(probs, labels, groups, seed=5)


@pytest.mark.slow
def test_false_alarms_of_many_groups_are_rare():
    """Ten calibrated groups: one of them or more is accused in at most 5 % of the trials."""
    rng = np.random.default_rng(2)
    trials, alarms = 60, 0
    for _ in range(trials):
        probs, labels = made_up(rng, 400)
        lines = mc.by_group(probs, labels, np.arange(400) % 10, resamples=300)
        alarms += min(line["p_holm"] for line in lines) < 0.05
    assert alarms <= at_most(0.05, trials)


def test_one_bad_group_is_found_among_many():
    """199 calibrated groups and one that is not: 1,000 draws alone could not say p < 0.05 / 200."""
    rng = np.random.default_rng(3)
    probs, labels = made_up(rng, 4000)
    sharp, drawn = made_up(rng, 200, sharpness=4.0)
    groups = np.r_[np.arange(4000) % 199, np.full(200, 199)]
    lines = mc.by_group(np.concatenate([probs, sharp]), np.r_[labels, drawn], groups, resamples=200)
    assert [line["group"] for line in lines if line["p_holm"] < 0.05] == [199]


@pytest.mark.slow
def test_the_bound_bounds():
    """The largest sum of residuals of a calibrated model exceeds x at most so often."""
    rng = np.random.default_rng(4)
    p = np.sort(rng.uniform(0.5, 1, 300))
    right = rng.random((20_000, 300)) < p
    largest = np.abs((p - right).cumsum(1)).max(1)
    variance = float((p * (1 - p)).sum())
    for reach in (10.0, 20.0, 25.0, 30.0):
        assert (largest >= reach).mean() <= maximal_bound(reach, variance) * 1.0001
    assert maximal_bound(30.0, variance) < 0.01
    assert maximal_bound(0.0, 0.0) == 1


def test_by_class_is_by_what_was_predicted():
    rng = np.random.default_rng(5)
    probs, labels = made_up(rng, 800, sharpness=3.0)
    probs[:, 3] = 0  # never predicted
    probs /= probs.sum(1, keepdims=True)
    names = ["a", "b", "c", "d"]
    lines = mc.by_class(probs, labels, names=names)
    assert [line["class"] for line in lines] == ["a", "b", "c"]
    for k, line in enumerate(lines):
        own = probs.argmax(1) == k
        assert line["rows"] == own.sum()
        assert line["accuracy"] == (labels[own] == k).mean()
    grouped = mc.by_group(probs, labels, probs.argmax(1))
    assert [line["ece"] for line in lines] == [line["ece"] for line in grouped]


def test_one_against_the_rest_adds_up_to_classwise_ece():
    probs, labels = made_up(np.random.default_rng(6), 500)
    lines = mc.by_class(probs, labels, one_vs_rest=True)
    assert [line["rows"] for line in lines] == [500] * 4
    assert np.mean([line["ece"] for line in lines]) == pytest.approx(
        mc.summary(probs, labels)["classwise_ece"]
    )
    assert [line["share"] for line in lines] == (np.bincount(labels) / 500).tolist()


def test_a_table_and_a_frame():
    probs, labels = made_up(np.random.default_rng(7), 200)
    lines = mc.by_group(probs, labels, np.repeat(["old", "new"], 100))
    header, *rest = str(lines).splitlines()
    assert header.split()[:3] == ["group", "rows", "accuracy"]
    assert [line.split()[0] for line in rest] == ["new", "old"]
    frame = lines.to_frame()
    assert list(frame["group"]) == ["new", "old"]
    assert {"ece_null_low", "p_value", "p_holm"} <= set(frame.columns)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (None, "groups are missing"),
        (np.zeros(3), "groups have shape"),
        ([1.0, math.nan, 1.0, 2.0], "groups are NaN in row 1"),
        (["a", None, "b", "b"], "the group of row 1 is None"),
        (np.array(["a", 1, "b", "b"], object), "mix names and numbers"),
        (["a", 1, "b", "b"], "mix names and numbers"),
        (["a", math.nan, "b", "b"], "the group of row 1 is nan"),
        (np.array(["2026-01-01", "NaT", "2026-01-01", "2026-01-02"], "M8[D]"), "NaN in row 1"),
        (np.ma.masked_array([0, 1, 0, 1], [0, 1, 0, 0]), "groups"),
    ],
)
def test_bad_groups_are_refused(groups, message):
    probs, labels = made_up(np.random.default_rng(8), 4)
    with pytest.raises(ValueError, match=message):
        mc.by_group(probs, labels, groups)


def test_wrong_names_are_refused():
    probs, labels = made_up(np.random.default_rng(9), 4)
    with pytest.raises(ValueError, match="3 classes for 4 columns"):
        mc.by_class(probs, labels, names=["a", "b", "c"])
    with pytest.raises(ValueError, match="'a' twice"):
        mc.by_class(probs, labels, names=["a", "b", "c", "a"])
    with pytest.raises(ValueError, match="abcd"):
        mc.by_class(probs, labels, names="abcd")


def test_by_class_takes_classes_as_the_others_do():
    probs = np.array([[0.8, 0.2]] * 10 + [[0.4, 0.6]] * 10)
    labels = np.array(["cat"] * 8 + ["dog"] * 12)
    lines = mc.by_class(probs, labels, classes=["cat", "dog"])
    assert list(lines) == list(mc.by_class(probs, labels, names=["cat", "dog"]))
    assert [line["class"] for line in lines] == ["cat", "dog"]
    with pytest.raises(ValueError, match="pass classes alone"):
        mc.by_class(probs, labels, classes=["cat", "dog"], names=["cat", "dog"])


@pytest.mark.parametrize(
    "measure",
    [
        mc.by_class,
        lambda probs, labels: mc.by_group(probs, labels, np.zeros(len(labels))),
        lambda probs, labels: mc.ConformalSets().fit(probs, labels),
        lambda probs, labels: mc.AbstainingClassifier().fit(probs, labels),
    ],
)
def test_several_labels_per_row_are_told_where_to_go(measure):
    """The advice was to pass softmax probabilities, which is wrong for such labels."""
    probs = np.array([[0.9, 0.8, 0.1], [0.2, 0.7, 0.6]])
    with pytest.raises(ValueError, match="multilabel_summary"):
        measure(probs, (probs > 0.5).astype(int))
