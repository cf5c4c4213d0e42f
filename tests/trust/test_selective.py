"""Abstaining: hand arithmetic, the promise by simulation, and what cannot be promised."""

import math

import numpy as np
import pytest
import torch
from binomial import at_most
from scipy.stats import binomtest
from sklearn.base import clone

import maccal as mc
from maccal.trust.selective import ranks


def two_columns(p):
    return np.stack([p, 1 - p], 1)


def drawn(rng, rows, wrong_rate):
    """Confidences and labels, 0 where right; wrong with the rate that the function gives."""
    p = 1 - 0.5 * rng.random(rows) ** 2
    return two_columns(p), (rng.random(rows) < wrong_rate(p)).astype(int)


def true_risk(threshold, wrong_rate):
    """Of all rows above the threshold, by a fine sum over the law of `drawn`."""
    p = 1 - 0.5 * ((np.arange(20_000) + 0.5) / 20_000) ** 2
    above = p > threshold
    return wrong_rate(p)[above].mean() if above.any() else 0.0


RATES = {
    "calibrated": lambda p: 1 - p,
    "overconfident": lambda p: 0.3 + 0.0 * p,
    "no use": lambda p: 0.05 + 0.0 * p,  # a little above the risk: any answer breaks the promise
    "the surest are wrong": lambda p: np.where(p > 0.97, 0.2, 0.02),
    "up and down": lambda p: np.where(np.floor(40 * p) % 2 == 0, 0.11, 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_the_promise_holds(name, delta):
    """In at most a share delta of the fits is the true risk of the answers above the target."""
    rate = RATES[name]
    rng = np.random.default_rng(len(name))
    trials, broken = 300, 0
    for _ in range(trials):
        probs, labels = drawn(rng, 1000, rate)
        model = mc.AbstainingClassifier(risk=0.0499, delta=delta).fit(probs, labels)
        broken += model.found_ and true_risk(model.threshold_, rate) > 0.0499
    assert broken <= at_most(delta, trials)


@pytest.mark.slow
def test_the_test_of_one_candidate_is_sharp():
    """With one step the level is delta itself, and a rate at the edge is found about so often."""
    rng = np.random.default_rng(1)
    trials, found = 2000, 0
    p = np.full(400, 0.9)
    for _ in range(trials):
        labels = (rng.random(400) < 0.1).astype(int)
        found += mc.AbstainingClassifier(risk=0.1, steps=1).fit(two_columns(p), labels).found_
    # P(Bin(400, 0.1) <= 29) = 0.0372 is the largest that is not above 0.05
    assert 0.02 * trials < found <= at_most(0.05, trials)


def test_it_answers_where_it_can():
    """Calibrated, 20,000 rows: the best threshold at 5 % answers 54.8 %, this one nearly."""
    probs, labels = drawn(np.random.default_rng(2), 20_000, RATES["calibrated"])
    model = mc.AbstainingClassifier(risk=0.05).fit(probs, labels)
    # the risk of answering a share c of the surest is c^2 / 6: at c = 0.5477 it is 5 %
    assert 0.45 <= model.coverage_ <= 0.5478
    assert model.risk_ < model.bound_ <= 0.05
    assert model.coverage_low_ < model.coverage_ < model.coverage_high_
    assert "at most 5.00 % of the answers are wrong with 95 % certainty" in model.verdict_


def test_by_hand():
    """100 rows, the ten least sure wrong, two candidates: 50 rows or all."""
    p = np.linspace(0.99, 0.51, 100)
    labels = (np.arange(100) >= 90).astype(int)
    model = mc.AbstainingClassifier(risk=0.1, delta=0.1, steps=2).fit(two_columns(p), labels)
    half, whole = model.candidates_
    assert (half["answered"], half["wrong"], half["threshold"]) == (50, 0, p[50])
    assert (whole["answered"], whole["wrong"], whole["threshold"]) == (100, 10, -math.inf)
    assert half["p_value"] == pytest.approx(0.9**50)
    assert half["bound"] == pytest.approx(1 - 0.05 ** (1 / 50))
    assert whole["p_value"] == pytest.approx(binomtest(10, 100, 0.1, "less").pvalue)
    assert (model.threshold_, model.coverage_) == (p[50], 0.5)
    answers = model.predict(two_columns(p))
    assert np.array_equal(answers.abstained, np.arange(100) >= 50)
    assert (answers.labels[50:] == -1).all()
    assert (answers.labels[:50] == 0).all()


def test_no_threshold_meets_the_risk():
    probs, labels = drawn(np.random.default_rng(3), 200, RATES["calibrated"])
    model = mc.AbstainingClassifier(risk=0.001).fit(probs, labels)
    assert not model.found_
    assert (model.threshold_, model.coverage_) == (math.inf, 0.0)
    assert model.predict(probs).abstained.all()
    assert model.verdict_.startswith("No threshold keeps the risk at 0.10 % with 95 % certainty")
    # 0.999 ** 5,989 is the first below 0.05 / 20
    assert "5,989 answered rows would be needed" in model.verdict_
    measured = model.measure(probs, labels)
    assert measured["answered"] == 0
    assert math.isnan(measured["risk"])


def test_equal_confidences_are_answered_together():
    p = np.repeat([0.9, 0.8, 0.6], [300, 300, 400])
    labels = np.zeros(1000, int)
    labels[600:] = 1
    model = mc.AbstainingClassifier(risk=0.05).fit(two_columns(p), labels)
    assert model.coverage_ == 0.6
    assert model.threshold_ == 0.6
    assert {line["answered"] for line in model.candidates_} == {0, 300, 600, 1000}


def test_all_rows_where_all_may_be_answered():
    probs, labels = drawn(np.random.default_rng(4), 2000, lambda p: 0.0 * p)
    model = mc.AbstainingClassifier(risk=0.01).fit(probs, labels)
    assert model.coverage_ == 1
    assert not model.predict(probs).abstained.any()
    assert "confidence" not in model.verdict_


def test_measured_on_new_rows():
    rng = np.random.default_rng(5)
    probs, labels = drawn(rng, 20_000, RATES["calibrated"])
    model = mc.AbstainingClassifier(risk=0.05).fit(probs[:10_000], labels[:10_000])
    found = model.measure(probs[10_000:], labels[10_000:])
    answers = model.predict(probs[10_000:])
    assert found["answered"] == (~answers.abstained).sum()
    assert found["wrong"] == (labels[10_000:][~answers.abstained] != 0).sum()
    assert found["risk"] < 0.05
    exact = binomtest(found["wrong"], found["answered"]).proportion_ci(0.95, "exact")
    assert (found["risk_low"], found["risk_high"]) == pytest.approx((exact.low, exact.high))


def test_torch_in_torch_out_and_clonable():
    probs, labels = drawn(np.random.default_rng(6), 500, RATES["calibrated"])
    model = clone(mc.AbstainingClassifier(risk=0.2, delta=0.1, steps=10)).fit(probs, labels)
    answers = model.predict(torch.tensor(probs))
    assert isinstance(answers.labels, torch.Tensor)
    assert np.array_equal(answers.labels.numpy(), model.predict(probs).labels)


def test_narrow_types_are_compared_as_they_are():
    """A float32 confidence at the threshold is not above it, in float32 and in float64."""
    p = np.repeat(np.float32([0.9, 0.7]), [500, 500])
    labels = np.repeat([0, 1], 500)
    probs = np.stack([p, 1 - p], 1)
    model = mc.AbstainingClassifier(risk=0.05, steps=2).fit(probs, labels)
    assert model.predict(probs).abstained.sum() == 500
    assert model.predict(probs.astype(np.float64)).abstained.sum() == 500


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"risk": 0.0}, "risk is 0.0; expected a share between 0 and 1"),
        ({"risk": "low"}, "risk is 'low'"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"steps": 0}, "steps is 0; at least one is needed"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    probs, labels = drawn(np.random.default_rng(7), 50, RATES["calibrated"])
    with pytest.raises(ValueError, match=message):
        mc.AbstainingClassifier(**settings).fit(probs, labels)


