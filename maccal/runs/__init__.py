"""A run is a folder: its config, its files, making it."""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.runs.beyond import extend_row, ood_run, shift_run
    from maccal.runs.config import Config
    from maccal.runs.folder import load_run, predictions_of, read_config, read_history, run_of
    from maccal.runs.making import calibrate_run, make_run

__all__ = [
    "Config",
    "calibrate_run",
    "extend_row",
    "load_run",
    "make_run",
    "ood_run",
    "predictions_of",
    "read_config",
    "read_history",
    "run_of",
    "shift_run",
]

HOMES = {
    "beyond": ("extend_row", "ood_run", "shift_run"),
    "config": ("Config",),
    "folder": ("load_run", "predictions_of", "read_config", "read_history", "run_of"),
    "making": ("calibrate_run", "make_run"),
}
__getattr__ = on_demand(__name__, HOMES)
