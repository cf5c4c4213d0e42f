"""MaCCalClassifier: scikit-learn's own checks, its tools, and what it is for.

Confidence that can be trusted.
"""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from maccal.calibration.estimator import MaCCalClassifier, hold_out
from maccal.calibration.mac_cal import DEFAULT
from maccal.metrics import ece, top_label

FAST = {"hidden": 32, "epochs": 15, "batch_size": 32}


@parametrize_with_checks(
    [MaCCalClassifier(**FAST), MaCCalClassifier(hidden=None, epochs=15, validation_fraction=None)]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def task(n, seed=0, classes=4, noise=0.25):
    """Features with a share of wrong labels: who memorises them is overconfident."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, 20))
    y = rng.integers(0, classes, n)
    x = centres[y] + 1.2 * rng.normal(size=(n, 20))
    return x, np.where(rng.random(n) < noise, rng.integers(0, classes, n), y)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_less_overconfident_than_an_unmasked_network(seed):
    """A quarter of 1,200 labels wrong.

    Less than half the ECE of the same network without masks, and eight points more accurate.
    """
    (x, y), (test_x, test_y) = task(1200, seed), task(4000, 100 + seed)
    ours = MaCCalClassifier(hidden=128).fit(x, y)
    other = MLPClassifier(
        (128,), solver="sgd", batch_size=128, learning_rate_init=0.1, max_iter=300, random_state=1
    ).fit(x, y)
    (sure, right), (other_sure, other_right) = (
        top_label(model.predict_proba(test_x), test_y) for model in (ours, other)
    )
    assert ece(sure, right) < 0.5 * ece(other_sure, other_right)
    assert right.mean() > other_right.mean() + 0.08
    assert sure.mean() == pytest.approx(right.mean(), abs=0.06)
    assert other_sure.mean() > other_right.mean() + 0.25


def test_digits_with_the_defaults():
    x, y = load_digits(return_X_y=True)
    model = MaCCalClassifier().fit(x[:1200], y[:1200])
    assert model.score(x[1200:], y[1200:]) > 0.9
    assert (model.n_validation_, model.n_iter_, model.n_features_in_) == (120, 40, 64)
    assert ece(*top_label(model.predict_proba(x[1200:]), y[1200:])) < 0.08


def test_parameters_are_stage_two_s():
    model = MaCCalClassifier()
    assert {
        name: getattr(DEFAULT, name)
        for name in ("hidden", "epochs", "batch_size", "lr", "weight_decay", "gamma")
    } == {
        name: value
        for name, value in model.get_params().items()
        if name not in ("validation_fraction", "random_state")
    }
    changed = model.set_params(gamma=0.8, hidden=None, validation_fraction=None)
    assert clone(changed).get_params() == changed.get_params()


def test_same_random_state_same_bits():
    x, y = task(300)
    first, again, other = (
        MaCCalClassifier(**FAST, random_state=s).fit(x, y).predict_proba(x) for s in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_global_generators_are_left_alone():
    x, y = task(200)
    torch_before = torch.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002
    MaCCalClassifier(**FAST).fit(x, y)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


def test_pickle_keeps_every_bit():
    x, y = task(300)
    model = MaCCalClassifier(**FAST).fit(x, y)
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.predict_proba(x), model.predict_proba(x))
    assert copy.history_ == model.history_


def test_probabilities_are_the_head_s():
    x, y = task(300)
    model = MaCCalClassifier(**FAST).fit(x, y)
    expected = model.head_(torch.tensor(x).float()).softmax(1).numpy()
    assert np.allclose(model.predict_proba(x), expected, atol=1e-5)
    assert np.allclose(torch.tensor(model.decision_function(x)).softmax(1), model.predict_proba(x))
    assert (model.predict(x) == model.predict_proba(x).argmax(1)).all()


def test_two_classes_of_words():
    """The decision is the second logit less the first, the log odds of the second class."""
    x, y = task(300, classes=2)
    model = MaCCalClassifier(**FAST).fit(x, np.array(["no", "yes"])[y])
    assert model.classes_.tolist() == ["no", "yes"]
    odds = model.decision_function(x)
    probs = model.predict_proba(x)
    assert odds == pytest.approx(np.log(probs[:, 1] / probs[:, 0]))
    assert (model.predict(x) == np.where(odds > 0, "yes", "no")).all()


def test_in_scikit_learn_s_tools():
    x, y = task(400, classes=2)
    scaled = make_pipeline(StandardScaler(), MaCCalClassifier(**FAST))
    grid = {"maccalclassifier__hidden": [None, 16], "maccalclassifier__gamma": [0.8, 0.97]}
    search = GridSearchCV(
        scaled.set_params(maccalclassifier__validation_fraction=None),
        grid,
        cv=3,
        scoring="neg_log_loss",
    ).fit(x, y)
    assert len(set(search.cv_results_["mean_test_score"])) == 4  # each parameter matters
    probs = cross_val_predict(scaled, x, y, cv=3, method="predict_proba")
    assert (probs.argmax(1) == y).mean() > 0.6
    display = CalibrationDisplay.from_estimator(search.best_estimator_, x, y)
    assert 0 <= display.prob_pred.min() <= display.prob_pred.max() <= 1


def test_names_of_columns():
    x, y = task(200)
    table = pd.DataFrame(x, columns=[f"feature {i}" for i in range(20)])
    model = MaCCalClassifier(**FAST).fit(table, pd.Series(y).map(lambda label: f"class {label}"))
    assert list(model.feature_names_in_) == list(table.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename(columns={"feature 0": "other"}))


def test_what_is_held_out():
    """A tenth of every class.

    Nothing where a class has one row, or the rows are fewer than the classes need.
    """
    codes = np.repeat([0, 1, 2], [20, 30, 50])
    train, held = hold_out(codes, 0.1, 1)
    assert np.bincount(codes[held]).tolist() == [2, 3, 5]
    assert sorted([*train, *held]) == list(range(100))
    assert len(hold_out(codes, None, 1)[1]) == 0
    assert len(hold_out(np.array([0] * 50 + [1]), 0.1, 1)[1]) == 0
    assert len(hold_out(np.repeat(np.arange(10), 5), 0.1, 1)[1]) == 0
    assert len(hold_out(np.repeat(np.arange(10), 5), 0.9, 1)[1]) == 0


def test_too_few_rows_fall_back_to_gamma():
    x, y = task(60, noise=0)
    x = np.concatenate([x, x[:1] + 1])
    y = np.append(y, 7)  # a class of one row
    fallen, asked = (MaCCalClassifier(**FAST, validation_fraction=f).fit(x, y) for f in (0.1, None))
    assert fallen.n_validation_ == 0
    assert np.array_equal(fallen.predict_proba(x), asked.predict_proba(x))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"validation_fraction": 1.0}, "validation_fraction is 1.0; pass a share between 0 and 1"),
        ({"epochs": 0}, "epochs is 0"),
        ({"hidden": 0}, "hidden is 0"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        MaCCalClassifier(**parameters).fit(*task(100))


def test_one_class():
    with pytest.raises(
        ValueError, match="one class only; a classifier needs rows of at least two classes"
    ):
        MaCCalClassifier().fit(np.ones((5, 2)), ["a"] * 5)
