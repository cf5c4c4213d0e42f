"""One score per row: the positive class and the answer, each under its name."""

import math

import numpy as np
import pytest
import torch
from binomial import at_least, at_most
from scipy.stats import binom
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

import maccal as mc
from maccal.metrics import ece


def made_up(rng, rows, shift=0.0):
    """Scores of a rarer class 1, and labels drawn from them; too high by `shift` in logits."""
    logits = rng.normal(-1.5, 1.5, rows)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-logits))).astype(int)
    return logits + shift, labels


def test_against_scikit_learn():
    logits, labels = made_up(np.random.default_rng(0), 500)
    scores = 1 / (1 + np.exp(-logits))
    found = mc.binary_summary(scores, labels)
    assert found["brier"] == pytest.approx(brier_score_loss(labels, scores))
    assert found["nll"] == pytest.approx(log_loss(labels, scores))
    assert found["auroc"] == pytest.approx(roc_auc_score(labels, scores))
    assert found["positives"] == labels.mean()


def test_both_questions_have_their_answer():
    logits, labels = made_up(np.random.default_rng(1), 500)
    scores = 1 / (1 + np.exp(-logits))
    found = mc.binary_summary(scores, labels)
    two = mc.summary(np.stack([1 - scores, scores], 1), labels)
    assert found["positive_ece"] == pytest.approx(ece(scores, labels))
    assert found["top_ece"] == pytest.approx(two["ece"])
    assert found["accuracy"] == two["accuracy"]
    assert found["top_confidence"] == pytest.approx(two["confidence"])
    assert found["nll"] == pytest.approx(two["nll"])
    assert found["brier"] == pytest.approx(two["brier"] / 2)
    assert found["positive_ece"] != pytest.approx(found["top_ece"])


def test_a_rare_class_that_is_never_seen():
    """Always 10 % where it is 1 %: class 1 is ten times off."""
    labels = np.zeros(1000, int)
    labels[:10] = 1
    found = mc.binary_summary(np.full(1000, 0.1), labels, interval=True)
    assert found["positive_ece"] == pytest.approx(0.09)
    assert found["verdict"].startswith("Too high: the mean probability of class 1 is 10.00 %")
    assert math.isclose(found["auroc"], 0.5)


def test_logits_and_columns_and_types():
    logits, labels = made_up(np.random.default_rng(2), 300)
    scores = 1 / (1 + np.exp(-logits))
    expected = mc.binary_summary(scores, labels)
    for given in (
        mc.binary_summary(logits=logits, labels=labels),
        mc.binary_summary(logits=torch.tensor(logits)[:, None], labels=torch.tensor(labels)),
        mc.binary_summary(scores[:, None], labels[:, None]),
        mc.binary_summary(scores, labels.astype(bool)),
        mc.binary_summary(scores, labels.astype(float)),
    ):
        assert given["positive_ece"] == pytest.approx(expected["positive_ece"])
        assert given["nll"] == pytest.approx(expected["nll"])


def test_extreme_logits_have_a_finite_loss():
    found = mc.binary_summary(logits=np.array([800.0, -800.0]), labels=np.array([0, 0]))
    assert found["nll"] == 400
    sure = mc.binary_summary(np.array([1.0, 0.0]), np.array([0, 0]))
    assert math.isinf(sure["nll"])
    assert math.isnan(sure["auroc"])


@pytest.mark.slow
def test_the_level_of_the_test_and_the_cover_of_the_interval():
    rng = np.random.default_rng(3)
    trials, alarms, covered = 80, 0, 0
    for trial in range(trials):
        logits, labels = made_up(rng, 150)
        found = mc.binary_summary(
            logits=logits, labels=labels, interval=True, resamples=200, seed=trial
        )
        alarms += found["positive_p_value"] <= 0.05
        covered += found["positive_ece_null_low"] <= found["positive_ece"]
    assert alarms <= at_most(0.05, trials)
    assert covered >= at_least(0.97, trials)


def test_too_high_and_too_low_in_words():
    for shift, word in ((1.5, "Too high"), (-1.5, "Too low")):
        logits, labels = made_up(np.random.default_rng(4), 1500, shift)
        found = mc.binary_summary(logits=logits, labels=labels, interval=True)
        assert found["verdict"].startswith(word)
        assert found["positive_p_value"] < 0.01
    logits, labels = made_up(np.random.default_rng(5), 1500)
    found = mc.binary_summary(logits=logits, labels=labels, interval=True)
    assert found["verdict"].startswith("Cannot be told from calibrated probabilities")
    assert "ECE of class 1" in str(found)
    assert "ECE of the answer" in str(found)


@pytest.mark.parametrize(
    ("probs", "labels", "message"),
    [
        ([0.5, 1.5], [0, 1], r"row 1 holds 1.5, outside \[0, 1\]; if these are logits"),
        (
            [0.5, 99.0],
            [0, 1],
            "row 1 holds 99, outside .*; if these are percentages, divide by 100",
        ),
        ([0.5, math.nan], [0, 1], "row 1 holds nan"),
        ([0.5, 0.5], [0, 2], "hold 2 in row 1; expected 0 or 1"),
        ([0.5, 0.5], [0, 1, 1], "must match one to one"),
        ([[0.5, 0.5], [0.1, 0.9]], [0, 1], "two columns; that is what summary takes"),
        ([[0.2, 0.3, 0.5]], [0], "expected one score of class 1 for each row"),
        ([0, 1], [0, 1], "expected floating point"),
        ([], [], "empty"),
    ],
)
def test_what_is_no_binary_score_is_refused(probs, labels, message):
    probs = np.array(probs) if len(probs) else np.zeros(0)
    with pytest.raises(ValueError, match=message):
        mc.binary_summary(probs, np.array(labels, int))


def test_summary_names_the_right_function():
    with pytest.raises(ValueError, match="for a binary score s call binary_summary"):
        mc.summary(np.array([0.2, 0.3]), np.array([0, 1]))
    with pytest.raises(ValueError, match="for a binary score s call binary_summary"):
        mc.summary(np.array([[0.2], [0.3]]), np.array([0, 1]))


def test_draws_that_are_the_value_itself_count_as_reaching_it():
    """30 rows at 90 %, all of class 1: P(30 or at most 24 right) = 0.1156, and two tests."""
    probs, labels = np.full(30, 0.9), np.ones(30, int)
    expected = 2 * (0.9**30 + binom.cdf(24, 30, 0.9))
    found = mc.binary_summary(probs, labels, interval=True, resamples=4000)["positive_p_value"]
    assert found == pytest.approx(expected, abs=0.04)
    two = np.stack([1 - probs, probs], 1)
    assert mc.summary(two, labels, interval=True)["p_value"] == pytest.approx(expected, abs=0.06)
    (line,) = mc.by_class(two, labels)
    assert line["p_value"] == pytest.approx(expected, abs=0.06)
