"""A calibrated model on its way out: an ONNX file, weights with their fingerprint, a card."""

from typing import TYPE_CHECKING

from maccal.lazy import on_demand

if TYPE_CHECKING:
    from maccal.deployment.cards import Card, card
    from maccal.deployment.onnx import export_onnx
    from maccal.deployment.saved import load_calibrated, save_calibrated

__all__ = ["Card", "card", "export_onnx", "load_calibrated", "save_calibrated"]

HOMES = {
    "cards": ("Card", "card"),
    "onnx": ("export_onnx",),
    "saved": ("load_calibrated", "save_calibrated"),
}
if not TYPE_CHECKING:
    __getattr__ = on_demand(__name__, HOMES)
