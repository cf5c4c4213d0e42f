"""From features and feedback to a calibrated head: MaC-Cal, temperature, TST; one registry.

posthoc/ has what calibrates logits or probabilities alone.
"""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.calibration.estimator import MaCCalClassifier
    from maccal.calibration.feedback import Feedback
    from maccal.calibration.heads import load_head, save_head
    from maccal.calibration.live import Images
    from maccal.calibration.mac_cal import calibrate_head, calibrate_heads
    from maccal.calibration.model import calibrate
    from maccal.calibration.posthoc import (
        FAMILY,
        BetaCalibration,
        DirichletCalibration,
        EnsembleTemperatureScaling,
        HistogramCalibration,
        IsotonicCalibration,
        SplineCalibration,
        StructuredMatrixScaling,
        StructuredVectorScaling,
        TemperatureScaling,
        VectorScaling,
        VennAbersCalibration,
    )
    from maccal.calibration.registry import CALIBRATORS, register
    from maccal.calibration.stage2 import Stage2
    from maccal.calibration.task import Calibrator, Task

__all__ = [
    "CALIBRATORS",
    "FAMILY",
    "BetaCalibration",
    "Calibrator",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "Feedback",
    "HistogramCalibration",
    "Images",
    "IsotonicCalibration",
    "MaCCalClassifier",
    "SplineCalibration",
    "Stage2",
    "StructuredMatrixScaling",
    "StructuredVectorScaling",
    "Task",
    "TemperatureScaling",
    "VectorScaling",
    "VennAbersCalibration",
    "calibrate",
    "calibrate_head",
    "calibrate_heads",
    "load_head",
    "register",
    "save_head",
]

HOMES = {
    "estimator": ("MaCCalClassifier",),
    "heads": ("load_head", "save_head"),
    "feedback": ("Feedback",),
    "live": ("Images",),
    "mac_cal": ("calibrate_head", "calibrate_heads"),
    "model": ("calibrate",),
    "posthoc": (
        "FAMILY",
        "BetaCalibration",
        "DirichletCalibration",
        "EnsembleTemperatureScaling",
        "HistogramCalibration",
        "IsotonicCalibration",
        "SplineCalibration",
        "StructuredMatrixScaling",
        "StructuredVectorScaling",
        "TemperatureScaling",
        "VectorScaling",
        "VennAbersCalibration",
    ),
    "registry": ("CALIBRATORS", "register"),
    "task": ("Calibrator", "Task"),
    "stage2": ("Stage2",),
}
if not TYPE_CHECKING:
    __getattr__ = on_demand(__name__, HOMES)
