"""What can be said of a calibrated model without running it.

    facts_of(model)     type, weights and their fingerprint, what it was calibrated by, versions

Cost: one SHA-256 of the weights, about a second per gigabyte.
"""

import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import version
from typing import Any

from torch import Tensor, nn

from maccal.features.fingerprints import raw
from maccal.features.running import unwrap


def facts_of(model: nn.Module) -> dict[str, Any]:
    """The model's type, parameters, fingerprint, feedback and history, and versions."""
    inside, _ = unwrap(model)
    parts = calibrated_parts(inside)
    head = next(iter(parts.values()), None)
    return {
        "model": f"{type(inside).__module__}.{type(inside).__qualname__}",
        "parameters": sum(parameter.numel() for parameter in inside.parameters()),
        "weights_sha256": weights_sha256(inside.state_dict()),
        "classifier": list(parts),
        "feedback": getattr(head, "feedback", None),
        "last_epoch": last_epoch(head),
        "versions": versions(),
    }


def calibrated_parts(model: nn.Module) -> dict[str, nn.Module]:
    """The layers that say what they were calibrated by, by name: nearly always one, or none."""
    return {name: layer for name, layer in model.named_modules() if "feedback" in vars(layer)}


def last_epoch(head: nn.Module | None) -> dict[str, float] | None:
    """The end of how the classifier came about."""
    history: list[dict[str, float]] = getattr(head, "history", [])
    return dict(history[-1]) if history else None


def versions() -> dict[str, str]:
    """Of what the numbers depend on."""
    found = {name: version(name) for name in ("maccal", "torch", "numpy")}
    return {**found, "python": ".".join(map(str, sys.version_info[:3]))}


def weights_sha256(state: Mapping[str, Any]) -> str:
    """The SHA-256 of names, types, shapes and bytes of a state dict, by name.

    It does not depend on the file format that the weights are kept in, nor on the device.
    """
    total = sha256()
    for name in sorted(state):
        tensor = state[name]
        if not isinstance(tensor, Tensor):
            continue  # extra state: no weights
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(raw(tensor))
    return total.hexdigest()
