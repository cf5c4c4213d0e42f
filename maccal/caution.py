"""Warnings that point at the line of the user, however deep in the package they arise."""

import sys
import warnings


def warn(words: str) -> None:
    """Warn at the nearest caller outside the package."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("maccal."):
        frame = frame.f_back
        level += 1
    warnings.warn(words, stacklevel=level)
