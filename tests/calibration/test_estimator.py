"""MaCCalClassifier: scikit-learn's own checks, its tools, and what it is for.

Confidence that can be trusted, at the accuracy of logistic regression.
"""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from maccal.calibration import estimator as module
from maccal.calibration.estimator import MaCCalClassifier
from maccal.calibration.logistic import dealt, folds_of
from maccal.metrics import ece, top_label


@parametrize_with_checks([MaCCalClassifier(), MaCCalClassifier(class_weight="balanced", cv=3)])
def test_scikit_learn_checks(estimator, check):
    """Among them: sparse X, and a weight of two is the row twice."""
    check(estimator)


def task(n, seed=0, classes=4, noise=0.25):
    """Features with a share of wrong labels: who memorises them is overconfident."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, 20))
    y = rng.integers(0, classes, n)
    x = centres[y] + 1.2 * rng.normal(size=(n, 20))
    return x, np.where(rng.random(n) < noise, rng.integers(0, classes, n), y)


def plain(c=1.0):
    """The twin: logistic regression as a scikit-learn user writes it."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=c, tol=1e-6, max_iter=1000))


@pytest.mark.parametrize(("load", "least", "most"), [(load_iris, 3, 0.6), (load_digits, 0.4, 0.8)])
def test_as_accurate_as_logistic_regression_and_better_calibrated(load, least, most):
    """The ECE of predictions from five folds falls by `least` points, and to `most` of what it was.

    Iris: 3.6 % against 9.2 %; digits: 0.9 % against 1.7 % (results/tables.md).
    """
    x, y = load(return_X_y=True)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    found = []
    for model in (MaCCalClassifier(), plain()):
        sure, right = top_label(cross_val_predict(model, x, y, cv=folds, method="predict_proba"), y)
        found.append((ece(sure, right), right.mean()))
    (error, accuracy), (plain_error, plain_accuracy) = found
    assert accuracy == pytest.approx(plain_accuracy, abs=0.002)
    assert error < plain_error - least / 100
    assert error < most * plain_error


@pytest.mark.parametrize("classes", [2, 4])
def test_with_rate_zero_it_is_logistic_regression_at_a_temperature(classes):
    x, y = task(400, classes=classes)
    model = MaCCalClassifier(lr=0.0, C=0.3).fit(5 + 3 * x, y)
    odds = plain(0.3).fit(5 + 3 * x, y).decision_function(5 + 3 * x)
    expected = model.feedback_.scale * odds
    found = model.decision_function(5 + 3 * x)
    if classes > 2:  # a common number in all logits of a row means nothing
        found, expected = (v - v.mean(1, keepdims=True) for v in (found, expected))
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_the_scale_is_where_the_folds_confidence_is_their_accuracy():
    """Done again by hand: each fold is predicted by the regression on the others."""
    x, y = task(300)
    model = MaCCalClassifier(cv=StratifiedKFold(3)).fit(x, y)
    odds = cross_val_predict(plain(), x, y, cv=StratifiedKFold(3), method="decision_function")
    sure = softmax(model.feedback_.scale * odds, axis=1).max(1)
    right = odds.argmax(1) == y
    assert model.feedback_.accuracy == pytest.approx((right.sum() + 1) / 302)
    assert sure.mean() == pytest.approx(model.feedback_.accuracy, abs=1e-5)
    assert (model.feedback_.source, model.feedback_.rows) == ("folds", 300)


def test_masks_change_the_head_a_little():
    x, y = task(600)
    masked, scaled = (MaCCalClassifier(lr=lr).fit(x, y) for lr in (None, 0.0))
    change = np.abs(masked.predict_proba(x) - scaled.predict_proba(x)).max()
    assert 1e-4 < change < 0.1
    assert masked.n_iter_ == len(masked.history_) == 5
    confidence = masked.predict_proba(x).max(1).mean()
    assert confidence == pytest.approx(scaled.predict_proba(x).max(1).mean(), abs=1e-5)


def test_a_validation_set_of_one_s_own():
    """Its accuracy is the confidence there, with Laplace's two answers."""
    x, y = task(600)
    new_x, new_y = task(200, seed=1)
    model = MaCCalClassifier(cv="unused").fit(x, y, X_val=new_x, y_val=new_y)
    right = (plain().fit(x, y).predict(new_x) == new_y).sum()
    assert model.predict_proba(new_x).max(1).mean() == pytest.approx((right + 1) / 202, abs=1e-5)
    assert (model.feedback_.source, model.n_validation_) == ("validation", 200)
    with pytest.raises(ValueError, match="pass both, or none for folds"):
        MaCCalClassifier().fit(x, y, X_val=new_x)
    with pytest.raises(ValueError, match="y_val has the label 9, which no row of y has"):
        MaCCalClassifier().fit(x, y, X_val=new_x, y_val=np.full(200, 9))
    with pytest.raises(ValueError, match="20 features"):
        MaCCalClassifier().fit(x, y, X_val=new_x[:, :5], y_val=new_y)


