"""Data frames and series that are out of step with one another are refused, wherever they enter."""

import numpy as np
import pandas as pd
import pytest

import maccal as mc
from maccal.metrics import by_class, by_group, compare, multilabel_summary

ROWS = 60
NAMES = ["cat", "dog", "owl"]


def made_up(seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet([1, 1, 1], ROWS)
    return probs, (probs.cumsum(1) > rng.random((ROWS, 1))).argmax(1)


PROBS, LABELS = made_up()
TEXT = np.array(NAMES)[LABELS]
LOGITS = np.log(PROBS)
GROUPS = np.arange(ROWS) % 2

# what takes a data frame of scores and labels
BY_NUMBER = {
    "summary": lambda p, y: mc.summary(p, y, interval=False),
    "logits": lambda p, y: mc.summary(logits=p, labels=y, interval=False),
    "top_label": mc.top_label,
    "binary": lambda p, y: mc.binary_summary(p[0], y == 0, interval=False),
    "by_group": lambda p, y: by_group(p, y, GROUPS),
    "by_class": by_class,
    "compare": lambda p, y: compare(p, PROBS, y, resamples=100),
    "temperature": lambda p, y: mc.TemperatureScaling(inputs="probs").fit(p, y),
    "isotonic": lambda p, y: mc.IsotonicCalibration(inputs="probs").fit(p, y),
    "conformal": lambda p, y: mc.ConformalSets().fit(p, y),
    "abstaining": lambda p, y: mc.AbstainingClassifier(risk=0.9).fit(p, y),
}
BY_NAME = {
    "summary": lambda p, y: mc.summary(p, y, classes=NAMES, interval=False),
    "by_group": lambda p, y: by_group(p, y, GROUPS, classes=NAMES),
    "by_class": lambda p, y: by_class(p, y, names=NAMES),
    "compare": lambda p, y: compare(p, PROBS, y, classes=NAMES, resamples=100),
    "temperature": lambda p, y: mc.TemperatureScaling(inputs="probs", classes=NAMES).fit(p, y),
    "conformal": lambda p, y: mc.ConformalSets().fit(p, y, classes=NAMES),
    "abstaining": lambda p, y: mc.AbstainingClassifier(risk=0.9).fit(p, y, classes=NAMES),
}


@pytest.mark.parametrize("which", [which for which in BY_NUMBER if which != "binary"])
def test_columns_numbered_in_another_order_are_refused(which):
    values = LOGITS if which == "logits" else PROBS
    frame = pd.DataFrame(values)
    BY_NUMBER[which](frame, LABELS)
    with pytest.raises(ValueError, match=r"numbered \[2, 0, 1\], and labels count them from 0"):
        BY_NUMBER[which](frame[[2, 0, 1]], LABELS)


@pytest.mark.parametrize("which", BY_NAME)
def test_named_columns_in_another_order_than_the_classes_are_refused(which):
    frame = pd.DataFrame(PROBS, columns=NAMES)
    BY_NAME[which](frame, TEXT)
    with pytest.raises(ValueError, match="pass classes in the order of the columns"):
        BY_NAME[which](frame[["owl", "cat", "dog"]], TEXT)


@pytest.mark.parametrize("which", BY_NUMBER)
def test_rows_that_have_one_anothers_labels_are_refused(which):
    frame = pd.DataFrame(LOGITS if which == "logits" else PROBS)
    labels = pd.Series(LABELS)
    shuffled = labels.sample(frac=1, random_state=0)
    BY_NUMBER[which](frame, labels)
    with pytest.raises(ValueError, match=r"put them in step, labels.loc\[predictions.index\]"):
        BY_NUMBER[which](frame, shuffled)
    BY_NUMBER[which](frame, shuffled.loc[frame.index])


def test_an_index_that_says_nothing_of_the_rows_is_let_be():
    """Other names, names that repeat, and a list, which has an index of another kind."""
    frame, right = pd.DataFrame(PROBS), mc.top_label(PROBS, LABELS)[1]
    for index in (np.arange(ROWS) + 1000, np.zeros(ROWS, int)):
        assert (mc.top_label(frame, pd.Series(LABELS, index=index))[1] == right).all()
    assert (mc.top_label(frame, LABELS.tolist())[1] == right).all()


def test_compare_refuses_two_frames_that_are_out_of_step():
    first = pd.DataFrame(PROBS)
    with pytest.raises(ValueError, match="have the same index in another order"):
        compare(first, first.sample(frac=1, random_state=0), LABELS, resamples=100)


def test_multilabel_columns_in_another_order_are_refused():
    rng = np.random.default_rng(3)
    probs = pd.DataFrame(rng.random((ROWS, 3)), columns=NAMES)
    labels = pd.DataFrame((rng.random((ROWS, 3)) < probs.to_numpy()).astype(int), columns=NAMES)
    multilabel_summary(probs, labels, interval=False)
    with pytest.raises(ValueError, match="order of the columns"):
        multilabel_summary(probs, labels[["owl", "cat", "dog"]], interval=False)


@pytest.mark.parametrize(
    "model",
    [
        mc.TemperatureScaling(inputs="probs"),
        mc.ConformalSets(),
        mc.AbstainingClassifier(risk=0.9),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_was_fitted_on_named_columns_wants_those_columns(model):
    frame = pd.DataFrame(PROBS, columns=NAMES)
    model.fit(frame, LABELS)
    predict = getattr(model, "predict_proba", model.predict)
    predict(frame)
    predict(PROBS)
    with pytest.raises(ValueError, match="and was fitted on"):
        predict(frame[["owl", "cat", "dog"]])
