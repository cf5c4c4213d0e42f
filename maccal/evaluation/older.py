"""Rows of older formats, converted: the upgrade path, so that no finished run is lost.

    converted(values, path)     a row of format 1 as JSON has it, in format 2
    old_rows(path)              the rows of a .jsonl file of version 0: format 1 without checksums

Format 1 was one flat object. Which settings were not the method's own stood only in the row's name,
such as cifar10-resnet8-mixup,alpha=0.5+maccal,gamma=0.9-s2, so it is parsed here, and here alone.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maccal.io import FileError, open_regular, parse_json, read_bytes
from maccal.io.formats import HEADER

CALIBRATORS = ("tst", "vtst", "maccal", "temperature")  # those of format 1
MEASURED = ("kind", "file", "n", "classes", "bins", "resamples", "seed")
PARTS = ("trained", "diagram", "keep", "ood", "shift", "motivation", "files")
KEPT = ("name", "error", "verdict", *PARTS)


def converted(values: Mapping[str, Any], path: Path, where: str = "") -> dict[str, Any]:
    """The content of a row of format 1 in format 2; FileError where it is no row."""
    if not isinstance(values.get("name"), str):
        raise FileError(path, f"{where}a row without a name; it was not written by maccal")
    kept = {key: values[key] for key in KEPT if values.get(key) is not None}
    if "error" in values and "run" not in values:
        return kept
    measured = {key: values[key] for key in MEASURED if key in values}
    content = {**kept, "measured": measured, "numbers": numbers_of(values)}
    run = values.get("run")
    if run is not None:
        if not isinstance(run, Mapping) or not isinstance(run.get("method"), str):
            raise FileError(path, f"{where}no 'run.method'; it is not a row that maccal writes")
        content["ran"] = ran_of(values["name"], run)
    content["made_with"] = made_with(values, run or {})
    notes = {key: value for key, value in values.items() if key == "demo"}
    return {**content, "notes": notes} if notes else content


def numbers_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics, which stood beside all else."""
    others = {*KEPT, *MEASURED, "run", "versions", "demo"}
    return {key: value for key, value in values.items() if key not in others}


def made_with(values: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, and the precision of the recipe; nothing else was recorded."""
    versions = values.get("versions") or {}
    recipe = run.get("recipe") or {}
    found = {package: versions.get(package) for package in ("maccal", "torch", "numpy")}
    return {**found, "precision": recipe.get("precision")}


def ran_of(name: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """The choices, with both stages by name."""
    first, second = stages(run["method"])
    same = ("data", "model", "seed", "limit", "recipe", "settings", "feedback")
    ran = {key: run[key] for key in same if key in run}
    ran["calibration"] = run.get("stage2")
    return {**ran, "first": first, "second": second, "changes": changes(name, run, second)}


def stages(method: str) -> tuple[str, str | None]:
    """
    >>> stages("mixup+maccal"), stages("tst"), stages("ls")
    (('mixup', 'maccal'), ('vanilla', 'tst'), ('ls', None))
    """
    first, _, second = method.rpartition("+")
    if second in CALIBRATORS:
        return first or "vanilla", second
    return method, None


def changes(name: str, run: Mapping[str, Any], second: str | None) -> list[str]:
    """What the name says of settings that are not the method's own; nothing, if it is of another
    form.

    >>> run = {"data": "cifar10", "model": "resnet8", "seed": 2}
    >>> changes("cifar10-resnet8-mixup,alpha=0.5+maccal,gamma=0.9,training-s2", run, "maccal")
    ['settings.alpha', 'calibration.gamma', 'feedback']
    """
    data = f"{run.get('data')}.{run['limit']}" if run.get("limit") else run.get("data")
    start, end = f"{data}-{run.get('model')}-", f"-s{run.get('seed')}"
    if not (name.startswith(start) and name.endswith(end)):
        return []
    found = []
    described = name[len(start) : -len(end)].split("+")
    for number, stage in enumerate(described):
        last = second is not None and number == len(described) - 1
        for change in stage.split(",")[1:]:
            key, equals, _ = change.partition("=")
            place = "calibration" if last else "settings"
            found.append(f"{place}.{key}" if equals else "feedback")
    return found


def is_sealed(path: Path, kind: str) -> bool:
    """Whether the header line of a file says that it is of this format."""
    try:
        with open_regular(path) as file:
            header = json.loads(file.readline(HEADER))
    except (FileError, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and header.get("format") == f"maccal {kind}"


def old_rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The rows of version 0, each behind its place in the file: objects with a name, one per line,
    none with a format or a checksum.
    """
    found = []
    for number, line in enumerate(read_bytes(path).splitlines(), 1):
        if not line.strip():
            continue
        where = f"line {number}: "
        values = parse_json(line, path, where)
        if not isinstance(values.get("name"), str):
            raise FileError(path, f"{where}a row without a name; it was not written by maccal")
        if values.keys() & {"format", "checksum"}:
            raise FileError(path, f"{where}not of version 0: it has a format or a checksum")
        found.append((where, values))
    return found
