"""maccal: make a neural network's confidence trustworthy.

>>> import numpy as np, maccal as mc
>>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
>>> round(mc.summary(probs, np.array([0, 1, 1]))["ece"], 3)
0.4
"""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal import calibration as calibration
    from maccal import data as data
    from maccal import deployment as deployment
    from maccal import evaluation as evaluation
    from maccal import features as features
    from maccal import methods as methods
    from maccal import metrics as metrics
    from maccal import models as models
    from maccal import monitoring as monitoring
    from maccal import report as report
    from maccal import training as training
    from maccal import trust as trust
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

    __version__: str

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
found = on_demand(__name__, HOMES)

if not TYPE_CHECKING:  # with it a type checker would believe in any name

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import (
                version,
            )  # not at once: it takes longer than all else here

            return version("maccal")
        return found(name)


def __dir__() -> list[str]:
    return ["__version__", *__all__, *HOMES]
