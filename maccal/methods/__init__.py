"""The methods of the paper's Table 1, one row per method, and what they are made of."""

from maccal.methods.registry import (
    COMBINATIONS,
    EVERY,
    METHODS,
    YARDSTICKS,
    Method,
    Plan,
    method,
    register,
    settings_of,
)

__all__ = [
    "COMBINATIONS",
    "EVERY",
    "METHODS",
    "YARDSTICKS",
    "Method",
    "Plan",
    "method",
    "register",
    "settings_of",
]
