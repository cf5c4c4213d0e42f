"""What every post-hoc calibrator does: scikit-learn's shape, and what was said about its inputs."""

import numpy as np
import pandas as pd
import pytest
import torch
from made_up_predictions import made_up
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline

import maccal
from maccal.calibration import FAMILY
from maccal.metrics import nll, softmax

LOGITS, LABELS = made_up()
PROBS = softmax(LOGITS)
each = pytest.mark.parametrize("name", FAMILY)
KEEPS_ORDER = ("temperature", "ensemble temperature")


@each
def test_probabilities(name):
    model = FAMILY[name]().fit(LOGITS, LABELS)
    found = model.predict_proba(LOGITS)
    assert found.shape == LOGITS.shape
    assert found.dtype == np.float64
    assert found.min() >= 0
    assert np.allclose(found.sum(1), 1, atol=1e-12)
    assert np.array_equal(model.predict(LOGITS), found.argmax(1))
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert model.score(LOGITS, LABELS) == np.mean(found.argmax(1) == LABELS)
    if name in KEEPS_ORDER:
        assert np.array_equal(found.argmax(1), LOGITS.argmax(1))


@each
def test_clones_have_the_parameters_and_not_the_fit(name):
    model = FAMILY[name](inputs="probs").fit(PROBS, LABELS)
    again = clone(model)
    assert again.get_params() == model.get_params()
    with pytest.raises(ValueError, match="not fitted yet"):
        again.predict_proba(PROBS)
    assert np.array_equal(again.fit(PROBS, LABELS).predict_proba(PROBS), model.predict_proba(PROBS))


@each
def test_in_scikit_learns_hands(name):
    """Stratified folds and a pipeline, as of any other classifier."""
    model = make_pipeline("passthrough", FAMILY[name]())
    found = cross_val_predict(model, LOGITS, LABELS, cv=3, method="predict_proba")
    assert found.shape == LOGITS.shape
    # what was left out is better predicted than without a calibrator, or as well
    floor = np.maximum(found, 1e-3)
    assert nll(floor / floor.sum(1, keepdims=True), LABELS) < nll(PROBS, LABELS)


@each
def test_probabilities_are_refused_as_logits(name):
    with pytest.raises(ValueError, match='say inputs="probs"'):
        FAMILY[name]().fit(PROBS, LABELS)
    model = FAMILY[name]().fit(LOGITS, LABELS)
    for some in (PROBS, PROBS[:1].astype(np.float32)):
        with pytest.raises(ValueError, match='say inputs="probs"'):
            model.predict_proba(some)


@each
def test_logits_are_refused_as_probabilities(name):
    with pytest.raises(ValueError, match='say inputs="logits"'):
        FAMILY[name](inputs="probs").fit(LOGITS, LABELS)
    with pytest.raises(ValueError, match="inputs is 'guess'"):
        FAMILY[name](inputs="guess").fit(LOGITS, LABELS)


@each
def test_probabilities_that_are_said_give_the_same(name):
    """Logits and their softmax; vector scaling alone works on logits as they are."""
    if name == "vector":
        found = FAMILY[name](inputs="probs").fit(PROBS, LABELS)
        same = FAMILY[name]().fit(np.log(PROBS), LABELS)
        assert np.allclose(found.scale_, same.scale_, atol=1e-6)
        return
    of_logits = FAMILY[name]().fit(LOGITS, LABELS).predict_proba(LOGITS)
    of_probs = FAMILY[name](inputs="probs").fit(PROBS, LABELS).predict_proba(PROBS)
    assert np.allclose(of_logits, of_probs, atol=1e-6)


@each
def test_tensors_come_back_as_tensors(name):
    model = FAMILY[name]().fit(torch.tensor(LOGITS), torch.tensor(LABELS))
    found = model.predict_proba(torch.tensor(LOGITS))
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, torch.tensor(model.predict_proba(LOGITS)))
    assert isinstance(model.predict(torch.tensor(LOGITS)), torch.Tensor)


@each
@pytest.mark.parametrize("classes", [2, 3])
def test_few_classes(name, classes):
    logits, labels = made_up(400, classes, seed=1)
    found = FAMILY[name]().fit(logits, labels).predict_proba(logits)
    assert found.shape == (400, classes)
    assert np.allclose(found.sum(1), 1)


@each
def test_shifted_logits_are_the_same_logits(name):
    """A number added to all logits of a row changes no probability; vector scaling says so."""
    if name == "vector":
        return
    shift = np.linspace(-3, 3, len(LOGITS))[:, None]
    found = FAMILY[name]().fit(LOGITS, LABELS).predict_proba(LOGITS)
    again = FAMILY[name]().fit(LOGITS + shift, LABELS).predict_proba(LOGITS + shift)
    assert np.allclose(found, again, atol=1e-6)


@each
def test_other_classes_are_refused(name):
    model = FAMILY[name]().fit(LOGITS, LABELS)
    with pytest.raises(ValueError, match="3 columns, and it was fitted on 4"):
        model.predict_proba(LOGITS[:, :3])


@each
def test_a_failed_fit_is_no_fit(name):
    model = FAMILY[name]()
    with pytest.raises(ValueError, match="label 9 in row 0"):
        model.fit(LOGITS, np.full(len(LOGITS), 9))
    with pytest.raises(ValueError, match="not fitted yet"):
        model.predict_proba(LOGITS)


NAMES = ["owl", "cat", "emu", "dog"]


@each
def test_labels_and_columns_may_have_names(name):
    """A frame's columns are those of the fit; what answers are called does not change them."""
    frame = pd.DataFrame(LOGITS, columns=NAMES)
    text = np.array(NAMES)[LABELS]
    model = FAMILY[name](classes=NAMES).fit(frame, text)
    assert model.feature_names_in_.tolist() == NAMES
    plain = FAMILY[name]().fit(LOGITS, LABELS)
    assert np.array_equal(model.predict_proba(frame), plain.predict_proba(LOGITS))
    assert (model.predict(frame) == np.array(NAMES)[plain.predict(LOGITS)]).all()
    assert not hasattr(model.fit(LOGITS, text), "feature_names_in_")


def test_numbers_are_refused_where_they_may_count_other_columns():
    """cross_val_predict numbers names in sorted order, and would give another class each."""
    text = np.array(NAMES)[LABELS]
    model = maccal.TemperatureScaling(classes=NAMES)
    with pytest.raises(ValueError, match="cross_val_predict numbers names in sorted order"):
        cross_val_predict(model, LOGITS, text, cv=3, method="predict_proba")
    in_order = np.argsort(NAMES)
    model = maccal.TemperatureScaling(classes=sorted(NAMES))
    found = cross_val_predict(model, LOGITS[:, in_order], text, cv=3, method="predict_proba")
    assert nll(found, np.argsort(in_order)[LABELS]) < nll(PROBS, LABELS)


def test_all_are_public():
    for row in FAMILY.values():
        assert getattr(maccal, row.__name__) is row
        assert row.__name__ in dir(maccal)
