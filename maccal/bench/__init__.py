"""The paper as grids of runs, who runs them, and what their rows say about its claims."""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.bench.claims import claims
    from maccal.bench.executors import Local, Ray
    from maccal.bench.grids import GRIDS
    from maccal.bench.lines import Book

__all__ = ["GRIDS", "Book", "Local", "Ray", "claims"]

HOMES = {
    "claims": ("claims",),
    "executors": ("Local", "Ray"),
    "grids": ("GRIDS",),
    "lines": ("Book",),
}
__getattr__ = on_demand(__name__, HOMES)
