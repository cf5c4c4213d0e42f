"""The post-hoc calibrators by name, the fewest numbers first; of as many, what is held first."""

from typing import Any

from maccal.calibration.posthoc.beta import BetaCalibration
from maccal.calibration.posthoc.dirichlet import DirichletCalibration
from maccal.calibration.posthoc.ensemble import EnsembleTemperatureScaling
from maccal.calibration.posthoc.histogram import HistogramCalibration
from maccal.calibration.posthoc.isotonic import IsotonicCalibration
from maccal.calibration.posthoc.spline import SplineCalibration
from maccal.calibration.posthoc.structured import StructuredMatrixScaling, StructuredVectorScaling
from maccal.calibration.posthoc.temperature import TemperatureScaling
from maccal.calibration.posthoc.vector import VectorScaling
from maccal.calibration.posthoc.venn_abers import VennAbersCalibration

FAMILY: dict[str, type[Any]] = {
    "temperature": TemperatureScaling,
    "ensemble temperature": EnsembleTemperatureScaling,
    "spline": SplineCalibration,
    "structured vector": StructuredVectorScaling,
    "vector": VectorScaling,
    "beta": BetaCalibration,
    "histogram": HistogramCalibration,
    "isotonic": IsotonicCalibration,
    "Venn-Abers": VennAbersCalibration,
    "structured matrix": StructuredMatrixScaling,
    "Dirichlet": DirichletCalibration,
}
