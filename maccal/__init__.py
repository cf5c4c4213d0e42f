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
    from maccal.deployment import card, export_onnx, load_calibrated, save_calibrated
    from maccal.evaluation import Predictions, compare_calibrators, read
    from maccal.features import Features, extract, find_head
    from maccal.methods import METHODS, method
    from maccal.metrics import (
        Bins,
        Stream,
        Summary,
        binary_summary,
        bootstrap,
        by_class,
        by_group,
        compare,
        multilabel_summary,
        softmax,
        summary,
        top_label,
    )
    from maccal.models import MODELS, build
    from maccal.monitoring import Monitor
    from maccal.report import reliability
    from maccal.training import Recipe, fit
    from maccal.trust import AbstainingClassifier, ConformalSets, set_summary

__all__ = [
    "DATASETS",
    "METHODS",
    "MODELS",
    "AbstainingClassifier",
    "BetaCalibration",
    "Bins",
    "ConformalSets",
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
    "binary_summary",
    "bootstrap",
    "build",
    "by_class",
    "by_group",
    "calibrate",
    "calibrate_head",
    "calibrate_heads",
    "card",
    "compare",
    "compare_calibrators",
    "export_onnx",
    "extract",
    "find_head",
    "fit",
    "load",
    "load_calibrated",
    "load_head",
    "method",
    "multilabel_summary",
    "read",
    "reliability",
    "save_calibrated",
    "save_head",
    "set_summary",
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
    "deployment": ("card", "export_onnx", "load_calibrated", "save_calibrated"),
    "evaluation": ("Predictions", "compare_calibrators", "read"),
    "features": ("Features", "extract", "find_head"),
    "methods": ("METHODS", "method"),
    "metrics": (
        "Bins",
        "Stream",
        "Summary",
        "binary_summary",
        "bootstrap",
        "by_class",
        "by_group",
        "compare",
        "multilabel_summary",
        "softmax",
        "summary",
        "top_label",
    ),
    "models": ("MODELS", "build"),
    "monitoring": ("Monitor",),
    "report": ("reliability",),
    "training": ("Recipe", "fit"),
    "trust": ("AbstainingClassifier", "ConformalSets", "set_summary"),
}
__getattr__ = on_demand(__name__, HOMES)


def __dir__() -> list[str]:
    return [*__all__, *HOMES]
