"""maccal: make a neural network's confidence trustworthy.

>>> import numpy as np, maccal as mc
>>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
>>> round(mc.summary(probs, np.array([0, 1, 1]))["ece"], 3)
0.4
"""

from maccal.metrics import Bins, Stream, Summary, bootstrap, compare, softmax, summary, top_label
from maccal.plots import reliability
from maccal.posthoc import TemperatureScaling
from maccal.predictions import Predictions, read

__all__ = [
    "Bins",
    "Predictions",
    "Stream",
    "Summary",
    "TemperatureScaling",
    "bootstrap",
    "compare",
    "read",
    "reliability",
    "softmax",
    "summary",
    "top_label",
]
