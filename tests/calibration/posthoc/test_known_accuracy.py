"""A temperature without labels: the mean confidence is the accuracy that is known."""

import numpy as np
import pytest
from made_up_predictions import made_up

from maccal import TemperatureScaling

LOGITS, LABELS = made_up(3000)


@pytest.mark.parametrize("accuracy", [0.3, 0.55, 0.8, 0.999])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_the_mean_confidence_is_met(accuracy, size):
    model = TemperatureScaling().fit(size * LOGITS, accuracy=accuracy)
    confidence = model.predict_proba(size * LOGITS).max(1).mean()
    assert confidence == pytest.approx(accuracy, abs=1e-12)


def test_it_is_near_the_fit_with_labels():
    accuracy = float(np.mean(LOGITS.argmax(1) == LABELS))
    with_labels = TemperatureScaling().fit(LOGITS, LABELS).temperature_
    without = TemperatureScaling().fit(LOGITS, accuracy=accuracy).temperature_
    assert without == pytest.approx(with_labels, rel=0.1)


def test_what_cannot_be_met():
    for accuracy in (0.25, 1.0):
        with pytest.raises(ValueError, match="no scale of the logits makes the mean confidence"):
            TemperatureScaling().fit(LOGITS, accuracy=accuracy)
    with pytest.raises(ValueError, match="accuracy is 80"):
        TemperatureScaling().fit(LOGITS, accuracy=80)


def test_one_kind_of_feedback():
    for feedback in ({}, {"labels": LABELS, "accuracy": 0.8}):
        with pytest.raises(ValueError, match="exactly one of them"):
            TemperatureScaling().fit(LOGITS, **feedback)


def confidence(model):
    return model.predict_proba(LOGITS).max(1).mean()


def test_any_feedback():
    """Views: the accuracy on them. Training rows: the geometric mean of both accuracies."""
    right = float(np.mean(LOGITS.argmax(1) == LABELS))
    views = TemperatureScaling().fit(LOGITS, LABELS, feedback="views")
    assert confidence(views) == pytest.approx(right, abs=1e-12)
    training = TemperatureScaling().fit(LOGITS, LABELS, accuracy=0.5, feedback="accuracy")
    assert confidence(training) == pytest.approx((0.5 * right) ** 0.5, abs=1e-12)
    same = TemperatureScaling().fit(LOGITS, accuracy=0.6, feedback="unlabelled")
    assert same.temperature_ == TemperatureScaling().fit(LOGITS, accuracy=0.6).temperature_
    held_out = TemperatureScaling().fit(LOGITS, LABELS, feedback="held-out")
    assert held_out.temperature_ == TemperatureScaling().fit(LOGITS, LABELS).temperature_


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"feedback": "views", "accuracy": 0.9}, "takes labels, and nothing else"),
        ({"feedback": "accuracy", "labels": LABELS}, "takes labels and accuracy="),
        ({"feedback": "unlabelled", "labels": LABELS}, "takes accuracy="),
        ({"feedback": "guess", "labels": LABELS}, "feedback is 'guess'"),
    ],
)
def test_what_does_not_fit_the_feedback(given, words):
    with pytest.raises(ValueError, match=words):
        TemperatureScaling().fit(LOGITS, **given)
