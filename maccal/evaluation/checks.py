"""What the JSON object of a row may hold, so that every table and figure of the report can show it.

    check_content(values, path, "line 3: ")     FileError naming file, line and field

A row that failed has `name` and `error`. Any other has `name` and `numbers`; a run's has `ran`
(data, model, first, second, seed) and `numbers.ece`. What else it has is checked where it is there.
Numbers are checked by type and range: a string, a null, NaN or an ECE of 5 (per cent) would
otherwise end in a wrong picture or in none.
"""

from collections.abc import Callable, Mapping
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from maccal.io import FileError, readable

Values = Mapping[str, Any]
LONGEST = 300  # letters of a name
MEASURES = ("accuracy", "ece", "aece", "mce")
ENDS = ("", "_low", "_high", "_null_low", "_null_high")


class Kind(NamedTuple):
    """What a value may be: in words, and as a test."""

    words: str
    test: Callable[[Any], bool]


def is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: Any, low: float, high: float) -> bool:
    """A finite one in this range; integers too large for a float are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def is_text(value: Any) -> bool:
    return isinstance(value, str) and readable(value) == value


def is_lines(value: Any) -> bool:
    """Text of several lines, such as an error."""
    return isinstance(value, str) and all(
        is_text(line.replace("\t", " ")) for line in value.splitlines()
    )


def is_list(value: Any, test: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(test(one) for one in value)


def is_bin(value: Any) -> bool:
    """Count, mean confidence and accuracy."""
    return (
        is_list(value, lambda one: is_number(one, 0, 1e15))
        and len(value) == 3
        and max(value[1:]) <= 1
    )


def is_amount(value: Any) -> bool:
    return is_number(value, 0, 1e15)


def is_fraction(value: Any) -> bool:
    return is_number(value, 0, 1)


NAME = Kind(
    f"text of 1 to {LONGEST} letters and no control characters",
    lambda value: is_text(value) and 0 < len(value) <= LONGEST,
)
WORDS = Kind("text without control characters", is_text)
RECORD = Kind("an object", lambda value: isinstance(value, dict))
WHOLE = Kind("a whole number", lambda value: is_whole(value, -(1 << 63), 1 << 63))
COUNT = Kind("a whole number from 0", lambda value: is_whole(value, 0, 1 << 53))
NUMBER = Kind("a finite number", lambda value: is_number(value, -1e300, 1e300))
AMOUNT = Kind("a number above 0", lambda value: is_number(value, 1e-9, 1e15))
FRACTION = Kind("a number from 0 to 1", is_fraction)
# keep is above 1 where an underconfident network became surer
AMOUNTS = Kind("a list of numbers from 0 up", lambda value: is_list(value, is_amount))
FRACTIONS = Kind("a list of numbers from 0 to 1", lambda value: is_list(value, is_fraction))
NAMES = Kind("a list of names", lambda value: is_list(value, NAME.test))
COUNTS = Kind("a list of whole numbers from 0", lambda value: is_list(value, COUNT.test))
BINS = Kind(
    "a list of bins: count, mean confidence and accuracy", lambda value: is_list(value, is_bin)
)

REQUIRED = {"name": NAME, "numbers": RECORD}
OF_A_RUN = {
    "ran": RECORD,
    "ran.data": NAME,
    "ran.model": NAME,
    "ran.first": NAME,
    "ran.second": NAME,
    "ran.seed": WHOLE,
    "numbers.ece": FRACTION,
}
OPTIONAL = {
    "ran.limit": COUNT,
    "ran.recipe": RECORD,
    "ran.settings": RECORD,
    "ran.settings.alpha": NUMBER,
    "ran.calibration": RECORD,
    "ran.calibration.gamma": NUMBER,
    "ran.feedback": NAME,
    "ran.changes": NAMES,
    "made_with": RECORD,
    "made_with.maccal": WORDS,
    "made_with.commit": WORDS,
    "made_with.torch": WORDS,
    "made_with.numpy": WORDS,
    "made_with.threads": COUNT,
    "made_with.precision": WORDS,
    "measured": RECORD,
    "measured.kind": WORDS,
    "measured.file": WORDS,
    "measured.n": COUNT,
    "measured.classes": COUNT,
    "measured.bins": COUNT,
    "measured.resamples": COUNT,
    "measured.seed": WHOLE,
    "trained": RECORD,
    "trained.epochs": COUNT,
    "trained.seconds": AMOUNT,
    "verdict": WORDS,
    "diagram": BINS,
    "keep": AMOUNTS,
    "ood": RECORD,
    "ood.mean": RECORD,
    "ood.mean.auroc": FRACTION,
    "ood.mean.fpr95": FRACTION,
    "shift": RECORD,
    "shift.kinds": NAMES,
    "shift.severities": COUNTS,
    "shift.ece_pooled": FRACTIONS,
    "shift.ece_mean": FRACTIONS,
    "shift.overall": RECORD,
    "shift.overall.ece_pooled_mean": FRACTION,
    "shift.overall.ece": FRACTION,
    "motivation": RECORD,
    "files": RECORD,
    "stage1": WORDS,
    "notes": RECORD,
}
OPTIONAL |= {f"numbers.{measure}{end}": FRACTION for measure, end in product(MEASURES, ENDS)}
# may be null
NULL = (
    "ran.second",
    "ran.limit",
    "ran.calibration",
    "ran.calibration.gamma",
    "ran.feedback",
    *(key for key in OPTIONAL if key.startswith(("made_with.", "measured."))),
)
FAILED = {"name": NAME, "error": Kind("text without control characters", is_lines)}
FIELDS = {key.split(".")[0] for key in (*REQUIRED, *OF_A_RUN, *OPTIONAL)}


def inside(record: str) -> set[str]:
    """The fields of a record of a row."""
    keys = [key.split(".") for key in (*OF_A_RUN, *OPTIONAL)]
    return {key[1] for key in keys if key[0] == record and key[1:]}


INNER = {record: inside(record) for record in ("ran", "made_with", "measured")}

# the arrays of the motivation, each with the sizes of its axes by letter: one letter, one size
MAP = {"place": "n2", "labels": "n", "entropy": "n", "rows": "n"}
CURVE = {"edges": "e", "count": "b", "confidence": "b", "accuracy": "b"}
MASKED = {
    **dict.fromkeys(
        ("ratio", "accuracy", "accuracy_spread", "confidence", "confidence_spread"), "r"
    ),
    "edges": "e",
    "histogram": "rb",
}
ARRAYS = {
    "map": MAP,
    "curve": CURVE,
    "inference": MASKED,
    "retraining": MASKED,
    "regrowth": MASKED,
}
INTEGERS = ("labels", "rows", "count")


class Wrong(ValueError):
    """What is wrong with a row."""


def check_content(values: Values, path: Path, where: str = "") -> None:
    """FileError unless this is a row.

    `where` is its place in the file, such as "line 3: ".
    """
    try:
        if not isinstance(values.get("name"), str):
            raise Wrong("a row without a name; it was not written by maccal")
        if "error" in values and "ran" not in values:
            check_fields(values, FAILED, required=True)
            check_known(values, set(FAILED), "")
            return
        check_fields(values, REQUIRED, required=True)
        if "ran" in values:
            check_fields(values, OF_A_RUN, required=True)
        check_fields(values, OPTIONAL, required=False)
        check_numbers(values["numbers"])
        check_known(values, FIELDS, "")
        for name, known in INNER.items():
            check_known(values.get(name, {}), known, f"{name}.")
        check_lengths(values)
        check_motivation(values.get("motivation", {}))
    except Wrong as problem:
        raise FileError(path, f"{where}{problem}") from None


def check_fields(values: Values, kinds: Mapping[str, Kind], *, required: bool) -> None:
    for key, kind in kinds.items():
        *parts, last = key.split(".")
        record: Any = values
        for part in parts:
            record = record.get(part) or {}
        if last not in record:
            if required:
                raise Wrong(f"no {key!r}; it is not a row that maccal writes")
        elif not kind.test(record[last]) and not (record[last] is None and key in NULL):
            raise Wrong(f"{key} is {shown(record[last])}; expected {kind.words}")


def check_numbers(numbers: Values) -> None:
    """Finite, or null for what JSON cannot say."""
    for key, value in numbers.items():
        if value is not None and not NUMBER.test(value):
            raise Wrong(f"numbers.{key} is {shown(value)}; expected {NUMBER.words}")


def check_known(values: Values, known: set[str], where: str) -> None:
    for key in values:
        if key not in known:
            raise Wrong(f"{where}{shown(key)[1:-1]} is no field of a row")


def shown(value: Any) -> str:
    """A value in few words."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    if isinstance(value, int) and abs(value) > 1 << 63:
        return "a number of too many digits"
    words = "null" if value is None else readable(repr(value))
    return words if len(words) <= 40 else words[:37] + "..."


