"""Predictions read and measured; rows written and read; OOD, shift, masks."""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.evaluation.choice import Candidate, Choice
    from maccal.evaluation.choosing import compare_calibrators
    from maccal.evaluation.evaluated import Evaluated, measure, paired
    from maccal.evaluation.ood import ood
    from maccal.evaluation.predictions import Predictions, read
    from maccal.evaluation.row import read_row, read_rows, write_row, write_rows
    from maccal.evaluation.shift import published_shift, shift

__all__ = [
    "Candidate",
    "Choice",
    "Evaluated",
    "Predictions",
    "compare_calibrators",
    "measure",
    "ood",
    "paired",
    "published_shift",
    "read",
    "read_row",
    "read_rows",
    "shift",
    "write_row",
    "write_rows",
]

HOMES = {
    "choice": ("Candidate", "Choice"),
    "choosing": ("compare_calibrators",),
    "evaluated": ("Evaluated", "measure", "paired"),
    "ood": ("ood",),
    "predictions": ("Predictions", "read"),
    "row": ("read_row", "read_rows", "write_row", "write_rows"),
    "shift": ("published_shift", "shift"),
}
if not TYPE_CHECKING:
    __getattr__ = on_demand(__name__, HOMES)
