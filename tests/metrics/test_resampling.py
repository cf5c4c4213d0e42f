"""Intervals and null bands.

The machine agrees with the plain functions, and the bands cover what they say.
"""

import numpy as np
import pytest
from binomial import at_least
from hypothesis import given
from hypothesis import strategies as st
from strategies import outcomes

from maccal.metrics import (
    aece,
    aurc,
    auroc,
    bootstrap,
    debiased_squared_ce,
    e_aurc,
    ece,
    ks,
    mce,
    resample,
    smece,
)
from maccal.metrics import resampling as machine
from maccal.metrics.inputs import check_confidence

PUBLIC = {
    "ece": ece,
    "mce": mce,
    "aece": aece,
    "debiased_squared_ce": debiased_squared_ce,
    "ks": ks,
    "aurc": lambda c, hit, bins: aurc(c, hit),
    "e_aurc": lambda c, hit, bins: e_aurc(c, hit),
    "accuracy": lambda c, hit, bins: hit.mean(),
    "confidence": lambda c, hit, bins: c.mean(),
}


def sample(n, seed=0, power=1.0):
    rng = np.random.default_rng(seed)
    confidence = rng.beta(6, 1, n)
    return confidence, rng.random(n) < confidence**power


@given(outcomes(), st.integers(1, 20))
def test_the_data_as_its_own_resample(case, bins):
    """Every statistic of the machine, fed the data themselves, is the public function's."""
    confidence, correct = case
    groups = machine.gather(*check_confidence(confidence, correct), bins)
    made = machine.statistics(groups, groups.right[None], groups.wrong[None], bins)
    for name, function in PUBLIC.items():
        expected = (
            function(confidence, correct) if name == "ks" else function(confidence, correct, bins)
        )
        assert made[name][0] == pytest.approx(expected, abs=1e-10), name
    assert made["smece"][0] == pytest.approx(smece(confidence, correct), abs=2e-3)


def test_a_resample_is_a_resample():
    """Counts of a drawn sample give what the public functions give for the drawn rows."""
    confidence, correct = sample(300)
    groups = machine.gather(*check_confidence(confidence, correct), 15)
    for right, wrong in machine.bootstrap_draws(groups, 5, np.random.default_rng(1)):
        made = machine.statistics(groups, right, wrong, 15)
        for draw in range(len(right)):
            rows = np.repeat(groups.confidence, (right + wrong)[draw].astype(int))
            hits = np.concatenate(
                [[1] * int(r) + [0] * int(w) for r, w in zip(right[draw], wrong[draw], strict=True)]
            ).astype(bool)
            assert len(rows) == 300
            for name in ("ece", "aece", "mce", "debiased_squared_ce", "aurc"):
                args = (rows, hits) if name == "aurc" else (rows, hits, 15)
                assert made[name][draw] == pytest.approx(
                    (PUBLIC[name] if name != "aurc" else aurc)(*args), abs=1e-10
                ), name


@pytest.mark.parametrize("name", ["ece", "mce", "aece", "smece", "ks", "aurc", "accuracy"])
def test_groups_stand_for_rows(name):
    """50,000 rows gathered into about 1,000 groups.

    The same spread as resampling the rows themselves.
    """
    confidence, correct = sample(50_000, power=1.1)
    boot, null = resample(confidence, correct, resamples=300)
    rng = np.random.default_rng(2)
    functions = {
        **{k: f for k, f in PUBLIC.items() if k in ("ece", "mce", "aece")},
        "smece": smece,
        "ks": ks,
        "aurc": aurc,
    }
    functions["accuracy"] = lambda c, hit: hit.mean()
    rows = [rng.integers(50_000, size=50_000) for _ in range(60)]
    by_row = np.array([functions[name](confidence[r], correct[r]) for r in rows])
    by_row_null = np.array(
        [functions[name](confidence, rng.random(50_000) < confidence) for _ in range(60)]
    )
    for grouped, direct in ((boot[name], by_row), (null[name], by_row_null)):
        assert grouped.std() == pytest.approx(direct.std(), rel=0.35)
        assert grouped.mean() == pytest.approx(
            direct.mean(), abs=4 * direct.std() / np.sqrt(60) + 1e-4
        )


def values(confidence, correct):
    groups = machine.gather(*check_confidence(confidence, correct), 15)
    return {
        name: float(v[0])
        for name, v in machine.statistics(
            groups, groups.right[None], groups.wrong[None], 15
        ).items()
    }


