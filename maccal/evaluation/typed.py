"""Dataclasses from the values of a file, which may be of any type.

What is not of the field's own is refused.
"""

from collections.abc import Mapping
from math import isfinite
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Made = TypeVar("Made")


def typed(kind: type[Made], values: Mapping[str, Any]) -> Made:
    """The dataclass with these values, lists as tuples; TypeError or ValueError where it cannot be
    made of them.

    >>> from maccal.training.recipe import Recipe
    >>> typed(Recipe, {"epochs": "9"})
    Traceback (most recent call last):
    ...
    ValueError: epochs is '9'
    """
    hints = get_type_hints(kind)
    plain = tupled(values)
    for name, value in plain.items():
        # a name that it does not have is refused below
        if name in hints and not fits(value, hints[name]):
            raise ValueError(f"{name} is {str(value)[:100]!r}")
    return kind(**plain)


def tupled(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no tuples."""
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
    }


def fits(value: Any, hint: Any) -> bool:
    """Whether the value is of the type: a whole number may stand for a float, but no bool for a
    number.

    >>> fits(3, float), fits(True, int), fits((1.0, "a"), tuple[float, ...]), fits(None, int | None)
    (True, False, False, True)
    """
    if hint is Any:
        return True
    origin, options = get_origin(hint), get_args(hint)
    if origin is Literal:
        return isinstance(value, str) and value in options
    if origin in (Union, UnionType):
        return any(fits(value, option) for option in options)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(part, options[0]) for part in value)
    if hint is float:
        return type(value) in (int, float) and isfinite(value)
    if hint is int:
        return type(value) is int
    return isinstance(value, origin or hint)
