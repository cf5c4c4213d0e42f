"""Conformal sets: hand arithmetic, an obvious twin, and the guarantee by simulation."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from binomial import at_least, at_most
from sklearn.base import clone

import maccal as mc
from maccal.trust.conformal import fewest_rows, quantile
from maccal.trust.scores import uniforms

KINDS = [
    ("thr", False),
    ("aps", False),
    ("aps", True),
    ("raps", False),
    ("raps", True),
]
MESSY = ([0.5, 0.25, 0.125, 0.125], [0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0])


def made_up(rng, rows, classes=6, skill=1.5):
    """Probabilities that are far from calibrated, and labels."""
    labels = rng.integers(classes, size=rows)
    logits = rng.normal(size=(rows, classes)) + skill * np.eye(classes)[labels]
    return mc.softmax(2 * logits), labels


def made(method, coverage, randomised):
    return mc.ConformalSets(method, coverage, randomised=None if method == "thr" else randomised)


def slow_score(row, label, method, u, penalty, free):
    """The score of one class as the papers write it."""
    if method == "thr":
        return -row[label]
    larger = sorted((value for value in row.tolist() if value > row[label]), reverse=True)
    total = 0.0
    for value in larger:
        total += value
    total += u * row[label]
    if method == "raps":
        total += penalty * max(0, len(larger) + 1 - free)
    return total


def slow_sets(fitting, labels, new, coverage, method, randomised, penalty=0.01, free=5):
    """Split conformal, one row and one class at a time."""

    def parts(probs):
        return uniforms(probs, 0) if randomised else np.ones(len(probs))

    scores = []
    for row, label, u in zip(fitting, labels, parts(fitting), strict=True):
        scores.append(slow_score(row, label, method, u, penalty, free))
    rank = math.ceil((len(scores) + 1) * Fraction(str(coverage)))
    threshold = sorted(scores)[rank - 1]
    sets = np.zeros(new.shape, bool)
    for number, (row, u) in enumerate(zip(new, parts(new), strict=True)):
        for label in range(len(row)):
            score = slow_score(row, label, method, u, penalty, free)
            sets[number, label] = score <= threshold
    return sets


@pytest.mark.parametrize(("method", "randomised"), KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_twin_agrees(method, randomised, dtype):
    rng = np.random.default_rng(3)
    probs, labels = made_up(rng, 60)
    probs = np.concatenate([probs, rng.dirichlet(np.ones(6), 20)]).astype(dtype)
    labels = np.concatenate([labels, rng.integers(6, size=20)])
    sets = made(method, 0.8, randomised).fit(probs, labels)
    expected = slow_sets(probs, labels, probs, 0.8, method, randomised)
    # Sums in float64 of the values given, in one order: the same to the bit
    assert np.array_equal(sets.predict(probs), expected)


@pytest.mark.parametrize(("method", "randomised"), KINDS)
def test_ties_share_their_fate(method, randomised):
    probs = np.array(MESSY * 20)
    labels = np.tile([1, 3, 1], 20)
    sets = made(method, 0.7, randomised).fit(probs, labels)
    found = sets.predict(np.array(MESSY))
    assert found[0, 2] == found[0, 3]
    assert found[1].all() or not found[1].any()
    assert np.array_equal(found, slow_sets(probs, labels, np.array(MESSY), 0.7, method, randomised))


def test_by_hand():
    """Four rows whose labels have APS scores 0.5, 0.8, 1.0 and 0.9; rank ceil(5 x 0.6) = 3."""
    probs = np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.9, 0.06, 0.04]])
    labels = np.array([0, 1, 2, 0])
    aps = mc.ConformalSets("aps", 0.6, randomised=False).fit(probs, labels)
    assert aps.thresholds_ == pytest.approx([0.9])
    assert aps.predict(np.array([[0.6, 0.35, 0.05]])).tolist() == [[True, False, False]]
    raps = mc.ConformalSets("raps", 0.6, randomised=False, penalty=0.2, free=1).fit(probs, labels)
    assert raps.thresholds_ == pytest.approx([1.0])  # 0.5, 0.8 + 0.2, 1.0 + 0.4, 0.9
    assert mc.ConformalSets("thr", 0.6).fit(probs, labels).thresholds_ == pytest.approx([-0.3])


def test_the_rank_is_exact():
    """0.55 x 20 is 11.000000000000002 in floating point, and 0.07 x 100 is 7.000000000000001."""
    scores = np.arange(1.0, 20.0)
    assert quantile(scores, Fraction("0.55")) == 11
    assert quantile(np.arange(1.0, 100.0), Fraction("0.07")) == 7
    probs, labels = made_up(np.random.default_rng(0), 19)
    found = mc.ConformalSets(coverage=0.55).fit(probs, labels).thresholds_
    assert found == np.sort(-probs[np.arange(19), labels])[10]


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_the_fewest_rows(coverage):
    least = fewest_rows(Fraction(str(coverage)))
    probs, labels = made_up(np.random.default_rng(1), least)
    assert np.isfinite(mc.ConformalSets(coverage=coverage).fit(probs, labels).thresholds_).all()
    if least > 1:
        with pytest.warns(UserWarning, match=f"every class; at least {least} are needed"):
            few = mc.ConformalSets(coverage=coverage).fit(probs[1:], labels[1:])
        assert few.predict(probs).all()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "randomised"), KINDS)
def test_coverage_is_what_was_asked_for(method, randomised):
    """One new row for each of 1,500 fits on 39 rows: between 0.9 and 0.9 + 1 / 40, by the theorem.

    The scores of continuous probabilities are not equal; those of APS are 1 for the last class, but
    for a class of so little probability that the threshold is hardly ever there.
    """
    rng = np.random.default_rng(5)
    trials, hits = 1500, 0
    for _ in range(trials):
        probs, labels = made_up(rng, 40)
        sets = made(method, 0.9, randomised).fit(probs[:39], labels[:39])
        hits += int(sets.predict(probs[39:])[0, labels[39]])
    assert at_least(0.9, trials) <= hits <= at_most(0.9 + 1 / 40, trials)


@pytest.mark.slow
def test_coverage_is_a_beta_variable_given_the_fit():
    """Over fits on n rows the coverage of new rows is Beta(rank, n + 1 - rank): mean and spread."""
    rng = np.random.default_rng(6)
    rank, n = 90, 99
    coverages = []
    for _ in range(300):
        probs, labels = made_up(rng, n + 2000)
        sets = mc.ConformalSets("aps", 0.9, randomised=True).fit(probs[:n], labels[:n])
        coverages.append(sets.measure(probs[n:], labels[n:])["coverage"])
    variance = rank * (n + 1 - rank) / ((n + 1) ** 2 * (n + 2)) + 0.9 * 0.1 / 2000
    assert np.mean(coverages) == pytest.approx(0.9, abs=3.5 * math.sqrt(variance / 300))
    assert np.std(coverages) == pytest.approx(math.sqrt(variance), rel=0.15)


@pytest.mark.parametrize(("method", "least"), [("thr", 0.75), ("aps", 0.88)])
def test_every_class_is_covered_with_thresholds_of_its_own(method, least):
    """A class that the model hardly knows: 90 % overall leaves it far behind, APS a little."""
    rng = np.random.default_rng(7)
    labels = rng.integers(4, size=12000)
    skill = np.array([6.0, 6.0, 6.0, 0.5])
    logits = rng.normal(size=(12000, 4)) + skill[labels][:, None] * np.eye(4)[labels]
    probs = mc.softmax(logits)
    fitting, new = slice(0, 4000), slice(4000, None)
    settings = {"method": method, "coverage": 0.9}
    common = mc.ConformalSets(**settings).fit(probs[fitting], labels[fitting])
    own = mc.ConformalSets(**settings, per_class=True).fit(probs[fitting], labels[fitting])
    by_class = [line["coverage"] for line in common.measure(probs[new], labels[new])["classes"]]
    assert min(by_class) < least
    for line in own.measure(probs[new], labels[new])["classes"]:
        # The fit has 1,000 rows of a class, so its coverage has that binomial spread too
        assert abs(line["coverage"] - 0.9) < 3.5 * math.sqrt(0.09 * (1 / line["rows"] + 1 / 950))


def test_a_rare_class_is_in_every_set():
    probs, labels = made_up(np.random.default_rng(8), 600, classes=3)
    rare = np.flatnonzero(labels == 2)[5:]
    keep = np.setdiff1d(np.arange(600), rare)
    with pytest.warns(UserWarning, match="1 of 3 classes have too few rows"):
        sets = mc.ConformalSets("aps", 0.9, per_class=True).fit(probs[keep], labels[keep])
    found = sets.predict(probs)
    assert found[:, 2].all()
    assert not found[:, :2].all()


def test_never_empty_when_asked():
    """A model that is right far more often than asked for leaves easy rows without any class."""
    probs, labels = made_up(np.random.default_rng(9), 2000, skill=5)
    plain = mc.ConformalSets("aps", 0.6).fit(probs, labels)
    filled = mc.ConformalSets("aps", 0.6, allow_empty=False).fit(probs, labels)
    assert plain.measure(probs, labels)["empty"] > 0.1
    assert filled.measure(probs, labels)["empty"] == 0
    difference = filled.predict(probs) & ~plain.predict(probs)
    rows = difference.any(1)
    assert (difference[rows].argmax(1) == probs[rows].argmax(1)).all()
    assert not (plain.predict(probs) & ~filled.predict(probs)).any()


def test_random_numbers_belong_to_rows():
    """A row has the same set in any batch; the numbers are uniform; another seed has others."""
    probs, labels = made_up(np.random.default_rng(10), 4000)
    sets = mc.ConformalSets("aps", 0.9, randomised=True).fit(probs, labels)
    whole = sets.predict(probs)
    order = np.random.default_rng(0).permutation(4000)
    assert np.array_equal(sets.predict(probs[order]), whole[order])
    assert np.array_equal(sets.predict(probs[7:8]), whole[7:8])
    other = mc.ConformalSets("aps", 0.9, randomised=True, seed=1).fit(probs, labels)
    assert (other.predict(probs) != whole).any()
    for narrow in (probs, probs.astype(np.float32)):
        u = np.sort(uniforms(narrow, 0))
        distance = np.abs(u - (np.arange(4000) + 0.5) / 4000).max()
        assert distance < 1.95 / math.sqrt(4000)  # Kolmogorov, one in a thousand
    assert abs(np.corrcoef(uniforms(probs, 0), probs.max(1))[0, 1]) < 3.5 / math.sqrt(4000)


def test_raps_without_penalty_is_aps():
    probs, labels = made_up(np.random.default_rng(11), 500)
    aps = mc.ConformalSets("aps").fit(probs, labels).predict(probs)
    raps = mc.ConformalSets("raps", penalty=0.0).fit(probs, labels).predict(probs)
    assert np.array_equal(aps, raps)
    strict = mc.ConformalSets("raps", penalty=10.0, free=2, randomised=False).fit(probs, labels)
    # so large a penalty leaves the rank alone to decide: all sets have one size, or the next
    assert np.count_nonzero(strict.measure(probs, labels)["sizes"]) == 2


def test_torch_in_torch_out_and_clonable():
    probs, labels = made_up(np.random.default_rng(12), 200)
    sets = clone(mc.ConformalSets("raps", 0.8, randomised=True, penalty=0.1, free=1))
    from_numpy = sets.fit(probs, labels).predict(probs)
    again = clone(sets).fit(torch.tensor(probs), torch.tensor(labels))
    from_torch = again.predict(torch.tensor(probs))
    assert isinstance(from_torch, torch.Tensor)
    assert np.array_equal(from_torch.numpy(), from_numpy)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "lac"}, "method is 'lac'; choose one of thr, aps, raps"),
        ({"coverage": 1.0}, "coverage is 1.0; expected a share between 0 and 1"),
        ({"coverage": 90}, "coverage is 90"),
        ({"coverage": "most"}, "coverage is 'most'"),
        ({"randomised": True}, "randomised does not apply to thr"),
        ({"method": "aps", "penalty": 0.1}, "penalty and free do not apply to aps"),
        ({"method": "raps", "penalty": -1.0}, "penalty is -1.0"),
        ({"method": "raps", "free": 1.5}, "free is 1.5; expected a whole number"),
    ],
)
def test_what_does_not_apply_is_refused(settings, message):
    probs, labels = made_up(np.random.default_rng(13), 50)
    with pytest.raises(ValueError, match=message):
        mc.ConformalSets(**settings).fit(probs, labels)


def test_bad_rows_are_refused():
    probs, labels = made_up(np.random.default_rng(14), 50)
    with pytest.raises(ValueError, match="not fitted yet"):
        mc.ConformalSets().predict(probs)
    fitted = mc.ConformalSets().fit(probs, labels)
    with pytest.raises(ValueError, match="5 columns, and it was fitted on 6"):
        fitted.predict(probs[:, :5] / probs[:, :5].sum(1, keepdims=True))
    with pytest.raises(ValueError, match="look like logits"):
        fitted.predict(np.log(probs))
    with pytest.raises(ValueError, match="expected booleans of shape"):
        mc.set_summary(probs, labels)


def test_the_summary_by_hand():
    sets = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]], bool)
    found = mc.set_summary(sets, np.array([0, 1, 1, 1]), names=["a", "b", "c"])
    assert (found["coverage"], found["size"], found["single"], found["empty"]) == (
        0.75,
        1.5,
        0.25,
        0.25,
    )
    assert found["sizes"] == [1, 1, 1, 1]
    assert [line["class"] for line in found["classes"]] == ["a", "b"]
    assert found["coverage_low"] == pytest.approx(0.194120, abs=1e-6)  # scipy's exact interval
    assert found["coverage_high"] == pytest.approx(0.993691, abs=1e-6)
    assert list(found.to_frame().columns)[:3] == ["class", "rows", "coverage"]
    assert "75.00 % of 4 sets hold the label" in str(found)


@pytest.mark.parametrize("method", ["thr", "aps", "raps"])
@pytest.mark.parametrize("dtypes", [(np.float64, np.float32), (np.float32, np.float64)])
def test_another_precision_leaves_no_class_out(method, dtypes):
    """Votes of ten trees: 0.7 is rounded down in float32 and 0.1 up, and many rows tie there."""
    rng = np.random.default_rng(15)
    votes = rng.multinomial(10, [0.5, 0.3, 0.2], 3000) / 10
    labels = np.array([rng.choice(3, p=row) for row in votes])
    for coverage in (0.3, 0.5, 0.7, 0.9):
        sets = made(method, coverage, randomised=False).fit(votes.astype(dtypes[0]), labels)
        same, other = (sets.predict(votes.astype(dtype)) for dtype in dtypes)
        assert not (same & ~other).any()
        if method == "thr":  # sums of APS are equal to a rounding only, also in one precision
            assert np.array_equal(other, same)


@pytest.mark.parametrize(
    "model", [mc.ConformalSets(coverage=0.8), mc.AbstainingClassifier(risk=0.3)]
)
def test_labels_may_be_names(model):
    """The same thresholds and numbers as with indices; names that are unknown are refused."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet([1, 1, 1], 400)
    labels = (probs.cumsum(1) > rng.random((400, 1))).argmax(1)
    names = np.array(["cat", "dog", "owl"])
    named = clone(model).fit(probs, names[labels], classes=names)
    plain = clone(model).fit(probs, labels)
    assert named.classes_.tolist() == names.tolist()
    for new, old in zip(named.predict(probs), plain.predict(probs), strict=True):
        if new.dtype == object:  # the names of the answers, None for an abstention
            old = np.array([None if y == -1 else names[y] for y in old], object)
        assert np.array_equal(new, old)
    new, old = named.measure(probs, names[labels]), plain.measure(probs, labels)
    assert new["coverage"] == old["coverage"]
    with pytest.raises(ValueError, match="'cow'"):
        named.measure(probs, ["cow"] * 400)
    with pytest.raises(ValueError, match="classes"):
        clone(model).fit(probs, names[labels])


