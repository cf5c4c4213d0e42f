"""Post-hoc calibrators here and in other packages: quality on real predictions, and speed.

    python benchmarks/posthoc.py NAME.npz ... [--speed temperature ...] [--classes 10 ...]

Each file holds `logits` and `labels` of images that the network has not seen. Quality: fitted on
one half (even rows) and measured on the other, and the other way round; means of both. Speed: the
fit and the prediction of 1,000 rows, of 50,000 made-up rows, in seconds of one thread's processor
time, which other work on the machine changes little; a calibrator's packages run one after the
other, the median of three where it takes less than a second. What takes longer than --limit seconds
is stopped there, and the page says so. With --speed and --classes those are timed again, and with
no file the quality stays: the other rows are kept. Writes results/posthoc.json and .md.
"""

import argparse
import json
import logging
import resource
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from posthoc_peers import PEERS, Predict, scikit_matrix

from maccal.calibration import FAMILY
from maccal.calibration.posthoc.dirichlet import SHARES
from maccal.io import write
from maccal.metrics import softmax, summary

PROJECT = Path(__file__).parent.parent
ROWS = 50_000
NEW = 1_000
LIMIT = 300
OURS = "maccal"
PACKAGES = ("scikit-learn", "netcal", "probmetrics", "betacal", "venn-abers")
Row = dict[str, Any]


def our_fit(name: str, **choices: Any) -> Callable[[np.ndarray, np.ndarray], Predict]:
    """Ours, from the same probabilities as the peers."""

    def fit(probs: np.ndarray, labels: np.ndarray) -> Predict:
        return FAMILY[name](inputs="probs", **choices).fit(probs, labels).predict_proba

    return fit


def timed(name: str, classes: int) -> dict[str, Callable[[np.ndarray, np.ndarray], Predict]]:
    """Dirichlet with a given strength, the first that is tried: one fit, as its peer."""
    if name != "Dirichlet":
        return candidates(name)
    share = SHARES[0]
    ours = our_fit(name, off_diagonal=share * classes * (classes - 1))
    return {OURS: ours, "scikit-learn": scikit_matrix(share)}


def candidates(name: str) -> dict[str, Callable[[np.ndarray, np.ndarray], Predict]]:
    return {OURS: our_fit(name), **PEERS[name]}


