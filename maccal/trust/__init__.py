"""What calibrated probabilities are for: sets that hold the label, answers that are right."""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.trust.conformal import ConformalSets
    from maccal.trust.selective import AbstainingClassifier, Answers
    from maccal.trust.sets import SetSummary, set_summary

__all__ = ["AbstainingClassifier", "Answers", "ConformalSets", "SetSummary", "set_summary"]

HOMES = {
    "conformal": ("ConformalSets",),
    "selective": ("AbstainingClassifier", "Answers"),
    "sets": ("SetSummary", "set_summary"),
}
__getattr__ = on_demand(__name__, HOMES)
