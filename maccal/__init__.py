"""maccal: make a neural network's confidence trustworthy.

>>> import numpy as np, maccal as mc
>>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
>>> round(mc.summary(probs, np.array([0, 1, 1]))["ece"], 3)
0.4
"""

from typing import Any

from maccal.calibration import calibrate, calibrate_head, calibrate_heads
from maccal.data import DATASETS, load
from maccal.features import Features, extract, find_head
from maccal.heads import load_head, save_head
from maccal.methods import METHODS, method
from maccal.metrics import Bins, Stream, Summary, bootstrap, compare, softmax, summary, top_label
from maccal.models import MODELS, build
from maccal.plots import reliability
from maccal.posthoc import TemperatureScaling
from maccal.predictions import Predictions, read
from maccal.recipes import Recipe
from maccal.stage2 import Stage2
from maccal.training import fit

__all__ = [
    "DATASETS",
    "METHODS",
    "MODELS",
    "Bins",
    "Features",
    "MaCCalClassifier",
    "Predictions",
    "Recipe",
    "Stage2",
    "Stream",
    "Summary",
    "TemperatureScaling",
    "bootstrap",
    "build",
    "calibrate",
    "calibrate_head",
    "calibrate_heads",
    "compare",
    "extract",
    "find_head",
    "fit",
    "load",
    "load_head",
    "method",
    "read",
    "reliability",
    "save_head",
    "softmax",
    "summary",
    "top_label",
]


def __getattr__(name: str) -> Any:
    """MaCCalClassifier is imported when it is asked for: scikit-learn takes a second that most uses need not wait."""
    if name == "MaCCalClassifier":
        from maccal.estimator import MaCCalClassifier

        return MaCCalClassifier
    raise AttributeError(f"module 'maccal' has no attribute {name!r}")