def test_lines_of_classes_have_their_names():
    probs, names = np.eye(2)[[0, 1, 1, 0]] * 0.8 + 0.1, ["cat", "dog"]
    sets = mc.ConformalSets(coverage=0.5).fit(probs, ["cat", "dog", "dog", "cat"], names)
    lines = sets.measure(probs, ["cat", "dog", "cat", "cat"])["classes"]
    assert [line["class"] for line in lines] == names
    assert [line["rows"] for line in lines] == [3, 1]


@pytest.mark.parametrize(
    "changed", [{"coverage": 0.99}, {"method": "aps"}, {"per_class": True}, {"seed": 5}]
)
def test_parameters_changed_after_the_fit_are_refused(changed):
    """The thresholds are of the former ones."""
    probs = np.random.default_rng(0).dirichlet([1, 1, 1], 100)
    sets = mc.ConformalSets(method="thr" if "method" in changed else "aps").fit(
        probs, probs.argmax(1)
    )
    sets.set_params(**changed)
    with pytest.raises(ValueError, match="call fit again"):
        sets.predict(probs)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"per_class": "yes"}, "per_class is 'yes'; expected True or False"),
        ({"method": "raps", "penalty": "much"}, "penalty is 'much'"),
        ({"method": "raps", "penalty": -1}, "penalty is -1"),
    ],
)
def test_bad_parameters(wrong, message):
    probs = np.random.default_rng(0).dirichlet([1, 1, 1], 100)
    with pytest.raises(ValueError, match=message):
        mc.ConformalSets(**wrong).fit(probs, probs.argmax(1))


def test_sets_may_be_a_data_frame():
    sets = np.random.default_rng(0).random((50, 3)) < 0.6
    labels = np.arange(50) % 3
    frame = pd.DataFrame(sets, columns=["a", "b", "c"])
    assert str(mc.set_summary(frame, labels)) == str(mc.set_summary(sets, labels))