def test_weights_of_classes_are_weights_of_rows():
    x, y = task(400, classes=2)
    by_class = MaCCalClassifier(class_weight={1: 3}).fit(x, y)
    by_row = MaCCalClassifier().fit(x, y, sample_weight=np.where(y == 1, 3, 1))
    assert np.array_equal(by_class.predict_proba(x), by_row.predict_proba(x))
    few = np.flatnonzero((y == 0) | (np.arange(400) % 5 == 0))
    even = MaCCalClassifier(class_weight="balanced").fit(x[few], y[few])
    assert even.predict_proba(x[few])[:, 1].mean() > 1.5 * (y[few] == 1).mean()


def test_weights_are_not_negative():
    x, y = task(50)
    with pytest.raises(ValueError, match=r"sample_weight of row 3 is -1\.0"):
        MaCCalClassifier().fit(x, y, sample_weight=np.where(np.arange(50) == 3, -1, 1))


def test_sparse_features():
    """The same as dense ones, but that they are not centred."""
    x, y = task(400)
    x = np.where(np.abs(x) > 1, x, 0)
    dense, thin = (MaCCalClassifier().fit(v, y) for v in (x, sparse.csr_array(x)))
    assert thin.predict_proba(sparse.csc_array(x)) == pytest.approx(
        thin.predict_proba(x), abs=1e-12
    )
    assert thin.predict_proba(x) == pytest.approx(dense.predict_proba(x), abs=0.01)


def test_sparse_features_too_large_to_be_dense(monkeypatch):
    """A warning says that there were no masks."""
    monkeypatch.setattr(module, "DENSE", 1000)
    x, y = task(200)
    with pytest.warns(UserWarning, match="200 sparse rows of 20 features are too many for stage"):
        model = MaCCalClassifier().fit(sparse.csr_array(x), y)
    assert (model.n_iter_, model.n_validation_) == (0, 200)
    assert MaCCalClassifier().fit(x, y).n_iter_ == 5


def test_what_it_says(capsys):
    x, y = task(300)
    MaCCalClassifier(verbose=1).fit(x, y)
    said = capsys.readouterr().out
    assert "folds, 300 rows: accuracy" in said
    assert "stage I's logits times" in said
    MaCCalClassifier().fit(x, y)
    assert capsys.readouterr().out == ""


def test_parameters_are_clonable():
    changed = MaCCalClassifier(C=0.1, class_weight={0: 2}, cv=3, epochs=2, lr=0.01, verbose=1)
    assert clone(changed).get_params() == changed.get_params()


def test_coefficients_are_the_head_s():
    x, y = task(300)
    model = MaCCalClassifier().fit(x, y)
    assert (model.coef_.shape, model.intercept_.shape) == ((4, 20), (4,))
    assert model.decision_function(x) == pytest.approx(x @ model.coef_.T + model.intercept_)
    two = MaCCalClassifier().fit(x, y > 1)
    assert (two.coef_.shape, two.intercept_.shape) == ((1, 20), (1,))


def test_same_random_state_same_bits():
    x, y = task(300)
    first, again, other = (
        MaCCalClassifier(random_state=s).fit(x, y).predict_proba(x) for s in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_global_generators_are_left_alone():
    x, y = task(200)
    torch_before = torch.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002
    MaCCalClassifier().fit(x, y)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


def test_pickle_keeps_every_bit():
    x, y = task(300)
    model = MaCCalClassifier().fit(x, y)
    copy = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copy.predict_proba(x), model.predict_proba(x))
    assert copy.history_ == model.history_


def test_probabilities_are_the_head_s():
    x, y = task(300)
    model = MaCCalClassifier().fit(x, y)
    expected = model.head_(torch.tensor(x).float()).softmax(1).numpy()
    assert np.allclose(model.predict_proba(x), expected, atol=1e-5)
    assert np.allclose(torch.tensor(model.decision_function(x)).softmax(1), model.predict_proba(x))
    assert (model.predict(x) == model.predict_proba(x).argmax(1)).all()


