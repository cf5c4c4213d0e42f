"""A monitor: labels now, later or never; merging; what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import maccal as mc
from maccal.metrics import summary
from maccal.monitoring import Monitor, Settings
from maccal.monitoring.periods import periods


def rows(seed, n=40, gap=0.0):
    """Probabilities of three classes and labels."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet((4, 1, 1), n)
    truth = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return p, np.where(rng.random(n) < gap, (truth + 1) % 3, truth)


def test_numbers_are_those_of_summary():
    watch = Monitor()
    for seed in range(5):
        watch.add(*rows(seed), name=str(seed))
    p, y = (np.concatenate(parts) for parts in zip(*(rows(seed) for seed in range(5)), strict=True))
    expected = summary(p, y)
    found = watch.standing()
    assert found.rows == found.labelled == 200
    assert found.known.accuracy == expected["accuracy"]
    assert found.known.confidence == pytest.approx(expected["confidence"])
    assert found.known.ece == pytest.approx(expected["ece"], abs=1e-12)
    assert found.known.ece_low <= found.known.ece <= found.known.ece_high
    assert found.expected is None


def test_logits_are_their_softmax():
    p, y = rows(1)
    first, second = Monitor(), Monitor()
    first.add(p, y)
    second.add(logits=np.log(p) + 3, labels=y)
    assert second.standing().known.accuracy == first.standing().known.accuracy
    assert second.standing().known.ece == pytest.approx(first.standing().known.ece)


def test_late_labels_come_to_the_same_as_early_ones():
    p, y = rows(2)
    early, late = Monitor(), Monitor()
    early.add(p, y, time="2026-03-01")
    late.add(p, ids=range(40), time="2026-03-01")
    before = late.standing()
    assert (before.labelled, before.waiting, before.known) == (0, 40, None)
    assert before.expected.rows == 40
    assert before.expected.confidence == pytest.approx(p.max(1).mean())
    order = np.random.default_rng(0).permutation(40)
    late.label(order[:15], y[order[:15]], time="2026-03-05")
    assert (late.standing().labelled, late.standing().waiting) == (15, 25)
    assert late.standing().expected.rows == 25
    late.label(order[15:], y[order[15:]], time="2026-03-06")
    after = late.standing()
    assert after.known == early.standing().known
    assert (after.expected, after.waiting) == (None, 0)
    (period,) = periods(late.replay, late.settings)  # they count for the day of their batch
    assert (period.since, period.known.rows) == ("2026-03-01T00:00:00+00:00", 40)
    assert [money.stamp.time[:10] for money in late.replay.course["calibration"]] == [
        "2026-03-05",
        "2026-03-06",
    ]


def test_some_labels_are_known():
    p, y = rows(3)
    watch = Monitor()
    watch.add(p, np.where(np.arange(40) < 10, y, -1), ids=[f"row {i}" for i in range(40)])
    found = watch.standing()
    assert (found.labelled, found.waiting, found.expected.rows) == (10, 30, 30)
    assert found.known.accuracy == (p[:10].argmax(1) == y[:10]).mean()


def test_the_alarm_has_a_moment_and_stays():
    watch = Monitor(Settings(alpha=0.01, least_accuracy=0.5))
    for day in range(1, 9):
        watch.add(*rows(day, 200, gap=0.3 if day > 4 else 0.0), time=f"2026-03-0{day}")
    found = watch.standing()
    calibration, accuracy = found.alarms
    assert found.fired
    assert found.overconfident
    assert "2026-03-04" < calibration.fired_at[:10] <= "2026-03-07"
    assert calibration.rows == 200 * int(calibration.fired_at[9])
    assert accuracy.fired_at is None or accuracy.fired_at >= calibration.fired_at
    fired = calibration.fired_at
    watch.add(*rows(99, 3000), name="calm")  # calibrated again
    assert watch.standing().alarms[0].fired_at == fired
    assert f"Alarm since {fired[:10]} 00:00 UTC" in watch.standing().words()[0]
    assert "the model is too sure" in watch.standing().words()[0]


def test_the_accuracy_to_expect_has_a_caution_once_the_confidence_is_wrong():
    watch = Monitor()
    watch.add(*rows(1, 200))
    watch.add(rows(2, 200)[0])
    assert watch.standing().caution() is None
    watch.add(*rows(3, 400, gap=0.4))
    found = watch.standing()
    assert found.alarms[0].fired_at is not None
    assert found.expected.low > 0.6  # the 200 rows say so, and nothing else is known of them
    assert "do not rely on it" in found.values()["caution"]


