"""Selective prediction and OOD detection: goldens, twins, scikit-learn."""

import numpy as np
import pytest
import torch
from goldens import model, outside
from hypothesis import given
from hypothesis import strategies as st
from reference import aurc as slow_aurc
from reference import auroc as slow_auroc
from scipy.special import digamma
from sklearn.metrics import roc_auc_score
from strategies import confidences, outcomes

from maccal.metrics import (
    accuracy_at_coverage,
    aurc,
    auroc,
    e_aurc,
    energy,
    fpr95,
    max_logit,
    max_softmax,
    negative_entropy,
    risk_curve,
    softmax,
)
from maccal.metrics.ranking import TABLE, harmonic

scores = st.lists(confidences, min_size=1, max_size=30).map(np.array)


def test_goldens_of_the_published_code():
    inside, out = softmax(model()[0]), softmax(outside())
    assert auroc(max_softmax(inside), max_softmax(out)) == pytest.approx(0.926333, abs=5e-7)
    assert fpr95(max_softmax(inside), max_softmax(out)) == pytest.approx(0.286667, abs=5e-7)
    assert auroc(negative_entropy(inside), negative_entropy(out)) == pytest.approx(
        0.967167, abs=5e-7
    )


@given(scores, scores)
def test_auroc_twin_and_scikit_learn(inside, out):
    value = auroc(inside, out)
    assert value == pytest.approx(slow_auroc(inside.tolist(), out.tolist()), abs=1e-12)
    truth = np.r_[np.ones(len(inside)), np.zeros(len(out))]
    assert value == pytest.approx(roc_auc_score(truth, np.r_[inside, out]), abs=1e-12)
    assert auroc(out, inside) == pytest.approx(1 - value, abs=1e-12)


@given(scores, scores)
def test_fpr95_lies_between_its_thresholds(inside, out):
    """At most the FPR of the strictest threshold that passes 95 % of ID, at least that of the next
    stricter one.
    """
    value = fpr95(inside, out)
    strictest = max(t for t in np.unique(inside) if (inside >= t).mean() >= 0.95)
    stricter = inside[inside > strictest]
    assert value <= (out >= strictest).mean() + 1e-12
    assert value >= ((out >= stricter.min()).mean() if len(stricter) else 0.0) - 1e-12


def test_fpr95_by_hand():
    inside = np.arange(1, 21) / 20  # 95 % of 20 is 19: the threshold is 0.1
    assert fpr95(inside, np.array([0.09, 0.2])) == pytest.approx(0.5)
    assert fpr95(inside, np.array([0.0, 0.01])) == 0.0
    assert fpr95(inside, np.array([2.0, 3.0])) == 1.0


@given(outcomes())
def test_aurc_twin(case):
    confidence, correct = case
    assert aurc(confidence, correct) == pytest.approx(
        slow_aurc(confidence.tolist(), correct.tolist()), abs=1e-12
    )


@given(outcomes(), st.randoms())
def test_ties_and_order(case, random):
    confidence, correct = case
    order = random.sample(range(len(confidence)), len(confidence))
    assert aurc(confidence[order], correct[order]) == pytest.approx(
        aurc(confidence, correct), abs=1e-15
    )


@given(outcomes())
def test_excess_is_zero_for_a_perfect_order(case):
    _, correct = case
    assert e_aurc(np.where(correct, 0.9, 0.1), correct) == pytest.approx(0, abs=1e-12)
    assert e_aurc(*case) >= -1e-12


@given(outcomes())
def test_full_coverage_is_accuracy(case):
    confidence, correct = case
    assert accuracy_at_coverage(confidence, correct, 1.0) == pytest.approx(correct.mean())
    assert len(risk_curve(confidence, correct)) == len(confidence)


def test_harmonic_numbers_on_both_sides_of_the_table():
    k = np.array([0, 1, 2, 100, TABLE - 1, TABLE, TABLE + 1, 10**7, 10**9, 2**40])
    expected = digamma(k + 1) + np.euler_gamma
    assert harmonic(k) == pytest.approx(expected, rel=1e-13, abs=1e-13)
    assert harmonic(k[:5]) == pytest.approx(expected[:5], rel=1e-13, abs=1e-13)


def test_accuracy_at_coverage_by_hand():
    confidence, correct = np.array([0.9, 0.8, 0.8, 0.6]), np.array([1, 1, 0, 0])
    assert accuracy_at_coverage(confidence, correct, 0.25) == 1
    # one of the two tied rows, half right
    assert accuracy_at_coverage(confidence, correct, 0.5) == 0.75
    assert accuracy_at_coverage(confidence, correct, 0.3) == 0.75  # rounded up to two rows
    for coverage in (0, 1.1, float("nan")):
        with pytest.raises(ValueError, match="coverage"):
            accuracy_at_coverage(confidence, correct, coverage)


def test_scores_by_hand():
    logits = np.array([[0.0, np.log(3.0)]])
    assert max_softmax(softmax(logits)) == pytest.approx(0.75)
    assert negative_entropy(softmax(logits)) == pytest.approx(
        0.25 * np.log(0.25) + 0.75 * np.log(0.75)
    )
    assert negative_entropy(np.array([[1.0, 0.0]]))[0] == 0
    assert max_logit(logits) == pytest.approx(np.log(3))
    assert energy(logits) == pytest.approx(np.log(4))
    assert isinstance(energy(torch.tensor(logits)), torch.Tensor)


def test_bad_scores():
    with pytest.raises(ValueError, match="ood_scores is NaN in row 1"):
        auroc(np.ones(2), np.array([0, np.nan]))
    with pytest.raises(ValueError, match="id_scores has shape"):
        fpr95(np.array([]), np.ones(3))
    assert auroc(np.array([np.inf, 1.0]), np.array([-np.inf])) == 1.0
