"""The calibrators by name: what can change in a trained network so that its confidence is right.

CALIBRATORS["maccal"]           the row: its choices, how it is fitted, how it is rebuilt
calibrator_of(name, choices)    the choices, checked to be of that calibrator
register(name, calibrator)      one of your own, which then works wherever ours do
"""

from dataclasses import replace

from maccal import methods
from maccal.calibration.live import is_live
from maccal.calibration.mac_cal import (
    is_open,
    live_classifier,
    masked_classifier,
    rebuild_plain,
    settled,
)
from maccal.calibration.scalings import Scaling, mapped_classifier
from maccal.calibration.stage2 import Stage2
from maccal.calibration.task import Calibrator, Choices
from maccal.calibration.temperature import Temperature, scaled_classifier
from maccal.calibration.tst import TwoStage
from maccal.calibration.two_stage import (
    chooses_epoch,
    live_head,
    rebuild_two_stage,
    two_stage_classifier,
)
from maccal.methods import Method
from maccal.plugins import check_name

TWO_STAGE = Calibrator(
    "TST",
    TwoStage(),
    two_stage_classifier,
    rebuild_two_stage,
    looks_beyond=chooses_epoch,
    needs_images=is_live,
    fit_images=live_head,
    plain=False,
    variants={"as_in_maccal": TwoStage.as_in_maccal()},
)
VECTOR = Calibrator("Vector", Scaling(), mapped_classifier, needs_start=True)
CALIBRATORS: dict[str, Calibrator] = {
    "maccal": Calibrator(
        "MaC-Cal",
        Stage2(),
        masked_classifier,
        rebuild_plain,
        looks_beyond=is_open,
        needs_images=is_live,
        fit_images=live_classifier,
        settle=settled,
        variants={"as_printed": Stage2.paper()},
        before={"start": "fresh"},
    ),
    "tst": TWO_STAGE,
    "vtst": replace(
        TWO_STAGE,
        title="V-TST",
        choices=TwoStage(variational=True),
        variants={"as_in_maccal": TwoStage.as_in_maccal(variational=True)},
    ),
    "temperature": Calibrator(
        "Temperature", Temperature(), scaled_classifier, needs_start=True, only_scales=True
    ),
    "vector": VECTOR,
    "matrix": replace(VECTOR, title="Matrix", choices=Scaling("matrix")),
}


def calibrator_of(name: str, choices: Choices | None = None) -> Choices:
    """The choices, or the calibrator's own; ValueError for those of another calibrator."""
    if name not in CALIBRATORS:
        raise ValueError(f"no calibrator {name!r}; the calibrators are {', '.join(CALIBRATORS)}")
    own = CALIBRATORS[name].choices
    if choices is None:
        return own
    if type(choices) is not type(own):
        expected, found = type(own).__name__, type(choices).__name__
        raise ValueError(f"config is a {found}; the calibrator {name} takes a {expected}")
    return choices


def register(name: str, calibrator: Calibrator) -> None:
    """Add a calibrator, and the method of stage II that is called after it."""
    check_name(name, CALIBRATORS, "calibrator")
    methods.register(name, Method(calibrator.title, "", second=name))
    CALIBRATORS[name] = calibrator
