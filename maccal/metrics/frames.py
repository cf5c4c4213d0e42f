"""Data frames and series that are out of step: what pandas knows of rows and columns is not lost.

    check_order       columns with the names of the classes, in another order
    check_numbered    columns with the numbers 0 .. K - 1, in another order
    check_index       rows that have one another's labels, by the index

What has no such names is taken as it stands. Cost: nothing for what is not pandas.
"""

from collections.abc import Sequence
from typing import Any


def column_names(values: Any) -> list[str] | None:
    """The names of the columns of a data frame; None where they are not all text."""
    columns = list(getattr(values, "columns", ()))
    named = bool(columns) and all(isinstance(column, str) for column in columns)
    return columns if named else None


def check_order(scores: Any, names: Sequence[Any]) -> None:
    """ValueError where the columns of a data frame have the same names in another order."""
    columns = column_names(scores)
    if columns is not None and columns != list(names) and set(columns) == set(names):
        seen = f"the columns are {brief(columns)} and classes {brief(names)}"
        raise ValueError(f"{seen}; pass classes in the order of the columns")


def check_numbered(values: Any, name: str) -> None:
    """ValueError where the columns of a data frame are 0 .. K - 1 in another order."""
    columns = list(getattr(values, "columns", ()))
    if not columns or any(isinstance(column, str | bool) for column in columns):
        return
    try:
        ordered = sorted(columns)
    except TypeError:
        return
    if ordered == list(range(len(columns))) and ordered != columns:
        seen = f"the columns of {name} are numbered {brief(columns)}"
        raise ValueError(f"{seen}, and labels count them from 0; put them in order, or rename them")


def check_index(scores: Any, labels: Any) -> None:
    """ValueError where both are pandas' and have the same index in another order."""
    if not has_index(scores) or not has_index(labels):
        return
    mine, theirs = scores.index, labels.index
    if len(mine) != len(theirs):
        return
    if mine.is_unique and not mine.equals(theirs) and len(mine.intersection(theirs)) == len(mine):
        problem = "the rows of the predictions and the labels have the same index in another order"
        raise ValueError(f"{problem}; put them in step, labels.loc[predictions.index]")


def has_index(values: Any) -> bool:
    """Whether it is a data frame or a series; a list has an index too, but that is a method."""
    return hasattr(getattr(values, "index", None), "equals")


def check_same_columns(values: Any, fitted: Sequence[str] | None, name: str) -> None:
    """ValueError where a data frame has other columns than the one that was fitted on."""
    columns = column_names(values)
    if columns is not None and fitted is not None and columns != list(fitted):
        seen = f"{name} was given the columns {brief(columns)}"
        raise ValueError(f"{seen}, and was fitted on {brief(fitted)}; pass those, in that order")


def brief(names: Sequence[Any]) -> str:
    text = repr(list(names))
    return text if len(text) <= 40 else f"{text[:37]}..."
