"""Rows by the names that their runs would have today.

A run's name, and what a row says of its changes, tell what is not the method's own. When a default
changes, rows that were made before keep their numbers and choices, and get another name.
"""

from dataclasses import replace
from pathlib import Path

from maccal.evaluation.row import Row, read_rows, write_rows
from maccal.runs.config import config_of


def renamed(row: Row) -> Row:
    """The row by its name of today; as it is where it is not that of a run that is known here."""
    if row.ran is None:
        return row
    try:
        config = config_of(row.ran.about)
    except (KeyError, TypeError, ValueError, AttributeError):
        return row
    return replace(row, name=config.name, ran=config.ran)


def rename_rows(path: Path) -> int:
    """Give the rows of a .jsonl file their names of today, in their order; how many changed."""
    rows = read_rows(path)
    new = sorted((renamed(row) for row in rows), key=lambda row: row.name)
    known = {row.name for row in rows}
    count = sum(row.name not in known for row in new)
    if count:
        write_rows(path, new)
    return count
