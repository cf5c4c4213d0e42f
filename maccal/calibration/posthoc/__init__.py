"""Calibrators of logits or probabilities, one shape: fit(logits, labels), predict_proba(logits).

Scikit-learn estimators, each in a file of its own; family.py lists them. docs/posthoc.md says what
each of them fits and when to use it.
"""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.calibration.posthoc.beta import BetaCalibration
    from maccal.calibration.posthoc.dirichlet import DirichletCalibration
    from maccal.calibration.posthoc.ensemble import EnsembleTemperatureScaling
    from maccal.calibration.posthoc.family import FAMILY
    from maccal.calibration.posthoc.histogram import HistogramCalibration
    from maccal.calibration.posthoc.isotonic import IsotonicCalibration
    from maccal.calibration.posthoc.spline import SplineCalibration
    from maccal.calibration.posthoc.structured import (
        StructuredMatrixScaling,
        StructuredVectorScaling,
    )
    from maccal.calibration.posthoc.temperature import TemperatureScaling
    from maccal.calibration.posthoc.vector import VectorScaling
    from maccal.calibration.posthoc.venn_abers import VennAbersCalibration

__all__ = [
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
]

HOMES = {
    "beta": ("BetaCalibration",),
    "dirichlet": ("DirichletCalibration",),
    "ensemble": ("EnsembleTemperatureScaling",),
    "family": ("FAMILY",),
    "histogram": ("HistogramCalibration",),
    "isotonic": ("IsotonicCalibration",),
    "spline": ("SplineCalibration",),
    "structured": ("StructuredMatrixScaling", "StructuredVectorScaling"),
    "temperature": ("TemperatureScaling",),
    "vector": ("VectorScaling",),
    "venn_abers": ("VennAbersCalibration",),
}
__getattr__ = on_demand(__name__, HOMES)
