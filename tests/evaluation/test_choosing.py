"""compare_calibrators: cross-fitted, tested in pairs, and the simplest that is good enough."""

import json
from html import escape

import numpy as np
import pytest
from commands import refused, run
from sklearn.model_selection import cross_val_predict

import maccal as mc
from maccal.calibration import FAMILY
from maccal.evaluation.choosing import FEATURES, compare_calibrators, fold_of
from maccal.evaluation.pace import too_long
from maccal.metrics import softmax

FEW = ["temperature", "vector", "isotonic", "structured matrix"]


def sampled(n=900, classes=3, sharpness=3.0, mixing=0.0, seed=0):
    """Logits that are `sharpness` times too sure, and mixed up."""
    rng = np.random.default_rng(seed)
    true = 2 * rng.normal(size=(n, classes))
    labels = (softmax(true).cumsum(1) > rng.random((n, 1))).argmax(1)
    return sharpness * true @ (np.eye(classes) + mixing * np.eye(classes)[::-1]), labels


def test_folds_are_stratified_and_repeat():
    labels = np.repeat([0, 1, 2], [50, 20, 7])
    fold = fold_of(labels, 5, seed=3)
    for label, count in enumerate((50, 20, 7)):
        sizes = np.bincount(fold[labels == label], minlength=5)
        assert sizes.sum() == count
        assert np.ptp(sizes) <= 1
    assert np.array_equal(fold, fold_of(labels, 5, seed=3))
    assert not np.array_equal(fold, fold_of(labels, 5, seed=4))


def test_cross_fitted_as_scikit_learn_does_it():
    logits, labels = sampled()
    fold = fold_of(labels, 4, seed=0)
    splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(4)]
    choice = compare_calibrators(logits, labels, names=FEW, folds=4, resamples=50)
    for one in choice.candidates[1:]:
        twin = cross_val_predict(
            FAMILY[one.name](), logits, labels, cv=splits, method="predict_proba"
        )
        assert one.numbers["brier"] == pytest.approx(mc.summary(twin, labels)["brier"], abs=1e-12)


def test_noise_is_answered_by_the_simplest():
    choice = mc.compare_calibrators(*sampled(), names=FEW, resamples=200)
    assert choice.use == "temperature"
    assert choice.advice.startswith("Use temperature")
    assert choice.candidates[0].from_temperature["ece"].real


def test_calibrated_predictions_are_left_alone():
    choice = compare_calibrators(*sampled(sharpness=1.0), names=FEW, resamples=200)
    assert choice.use == "as it is"


def test_a_matrix_where_classes_are_mixed_up():
    logits, labels = sampled(n=3000, mixing=0.6)
    choice = compare_calibrators(logits, labels, names=FEW, resamples=200)
    assert choice.use == choice.best == "structured matrix"
    assert "all simpler ones are worse" in choice.advice


def test_what_cannot_be_fitted_is_said():
    logits, labels = sampled()
    labels[labels == 2] = 0
    labels[0] = 2
    choice = compare_calibrators(logits, labels, names=["temperature", "vector"], resamples=50)
    assert "no row has the label 2" in choice.failed["vector"]


def test_what_would_take_too_long_is_left_out_and_said():
    """By rows and classes alone; what is named takes part."""
    assert too_long(10_000, 10, 5, 120.0) == {}
    left_out = too_long(50_000, 1000, 5, 120.0)
    assert set(left_out) == {"vector", "Venn-Abers", "structured matrix", "Dirichlet"}
    choice = compare_calibrators(*sampled(), seconds=1e-4, resamples=50)
    assert "Dirichlet" in choice.failed
    assert "left out, its 5 fits" in choice.failed["Dirichlet"]
    assert "Dirichlet" not in [one.name for one in choice.candidates]
    named = compare_calibrators(*sampled(), names=FEW, seconds=1e-4, resamples=50)
    assert not named.failed


def test_other_ways_to_split_the_rows():
    choice = compare_calibrators(*sampled(), names=FEW, resamples=50, repeats=3)
    assert sum(choice.votes.values()) == 3
    assert "Of 3 ways to split the rows" in choice.advice
    once = compare_calibrators(*sampled(), names=FEW, resamples=50)
    assert choice.candidates[1].numbers["nll"] == once.candidates[1].numbers["nll"]
    assert once.votes == {once.use: 1}


def test_rows_that_are_there_again_are_said():
    """Copies are in several folds, so that the map which learns most by heart looks best."""
    logits, labels = sampled(60)
    again = [np.repeat(array, 10, 0) for array in (logits, labels)]
    choice = compare_calibrators(*again, names=["temperature", "isotonic"], resamples=50)
    assert "540 of 600 rows have the numbers and the label of another" in choice.advice
    once = compare_calibrators(logits, labels, names=["temperature"], resamples=50)
    assert "of another" not in once.advice


def test_few_rows_and_many_folds():
    logits, labels = sampled(8)
    with pytest.raises(ValueError, match="8 rows are too few for 5 folds; say folds=4"):
        compare_calibrators(logits, labels)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"names": ["platt"]}, "no calibrator 'platt'"),
        ({"names": []}, "no calibrator is named"),
        ({"folds": 1}, "folds"),
        ({"repeats": 0}, "repeats"),
        ({"seconds": 0}, "seconds is 0"),
        ({"z": np.zeros((3, 2))}, "the same 900 rows"),
        ({"z": np.full((900, 1), object())}, "z has dtype object"),
        ({"seed": "a"}, "seed is 'a'; expected a whole number"),
        ({"seed": -1}, "seed is -1"),
        ({"inputs": "probs"}, 'inputs="logits"'),
    ],
)
def test_bad_input(change, words):
    with pytest.raises(ValueError, match=words):
        compare_calibrators(*sampled(), **change)


@pytest.fixture
def said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logits, labels = sampled(400)
    np.savez("said.npz", logits=logits, labels=labels, z=logits)
    return tmp_path


def test_the_verb(said, monkeypatch, capsys):
    words = ("compare", "said.npz", "--resamples", "50", "--calibrators", "temperature", "vector")
    run(monkeypatch, *words)
    printed = capsys.readouterr().out
    assert FEATURES in printed
    assert "Use " in printed
    table = printed.split("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert sorted(said.iterdir()) == [said / "said.npz"]
    run(monkeypatch, *words, "--json", "--out", "made")
    values = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in values["rows"]][1:] == ["temperature", "vector", FEATURES]
    written = json.loads((said / "made" / "said.compare.json").read_text())
    assert written["rows"] == values["rows"]


def test_the_verb_refuses(said, monkeypatch, capsys):
    words = refused(monkeypatch, capsys, "compare", "said.npz", "--calibrators", "platt")
    assert "no calibrator 'platt'" in words
    assert "no probs" in refused(monkeypatch, capsys, "compare", "said.npz", "--kind", "probs")


def test_a_choice_shows_itself():
    """At a prompt, in a notebook and as a frame: the same numbers everywhere."""
    choice = compare_calibrators(*sampled(), names=["temperature", "vector"], resamples=50)
    text, page, frame = str(choice), choice._repr_html_(), choice.to_frame()
    assert list(frame.index) == ["as it is", "temperature", "vector"]
    for one in choice.candidates:
        assert frame.loc[one.name, "nll"] == one.numbers["nll"]
        for cell in one.cells(choice.best):
            assert cell in text
            assert escape(cell) in page
    assert choice.advice in text
    assert repr(choice) == text
    assert page.count("font-weight:bold") == len(choice.candidates[0].cells(choice.best))
