"""Rows of results in files, each with its checksum: what evaluate, train and bench write, and
report reads.

    write_row, read_row      one row: <name>.row.json, and the row.json of a run
    write_rows, read_rows    many rows, one per line: results/bench-cpu.jsonl
    upgrade                  for .jsonl files of version 0, from before rows had checksums

A line of a .jsonl file is the same object as a row.json: its format, its checksum, and its values.
The first line of the file has the checksum of all the others, so that a lost line is noticed too.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from maccal.io import (
    FileError,
    parse_json,
    read_bytes,
    read_json,
    read_lines,
    sealed,
    unsealed,
    write,
    write_lines,
)

Row = Mapping[str, Any]
ROW, ROWS = "row 1", "rows 1"


def write_row(path: Path, row: Row) -> Path:
    """One row; ValueError for numbers that JSON cannot say."""
    return write(path, row_text(row))


def row_text(row: Row) -> str:
    """What write_row writes."""
    return json.dumps(sealed(row, ROW), indent=1, allow_nan=False) + "\n"


def read_row(path: Path) -> dict[str, Any]:
    """What write_row wrote; FileError otherwise."""
    return named(read_json(path, ROW), path)


def write_rows(path: Path, rows: Iterable[Row]) -> Path:
    """One row per line, in the order given."""
    return write_lines(path, ROWS, [sealed(row, ROW) for row in rows])


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What write_rows wrote.

    FileError otherwise, which for rows of version 0 says how to upgrade them.
    """
    try:
        lines = read_lines(path, ROWS)
    except FileError:
        if is_old(path):
            words = f"if they are as they were written, `maccal report {path} --upgrade` adds them"
            raise FileError(path, f"rows of version 0, which have no checksums; {words}") from None
        raise
    found = []
    for number, line in enumerate(lines, 2):
        where = f"line {number}: "
        found.append(named(unsealed(line, ROW, path, where), path, where))
    return found


def named(row: dict[str, Any], path: Path, where: str = "") -> dict[str, Any]:
    if not isinstance(row.get("name"), str):
        raise FileError(path, f"{where}a row without a name; it was not written by maccal")
    return row


def upgrade(path: Path) -> int:
    """Seal the rows of a .jsonl file of version 0, and say how many.

    0 where they are sealed already.
    """
    if not is_old(path):
        read_rows(path)
        return 0
    rows = old_rows(path)
    write_rows(path, rows)
    return len(rows)


def is_old(path: Path) -> bool:
    try:
        return bool(old_rows(path))
    except FileError:
        return False


def old_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of version 0: objects with a name, one per line, none with a format or a checksum."""
    found = []
    for number, line in enumerate(read_bytes(path).splitlines(), 1):
        if not line.strip():
            continue
        where = f"line {number}: "
        row = named(parse_json(line, path, where), path, where)
        if row.keys() & {"format", "checksum"}:
            raise FileError(path, f"{where}not of version 0: it has a format or a checksum")
        found.append(row)
    return found