def test_nothing_yet():
    found = Monitor().standing()
    assert not found.fired
    assert found.values()["alarms"][0]["e_value_log10"] == 0
    assert found.words() == ["No rows to tell whether the confidence is right."]


# Merging


BATCHES = [rows(seed, 8) for seed in range(5)]


def split_over(owners):
    """Two monitors in memory; each event is told to the one that owns it, or to both (2)."""
    states = [Monitor(), Monitor()]
    for number, owner in enumerate(owners):
        p, y = BATCHES[number]
        ids = [f"{number}-{row}" for row in range(8)]
        for state in states if owner == 2 else [states[owner]]:
            state.add(p, np.where(np.arange(8) < 4, y, -1), ids=ids, name=str(number))
            if number % 2:
                state.label(ids[4:], y[4:])
    return states


def merged(*states):
    total = Monitor()
    for state in states:
        total.merge(state)
    return total


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_merging_is_exact_in_any_order_and_any_number_of_times(owners):
    first, second = split_over(owners)
    alone = split_over([0] * len(owners))[0]
    expected = alone.standing()
    same = ("rows", "labelled", "waiting", "known", "expected", "batches")
    for found in (merged(first, second), merged(second, first, first)):
        for key in same:
            assert getattr(found.standing(), key) == getattr(expected, key)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_what_a_look_has_shown_stays_after_a_merge(owners):
    """So all looks at a state see one course of money, and Ville's inequality holds for them."""
    first, second = split_over(owners)
    before = [money.log for money in first.replay.course["calibration"]]
    first.merge(second)
    after = [money.log for money in first.replay.course["calibration"]]
    assert after[: len(before)] == before


def test_an_alarm_is_not_taken_back_by_a_merge():
    """Events of the other state that were recorded before the alarm come after it."""
    bad, calm = Monitor(), Monitor()
    for seed in range(8):
        calm.add(*rows(seed, 400))
        bad.add(*rows(100 + seed, 60, gap=0.4), time="2026-03-01")
    fired = bad.standing().alarms[0]
    assert fired.fired_at == "2026-03-01T00:00:00+00:00"
    bad.merge(calm)
    assert bad.standing().alarms[0].fired_at == fired.fired_at
    assert bad.standing().alarms[0].rows == fired.rows


def test_classes_mean_the_same_columns():
    p, y = BATCHES[0]
    watch = Monitor()
    watch.add(p, y, names=("cat", "dog", "cow"))
    with pytest.raises(ValueError, match="dog, cat, cow; those of the batches before cat, dog"):
        watch.add(*BATCHES[1], names=("dog", "cat", "cow"))
    two = Monitor()
    two.add(p[:, :2] / p[:, :2].sum(1, keepdims=True), y % 2)
    with pytest.raises(ValueError, match="2 classes; the ones before had 3"):
        watch.merge(two)
    assert watch.standing().rows == 8


def test_labels_told_to_both_count_once():
    p, y = BATCHES[0]
    first, second = Monitor(), Monitor()
    for state, stop in ((first, 5), (second, 8)):
        state.add(p, ids=range(8), name="same")
        state.label(range(stop - 4, stop), y[stop - 4 : stop])
    found = merged(first, second).standing()
    assert (found.rows, found.labelled, found.waiting) == (8, 7, 1)


def test_only_monitors_merge(tmp_path):
    with pytest.raises(ValueError, match=r"pass Monitor.open\('folder'\)"):
        Monitor().merge("folder")


def test_only_like_states_merge():
    with pytest.raises(ValueError, match="settings of the two monitors differ"):
        Monitor().merge(Monitor(Settings(alpha=0.01)))
    first, second = Monitor(), Monitor()
    first.add(BATCHES[0][0], ids=range(8))
    second.add(BATCHES[1][0], ids=range(8))
    with pytest.raises(ValueError, match="id '0' is that of rows of two batches"):
        first.merge(second)


# What is refused


