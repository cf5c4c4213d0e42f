"""Watching a deployed model: batches of predictions, labels as they come, and alarms.

Monitor      a state in memory or in a folder: add, label, merge, standing
Settings     what is fixed when a state is made: the level, what does not matter, the reference
Standing     all numbers of a state and which alarms have fired
"""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.monitoring.monitor import Monitor
    from maccal.monitoring.settings import Settings
    from maccal.monitoring.standing import Standing

__all__ = ["Monitor", "Settings", "Standing"]

HOMES = {
    "monitor": ("Monitor",),
    "settings": ("Settings",),
    "standing": ("Standing",),
}
if not TYPE_CHECKING:
    __getattr__ = on_demand(__name__, HOMES)
