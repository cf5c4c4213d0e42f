"""The bets: hand arithmetic, fair odds by enumeration, and Ville's bound by simulation."""

import math
from itertools import product

import numpy as np
import pytest
from binomial import at_most
from hypothesis import given
from hypothesis import strategies as st
from strategies import outcomes

from maccal.monitoring.alarms import Accuracy, Calibration, Drift, clopper_pearson
from maccal.monitoring.cells import Cells
from maccal.monitoring.settings import Settings
from maccal.monitoring.wealth import BETS, Wealth, gains_down, gains_up


def one(value):
    return np.array(float(value))


def row_gains(confidence, correct, tolerance=0.0):
    """The log of what each bet wins on each row, from the definition: bets x rows."""
    low = np.clip(confidence - tolerance, 0, 1)
    high = np.clip(confidence + tolerance, 0, 1)
    found = []
    for bet in (*-BETS, *BETS):
        p = low if bet < 0 else high
        found.append(bet * correct - np.log(1 - p + p * math.exp(bet)))
    return np.array(found)


def test_a_bet_by_hand():
    """Shift 0.8 down at confidence 0.9: a wrong row wins 1 / (0.1 + 0.9 e^-0.8)."""
    fair = 0.1 + 0.9 * math.exp(-0.8)
    assert math.exp(gains_down(one(0), one(1), one(0.9))[3]) == pytest.approx(1 / fair)
    assert math.exp(gains_down(one(1), one(1), one(0.9))[3]) == pytest.approx(math.exp(-0.8) / fair)
    both = gains_down(one(1), one(2), one(0.9))[3]
    assert math.exp(both) == pytest.approx(math.exp(-0.8) / fair**2)


@given(st.floats(0, 1), st.floats(0, 1))
def test_odds_are_fair_at_the_null_and_worse_within_it(stated, chance):
    for gains, allowed in ((gains_down, chance >= stated), (gains_up, chance <= stated)):
        win, lose = (np.exp(gains(one(hit), one(1), one(stated))) for hit in (1, 0))
        assert stated * win + (1 - stated) * lose == pytest.approx(1)
        if allowed:
            assert (chance * win + (1 - chance) * lose <= 1 + 1e-12).all()


def test_a_wrong_row_of_confidence_one_is_finite():
    assert np.exp(gains_down(one(0), one(1), one(1))) == pytest.approx(np.exp(BETS))
    assert np.exp(gains_up(one(1), one(1), one(0))) == pytest.approx(np.exp(BETS))


def test_money_by_hand():
    """Two bets, of shares 1/4 and 3/4, three rounds: every start has its own product."""
    wealth = Wealth(np.array([0.25, 0.75]))
    wins = np.array([[2.0, 0.5], [3.0, 1.0], [0.5, 4.0]])
    for rounds in (1, 2, 3):
        found = math.exp(wealth.round(np.log(wins[rounds - 1])))
        expected = 1 / (rounds + 1)
        for start in range(1, rounds + 1):
            products = wins[start - 1 : rounds].prod(0)
            expected += products @ [0.25, 0.75] / (start * (start + 1))
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("tolerance", [0.0, 0.05])
def test_money_is_fair_over_all_outcomes(tolerance):
    """The mean of the money over all outcomes of two batches of three rows, by their chances.

    One without tolerance, as rows of one fine bin here have the same confidence; else less.
    """
    confidence = np.array([0.9, 0.9, 0.55, 0.7, 0.55, 1.0])
    mean = 0.0
    for hits in product((0, 1), repeat=6):
        chance = np.where(hits, confidence, 1 - confidence).prod()
        alarm = Calibration(Settings(tolerance=tolerance))
        for part in (slice(0, 3), slice(3, 6)):
            log = alarm.told(Cells.of(confidence[part], np.array(hits)[part], 15))
        mean += chance * math.exp(log)
    assert mean == pytest.approx(1) if tolerance == 0 else mean < 1


@given(outcomes(), st.sampled_from([0.0, 0.02, 0.3]))
def test_sums_never_win_more_than_rows(rows, tolerance):
    """By Jensen's inequality; and hardly less."""
    confidence, correct = rows
    alarm = Calibration(Settings(tolerance=tolerance))
    found = alarm.gains(Cells.of(confidence, correct, 15))[: 2 * len(BETS)]
    exact = row_gains(confidence, correct, tolerance).sum(1)
    assert (found <= exact + 1e-9).all()
    assert (found >= exact - 1e-4 * len(confidence)).all()