def drawn(kind, confidence, correct, seed):
    """200 draws of every statistic, of one kind: `resample` makes both, and takes twice as long."""
    groups = machine.gather(*check_confidence(confidence, correct), 15)
    parts = [
        machine.statistics(groups, right, wrong, 15)
        for right, wrong in kind(groups, 200, np.random.default_rng(seed), 15)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


COVERED = ("ece", "aece", "ks", "smece", "aurc", "e_aurc", "accuracy", "debiased_squared_ce")
TRIALS = 80


@pytest.mark.slow
@pytest.mark.parametrize("power", [1.0, 1.5], ids=["calibrated", "overconfident"])
def test_intervals_cover(power):
    """About 95 of 100 data sets have the statistic's expected value at this N in their interval."""
    many = [values(*sample(800, 10_000 + seed, power)) for seed in range(400)]
    expected = {name: np.mean([found[name] for found in many]) for name in COVERED}
    covered = dict.fromkeys(COVERED, 0)
    for seed in range(TRIALS):
        data = sample(800, seed, power)
        point = values(*data)
        boot = drawn(machine.bootstrap_draws, *data, seed)
        for name in COVERED:
            low, high = machine.centred(point[name], boot[name], within=(-1, 1))
            covered[name] += low <= expected[name] <= high
    assert min(covered.values()) >= at_least(0.95, TRIALS), covered


@pytest.mark.slow
def test_null_band_holds_calibrated_models():
    """95 of 100 calibrated models fall into their band; overconfident ones above it."""
    inside = dict.fromkeys(("ece", "aece", "mce", "ks", "smece", "debiased_squared_ce", "aurc"), 0)
    for seed in range(TRIALS):
        data = sample(600, seed)
        point = values(*data)
        null = drawn(machine.null_draws, *data, seed)
        for name in inside:
            low, high = machine.band(null[name])
            inside[name] += low - 1e-12 <= point[name] <= high + 1e-12
    assert min(inside.values()) >= at_least(0.95, TRIALS), inside
    data = sample(2000, 1, power=2.0)
    point, (_, null) = values(*data), resample(*data, resamples=200)
    # the worst of fifteen bins of few rows is too noisy to see even this
    for name in set(inside) - {"mce"}:
        assert point[name] > null[name].max(), name


def test_noise_floor_of_a_test_set():
    """10,000 rows at 95 % accuracy: a perfect model scores an ECE of about 0.4 %, not 0."""
    rng = np.random.default_rng(0)
    confidence = 1 - 0.5 * rng.beta(0.25, 2.2, 10_000)
    assert confidence.mean() == pytest.approx(0.95, abs=0.005)
    _, null = resample(confidence, rng.random(10_000) < confidence)
    low, high = machine.band(null["ece"])
    assert 0.001 < low < 0.004 < high < 0.009


def test_same_seed_same_numbers():
    confidence, correct = sample(500)
    for first, second in zip(
        resample(confidence, correct, seed=3), resample(confidence, correct, seed=3), strict=True
    ):
        assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not np.array_equal(
        resample(confidence, correct, seed=3)[0]["ece"],
        resample(confidence, correct, seed=4)[0]["ece"],
    )


@given(outcomes(), st.randoms())
def test_order_of_the_rows(case, random):
    confidence, correct = case
    order = random.sample(range(len(confidence)), len(confidence))
    made = [
        resample(c, hit, resamples=5)
        for c, hit in ((confidence, correct), (confidence[order], correct[order]))
    ]
    assert all(
        np.array_equal(made[0][kind][name], made[1][kind][name])
        for kind in (0, 1)
        for name in made[0][kind]
    )


def test_groups_stay_in_their_bins():
    """A group of rows at exactly a bin's edge keeps its bin, whatever its mean rounds to."""
    confidence = np.concatenate([np.full(3000, edge) for edge in np.arange(1, 16) / 15])
    correct = np.random.default_rng(0).random(len(confidence)) < confidence
    groups = machine.gather(*check_confidence(confidence, correct), 15)
    made = machine.statistics(groups, groups.right[None], groups.wrong[None], 15)
    assert made["ece"][0] == pytest.approx(ece(confidence, correct), abs=1e-12)
    assert made["mce"][0] == pytest.approx(mce(confidence, correct), abs=1e-12)


def test_generic_bootstrap():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    low, high = bootstrap(lambda v: float(v.mean()), x)
    assert (low + high) / 2 == pytest.approx(x.mean(), abs=0.01)
    assert high - low == pytest.approx(2 * 1.96 * x.std() / 20, rel=0.1)
    scores, inside = np.r_[rng.normal(1, 1, 200), rng.normal(0, 1, 100)], np.arange(300) < 200
    low, high = bootstrap(lambda s, mask: auroc(s[mask], s[~mask]), scores, inside, resamples=200)
    assert low < auroc(scores[:200], scores[200:]) < high
    with pytest.raises(ValueError, match="resamples is 0"):
        bootstrap(lambda v: float(v.mean()), x, resamples=0)
    with pytest.raises(ValueError, match="300, 200 rows; they must match"):
        bootstrap(lambda a, b: 0.0, scores, scores[:200])
