"""Class names as labels, and rows that are normalised: in every public function, or refused."""

import numpy as np
import pandas as pd
import pytest
import torch

import maccal as mc
from maccal.calibration import FAMILY
from maccal.metrics.given import class_indices, class_names, normalised
from maccal.metrics.inputs import NORMALISE, ONE_SCORE

RNG = np.random.default_rng(0)
CODES = RNG.integers(3, size=400)
LOGITS = RNG.normal(size=(400, 3)) + 2 * np.eye(3)[CODES]
PROBS = mc.softmax(LOGITS)
CLASSES = ["dog", "cat", "cow"]  # not in the order of the alphabet
NAMES = np.array(CLASSES)[CODES]

KINDS = {
    "array": NAMES,
    "list": NAMES.tolist(),
    "tuple": tuple(NAMES.tolist()),
    "objects": NAMES.astype(object),
    "series": pd.Series(NAMES),
    "categories": pd.Series(NAMES, dtype="category"),
}


@pytest.mark.parametrize("names", KINDS.values(), ids=KINDS)
def test_names_are_indices(names):
    assert class_indices(names, CLASSES).tolist() == CODES.tolist()
    expected = mc.summary(PROBS, CODES)
    assert mc.summary(PROBS, names, classes=CLASSES) == expected
    with pytest.raises(ValueError, match=r"labels are names, such as .*; pass classes="):
        mc.summary(PROBS, names)


@pytest.mark.parametrize(
    "measured",
    [
        lambda y, **k: mc.summary(logits=LOGITS, labels=y, **k),
        lambda y, **k: mc.Stream.of(PROBS, y, **k).summary(),
        lambda y, **k: mc.Stream.of(logits=LOGITS, labels=y, **k).summary(),
        lambda y, **k: mc.compare(PROBS, PROBS**0.9, y, normalise=True, **k),
        lambda y, **k: mc.reliability(PROBS, y, **k).axes[0].texts[0].get_text(),
        lambda y, **k: (
            mc.compare_calibrators(LOGITS, y, names=["temperature"], resamples=20, **k)
            .candidates[1]
            .numbers
        ),
    ],
    ids=["summary", "Stream", "Stream of logits", "compare", "reliability", "compare_calibrators"],
)
def test_every_function_takes_names(measured):
    assert measured(NAMES, classes=CLASSES) == measured(CODES)
    with pytest.raises(ValueError, match="labels are names"):
        measured(NAMES)
    with pytest.raises(ValueError, match=r"label 'dog' in row .* is none of the classes"):
        measured(NAMES, classes=["hen", "cat", "cow"])


@pytest.mark.parametrize("name", FAMILY)
def test_every_calibrator_takes_names(name):
    plain = FAMILY[name]().fit(LOGITS, CODES)
    named = FAMILY[name](classes=CLASSES).fit(LOGITS, NAMES)
    assert np.array_equal(named.predict_proba(LOGITS), plain.predict_proba(LOGITS))
    assert named.classes_.tolist() == CLASSES
    assert named.predict(LOGITS).tolist() == [CLASSES[i] for i in plain.predict(LOGITS)]
    assert named.predict(torch.tensor(LOGITS))[0] in CLASSES
    assert named.score(LOGITS, NAMES) == plain.score(LOGITS, CODES)
    with pytest.raises(ValueError, match="labels are names"):
        FAMILY[name]().fit(LOGITS, NAMES)
    with pytest.raises(ValueError, match="2 classes for 3 columns"):
        FAMILY[name](classes=["dog", "cat"]).fit(LOGITS, NAMES)


def test_numbers_with_names_are_indices():
    assert mc.summary(PROBS, CODES, classes=CLASSES) == mc.summary(PROBS, CODES)
    assert mc.summary(PROBS, torch.tensor(CODES), classes=CLASSES) == mc.summary(PROBS, CODES)


def test_other_numbers_than_indices():
    assert class_indices(10 * CODES + 5, [5, 15, 25]).tolist() == CODES.tolist()
    assert class_indices(torch.tensor([25, 5]), np.array([5, 15, 25])).tolist() == [2, 0]
    assert class_indices([True, False], [False, True]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ("catdog", "expected a list of class names"),
        (3, "expected a list of class names"),
        (["a", "b", 1], "names, or whole numbers, not both"),
        ([0.5, 1.5, 2.5], "holds 0.5"),
        ([None, "a", "b"], "holds None"),
        (["a", "b", "a"], "'a' twice"),
        (["a", "b"], "2 classes for 3 columns; name each column, in order"),
    ],
)
def test_refused_classes(classes, words):
    with pytest.raises(ValueError, match=words):
        mc.summary(PROBS, CODES, classes=classes)


def test_missing_names():
    with pytest.raises(ValueError, match="labels is missing in row 1"):
        mc.summary(PROBS[:2], pd.Series(["dog", None]), classes=CLASSES)
    with pytest.raises(ValueError, match="label None in row 1 is none of the classes"):
        mc.summary(PROBS[:2], ["dog", None], classes=CLASSES)


