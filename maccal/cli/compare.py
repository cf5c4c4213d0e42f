"""The verb `maccal compare`: the post-hoc calibrators on the predictions of a file."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tyro
from rich.table import Table
from rich.text import Text

from maccal.cli.output import answer, note, tell
from maccal.cli.printing import right_aligned
from maccal.cli.reading import READING, Reading
from maccal.evaluation.arrays import load_npz
from maccal.evaluation.choice import COMPARED, HEAD, Candidate, Choice
from maccal.evaluation.choosing import SECONDS, compare_calibrators
from maccal.io import check_folder, write_json
from maccal.metrics import Difference


def compare(
    file: tyro.conf.Positional[Path],
    calibrators: tuple[str, ...] = (),
    reading: tyro.conf.OmitArgPrefixes[Reading] = READING,
    folds: int = 5,
    repeats: int = 1,
    seconds: float = SECONDS,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Cross-fit every post-hoc calibrator on held-out predictions, and say which to use.

    Args:
        file: logits or probs, and labels, as for evaluate, or - for standard input; an .npz file
            may have the features z of the same rows too, and then MaC-Cal on features takes part.
        calibrators: names of those to compare, such as temperature "structured matrix"; by default
            all that take no longer than --seconds.
        reading: how files are read.
        folds: number of parts; each is predicted by calibrators that were fitted on the others.
        repeats: number of ways to split the rows into folds; beyond the first they only say what
            they would advise.
        seconds: that the fits of a calibrator may take, about; what would take longer is left out,
            and named.
        bins: number of bins of ECE.
        resamples: number of draws behind the intervals and tests.
        seed: number that settles folds and draws.
        out: folder for <name>.compare.json; by default nothing is written.
    """
    if out is not None:
        check_folder(out)
    said = reading.read(file)
    z = load_npz(file, ("z",)).get("z") if file.suffix.lower() == ".npz" else None
    choice = compare_calibrators(
        said.scores,
        said.labels,
        inputs=said.kind,
        z=z,
        names=calibrators or None,
        folds=folds,
        repeats=repeats,
        seconds=seconds,
        bins=bins,
        resamples=resamples,
        seed=seed,
    )
    settings = {"folds": folds, "repeats": repeats, "bins": bins, "resamples": resamples}
    settings["seed"] = seed
    values = {"file": reading.named(file).name, **settings, **record(choice)}
    tell(choice_table(choice), "")
    for words in choice.notes():
        tell(words)
    answer(values)
    if out is not None:
        written = write_json(out / f"{said.name}.compare.json", "comparison 1", values)
        note(f"wrote {written}")


def choice_table(choice: Choice) -> Table:
    """One line per calibrator, the one to use in bold."""
    result = Table(*HEAD, box=None, pad_edge=False)
    for name, *cells in choice.lines():
        result.add_row(Text(name, style="bold" if name == choice.use else ""), *cells)
    return right_aligned(result)


def record(choice: Choice) -> dict[str, Any]:
    """Plain values; what JSON cannot say, infinity and NaN, is None."""
    return {
        "best": choice.best,
        "use": choice.use,
        "advice": choice.advice,
        "rows": [plain_row(one) for one in choice.candidates],
        "failed": dict(choice.failed),
        "votes": dict(choice.votes),
    }


def plain_row(one: Candidate) -> dict[str, Any]:
    row: dict[str, Any] = {"name": one.name}
    for key in COMPARED:
        for part in (key, f"{key}_low", f"{key}_high"):
            row[part] = plain_number(one.numbers[part])
    row["from_best"] = plain_tests(one.from_best)
    row["from_temperature"] = plain_tests(one.from_temperature)
    return row


def plain_tests(tested: Mapping[str, Difference]) -> dict[str, dict[str, float | None]]:
    found = {}
    for key, difference in tested.items():
        parts = difference._asdict()
        found[key] = {name: plain_number(value) for name, value in parts.items()}
    return found


def plain_number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
