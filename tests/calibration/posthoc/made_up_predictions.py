"""Predictions that several tests of the post-hoc calibrators fit."""

import numpy as np

from maccal.metrics import softmax


def made_up(n=1500, classes=4, sharpness=2.0, seed=0):
    """Logits that mix the classes up and are too sure, and labels that they tell."""
    rng = np.random.default_rng(seed)
    true = 2 * rng.normal(size=(n, classes))
    labels = (softmax(true).cumsum(1) > rng.random((n, 1))).argmax(1)
    mixing = np.eye(classes) + 0.2 * rng.normal(size=(classes, classes))
    return sharpness * true @ mixing + rng.normal(size=classes), labels
