"""Calibrators of one class against the others: twins, and scikit-learn's own pieces."""

import numpy as np
import pytest
from made_up_predictions import made_up
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression

from maccal import (
    BetaCalibration,
    HistogramCalibration,
    IsotonicCalibration,
    SplineCalibration,
    VennAbersCalibration,
)
from maccal.calibration.posthoc.venn_abers import gaps
from maccal.metrics import softmax

LOGITS, LABELS = made_up()
PROBS = softmax(LOGITS)


def test_isotonic_is_scikit_learns():
    found = IsotonicCalibration().fit(LOGITS, LABELS).predict_proba(LOGITS[:, ::1] * 0.9)
    new = softmax(LOGITS * 0.9)
    mapped = []
    for c in range(4):
        one = IsotonicRegression(out_of_bounds="clip").fit(PROBS[:, c], c == LABELS)
        mapped.append(one.predict(new[:, c]))
    expected = np.stack(mapped, 1)
    assert np.allclose(found, expected / expected.sum(1, keepdims=True), atol=1e-12)


def test_isotonic_with_ties_and_nothing_known():
    probs = np.array([[0.5, 0.5], [0.5, 0.5], [0.4, 0.6], [0.9, 0.1]])
    model = IsotonicCalibration(inputs="probs").fit(probs, np.array([0, 1, 1, 0]))
    assert model.predict_proba(probs)[:, 1].tolist() == [0.5, 0.5, 1.0, 0.0]
    far = np.array([[0.2, 0.2, 0.6]])
    three = np.array([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2]])
    never = IsotonicCalibration(inputs="probs").fit(three, np.array([1, 0]))
    assert np.allclose(never.predict_proba(far).sum(), 1)


@pytest.mark.parametrize("equal", ["width", "mass"])
def test_histogram_by_hand(equal):
    model = HistogramCalibration(bins=5, equal=equal).fit(LOGITS, LABELS)
    for c, (edges, values) in enumerate(zip(model.edges_, model.values_, strict=True)):
        for low, high, value in zip(edges[:-1], edges[1:], values, strict=True):
            last = high == edges[-1]
            inside = (PROBS[:, c] >= low) & ((PROBS[:, c] < high) | last)
            expected = (LABELS[inside] == c).mean() if inside.any() else (low + high) / 2
            assert value == pytest.approx(expected)


def test_histogram_refuses():
    with pytest.raises(ValueError, match="bins is 0"):
        HistogramCalibration(bins=0).fit(LOGITS, LABELS)
    with pytest.raises(ValueError, match="equal is 'size'"):
        HistogramCalibration(equal="size").fit(LOGITS, LABELS)


def beta_nll(p, hit):
    features = np.stack([np.log(p), -np.log1p(-p), np.ones_like(p)])

    def value(numbers):
        eta = numbers @ features
        return float((np.logaddexp(0, eta) - hit * eta).mean())

    return value


def test_beta_is_the_best_with_its_signs():
    model = BetaCalibration().fit(LOGITS, LABELS)
    for c in range(4):
        value = beta_nll(PROBS[:, c], c == LABELS)
        bounds = [(0, None), (0, None), (None, None)]
        found = minimize(value, [1.0, 1.0, 0.0], method="L-BFGS-B", bounds=bounds, tol=1e-14)
        assert value(model.maps_[c]) <= found.fun + 1e-12
        assert np.allclose(model.maps_[c], found.x, atol=1e-3)


@pytest.mark.parametrize("wrong", ["both", "one"])
def test_beta_holds_what_would_fall_below_zero(wrong):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 4000)
    chance = 1 - p if wrong == "both" else 1 / (1 + np.exp(2 * np.log(p) - np.log1p(-p) * -3))
    hit = rng.random(4000) < chance
    a, b, _ = BetaCalibration(inputs="probs").fit(np.stack([1 - p, p], 1), hit.astype(int)).maps_[0]
    assert a >= 0
    assert b >= 0
    assert a == 0 or b == 0


