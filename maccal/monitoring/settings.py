"""What is fixed when a state is made: the level of the alarms, what does not matter, the reference.

They are fixed because a guarantee of "ever" is one of a single test: who changes the level or the
tolerance after a look has made another test.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from maccal.metrics.arguments import check_bins
from maccal.monitoring.cells import Cells


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings of a monitor; ValueError for values that make no sense."""

    alpha: float = 0.05  # chance that an alarm ever fires falsely; of each alarm
    tolerance: float = 0.02  # a gap between confidence and accuracy that does not matter
    least_accuracy: float | None = None  # below it there is an alarm too; None: there is none
    bins: int = 15
    reference: Cells | None = None  # labelled rows from before the deployment

    def __post_init__(self) -> None:
        check_between("alpha", self.alpha, 0.0, 1.0, ends=False)
        check_between("tolerance", self.tolerance, 0.0, 1.0, ends=True)
        if self.tolerance == 1:
            raise ValueError("tolerance is 1; then no gap would matter")
        if self.least_accuracy is not None:
            check_between("least_accuracy", self.least_accuracy, 0.0, 1.0, ends=False)
        check_bins(self.bins)

    def values(self) -> dict[str, Any]:
        """As plain values, for settings.json."""
        reference = self.reference
        plain = {
            "alpha": self.alpha,
            "tolerance": self.tolerance,
            "least_accuracy": self.least_accuracy,
            "bins": self.bins,
        }
        if reference is None:
            return {**plain, "reference": None}
        sums = {"index": reference.index.tolist(), "sums": reference.sums.tolist()}
        return {**plain, "reference": sums}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Settings":
        """From what `values` gave."""
        found = dict(values)
        sums = found.pop("reference")
        reference = None
        if sums is not None:
            reference = Cells(np.array(sums["index"], np.int64), np.array(sums["sums"]))
        return cls(**found, reference=reference)


def check_between(name: str, value: Any, low: float, high: float, *, ends: bool) -> None:
    """ValueError unless it is a number from low to high."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    inside = number and math.isfinite(value) and (low < value < high or (ends and low <= value))
    if not inside or value > high:
        span = f"from {low:g} to {high:g}" if ends else f"above {low:g} and below {high:g}"
        raise ValueError(f"{name} is {value!r}; expected a number {span}")
