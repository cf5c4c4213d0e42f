"""maccal: make a neural network's confidence trustworthy.

>>> import numpy as np, maccal as mc
>>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
>>> round(mc.summary(probs, np.array([0, 1, 1]))["ece"], 3)
0.4
"""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.calibration import (
        BetaCalibration,
        DirichletCalibration,
        EnsembleTemperatureScaling,
        HistogramCalibration,
        IsotonicCalibration,
        MaCCalClassifier,
        SplineCalibration,
        Stage2,
        StructuredMatrixScaling,
        StructuredVectorScaling,
        TemperatureScaling,
        VectorScaling,
        VennAbersCalibration,
        calibrate,
        calibrate_head,
        calibrate_heads,
        load_head,
        save_head,
    )
    from maccal.data import DATASETS, load
    from maccal.evaluation import Predictions, compare_calibrators, read
    from maccal.features import Features, extract, find_head
    from maccal.methods import METHODS, method
    from maccal.metrics import (
        Bins,
        Stream,
        Summary,
        bootstrap,
        compare,
        softmax,
        summary,
        top_label,
    )
    from maccal.models import MODELS, build
    from maccal.monitoring import Monitor
    from maccal.report import reliability
    from maccal.training import Recipe, fit

__all__ = [
    "DATASETS",
    "METHODS",
    "MODELS",
    "BetaCalibration",
    "Bins",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "Features",
    "HistogramCalibration",
    "IsotonicCalibration",
    "MaCCalClassifier",
    "Monitor",
    "Predictions",
    "Recipe",
    "SplineCalibration",
    "Stage2",
    "Stream",
    "StructuredMatrixScaling",
    "StructuredVectorScaling",
    "Summary",
    "TemperatureScaling",
    "VectorScaling",
    "VennAbersCalibration",
    "bootstrap",
    "build",
    "calibrate",
    "calibrate_head",
    "calibrate_heads",
    "compare",
    "compare_calibrators",
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

# the room of each name; it is imported when it is asked for
HOMES = {
    "calibration": (
        "BetaCalibration",
        "DirichletCalibration",
        "EnsembleTemperatureScaling",
        "HistogramCalibration",
        "IsotonicCalibration",
        "MaCCalClassifier",
        "SplineCalibration",
        "Stage2",
        "StructuredMatrixScaling",
        "StructuredVectorScaling",
        "TemperatureScaling",
        "VectorScaling",
        "VennAbersCalibration",
        "calibrate",
        "calibrate_head",
        "calibrate_heads",
        "load_head",
        "save_head",
    ),
    "data": ("DATASETS", "load"),
    "evaluation": ("Predictions", "compare_calibrators", "read"),
    "features": ("Features", "extract", "find_head"),
    "methods": ("METHODS", "method"),
    "metrics": (
        "Bins",
        "Stream",
        "Summary",
        "bootstrap",
        "compare",
        "softmax",
        "summary",
        "top_label",
    ),
    "models": ("MODELS", "build"),
    "monitoring": ("Monitor",),
    "report": ("reliability",),
    "training": ("Recipe", "fit"),
}
__getattr__ = on_demand(__name__, HOMES)


def __dir__() -> list[str]:
    return [*__all__, *HOMES]
