"""maccal: make a neural network's confidence trustworthy.

>>> import numpy as np, maccal as mc
>>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
>>> round(mc.summary(probs, np.array([0, 1, 1]))["ece"], 3)
0.4
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maccal.calibration import calibrate, calibrate_head, calibrate_heads
    from maccal.data import DATASETS, load
    from maccal.estimator import MaCCalClassifier
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


# where each name lives; it is imported when it is asked for, for torch, scipy and scikit-learn take seconds
HOMES = {
    "calibration": ("calibrate", "calibrate_head", "calibrate_heads"),
    "data": ("DATASETS", "load"),
    "estimator": ("MaCCalClassifier",),
    "features": ("Features", "extract", "find_head"),
    "heads": ("load_head", "save_head"),
    "methods": ("METHODS", "method"),
    "metrics": ("Bins", "Stream", "Summary", "bootstrap", "compare", "softmax", "summary", "top_label"),
    "models": ("MODELS", "build"),
    "plots": ("reliability",),
    "posthoc": ("TemperatureScaling",),
    "predictions": ("Predictions", "read"),
    "recipes": ("Recipe",),
    "stage2": ("Stage2",),
    "training": ("fit",),
}


def __getattr__(name: str) -> Any:
    for home, names in HOMES.items():
        if name in names:
            return getattr(import_module(f"maccal.{home}"), name)
    if not name.startswith("_") and find_spec(f"maccal.{name}"):
        return import_module(f"maccal.{name}")
    raise AttributeError(f"module 'maccal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *HOMES]
