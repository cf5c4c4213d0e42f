"""Row: one measured result, typed. What evaluate, train and bench write, and report reads.

    write_row, read_row      one row: <name>.row.json, and the row.json of a run
    write_rows, read_rows    many rows, one per line: results/bench-cpu.jsonl
    upgrade                  a .jsonl file of an older format becomes one of this

A line of a .jsonl file is the same object as a row.json: its format, its checksum, and its values.
The first line of the file has the checksum of all the others, so that a lost line is noticed too.
What is wrong with a file is a FileError that names the file, the line and the field. Rows of format
1 are read as rows of this format, and the user is told; rows of version 0 have no checksums, so
that `upgrade` is asked for.
"""

import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from maccal.evaluation.checks import check_content
from maccal.evaluation.older import converted, is_sealed, old_rows
from maccal.evaluation.provenance import Provenance
from maccal.io import (
    FileError,
    parse_json,
    read_bytes,
    read_sealed,
    sealed,
    unsealed,
    write,
    write_lines,
)
from maccal.io.formats import LARGEST_JSON, check_format

ROW, ROWS = "row 2", "rows 2"
OLD_ROW, OLD_ROWS = "row 1", "rows 1"
# measured beyond the test images, or of the network itself
PARTS = ("ood", "shift", "motivation")


@dataclass(frozen=True)
class Ran:
    """What was run: every choice, and which of them are not the method's own.

    `changes` names those, as "settings.alpha", "calibration.gamma" or "feedback"; their values are
    where the names say. "calibration.as_printed" has none: it is a variant with a name, and the
    changes are those that it does not make.
    """

    data: str
    model: str
    first: str  # the method of stage I
    second: str | None  # the calibrator of stage II
    seed: int
    limit: int | None = None  # training images; None is all
    recipe: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the method
    calibration: Mapping[str, Any] | None = None  # settings of the calibrator
    feedback: str | None = None
    changes: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """The name of both stages; vanilla is left out where a calibrator follows it.

        >>> Ran("cifar10", "resnet8", "vanilla", "maccal", 1).method
        'maccal'
        >>> Ran("cifar10", "resnet8", "mixup", "maccal", 1).method
        'mixup+maccal'
        """
        if self.second is None:
            return self.first
        return self.second if self.first == "vanilla" else f"{self.first}+{self.second}"

    @property
    def about(self) -> dict[str, Any]:
        """The choices as the config.json of the run has them."""
        return {
            "data": self.data,
            "model": self.model,
            "method": self.method,
            "seed": self.seed,
            "limit": self.limit,
            "recipe": self.recipe,
            "settings": self.settings,
            "stage2": self.calibration,
            "feedback": self.feedback,
        }

    def words(self, stage: str) -> list[str]:
        """The changes of a stage, "settings" or "calibration", as a name shows them.

        >>> changed = {"settings": {"alpha": 0.5}, "changes": ("settings.alpha", "feedback")}
        >>> Ran("cifar10", "resnet8", "mixup", "maccal", 1, **changed).words("settings")
        ['alpha=0.5']
        """
        chosen = (self.settings if stage == "settings" else self.calibration) or {}
        found = []
        for change in self.changes:
            where, _, key = change.partition(".")
            if where == stage:
                # what is no choice is the name of a variant
                found.append(worded(key, chosen[key]) if key in chosen else key)
        if stage == "calibration" and "feedback" in self.changes:
            found.append(str(self.feedback))
        return found


def worded(key: str, value: Any) -> str:
    """
    >>> worded("gamma", 2.0), worded("gammas", (5.0, 3.0)), worded("form", "as coded")
    ('gamma=2', 'gammas=5;3', 'form=as_coded')
    """
    values = value if isinstance(value, tuple | list) else (value,)
    return f"{key}={';'.join(plain_word(one) for one in values)}"


def plain_word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).replace(" ", "_")


@dataclass(frozen=True)
class Measured:
    """How the numbers were measured: of which scores, in which file, of how many rows."""

    kind: str | None = None  # logits or probs
    file: str | None = None
    n: int | None = None
    classes: int | None = None
    bins: int | None = None
    resamples: int | None = None
    seed: int | None = None  # of the resamples


class DiagramBin(NamedTuple):
    """A bin of the reliability diagram that holds rows."""

    size: int
    confidence: float  # mean
    accuracy: float


@dataclass(frozen=True)
class Row:
    """One measured result. A failed run is a row with its error and no numbers.

    `numbers` has every metric as a fraction, with its ends `_low` and `_high` (95 % interval) and
    `_null_low` and `_null_high` (where a calibrated model would fall); None is what is infinite.
    `ran` is None where a stranger's predictions were measured.
    """

    name: str
    ran: Ran | None = None
    made_with: Provenance | None = None
    measured: Measured | None = None
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    verdict: str | None = None
    trained: Mapping[str, float | None] | None = None  # epochs, and what the last one noted
    diagram: tuple[DiagramBin, ...] = ()
    keep: tuple[float, ...] = ()  # the path of stage II's, epoch by epoch
    ood: Mapping[str, Any] | None = None
    shift: Mapping[str, Any] | None = None
    motivation: Mapping[str, Any] | None = None
    files: Mapping[str, str] | None = None  # checksums of a run's other files
    # in collected rows the checksum of the network of stage I: a run's own, or the one that its
    # stage II stands on (runs/origin.py); rows of before say nothing
    stage1: str | None = None
    notes: Mapping[str, Any] | None = None  # what the program that made it adds
    error: str | None = None

    @property
    def parts(self) -> set[str]:
        """Which of PARTS it has."""
        return {part for part in PARTS if getattr(self, part) is not None}

    def number(self, key: str) -> float:
        """A number of the row, nan where there is none; dots lead into trained and the parts.

        >>> row = Row("a", numbers={"ece": 0.1, "nll": None}, shift={"overall": {"ece": 0.2}})
        >>> row.number("ece"), row.number("shift.overall.ece"), row.number("nll")
        (0.1, 0.2, nan)
        """
        first, *rest = key.split(".")
        found: Any = getattr(self, first) if rest else self.numbers.get(first)
        for part in rest:
            found = found.get(part) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, int | float) else math.nan

    @property
    def content(self) -> dict[str, Any]:
        """As JSON has it; what is None or empty is left out."""
        if self.error is not None:
            return {"name": self.name, "error": self.error}
        values = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and value != ():
                values[one.name] = asdict(value) if one.name in RECORDS else value
        return values