def test_two_classes_of_words():
    """The decision is the second logit less the first, the log odds of the second class."""
    x, y = task(300, classes=2)
    model = MaCCalClassifier().fit(x, np.array(["no", "yes"])[y])
    assert model.classes_.tolist() == ["no", "yes"]
    odds = model.decision_function(x)
    probs = model.predict_proba(x)
    assert odds == pytest.approx(np.log(probs[:, 1] / probs[:, 0]))
    assert (model.predict(x) == np.where(odds > 0, "yes", "no")).all()


def test_in_scikit_learn_s_tools():
    x, y = task(400, classes=2)
    grid = {"C": [0.01, 1.0], "lr": [0.0, 0.05]}
    search = GridSearchCV(MaCCalClassifier(), grid, cv=3, scoring="neg_log_loss").fit(x, y)
    assert len(set(search.cv_results_["mean_test_score"])) == 4  # each parameter matters
    probs = cross_val_predict(make_pipeline(StandardScaler(), MaCCalClassifier()), x, y, cv=3)
    assert (probs == y).mean() > 0.6
    display = CalibrationDisplay.from_estimator(search.best_estimator_, x, y)
    assert 0 <= display.prob_pred.min() <= display.prob_pred.max() <= 1


def test_names_of_columns():
    x, y = task(200)
    table = pd.DataFrame(x, columns=[f"feature {i}" for i in range(20)])
    model = MaCCalClassifier().fit(table, pd.Series(y).map(lambda label: f"class {label}"))
    assert list(model.feature_names_in_) == list(table.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename(columns={"feature 0": "other"}))


def test_a_row_s_numbers_do_not_depend_on_its_neighbours():
    x, y = task(300)
    model = MaCCalClassifier().fit(x, y)
    alone = np.vstack([model.predict_proba(x[i : i + 1]) for i in range(50)])
    assert alone == pytest.approx(model.predict_proba(x)[:50], rel=1e-12)


def test_folds_are_dealt_by_class():
    y = np.repeat([0, 1, 2], [20, 30, 50])
    splits = dealt(y, 5, 1)
    for train, held in splits:
        assert np.bincount(y[held]).tolist() == [4, 6, 10]
        assert sorted([*train, *held]) == list(range(100))
    assert sorted(np.concatenate([held for _, held in splits])) == list(range(100))
    assert len(dealt(np.array([0] * 50 + [1] * 3), 5, 1)) == 3
    assert dealt(np.array([0] * 50 + [1]), 5, 1) == []


def test_rows_of_no_weight_are_in_no_fold():
    y = np.tile([0, 1], 10)
    kept = np.arange(4, 20)
    for cv in (StratifiedKFold(2), 2):
        for train, held in folds_of(cv, y[:, None], y, kept, 1):
            assert sorted([*train, *held]) == list(range(16))


def test_a_class_of_one_row():
    """Its row counts as a mistake of the folds; the final classifier knows the class."""
    x, y = task(60, noise=0)
    x = np.concatenate([x, 20 + x[:1]])
    model = MaCCalClassifier().fit(x, np.append(y, 7))
    assert model.classes_.tolist() == [0, 1, 2, 3, 7]
    assert model.n_validation_ == 61
    assert model.predict(x)[-1] == 7


def test_too_few_rows_for_folds():
    x = np.array([[0.0], [1.0], [2.0], [9.0]])
    with pytest.warns(UserWarning, match="too few rows for folds"):
        model = MaCCalClassifier().fit(x, [0, 0, 0, 1])
    assert model.feedback_.source == "nothing"
    assert (model.n_validation_, model.n_iter_) == (0, 0)
    expected = plain().fit(x, [0, 0, 0, 1]).predict_proba(x)
    assert model.predict_proba(x) == pytest.approx(expected, abs=1e-9)


def test_features_that_say_nothing():
    """The logits are all equal, so no scale changes them."""
    model = MaCCalClassifier().fit(np.ones((20, 2)), [0, 1] * 10)
    assert model.predict_proba(np.ones((1, 2))) == pytest.approx(np.full((1, 2), 0.5))


def test_no_mistake_among_the_folds():
    """Separable: as sure as Laplace's rule allows, and finite."""
    x, y = train_test_split(*load_iris(return_X_y=True), random_state=0)[::2]
    model = MaCCalClassifier().fit(x[y < 2], y[y < 2])
    rows = (y < 2).sum()
    assert model.feedback_.accuracy == pytest.approx((rows + 1) / (rows + 2))
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cv": 1}, "cv is 1; pass at least 2 folds"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"C": 0.0}, "C"),
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
