"""Dataclasses from the values of a file, which may be of any type.

What is not of the field's own is refused.
"""

from collections.abc import Mapping
from math import isfinite
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Made = TypeVar("Made")
CONSTANTS = {"True": True, "False": False, "None": None}
NAMES = {int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}


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


def coerced(value: Any, hint: Any) -> Any:
    """The value, or what the same word of a command line means for a field of this type.

    ValueError where it is neither. The command line has only floats, and words.

    >>> coerced(8.0, int | None), coerced("False", bool), coerced(0.1, float)
    (8, False, 0.1)
    """
    readings = [value]
    if isinstance(value, float) and value.is_integer():
        readings.append(int(value))
    if isinstance(value, str) and value in CONSTANTS:
        readings.append(CONSTANTS[value])
    for reading in readings:
        if fits(reading, hint):
            return reading
    raise ValueError(f"{str(value)[:100]!r}; pass {described(hint)}")


def described(hint: Any) -> str:
    """
    >>> described(int | None), described(Literal["sgd", "adam"])
    ('a whole number or None', 'sgd or adam')
    """
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(described(option) for option in get_args(hint))
    return NAMES.get(hint, str(hint))


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