P, Y = rows(0, 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "either probs or logits"),
        ({"probs": P, "logits": P}, "exactly one"),
        ({"probs": 2 * P}, "these look like logits|sums to 2"),
        ({"probs": P, "labels": [0, 1, 2, 3]}, "label 3 in row 3 is outside 0 .. 2"),
        ({"probs": P, "labels": [0, 1, -2, 0]}, "label -2 in row 2"),
        ({"probs": P, "labels": [0.0, 1.0, 2.0, 0.0]}, "dtype"),
        ({"probs": P, "labels": [0]}, "4 rows of predictions but 1 labels"),
        ({"probs": P, "ids": ["a", "b", "a", "c"]}, "id 'a' comes twice"),
        ({"probs": P, "ids": [1, 2, 3]}, "4 rows but 3 ids"),
        ({"probs": P, "ids": [0.5, 1, 2, 3]}, "one text or whole number per row"),
        ({"probs": P, "ids": ["a", "b", "c", "\ud800"]}, "an id has half a letter"),
        ({"probs": P, "time": "yesterday"}, "expected ISO 8601"),
        ({"probs": P, "time": "0001-01-01T00:00:00+14:00"}, "outside the years 1 to 9999"),
        ({"probs": P, "name": 5}, "name is 5; expected a word"),
        ({"probs": P, "names": ["a", "b"]}, "2 classes for 3 columns"),
        ({"probs": P, "names": ["a", "b", "a"]}, "'a' twice"),
        ({"probs": P, "names": "abc"}, "classes is 'abc'; expected a list"),
        ({"probs": P[:, :2] / P[:, :2].sum(1, keepdims=True)}, "2 classes; the ones before had 3"),
        ({"probs": P, "ids": ["w", "x", "y", "z"]}, "id 'w' waits for its label already"),
        ({"probs": rows(5, 4)[0], "labels": rows(5, 4)[1]}, "this very batch is in the monitor"),
    ],
)
def test_refused_batches(arguments, words):
    watch = Monitor()
    watch.add(rows(5, 4)[0], rows(5, 4)[1])
    watch.add(rows(6, 4)[0], ids=["w", "v", "u", "t"])
    before = watch.standing()
    with pytest.raises(ValueError, match=words):
        watch.add(**arguments)
    assert watch.standing() == before


@pytest.mark.parametrize(
    ("ids", "labels", "words"),
    [
        (["a", "q"], [0, 0], "id 'q' does not wait for a label"),
        (["a", "b"], [0, 3], "label 3 of id 'b' is outside 0 .. 2"),
        (["a", "b"], [0.0, 1.0], "expected one class index per id"),
        (["a"], [0, 1], "2 rows but 1 ids"),
        ([], np.array([], int), "there are no labels|expected one text"),
    ],
)
def test_refused_labels(ids, labels, words):
    watch = Monitor()
    watch.add(P, ids=["a", "b", "c", "d"])
    with pytest.raises(ValueError, match=words):
        watch.label(ids, labels)
    assert watch.standing().waiting == 4
    watch.label(["a"], [0])
    with pytest.raises(ValueError, match="does not wait"):
        watch.label(["a"], [1])


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"alpha": 0}, "alpha is 0"),
        ({"alpha": 1.0}, "above 0 and below 1"),
        ({"tolerance": -0.1}, "from 0 to 1"),
        ({"tolerance": 1}, "then no gap would matter"),
        ({"tolerance": float("nan")}, "tolerance is nan"),
        ({"least_accuracy": 1.5}, "least_accuracy is 1.5"),
        ({"bins": 0}, "bins is 0"),
    ],
)
def test_refused_settings(choice, words):
    with pytest.raises(ValueError, match=words):
        Settings(**choice)


def test_a_reference_needs_all_labels(tmp_path):
    with pytest.raises(ValueError, match="needs a label for every row"):
        mc.Monitor.create(tmp_path / "state", probs=P, labels=[0, 1, -1, 2])
    with pytest.raises(ValueError, match="either probs or logits"):
        mc.Monitor.create(tmp_path / "state", labels=Y)
    assert not (tmp_path / "state").exists()


def test_a_monitor_and_its_standing_read_as_sentences(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.7, 1, 500)
    watch = Monitor.create(tmp_path / "state")
    watch.add(np.stack([p, 1 - p], 1), (rng.random(500) > p - 0.2).astype(int))
    watch.add(np.stack([p, 1 - p], 1))
    found = watch.standing()
    text = str(found)
    assert text.startswith("1,000 rows in 2 batches; 500 with labels, 0 waiting for theirs.\n")
    assert "Of the 500 rows without labels, " in text
    assert found.words()[0] in text
    assert found.caution() in text
    assert found._repr_html_() == watch._repr_html_()
    assert found._repr_html_().count("<p>") == len(text.splitlines())
    assert repr(watch).endswith("2 events; standing() has the numbers")
