"""Streams a billion rows through maccal.metrics.Stream, and measures speed and memory.

    load(seed, count, tally)    `count` rows, ten classes, in batches of a million

A few batches are made once and seen again and again, so that the right answer is known: that of the
few. Outcomes: same (every row counted, the numbers right, memory constant), silent (other numbers),
wrong (memory grew), crash."""

import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

from faults.sandbox import forked, waited, workspace
from faults.tally import Outcome, Tally

BATCH, CLASSES, DISTINCT = 1_000_000, 10, 4
GROWTH = 64 << 20  # bytes that memory may grow between the first hundredth of the rows and the end
NAMES = ("accuracy", "ece", "mce", "nll", "brier")
PATIENCE = 3600.0


def batches(seed: int, rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    found = []
    for number in range(DISTINCT):
        rng = np.random.default_rng([seed, number])
        probs = rng.dirichlet(np.ones(CLASSES), rows).astype(np.float32)
        found.append((probs, rng.integers(0, CLASSES, rows)))
    return found


def streamed(seed: int, count: int) -> dict[str, Any]:
    """Peak memory early and at the end, the seconds, and the numbers of all rows and of the few."""
    from maccal.metrics import Stream

    size = min(BATCH, max(1, count // DISTINCT))
    few = batches(seed, size)
    once = sum((Stream.of(*batch) for batch in few), Stream.empty())
    total, rows, early = Stream.empty(), 0, 0
    rounds = -(-count // (size * DISTINCT))
    began = time.monotonic()
    for number in range(rounds):
        for probs, labels in few:
            total += Stream.of(probs, labels)
            rows += len(labels)
        if number <= rounds // 100:
            once.summary(interval=True, resamples=100)
            early = peak()
    found = total.summary(interval=True, resamples=100)
    seconds = time.monotonic() - began
    wanted = once.summary()
    return {
        "rows": rows,
        "counted": int(found["n"]),
        "seconds": seconds,
        "early": early,
        "peak": peak(),
        "found": {name: float(found[name]) for name in NAMES},
        "wanted": {name: float(wanted[name]) for name in NAMES},
    }


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def judged(record: dict[str, Any]) -> tuple[str, str]:
    if record["counted"] != record["rows"]:
        return "silent", f"{record['counted']:,} rows counted of {record['rows']:,}"
    for name in NAMES:
        found, wanted = record["found"][name], record["wanted"][name]
        if not abs(found - wanted) <= 1e-9 * max(1, abs(wanted)):
            return "silent", f"{name} is {found!r}, not {wanted!r}"
    grown = record["peak"] - record["early"]
    return ("wrong", f"memory grew by {grown / 1e6:.0f} MB") if grown > GROWTH else ("same", "")


def load(seed: int, count: int, tally: Tally) -> None:
    place = workspace()
    file: Path = place / "record.json"
    code = waited(
        forked(lambda: file.write_text(json.dumps(streamed(seed, count))) and 0, quiet=False),
        PATIENCE,
    )
    if code != 0:
        tally.add(Outcome("Stream", "crash", f"seed {seed}, {count:,} rows: exit code {code}"))
        return
    record = json.loads(file.read_text())
    word, why = judged(record)
    tally.add(Outcome("Stream", word, f"seed {seed}, {count:,} rows: {why}" if why else ""))
    tally.figures |= {
        "rows": record["rows"],
        "rows per second": round(record["rows"] / record["seconds"]),
        "peak megabytes": round(record["peak"] / 1e6),
        "megabytes grown": round((record["peak"] - record["early"]) / 1e6),
    }
