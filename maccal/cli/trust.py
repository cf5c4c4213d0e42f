"""The verb `maccal trust`: sets with a coverage, answers with a risk, classes and groups."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import tyro
from rich.table import Table
from rich.text import Text

from maccal.cli.output import answer, note, tell
from maccal.cli.reading import READING, Reading
from maccal.cli.tasks import text_table
from maccal.evaluation.arrays import load_npy
from maccal.evaluation.predictions import Predictions
from maccal.evaluation.trusting import Trust, trust_in
from maccal.io import FileError, check_folder, write, write_json
from maccal.metrics import Listing
from maccal.report.sections import SET_HEADINGS, answered_words, set_lines, trust_page
from maccal.trust.scores import Method

MOST = 12  # classes or groups that the terminal lists; the page has all


def trust(
    file: tyro.conf.Positional[Path],
    coverage: float = 0.9,
    methods: tuple[Method, ...] = ("thr", "aps", "raps"),
    deterministic: bool = False,
    per_class: bool = False,
    risk: float = 0.01,
    delta: float = 0.05,
    groups: Path | None = None,
    test: Path | None = None,
    reading: tyro.conf.OmitArgPrefixes[Reading] = READING,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Sets that hold the label, answers with a bounded risk, and calibration by class and group.

    Fitted on a random half of the rows and measured on the other.

    Args:
        file: held-out logits or probs, and labels, as for evaluate; or - for standard input.
        coverage: share of conformal sets that must hold the label, 0 to 1.
        methods: kinds of sets: thr (small), aps (adaptive), raps (adaptive, never very large).
        deterministic: sets of aps and raps without random numbers: far larger.
        per_class: reach the coverage in every class, with larger sets.
        risk: share of answers that may be wrong, 0 to 1; rows beyond it are not answered.
        delta: chance that the promise about the risk fails, 0 to 1.
        groups: a .npy file with the name or number of each row's group (with --test: of the rows of
            both files, one after the other).
        test: a second file, to measure on; then all rows of the first are fitted on.
        reading: how files are read.
        bins: number of bins of ECE.
        resamples: number of draws behind the intervals and tests.
        seed: number that settles halves, draws and randomised sets.
        out: folder for <name>.trust.json and <name>.trust.html; by default nothing is written.
    """
    check_methods(methods, deterministic)
    if out is not None:
        check_folder(out)
    said = reading.read(file)
    other = None if test is None else second(test, reading, said)
    found = trust_in(
        said,
        other,
        coverage=coverage,
        methods=methods,
        deterministic=deterministic,
        per_class=per_class,
        risk=risk,
        delta=delta,
        groups=None if groups is None else group_names(groups),
        bins=bins,
        resamples=resamples,
        seed=seed,
    )
    settings = {
        "file": reading.named(file).name,
        "bins": bins,
        "resamples": resamples,
        "seed": seed,
    }
    values = settings | found.record()
    show_trust(found)
    answer(values)
    if out is not None:
        page = write(out / f"{said.name}.trust.html", trust_page(found, values))
        written = write_json(out / f"{said.name}.trust.json", "trust 1", values)
        for path in (page, written):
            note(f"wrote {path}")


def check_methods(methods: tuple[Method, ...], deterministic: bool) -> None:
    """ValueError for methods that are missing, double, or a flag that does not apply."""
    if not methods or len(set(methods)) < len(methods):
        raise ValueError("--methods names none, or one twice; choose from thr, aps, raps")
    if deterministic and set(methods) == {"thr"}:
        raise ValueError("--deterministic does not apply to thr, which always is; leave it out")


def second(test: Path, reading: Reading, first: Predictions) -> Predictions:
    """The rows to measure on, which must have the same classes."""
    if reading.labels is not None:
        raise ValueError("--labels is for one bare array; with --test save labels in both files")
    other = replace(reading, kind=first.kind).read(test)
    if other.scores.shape[1:] != first.scores.shape[1:]:
        problem = f"scores of shape {other.scores.shape}, and {first.name} has"
        raise FileError(test, f"{problem} {first.scores.shape}; the classes must be the same")
    return other


def group_names(path: Path) -> np.ndarray:
    """One name or number per row."""
    if path.suffix.lower() != ".npy":
        raise FileError(path, "groups are a .npy array: np.save('groups.npy', names)")
    return load_npy(path)


def show_trust(found: Trust) -> None:
    """Tables for the terminal."""
    rows = f"fitted on {found.fitted_on:,} rows, measured on {found.measured_on:,} others"
    tell(Text(f"{found.name}: {rows}", style="bold"), "")
    tell(text_table(SET_HEADINGS, set_lines(found)), "")
    for made, measured in zip(found.sets, found.measured_sets, strict=True):
        worst = min(measured["classes"], key=lambda line: line["coverage"])
        words = f"{made.method.upper()}: of the classes {worst['class']} is covered least, "
        tell(f"{words}{100 * worst['coverage']:.2f} % of {worst['rows']:,} rows")
    tell("", found.answers.verdict_, answered_words(found.measured_answers), "")
    show_lines("by predicted class", found.classes)
    if found.groups is not None:
        show_lines("by group", found.groups)


def show_lines(title: str, listing: Listing) -> None:
    """The table, cut to the lines with the smallest p-values where it is long."""
    shown = listing
    cut = ""
    if len(listing) > MOST:
        order = sorted(listing, key=lambda line: line["p_value"])
        shown = Listing(order[:MOST], listing.columns)
        cut = f", {MOST} of {len(listing)} with the smallest p-values; --out has all"
    tell(Text(f"Calibration {title}{cut}", style="bold"))
    tell(text_lines(str(shown)), "")


def text_lines(text: str) -> Table:
    """Lines that are aligned already, as a table that is never wrapped."""
    lines = Table.grid()
    for line in text.splitlines():
        lines.add_row(Text(line, no_wrap=True))
    return lines