def measured(p: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    found = summary(p / p.sum(1, keepdims=True), labels)
    return {name: float(found[name]) for name in ("accuracy", "ece", "nll", "brier")}


def halves(fit: Callable[[np.ndarray, np.ndarray], Predict], p: np.ndarray, y: np.ndarray) -> Row:
    """Means over both halves, and the seconds of one fit and prediction."""
    rows, seconds = [], []
    for half in (0, 1):
        start = time.process_time()
        new = fit(p[half::2], y[half::2])(p[1 - half :: 2])
        seconds.append(time.process_time() - start)
        rows.append(measured(new, y[1 - half :: 2]))
    means = {key: statistics.fmean(row[key] for row in rows) for key in rows[0]}
    return {**means, "seconds": statistics.fmean(seconds)}


def quality(path: Path) -> list[Row]:
    arrays = np.load(path)
    p = softmax(arrays["logits"].astype(np.float64))
    y = arrays["labels"]
    what = {"network": path.stem, "classes": p.shape[1], "rows": len(p)}
    found = [{**what, "name": "as trained", "package": "", **halves(untouched, p, y)}]
    for name in FAMILY:
        for package, fit in candidates(name).items():
            row = {**what, "name": name, "package": package}
            try:
                row |= halves(fit, p, y)
            except Exception as error:  # a peer may fail in any way; the page says so
                row["failed"] = f"{type(error).__name__}: {error}"[:120]
            print(row, flush=True)
            found.append(row)
    return found


def untouched(probs: np.ndarray, labels: np.ndarray) -> Predict:
    return lambda new: new


def made_up(classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are too sure, of ROWS rows."""
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=ROWS)
    logits = 2 * rng.normal(size=(ROWS, classes))
    logits[np.arange(ROWS), labels] += 2 + np.log(classes)
    return softmax(1.5 * logits), labels


def seconds_of(fit: Callable[[np.ndarray, np.ndarray], Predict], p: np.ndarray, y: Any) -> float:
    taken: list[float] = []
    while len(taken) < 3 and (not taken or taken[0] < 1):
        start = time.process_time()
        fit(p, y)(p[:NEW])
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def timed_alone(answer: Connection, limit: int, *given: Any) -> None:
    """In a process of its own, which the system ends after `limit` seconds of processor time."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    try:
        answer.send({"seconds": seconds_of(*given)})
    except Exception as error:  # a peer may fail in any way; the page says so
        answer.send({"failed": f"{type(error).__name__}: {error}"[:120]})


def seconds_or_limit(limit: int, *given: Any) -> Row:
    """What it took, why it failed, or the limit that it went over."""
    fork = get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=timed_alone, args=(theirs, limit, *given))
    process.start()
    theirs.close()
    try:
        found: Row = ours.recv()
    except EOFError:
        found = {"over": limit}
    process.join()
    return found


def warmed_up(names: list[str]) -> None:
    """Imports and compilation are not timed."""
    p, y = made_up(5)
    for name in names:
        for fit in timed(name, 5).values():
            fit(p[:500], y[:500])


def speed(sizes: list[int], names: list[str], limit: int) -> Iterator[Row]:
    warmed_up(names)
    for classes in sizes:
        p, y = made_up(classes)
        for name in names:
            for package, fit in timed(name, classes).items():
                row: Row = {"name": name, "package": package, "classes": classes}
                row |= seconds_or_limit(limit, fit, p, y)
                print(row, flush=True)
                yield row


def quality_table(rows: list[Row]) -> list[str]:
    lines = ["| calibrator | package | accuracy % | ECE % | NLL | Brier | s |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in rows:
        start = f"| {row['name']} | {row['package']} |"
        if "failed" in row:
            lines.append(f"{start} failed: {row['failed']} | | | | |")
            continue
        numbers = f"{100 * row['accuracy']:.2f} | {100 * row['ece']:.2f} | {row['nll']:.4f}"
        lines.append(f"{start} {numbers} | {row['brier']:.4f} | {row['seconds']:.3f} |")
    return lines


def took(row: Row) -> str:
    """The seconds, in words where they are not known."""
    if "seconds" in row:
        return f"{row['seconds']:.3f}"
    if "over" in row:
        return f"more than {row['over']}"
    return "failed" if "failed" in row else "not run"


def speed_line(name: str, classes: int, rows: list[Row]) -> str:
    """One line: ours, every peer, and how much faster ours is than the fastest of them."""
    here = [row for row in rows if (row["name"], row["classes"]) == (name, classes)]
    ours = {row["package"]: row for row in here}.get(OURS, {})
    others = [row for row in here if row["package"] != OURS]
    peers = ", ".join(f"{row['package']} {took(row)}" for row in others) or "not run"
    shown = f"{name} (clock)" if any(row.get("clock") for row in here) else name
    return (
        f"| {shown} | {classes:,} | {took(ours)} | {peers} | {times_faster(name, ours, others)} |"
    )


def at_least(row: Row) -> float:
    """Seconds that it took, or after which it was stopped."""
    return float(row["seconds"] if "seconds" in row else row["over"])


def times_faster(name: str, ours: Row, others: list[Row]) -> str:
    """At least that, where the fastest peer was stopped."""
    known = [row for row in others if "failed" not in row]
    if not known or "seconds" not in ours:
        return ""
    fastest = min(known, key=at_least)
    times = at_least(fastest) / ours["seconds"]
    words = f"{times:.1f}x" if "seconds" in fastest else f"> {times:.1f}x"
    return f"**{words}**" if times >= (3 if name == "temperature" else 1) else f"{words}, missed"


def page(record: dict[str, Any]) -> str:
    lines = ["# Post-hoc calibrators, here and elsewhere", "", record["setting"], ""]
    networks = list(dict.fromkeys(row["network"] for row in record["quality"]))
    for network in networks:
        rows = [row for row in record["quality"] if row["network"] == network]
        lines += [f"## {network}: {rows[0]['rows']:,} rows x {rows[0]['classes']} classes", ""]
        lines += [*quality_table(rows), ""]
    lines += ["## Seconds for 50,000 rows", "", record["speed_setting"], ""]
    lines += ["| calibrator | classes | maccal | peers | fastest peer / maccal |"]
    lines += ["|---|---|---|---|---|"]
    for name in FAMILY:
        for classes in sorted({row["classes"] for row in record["speed"]}):
            lines.append(speed_line(name, classes, record["speed"]))
    return "\n".join([*lines, "", record["peers"], ""])


SETTINGS = {
    "setting": "Fitted on one half of the rows and measured on the other, both ways, means. "
    "ECE with 15 bins. An NLL of inf is a label that was given the probability 0. Seconds of "
    "processor time, of one fit and prediction. Dirichlet's peer is a logistic regression at its "
    "default strength; ours is chosen by cross-validation.",
    "speed_setting": "Fit, and prediction of 1,000 rows; float64 probabilities; seconds of one "
    "thread's processor time, the packages of a line one after the other. What took longer than "
    "is said was stopped there. (clock): seconds by the clock, of an earlier run. The target is "
    "1x, and 3x for the temperature. Dirichlet has a given strength (choosing it by "
    "cross-validation is several fits more), and its peer, a logistic regression that holds the "
    "diagonal too, has the same.",
}


def main(paths: list[Path], names: list[str], sizes: list[int], limit: int) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable()
    old = PROJECT / "results" / "posthoc.json"
    record: dict[str, Any] = {"quality": [], "speed": []}
    if old.exists():
        record = json.loads(old.read_text())
    record |= SETTINGS
    record["peers"] = "Peers: " + ", ".join(f"{name} {version(name)}" for name in PACKAGES) + "."
    if paths:
        record["quality"] = []
    for path in paths:
        record["quality"] += quality(path)
        save(record)
    again = [(name, classes) for name in names for classes in sizes]
    record["speed"] = [row for row in record["speed"] if (row["name"], row["classes"]) not in again]
    for row in speed(sizes, names, limit):
        record["speed"].append(row)
        save(record)
    save(record)


def save(record: dict[str, Any]) -> None:
    write(PROJECT / "results" / "posthoc.json", json.dumps(record, indent=1) + "\n")
    write(PROJECT / "results" / "posthoc.md", page(record))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--speed", nargs="*", default=list(FAMILY), choices=list(FAMILY))
    parser.add_argument("--classes", nargs="*", type=int, default=[10, 100, 1000])
    parser.add_argument("--limit", type=int, default=LIMIT)
    given = parser.parse_args()
    main(given.files, given.speed, given.classes, given.limit)
