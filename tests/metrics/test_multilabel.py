"""Several labels per row: each label as a binary problem, and what they are together."""

import math

import numpy as np
import pytest
import torch
from binomial import at_least
from sklearn.metrics import log_loss, roc_auc_score

import maccal as mc
from maccal.metrics import ece


def made_up(rng, rows, labels=4, sharpness=1.0):
    """Calibrated entries where sharpness is 1."""
    logits = rng.normal(-0.5, 1.5, (rows, labels))
    targets = (rng.random((rows, labels)) < 1 / (1 + np.exp(-logits))).astype(int)
    return sharpness * logits, targets


def probs_of(logits):
    return 1 / (1 + np.exp(-logits))


def test_a_label_has_the_numbers_of_a_binary_problem():
    logits, targets = made_up(np.random.default_rng(0), 300)
    probs = probs_of(logits)
    found = mc.multilabel_summary(probs, targets, names=["a", "b", "c", "d"])
    for k, line in enumerate(found["labels"]):
        alone = mc.binary_summary(probs[:, k], targets[:, k])
        assert line["label"] == "abcd"[k]
        assert line["ece"] == alone["positive_ece"]
        assert line["share"] == alone["positives"]
        for key in ("nll", "brier", "auroc"):
            assert line[key] == pytest.approx(alone[key])


def test_macro_and_micro():
    logits, targets = made_up(np.random.default_rng(1), 300)
    probs = probs_of(logits)
    found = mc.multilabel_summary(probs, targets)
    each = [ece(probs[:, k], targets[:, k]) for k in range(4)]
    assert found["macro_ece"] == pytest.approx(np.mean(each))
    assert found["micro_ece"] == ece(probs.ravel(), targets.ravel())
    assert found["macro_auroc"] == pytest.approx(roc_auc_score(targets, probs, average="macro"))
    assert found["micro_auroc"] == pytest.approx(roc_auc_score(targets, probs, average="micro"))
    assert found["nll"] == pytest.approx(log_loss(targets.ravel(), probs.ravel()))
    assert found["accuracy"] == ((probs > 0.5) == targets).mean()
    assert found["exact"] == ((probs > 0.5) == targets).all(1).mean()


def test_opposite_errors_hide_in_one_pot():
    """One label always 20 points too high, one as much too low: micro sees nothing, macro all."""
    probs = np.full((1000, 2), 0.5)
    targets = np.zeros((1000, 2), int)
    targets[:300, 0] = 1
    targets[:700, 1] = 1
    found = mc.multilabel_summary(probs, targets, interval=True)
    assert found["micro_ece"] == pytest.approx(0, abs=1e-12)
    assert found["macro_ece"] == pytest.approx(0.2)
    assert found["verdict"].startswith("2 of 2 labels are miscalibrated")


def test_logits_and_torch():
    logits, targets = made_up(np.random.default_rng(2), 200)
    expected = mc.multilabel_summary(probs_of(logits), targets)
    given = mc.multilabel_summary(logits=torch.tensor(logits), labels=torch.tensor(targets))
    for key in ("macro_ece", "micro_ece", "nll", "brier"):
        assert given[key] == pytest.approx(expected[key])


def test_words_and_table():
    logits, targets = made_up(np.random.default_rng(3), 800)
    calm = mc.multilabel_summary(logits=logits, labels=targets, interval=True)
    assert calm["verdict"].startswith("No label can be told from a calibrated one")
    logits[:, 2] *= 4
    loud = mc.multilabel_summary(
        logits=logits, labels=targets, names=["a", "b", "c", "d"], interval=True
    )
    assert loud["verdict"].startswith("1 of 4 labels are miscalibrated")
    assert "the worst is c: " in loud["verdict"]
    assert "ECE, macro" in str(loud)
    assert list(loud["labels"].to_frame()["label"]) == ["a", "b", "c", "d"]
    assert loud["macro_ece_low"] < loud["macro_ece"] < loud["macro_ece_high"]


@pytest.mark.slow
def test_intervals_of_means_cover_with_dependent_labels():
    """Labels that are copies of each other: an interval over entries would be half as wide."""
    rng = np.random.default_rng(4)
    trials, covered = 300, 0
    for _ in range(trials):
        logits, targets = made_up(rng, 200, labels=1)
        logits, targets = np.repeat(logits, 4, 1), np.repeat(targets, 4, 1)
        found = mc.multilabel_summary(logits=logits, labels=targets, interval=True, resamples=1)
        covered += found["brier_low"] <= TRUE_BRIER <= found["brier_high"]
    assert covered >= at_least(0.94, trials)  # the normal law at 200 rows: a point less than 95


GRID = -0.5 + 1.5 * np.linspace(-8, 8, 200_001)
WEIGHT = np.exp(-(np.linspace(-8, 8, 200_001) ** 2) / 2)
TRUE_BRIER = float((probs_of(GRID) * (1 - probs_of(GRID)) * WEIGHT).sum() / WEIGHT.sum())


def test_a_label_that_never_occurs():
    logits, targets = made_up(np.random.default_rng(5), 100)
    targets[:, 1] = 0
    found = mc.multilabel_summary(logits=logits, labels=targets)
    assert math.isnan(found["labels"][1]["auroc"])
    assert math.isfinite(found["macro_auroc"])


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([0.5, 0.5], [0, 1], "for one score per row there is binary_summary"),
        ([[0.5, 1.5]], [[0, 1]], "row 0 holds 1.5"),
        ([[0.5, 0.5]], [[0, 3]], "hold 3 in row 0"),
        ([[0.5, 0.5]], [0], "must match one to one"),
    ],
)
def test_what_is_not_multi_label_is_refused(probs, labels, message):
    with pytest.raises(ValueError, match=message):
        mc.multilabel_summary(np.array(probs), np.array(labels))


def test_summary_names_the_right_function():
    """It used to advise argmax, which throws all labels but one away."""
    probs = np.array([[0.7, 0.3], [0.4, 0.6]])
    with pytest.raises(ValueError, match="multilabel_summary"):
        mc.summary(probs, np.array([[1, 1], [0, 1]]))
    with pytest.raises(ValueError, match="pass class indices"):
        mc.summary(probs, np.array([[1, 0], [0, 1]]))