def test_beta_without_a_best_fit():
    probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    with pytest.raises(ValueError, match="without a mistake"):
        BetaCalibration(inputs="probs").fit(probs, np.array([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="its probabilities may be nearly equal"):
        BetaCalibration().fit(1e-4 * LOGITS, LABELS)
    absent = BetaCalibration().fit(LOGITS[LABELS < 3], LABELS[LABELS < 3])
    assert absent.predict_proba(LOGITS)[:, 3].max() == 0


def test_beta_of_probabilities_that_are_all_0_or_1():
    """Its three numbers have many best values; wrong answers are no sign that there is none."""
    right = np.arange(10) % 5 > 0  # 80 % of each
    p = np.repeat([0.0, 1.0], 5)
    labels = np.where(right, p, 1 - p).astype(int)
    model = BetaCalibration(inputs="probs").fit(np.stack([1 - p, p], 1), labels)
    found = model.predict_proba(np.stack([1 - p, p], 1))[:, 1]
    assert found == pytest.approx(np.repeat([0.2, 0.8], 5), abs=1e-6)


def test_beta_of_all_0_or_1_with_few_mistakes():
    """The probabilities as they are beat a guess, and no slope leads away from them."""
    labels = np.repeat([0, 1, 2], 100)
    said = labels.copy()
    said[::100] = [1, 2, 0]  # each class is said 100 times, and wrong once
    probs = np.eye(3)[said]
    found = BetaCalibration(inputs="probs").fit(probs, labels).predict_proba(probs)
    assert found[np.arange(300), said] == pytest.approx(np.full(300, 0.99), abs=1e-6)


def slow_venn_abers(score, hit, new):
    """Two isotonic fits for every new score."""
    found = []
    for label in (0, 1):
        values = []
        for x in new:
            fit = IsotonicRegression().fit(np.append(score, x), np.append(hit, label))
            values.append(fit.predict([x])[0])
        found.append(values)
    return np.array(found)


@pytest.mark.parametrize("seed", range(5))
def test_venn_abers_is_two_isotonic_fits(seed):
    rng = np.random.default_rng(seed)
    score = np.round(rng.random(40), 1 + seed % 2)  # with ties
    hit = rng.random(40) < score
    new = np.concatenate([score, rng.random(20), [-1.0, 2.0]])
    at, p0, p1 = gaps(score, hit)
    low = p0[np.searchsorted(at, new, "right")]
    high = p1[np.searchsorted(at, new, "left")]
    expected = slow_venn_abers(score, hit.astype(float), new)
    assert np.allclose(low, expected[0], atol=1e-12)
    assert np.allclose(high, expected[1], atol=1e-12)
    assert (low < high).all()


def test_venn_abers_of_pairs():
    """Two classes are one pair; three are put together by their formula."""
    logits, labels = made_up(300, 2)
    one = VennAbersCalibration(ways="one-vs-one").fit(logits, labels).predict_proba(logits)
    rest = VennAbersCalibration().fit(logits, labels).predict_proba(logits)
    assert np.array_equal(one, rest)
    logits, labels = made_up(300, 3)
    model = VennAbersCalibration(ways="one-vs-one").fit(logits, labels)
    second = {}
    for pair, (at, p0, p1) in zip([(0, 1), (0, 2), (1, 2)], model.gaps_, strict=True):
        difference = logits[:, pair[1]] - logits[:, pair[0]]
        low = p0[np.searchsorted(at, difference, "right")]
        high = p1[np.searchsorted(at, difference, "left")]
        second[pair] = high / (1 - low + high)
    first = 1 / (1 / (1 - second[0, 1]) + 1 / (1 - second[0, 2]) - 1)
    middle = 1 / (1 / second[0, 1] + 1 / (1 - second[1, 2]) - 1)
    last = 1 / (1 / second[0, 2] + 1 / second[1, 2] - 1)
    expected = np.stack([first, middle, last], 1)
    expected /= expected.sum(1, keepdims=True)
    assert np.allclose(model.predict_proba(logits), expected, atol=1e-12)


def test_venn_abers_bounds_hold_the_probability():
    logits, labels = made_up(500, 2)
    model = VennAbersCalibration().fit(logits, labels)
    low, high = model.predict_bounds(logits)
    p = model.predict_proba(logits)
    assert ((low <= p) & (p <= high)).all()
    pairs = VennAbersCalibration(ways="one-vs-one").fit(LOGITS, LABELS)
    with pytest.raises(ValueError, match="against the rest"):
        pairs.predict_bounds(LOGITS)
    with pytest.raises(ValueError, match="ways is 'both'"):
        VennAbersCalibration(ways="both").fit(LOGITS, LABELS)


def test_spline_leaves_what_is_right_and_corrects_what_is_not():
    rng = np.random.default_rng(0)
    says = rng.uniform(0.5, 1.0, 50_000)
    probs = np.stack([says, 1 - says], 1)
    right = SplineCalibration(inputs="probs").fit(probs, (rng.random(50_000) > says).astype(int))
    seen = np.linspace(0.52, 0.98, 20)
    new = np.stack([seen, 1 - seen], 1)
    # a slope of 50,000 noisy steps over five pieces: about sqrt(5 / 50,000) of its size
    assert np.abs(right.predict_proba(new)[:, 0] - seen).max() < 0.03
    less = (rng.random(50_000) > says**2).astype(int)
    wrong = SplineCalibration(inputs="probs").fit(probs, less)
    assert np.abs(wrong.predict_proba(new)[:, 0] - seen**2).max() < 0.03


def test_spline_is_a_least_squares_fit():
    """With as many knots as rows the curve itself; too few rows are refused."""
    probs, labels = PROBS[:6], LABELS[:6]
    model = SplineCalibration(inputs="probs").fit(probs, labels)
    assert len(model.confidence_) == 6
    with pytest.raises(ValueError, match="6 rows are too few"):
        SplineCalibration(inputs="probs", knots=7).fit(probs, labels)
    with pytest.raises(ValueError, match="knots is 2"):
        SplineCalibration(knots=2).fit(LOGITS, LABELS)
