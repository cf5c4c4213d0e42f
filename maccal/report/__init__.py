"""Results in, pictures and one self-contained HTML page out."""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.report.diagrams import reliability
    from maccal.report.evaluation import evaluation_page
    from maccal.report.leaderboard import leaderboard_page

__all__ = ["evaluation_page", "leaderboard_page", "reliability"]

HOMES = {
    "diagrams": ("reliability",),
    "evaluation": ("evaluation_page",),
    "leaderboard": ("leaderboard_page",),
}
if not TYPE_CHECKING:
    __getattr__ = on_demand(__name__, HOMES)
