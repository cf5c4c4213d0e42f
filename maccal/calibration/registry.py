"""The calibrators by name.

How a trained network gets its new head, each with the choices it has by itself.
"""

from collections.abc import Mapping

from maccal.calibration.stage2 import Stage2
from maccal.calibration.temperature import Temperature
from maccal.calibration.tst import TwoStage

Choices = Stage2 | TwoStage | Temperature

CALIBRATORS: Mapping[str, Choices] = {
    "maccal": Stage2(),
    "tst": TwoStage(),
    "vtst": TwoStage(variational=True),
    "temperature": Temperature(),
}
