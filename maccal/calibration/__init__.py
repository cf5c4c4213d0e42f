"""From features and feedback to a calibrated head: MaC-Cal, temperature, TST; one registry."""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.calibration.estimator import MaCCalClassifier
    from maccal.calibration.feedback import Feedback
    from maccal.calibration.heads import load_head, save_head
    from maccal.calibration.mac_cal import calibrate_head, calibrate_heads
    from maccal.calibration.model import calibrate
    from maccal.calibration.registry import CALIBRATORS, register
    from maccal.calibration.stage2 import Stage2
    from maccal.calibration.task import Calibrator, Images, Task
    from maccal.calibration.temperature import TemperatureScaling

__all__ = [
    "CALIBRATORS",
    "Calibrator",
    "Feedback",
    "Images",
    "MaCCalClassifier",
    "Stage2",
    "Task",
    "TemperatureScaling",
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
    "mac_cal": ("calibrate_head", "calibrate_heads"),
    "model": ("calibrate",),
    "registry": ("CALIBRATORS", "register"),
    "task": ("Calibrator", "Images", "Task"),
    "stage2": ("Stage2",),
    "temperature": ("TemperatureScaling",),
}
__getattr__ = on_demand(__name__, HOMES)