RECORDS: Mapping[str, Any] = {"ran": Ran, "made_with": Provenance, "measured": Measured}


def row_of(content: Mapping[str, Any], path: Path, where: str = "") -> Row:
    """The row that this JSON object says.

    FileError unless every field is one that a row has, of its type and in its range. `where` is its
    place in the file, such as "line 3: ".
    """
    check_content(content, path, where)
    values = dict(content)
    for name in RECORDS.keys() & values.keys():
        values[name] = RECORDS[name](**values[name])
    if "ran" in values:
        ran = content["ran"]
        values["ran"] = Ran(**{**ran, "changes": tuple(ran.get("changes", ()))})
    values["diagram"] = tuple(DiagramBin(*one) for one in content.get("diagram", ()))
    values["keep"] = tuple(content.get("keep", ()))
    return Row(**values)


# Files


def write_row(path: Path | str, row: Row) -> Path:
    """One row; ValueError for numbers that JSON cannot say."""
    return write(path, row_text(row))


def row_text(row: Row) -> str:
    """What write_row writes."""
    return json.dumps(sealed(row.content, ROW), indent=1, allow_nan=False) + "\n"


def read_row(path: Path | str) -> Row:
    """What write_row wrote, or wrote in format 1; FileError otherwise."""
    path = Path(path)
    values = parse_json(read_bytes(path, LARGEST_JSON), path)
    if values.get("format") == f"maccal {OLD_ROW}":
        row = row_of(converted(unsealed(values, OLD_ROW, path), path), path)
        say_older(path.parent.parent if path.name == "row.json" else path.parent)
        return row
    return row_of(unsealed(values, ROW, path), path)


def write_rows(path: Path | str, rows: Iterable[Row]) -> Path:
    """One row per line, in the order given."""
    return write_lines(path, ROWS, [sealed(row.content, ROW) for row in rows])


def read_rows(path: Path | str) -> list[Row]:
    """What write_rows wrote, or wrote in format 1.

    FileError otherwise, which for rows of version 0 says how to upgrade them.
    """
    path = Path(path)
    if is_sealed(path, OLD_ROWS):
        rows = read_old_rows(path)
        say_older(path)
        return rows
    try:
        lines = read_sealed(path, ROWS).decode().splitlines()
    except FileError:
        if is_version_0(path):
            words = f"if they are as they were written, `maccal report {path} --upgrade` adds them"
            raise FileError(path, f"rows of version 0, which have no checksums; {words}") from None
        raise
    found = []
    for number, line in enumerate(lines, 2):
        # the checksum of the file is that of its lines too
        where = f"line {number}: "
        values = parse_json(line, path, where)
        check_format(values.pop("format", None), ROW, path, where)
        values.pop("checksum", None)
        found.append(row_of(values, path, where))
    return found


def read_old_rows(path: Path) -> list[Row]:
    """The rows of a sealed .jsonl file of format 1."""
    found = []
    for number, line in enumerate(read_sealed(path, OLD_ROWS).decode().splitlines(), 2):
        where = f"line {number}: "
        values = unsealed(parse_json(line, path, where), OLD_ROW, path, where)
        found.append(row_of(converted(values, path, where), path, where))
    return found


def upgrade(path: Path) -> int:
    """Make a .jsonl file of version 0 or format 1 one of this format, and say how many rows it has.

    0 where it is of this format already.
    """
    if is_sealed(path, OLD_ROWS):
        rows = read_old_rows(path)
    elif is_version_0(path):
        rows = []
        for where, values in old_rows(path):
            rows.append(row_of(converted(values, path, where), path, where))
    else:
        read_rows(path)
        return 0
    write_rows(path, rows)
    return len(rows)


def is_version_0(path: Path) -> bool:
    try:
        return bool(old_rows(path))
    except FileError:
        return False


@cache
def say_older(where: Path) -> None:
    """Once for all rows of a file, or of a folder of runs."""
    command = f"report {where} --upgrade" if where.is_file() else "evaluate RUN"
    words = f"rows of format 1, read as format 2; `maccal {command}` rewrites them"
    print(f"maccal: {where}: {words}", file=sys.stderr, flush=True)


def distinct(rows: Iterable[tuple[str, Row]]) -> list[Row]:
    """The rows, each once, from pairs of a place and a row.

    ValueError where two of one name differ: one would hide the other.
    """
    found: dict[str, tuple[str, Row]] = {}
    for place, row in rows:
        before, known = found.setdefault(row.name, (place, row))
        if known != row:
            raise ValueError(
                f"{place} and {before} have the same name, {row.name}, and differ; pass one of them"
            )
    return [row for _, row in found.values()]
