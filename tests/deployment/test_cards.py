"""Cards say what was measured, in files that a program and a hub can read."""

import json

import numpy as np
import pytest
import torch
from extraction import X, Y, batches, mostly_right, net

import maccal as mc
from maccal.deployment.cards import MARK
from maccal.deployment.facts import weights_sha256
from maccal.io import FileError, read_json

NAMED = {"name": 'tiny: a "net"', "data": "Twelve rows", "task": "tabular-classification"}


@pytest.fixture
def model():
    trained = net()
    rows = mostly_right(trained, X)
    return mc.calibrate(trained, rows, val=rows, calibrator="temperature")


def made(model, **more):
    return mc.card(model, batches(), resamples=100, **NAMED, **more)


def test_the_numbers_are_those_of_the_summary(model):
    with torch.no_grad():
        logits = model.eval()(X)
    expected = mc.summary(logits=logits, labels=Y, interval=True, resamples=100)
    after = made(model).content["after"]
    for name in ("accuracy", "ece", "ece_low", "ece_null_high", "nll", "brier_low", "p_value"):
        assert after[name] == pytest.approx(expected[name], abs=1e-6)  # float32, in other batches
    assert after["verdict"] == expected["verdict"]


def test_what_is_said_of_the_model(model):
    content = made(model).content
    assert content["feedback"] == model.get_submodule("4").feedback
    assert content["classifier"] == ["4"]
    assert content["weights_sha256"] == weights_sha256(model.state_dict())
    assert content["parameters"] == sum(p.numel() for p in model.parameters())
    assert set(content["versions"]) == {"maccal", "torch", "numpy", "python"}


def test_files(model, tmp_path):
    card = made(model, before=net())
    assert card.save(str(tmp_path)) == tmp_path
    assert read_json(tmp_path / "card.json", "card 1") == json.loads(json.dumps(card.content))
    text = (tmp_path / "README.md").read_text()
    assert "was calibrated: feedback from held-out labels, 12 rows" in text
    assert "| as trained |" in text
    card.save(tmp_path)  # a card may be replaced
    (tmp_path / "README.md").write_text("# My own words")
    with pytest.raises(FileError, match="is there already, and no card"):
        card.save(tmp_path)
    assert (tmp_path / "README.md").read_text() == "# My own words"
    assert MARK in text


def test_a_hub_reads_the_metadata(model):
    hub = pytest.importorskip("huggingface_hub")
    card = made(model)
    results = hub.ModelCard(card.markdown).data.eval_results
    found = {result.metric_type: result.metric_value for result in results}
    assert set(found) == {"accuracy", "confidence", "ece", "nll", "brier"}
    assert found["ece"] == pytest.approx(card.content["after"]["ece"], rel=1e-5)
    assert {result.dataset_type for result in results} == {"twelve-rows"}
    assert {result.task_type for result in results} == {"tabular-classification"}


def test_predictions_of_ones_own(model):
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    said = mc.Predictions(probs, "probs", np.array([0, 1, 1]))
    card = mc.card(model, said, resamples=100, before=said, **NAMED)
    assert card.content["after"]["n"] == 3
    assert card.content["after"] == card.content["before"]
    other = mc.Predictions(probs, "probs", np.array([0, 1, 0]))
    with pytest.raises(ValueError, match="do not have the same labels"):
        mc.card(model, said, resamples=100, before=other, **NAMED)


def test_a_label_of_probability_zero_is_said_in_words(model):
    said = mc.Predictions(np.array([[1.0, 0.0], [0.4, 0.6]]), "probs", np.array([1, 1]))
    card = mc.card(model, said, resamples=100, **NAMED)
    assert card.content["after"]["nll"] is None
    assert "| NLL | infinite |" in card.markdown
    assert "type: nll" not in card.markdown


def test_a_model_as_trained():
    card = made(net())
    assert card.content["feedback"] is None
    assert "this model is as it was trained" in card.markdown


def test_an_empty_loader_is_refused(model):
    with pytest.raises(ValueError, match="test is empty"):
        mc.card(model, [], **NAMED)
