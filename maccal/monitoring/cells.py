"""The filled ones of two thousand fine bins: exact sums in little memory, and as arrays of a file.

The sums are those of metrics.Bins on the grid of metrics.Stream, so they add up to the same bits in
any order. A batch of 1,000 rows fills some hundreds of them: about 25 kB.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from maccal.metrics import Bins
from maccal.metrics.sketch import fine_grid


@dataclass(frozen=True, eq=False)
class Cells:
    """Which fine bins hold rows, and their five sums."""

    index: np.ndarray
    sums: np.ndarray

    @classmethod
    def of(
        cls,
        confidence: Sequence[float] | np.ndarray,
        correct: Sequence[int] | np.ndarray,
        bins: int,
    ) -> "Cells":
        """The sums of these rows, of which there may be none."""
        if len(confidence) == 0:
            return cls(np.zeros(0, np.int64), np.zeros((5, 0)))
        return cls.filled(Bins.of(confidence, correct, fine_grid(bins).edges))

    @classmethod
    def filled(cls, fine: Bins) -> "Cells":
        index = np.flatnonzero(fine.count)
        return cls(index, fine.sums[:, index])

    def fine(self, bins: int) -> Bins:
        """All fine bins, the empty ones too."""
        empty = Bins.empty(fine_grid(bins).edges)
        sums = empty.sums.copy()
        sums[:, self.index] = self.sums
        return Bins(empty.edges, sums, self.rows)

    def plus(self, other: "Cells", bins: int) -> "Cells":
        return Cells.filled(self.fine(bins) + other.fine(bins))

    @property
    def rows(self) -> int:
        return int(self.sums[0].sum())

    @property
    def right(self) -> int:
        return int(self.sums[1].sum())


def total(parts: list[Cells], bins: int) -> Bins:
    """The fine bins of all parts together."""
    return sum((part.fine(bins) for part in parts), Bins.empty(fine_grid(bins).edges))
