"""Settings of a method are of the kind that its row has: numbers, several numbers, or words."""

from typing import Any


def checked(what: str, value: Any, usual: Any, words: tuple[str, ...] | None = None) -> Any:
    """The value of a setting; ValueError unless it is of the kind that its usual value is.

    `words` are those to choose from, for a setting that is a word. It may have underscores for
    its spaces, as the names of runs have them.

    >>> checked("mmce: form", "as_coded", "weighted", ("as coded", "weighted"))
    'as coded'
    >>> checked("flsd: gammas", (5.0, 3.0), (5.0, 3.0, 3.0))
    Traceback (most recent call last):
    ...
    ValueError: flsd: gammas is (5.0, 3.0); pass 3 numbers, such as 5,3,3
    """
    if words is not None:
        spelled = value.replace("_", " ") if isinstance(value, str) else value
        if spelled not in words:
            raise ValueError(f"{what} is {value!r}; choose one of {', '.join(words)}")
        return spelled
    if isinstance(usual, tuple):
        right = isinstance(value, tuple) and len(value) == len(usual)
        if not right or not all(is_number(one) for one in value):
            example = ",".join(f"{one:g}" for one in usual)
            raise ValueError(f"{what} is {value!r}; pass {len(usual)} numbers, such as {example}")
    if isinstance(usual, float) and not is_number(value):
        raise ValueError(f"{what} is {value!r}; pass a number")
    return value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
