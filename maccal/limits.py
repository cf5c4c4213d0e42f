"""Numbers within their limits, or a ValueError that names them; without torch, for what reads rows.

check_count     a whole number
check_number    a finite one
check_share     above 0 and at most 1
"""

import math
import operator
from typing import Any

import numpy as np


def check_count(value: Any, name: str, least: int = 1, most: int | None = None) -> int:
    """A whole number of any integer type, within its limits; ValueError otherwise."""
    try:
        if isinstance(value, (bool, np.bool_)) or np.ndim(value) > 0:
            raise TypeError
        number = operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} is {shortened(value)}; expected a whole number") from None
    if number < least:
        needed = "one is needed" if least == 1 else f"{least}"
        raise ValueError(f"{name} is {number}; at least {needed}")
    if most is not None and number > most:
        raise ValueError(f"{name} is {number:,}; at most {most:,}")
    return number


def real(value: Any) -> float:
    """The value as a float; NaN for what is no number."""
    try:
        return math.nan if isinstance(value, str | bool | np.bool_) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def check_number(value: Any, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number within its limits; ValueError otherwise.

    >>> check_number(1.5, "alpha", 0, 1)
    Traceback (most recent call last):
    ...
    ValueError: alpha is 1.5; expected a number from 0 to 1
    """
    number = real(value)
    if math.isfinite(number) and low <= number <= high:
        return number
    limits = f" from {low:g}" if math.isfinite(low) else ""
    limits += f" to {high:g}" if math.isfinite(high) else ""
    raise ValueError(f"{name} is {shortened(value)}; expected a number{limits}")


def check_share(value: Any, name: str) -> float:
    """A share above 0 and at most 1."""
    share = real(value)
    if not 0 < share <= 1:
        raise ValueError(f"{name} is {shortened(value)}; expected a share above 0 and at most 1")
    return share


def shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
