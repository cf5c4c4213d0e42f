"""From features and feedback to a calibrated head: MaC-Cal, temperature, TST; one registry."""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.calibration.estimator import MaCCalClassifier
    from maccal.calibration.heads import load_head, save_head
    from maccal.calibration.mac_cal import calibrate, calibrate_head, calibrate_heads
    from maccal.calibration.registry import CALIBRATORS
    from maccal.calibration.stage2 import Stage2
    from maccal.calibration.temperature import TemperatureScaling

__all__ = [
    "CALIBRATORS",
    "MaCCalClassifier",
    "Stage2",
    "TemperatureScaling",
    "calibrate",
    "calibrate_head",
    "calibrate_heads",
    "load_head",
    "save_head",
]

HOMES = {
    "estimator": ("MaCCalClassifier",),
    "heads": ("load_head", "save_head"),
    "mac_cal": ("calibrate", "calibrate_head", "calibrate_heads"),
    "registry": ("CALIBRATORS",),
    "stage2": ("Stage2",),
    "temperature": ("TemperatureScaling",),
}
__getattr__ = on_demand(__name__, HOMES)