@given(outcomes())
def test_bins_share_the_rows(rows):
    """What a bet wins on all rows is what it wins in the bins together."""
    gains = Calibration(Settings()).gains(Cells.of(*rows, 15))
    whole, each = np.split(gains, [2 * len(BETS)])
    assert each.reshape(-1, 15).sum(1) == pytest.approx(whole, abs=1e-9)


def calibrated(rng, rows=50):
    confidence = np.clip(rng.beta(6, 1.2, rows), 0.1, 1)
    return confidence, rng.random(rows) < confidence


def ever_fires(alarm, batches):
    return any(alarm.told(Cells.of(*batch, 15)) >= alarm.threshold for batch in batches)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["calibration", "accuracy", "drift"])
def test_false_alarms_are_rare_however_often_one_looks(name):
    """150 streams at a level of 10 %, each looked at 25 times; results/monitor.md has 2,000."""
    alpha, streams = 0.1, 150
    fired = 0
    for stream in range(streams):
        rng = np.random.default_rng(stream)
        reference = Cells.of(*calibrated(rng, 1000), 15)
        settings = Settings(alpha, 0.0, reference=reference)
        alarm = {
            "calibration": lambda s=settings: Calibration(s),
            "accuracy": lambda s=settings: Accuracy(s, 0.8321),  # a little below the mean of Beta
            "drift": lambda s=settings: Drift(s, s.reference),
        }[name]()
        fired += ever_fires(alarm, (calibrated(rng) for _ in range(25)))
    assert fired <= at_most(alpha, streams)


@pytest.mark.parametrize("down", [True, False])
def test_each_alarm_notices_what_it_watches(down):
    rng = np.random.default_rng(0)
    reference = Cells.of(*calibrated(rng, 2000), 15)
    settings = Settings(0.01, 0.02, reference=reference)
    calibration, drift = Calibration(settings), Drift(settings, reference)
    confidence, _ = calibrated(rng, 2000)
    chance = np.clip(confidence - 0.1, 0, 1) if down else (1 + confidence) / 2
    rows = Cells.of(confidence, rng.random(2000) < chance, 15)
    assert calibration.told(rows) >= calibration.threshold
    assert calibration.overconfident() is down
    assert drift.told(rows) < drift.threshold  # the confidences are as they were
    moved = Cells.of(chance, rng.random(2000) < chance, 15)
    assert drift.told(moved) >= drift.threshold
    honest = Calibration(settings)
    assert honest.told(moved) < honest.threshold  # and these are right about themselves


def test_accuracy_below_the_least():
    alarm = Accuracy(Settings(0.05), 0.9)
    rows = Cells.of(np.full(300, 0.8), np.arange(300) % 5 > 0, 15)  # four in five
    assert alarm.told(rows) >= alarm.threshold
    fine = Accuracy(Settings(0.05), 0.9)
    assert fine.told(Cells.of(np.full(300, 0.8), np.arange(300) % 20 > 0, 15)) < fine.threshold


def test_a_late_change_is_noticed_soon():
    """After 200 quiet rounds it takes a few batches more, not as many again."""
    rng = np.random.default_rng(1)
    needed = []
    for quiet in (0, 200):
        alarm = Calibration(Settings(0.05, 0.0))
        for _ in range(quiet):
            alarm.told(Cells.of(*calibrated(rng), 15))
        batches = 0
        log = 0.0
        while log < alarm.threshold:
            confidence, _ = calibrated(rng)
            log = alarm.told(Cells.of(confidence, rng.random(50) < confidence - 0.15, 15))
            batches += 1
        needed.append(batches)
    assert needed[0] <= 6
    assert needed[1] <= needed[0] + 8


def test_clopper_pearson_covers():
    """Exactly: the chance that each bound fails is at most the one given, for any probability."""
    n, chance = 12, 0.05
    low, high = clopper_pearson(np.arange(n + 1.0), n, chance)
    for p in (0.01, 0.2, 0.5, 0.93):
        law = np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])
        assert law[low > p].sum() <= chance
        assert law[high < p].sum() <= chance