def test_many_classes_make_a_short_message():
    names = [f"class {number}" for number in range(1000)]
    with pytest.raises(ValueError, match="none of the classes") as caught:
        class_indices(["x"], names)
    assert len(str(caught.value)) < 200
    assert class_names(names) == names


ROUNDED = PROBS.round(2)


@pytest.mark.parametrize("scale", [1, 100])
def test_rounded_rows_and_percentages(scale):
    """As a table in a document has them: refused with the remedy, which works."""
    given = scale * ROUNDED
    with pytest.raises(ValueError, match=NORMALISE):
        mc.summary(given, CODES)
    with pytest.raises(ValueError, match=NORMALISE):
        mc.Stream.of(given, CODES)
    expected = mc.summary(ROUNDED / ROUNDED.sum(1, keepdims=True), CODES)
    found = mc.summary(given, CODES, normalise=True)
    assert found["nll"] == pytest.approx(expected["nll"], rel=1e-12)
    assert found["ece"] == pytest.approx(expected["ece"], abs=1e-3)
    assert mc.Stream.of(given, CODES, normalise=True).summary()["ece"] == found["ece"]
    assert mc.reliability(given, CODES, normalise=True) is not None


def test_whole_percentages():
    found = normalised(np.array([[98, 2], [33, 66]]))
    assert found == pytest.approx(np.array([[0.98, 0.02], [1 / 3, 2 / 3]]))
    assert normalised(torch.tensor([[1.0, 3.0]])).tolist() == [[0.25, 0.75]]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([-1.0, 2.0], "row 1 ranges from -1 to 2"),
        ([0.0, 0.0], "row 1 ranges from 0 to 0"),
        ([np.nan, 1.0], "row 1 holds nan"),
        ([np.inf, 1.0], "row 1 holds inf"),
    ],
)
def test_what_cannot_be_normalised(row, words):
    with pytest.raises(ValueError, match=words):
        mc.summary(np.array([[1.0, 1.0], row]), [0, 1], normalise=True)


def test_logits_are_not_normalised():
    with pytest.raises(ValueError, match="normalise=True is for probs"):
        mc.summary(logits=LOGITS, labels=CODES, normalise=True)


@pytest.mark.parametrize("shape", [(400,), (400, 1)])
def test_a_binary_score(shape):
    with pytest.raises(ValueError, match="binary score") as caught:
        mc.summary(PROBS[:, 0].reshape(shape), CODES)
    assert str(caught.value).endswith(ONE_SCORE)


def test_logits_are_still_called_logits():
    with pytest.raises(ValueError, match="these look like logits"):
        mc.summary(LOGITS, CODES)


@pytest.mark.parametrize("classes", [{"cat", "dog"}, frozenset("ab"), {"cat": 1, "dog": 0}])
def test_classes_without_an_order_are_refused(classes):
    with pytest.raises(ValueError, match="expected a list of class names in the order of"):
        mc.summary([[0.9, 0.1]], ["cat"], classes=classes)


def test_a_frame_with_its_columns_in_another_order_is_refused():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([[0.9, 0.1]], columns=["dog", "cat"])
    assert mc.summary(frame, ["dog"], classes=["dog", "cat"])["accuracy"] == 1
    with pytest.raises(ValueError, match="pass classes in the order of the columns"):
        mc.summary(frame, ["dog"], classes=["cat", "dog"])


def test_a_number_that_is_a_name_and_another_index_is_refused():
    probs = [[0.9, 0.1], [0.2, 0.8]]
    assert mc.summary(probs, [0, 1], classes=["0", "1"])["accuracy"] == 1
    assert mc.summary(probs, ["1", "0"], classes=["1", "0"])["accuracy"] == 1
    with pytest.raises(ValueError, match="class 0 is called '1': an index or a name"):
        mc.summary(probs, [1, 0], classes=["1", "0"])


def test_rounded_rows_get_their_hint_whatever_the_number_of_classes():
    p = np.random.default_rng(0).dirichlet(np.ones(100) / 2, 50)
    labels = np.zeros(50, int)
    for digits in (1, 2):
        with pytest.raises(ValueError, match="if they were rounded, divide each row by its sum"):
            mc.summary(p.round(digits), labels)
    for percent in ((100 * p).round(), (100 * p).round(1)):
        with pytest.raises(ValueError, match="look like percentages; divide each row by its sum"):
            mc.summary(percent, labels)
    with pytest.raises(ValueError, match="for percentages and counts, divide each row"):
        mc.summary((100 * p).round().astype(int), labels)
    several = np.eye(100)[:50] + np.eye(100)[50:]  # two ones per row: nothing is rounded
    with pytest.raises(ValueError, match="sums to 2, not 1; pass softmax probabilities"):
        mc.summary(several, labels)


def test_groups_take_names():
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    found = mc.by_group(probs, ["a", "b", "b"], [0, 0, 1], classes=["a", "b"], resamples=20)
    assert found == mc.by_group(probs, [0, 1, 1], [0, 0, 1], resamples=20)
