"""The state of a training in one file with a checksum.

A damaged file is refused, and so is the state of another training.
"""

import io
from pathlib import Path
from typing import Any

import torch

from maccal.io import FileError, read_sealed

CHECKPOINT = "checkpoint 1"


def read_checkpoint(path: Path | str, device: torch.device | str = "cpu") -> dict[str, Any]:
    """The state that a training saved.

    FileError for a file that is damaged, or that no training of ours wrote.
    """
    try:
        data = read_sealed(path, CHECKPOINT)
        return torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    except Exception as error:  # unpickling may raise anything
        reason = error.problem if isinstance(error, FileError) else str(error)
        raise FileError(
            path, f"not a readable checkpoint ({reason}); delete it to start again"
        ) from error


def differing(found: Any, wanted: Any) -> str:
    """What is not the same in two values, or in two dicts of them.

    >>> differing({"lr": 0.1, "clip": 2.0}, {"lr": 0.2, "clip": 2.0})
    'lr is 0.1 there and 0.2 here'
    """
    if not isinstance(found, dict):
        found, wanted = {"it": found}, {"it": wanted}
    words = []
    for name, here in wanted.items():
        there = found.get(name)
        if there != here:
            words.append(f"{name} is {there} there and {here} here")
    return ", ".join(words)