def test_not_fitted_and_other_classes():
    probs, labels = drawn(np.random.default_rng(8), 50, RATES["calibrated"])
    with pytest.raises(ValueError, match="not fitted"):
        mc.AbstainingClassifier().predict(probs)
    model = mc.AbstainingClassifier().fit(probs, labels)
    with pytest.raises(ValueError, match="3 columns, and it was fitted on 2"):
        model.predict(np.full((4, 3), 1 / 3))


def test_few_rows_have_few_candidates():
    assert ranks(3, 20) == [1, 2, 3]
    assert ranks(40, 20)[-1] == 40


@pytest.mark.parametrize("dtypes", [(np.float64, np.float32), (np.float32, np.float64)])
def test_another_precision_answers_no_row_more(dtypes):
    """Rows at the threshold are not answered, also where rounding lifts them above it."""
    p = np.repeat([0.999999999, 0.7, 0.6], [300, 400, 300])
    labels = np.r_[np.zeros(300, int), np.arange(700) % 2]
    model = mc.AbstainingClassifier(risk=0.05).fit(two_columns(p).astype(dtypes[0]), labels)
    assert (model.found_, model.coverage_) == (True, 0.3)
    answered = ~model.predict(two_columns(p).astype(dtypes[1])).abstained
    assert answered.tolist() == (p > 0.9).tolist()