def check_lengths(values: Values) -> None:
    """What must be as long as something else, or be there because of it."""
    shift = values.get("shift", {})
    levels = shift.get("severities", [])
    for key, without in (("ece_pooled", []), ("ece_mean", levels)):
        if len(shift.get(key, without)) != len(levels):
            raise Wrong(f"shift.{key} and shift.severities are not of the same length")
    if "severities" in shift and not shift["severities"]:
        raise Wrong("shift.severities is empty")
    ran = values.get("ran", {})
    swept = ran.get("second") == "maccal" and ran.get("feedback") == "training"
    if swept and not NUMBER.test((ran.get("calibration") or {}).get("gamma")):
        raise Wrong(
            "no 'ran.calibration.gamma', which a run with feedback from the training rows has"
        )


def check_motivation(parts: Mapping[str, Any]) -> None:
    for name, shapes in ARRAYS.items():
        if name in parts:
            check_arrays(parts[name], shapes, f"motivation.{name}")
    if "angles" in parts:
        check_arrays(parts, {"angles": "kk"}, "motivation")


def check_arrays(values: Any, shapes: Mapping[str, str], where: str) -> None:
    """Lists of finite numbers whose sizes fit together; ends of bins are one more than the bins."""
    if not isinstance(values, dict):
        raise Wrong(f"{where} is {shown(values)}; expected an object")
    sizes: dict[str, int] = {"2": 2}
    for name, shape in shapes.items():
        if name not in values:
            raise Wrong(f"no '{where}.{name}'")
        array = as_array(values[name], len(shape), f"{where}.{name}")
        if name in INTEGERS and (array != np.rint(array)).any():
            raise Wrong(f"{where}.{name} has numbers that are not whole")
        for letter, size in zip(shape, array.shape, strict=True):
            if sizes.setdefault(letter, size) != size or size == 0:
                raise Wrong(
                    f"{where}.{name} has {size} entries; expected {sizes[letter] or 'some'}"
                )
    if "e" in sizes and sizes["e"] != sizes["b"] + 1:
        raise Wrong(f"{where}.edges has {sizes['e']} entries; expected {sizes['b'] + 1}")


def as_array(value: Any, axes: int, name: str) -> np.ndarray:
    """Lists within lists as an array of so many axes."""
    flat = [value]
    for _ in range(axes):
        if not all(isinstance(one, list) for one in flat):
            raise Wrong(f"{name} is not a list of numbers, {axes} deep")
        flat = list(chain.from_iterable(flat))
    if not all(NUMBER.test(number) for number in flat):
        raise Wrong(f"{name} holds what is not a finite number")
    try:
        return np.array(value, dtype=np.float64).reshape(sizes_of(value, axes))
    except ValueError:
        raise Wrong(f"{name} has lists of different lengths") from None


def sizes_of(value: Any, axes: int) -> list[int]:
    sizes = []
    for _ in range(axes):
        sizes.append(len(value))
        value = value[0] if value else []
    return sizes
