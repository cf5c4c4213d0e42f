"""The alarms of a monitor, simulated and on a real network: false alarms, delays, and the accuracy
to expect.

    python benchmarks/monitor.py SHARED build/networks [PART ...]

SHARED holds data/unpack and data/nets; about six minutes of one core. PART is one of PARTS; without
any, all are run. Simulated: confidences are Beta(6, 1.2), at least 0.1, and outcomes are drawn from
them; a shift takes that much off the log-odds of being right. There is a look after every batch of
50 rows, and once after every row. Beside it stands the usual test for one look, |right - sum of
confidences| over its standard deviation, at 5 % in every look (peeking) and at 5 % over the number
of looks (Bonferroni). Real: the public ResNet-20 on CIFAR-10, with a temperature from 2,500 test
images and a reference of 2,500 others; then 2,500 clean images, then 2,500 corrupted ones. Writes
results/monitor.json and results/monitor.md.
"""

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from monitor_page import Row, page
from networks import cifar, normalised, public
from scipy.special import ndtri

from maccal.calibration.posthoc.temperature import TemperatureScaling
from maccal.data.corruptions import Corrupt
from maccal.io import write
from maccal.metrics import Bins
from maccal.metrics.binning import settled
from maccal.metrics.sketch import fine_grid
from maccal.monitoring import Monitor, Settings
from maccal.monitoring.alarms import Accuracy, Calibration, Drift
from maccal.monitoring.cells import Cells
from maccal.monitoring.expected import expected_accuracy
from maccal.monitoring.measured import wilson

PROJECT = Path(__file__).parent.parent
ALPHA = 0.05
BATCH = 50
BINS = 15
EDGES = fine_grid(BINS).edges
TICK = 2.0**26
SEED = 0
STREAMS = 2_000  # of each null hypothesis
LOOKS = 100  # at each
SHIFTS = (0.2, 0.4, 0.8)  # of the log-odds
QUIET = (0, 40)  # batches before the shift
DELAYED = 200  # streams of each shift
MOST = 400  # batches after which a shift counts as not noticed
CORRUPTIONS = ("gaussian_noise", "fog", "jpeg_compression")


def confidences(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.clip(rng.beta(6, 1.2, rows), 0.1, 1)


def chances(confidence: np.ndarray, shift: float) -> np.ndarray:
    """Of being right, after a shift of the log-odds."""
    return confidence / (confidence + (1 - confidence) * math.exp(shift))


def cells_of(confidence: np.ndarray, correct: np.ndarray) -> Cells:
    """What Cells.of gives, without its checks; `main` compares them."""
    index = np.searchsorted(EDGES[1:-1], confidence, side="right")
    filled, where = np.unique(index, return_inverse=True)
    scaled = confidence * TICK
    high = np.floor(scaled)
    columns = (
        np.ones(len(index)),
        correct.astype(float),
        high,
        np.round((scaled - high) * TICK),
        np.zeros(len(index)),
    )
    sums = np.stack([np.bincount(where, column) for column in columns])
    return Cells(filled, settled(sums))


Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def drawn(shift: float = 0.0, gap: float = 0.0, rows: int = BATCH) -> Draw:
    """A batch whose chance of being right is off by a shift of its log-odds, or by a gap."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        confidence = confidences(rng, rows)
        chance = np.clip(chances(confidence, shift) - gap, 0, 1)
        return confidence, rng.random(rows) < chance

    return draw


def first_alarm(alarm: Any, batches: Iterator[tuple[np.ndarray, np.ndarray]]) -> int | None:
    """The number of the first batch at which it fires."""
    for number, (confidence, correct) in enumerate(batches):
        if alarm.told(cells_of(confidence, correct)) >= alarm.threshold:
            return number
    return None


class Peeking:
    """The test for one look, at every look."""

    def __init__(self, level: float) -> None:
        self.threshold = float(ndtri(1 - level / 2))
        self.gap = 0.0
        self.variance = 0.0

    def told(self, cells: Cells) -> float:
        known = Bins(np.zeros(0), cells.sums, cells.rows)
        mean = known.confidence / known.count
        self.gap += float(known.correct.sum() - known.confidence.sum())
        self.variance += float(known.count @ (mean * (1 - mean)))
        return abs(self.gap) / math.sqrt(self.variance)


class Drifting(Drift):
    """The drift alarm with a reference of its own, drawn anew for each stream."""

    def __init__(self, rng: np.random.Generator, rows: int = 2_000) -> None:
        confidence = confidences(rng, rows)
        reference = cells_of(confidence, np.zeros(rows, bool))
        super().__init__(Settings(ALPHA, 0.0, None, BINS, reference), reference)


def mean_accuracy() -> float:
    """Of a calibrated stream: the mean confidence of many rows."""
    return float(confidences(np.random.default_rng(99), 4_000_000).mean())


Maker = Callable[[np.random.Generator], Any]


class Case(NamedTuple):
    """An alarm, and streams for which its null hypothesis holds, exactly or at its edge."""

    name: str
    maker: Maker
    draw: Draw
    looks: int = LOOKS


def cases() -> list[Case]:
    accuracy = mean_accuracy()
    settings = Settings(ALPHA, 0.0)
    near = Settings(ALPHA, 0.02)
    return [
        Case("calibration", lambda rng: Calibration(settings), drawn()),
        Case(
            "calibration, a look after every row",
            lambda rng: Calibration(settings),
            drawn(rows=1),
            300,
        ),
        Case(
            "calibration, 2 points off, tolerance 2 points",
            lambda rng: Calibration(near),
            drawn(gap=0.02),
        ),
        Case("accuracy, exactly the least", lambda rng: Accuracy(settings, accuracy), drawn()),
        Case("drift, reference of 2,000 rows", Drifting, drawn()),
        Case("test for one look, peeking", lambda rng: Peeking(ALPHA), drawn()),
        Case("test for one look, Bonferroni", lambda rng: Peeking(ALPHA / LOOKS), drawn()),
    ]


def false_alarms() -> list[Row]:
    """The share of streams in which an alarm ever fires."""
    found = []
    for number, case in enumerate(cases()):
        start = time.process_time()
        count = 0
        for stream in range(STREAMS):
            rng = np.random.default_rng((SEED, number, stream))
            batches = (case.draw(rng) for _ in range(case.looks))
            count += first_alarm(case.maker(rng), batches) is not None
        low, high = wilson(count, STREAMS)
        row = {"name": case.name, "streams": STREAMS, "looks": case.looks, "alarms": count}
        row |= {"share": count / STREAMS, "low": low, "high": high}
        print(row, f"{time.process_time() - start:.0f} s", flush=True)
        found.append(row)
    return found


def delays() -> list[Row]:
    """Rows from a shift to the alarm; those that alarmed before it are counted apart."""
    looks = MOST + max(QUIET)
    makers: dict[str, Maker] = {
        "calibration": lambda rng: Calibration(Settings(ALPHA, 0.0)),
        "test for one look, peeking": lambda rng: Peeking(ALPHA),
        "test for one look, Bonferroni": lambda rng: Peeking(ALPHA / looks),
    }
    found = []
    for name, maker in makers.items():
        for quiet in QUIET:
            for shift in SHIFTS:
                found.append({"name": name, **delay(maker, quiet, shift)})
                print(found[-1], flush=True)
    return found


def delay(maker: Maker, quiet: int, shift: float) -> Row:
    after: list[float] = []
    early = 0
    for stream in range(DELAYED):
        rng = np.random.default_rng((SEED, quiet, int(100 * shift), stream))
        numbers = range(quiet + MOST)
        draws = [drawn(), drawn(shift)]
        batches = (draws[number >= quiet](rng) for number in numbers)
        number = first_alarm(maker(rng), batches)
        if number is not None and number < quiet:
            early += 1
        else:
            after.append(math.inf if number is None else BATCH * (number - quiet + 1))
    far = float(np.quantile(after, 0.9, method="inverted_cdf"))
    return {
        "quiet_rows": BATCH * quiet,
        "shift": shift,
        "streams": DELAYED,
        "before": early,
        "median": finite(statistics.median_low(after)),
        "nine_tenths": finite(far),
    }


def finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def coverage() -> list[Row]:
    """How often the interval of the expected accuracy holds the accuracy of the rows."""
    found = []
    for shift in (0.0, 0.4):
        held = {"reference": 0, "confidence alone": 0}
        trials = 1_000
        for trial in range(trials):
            rng = np.random.default_rng((SEED, 7, int(10 * shift), trial))
            known = confidences(rng, 2_000)
            right = rng.random(2_000) < chances(known, shift)
            asked = np.clip(rng.beta(4, 1.5, 500), 0.1, 1)  # less sure than the reference
            accuracy = float((rng.random(500) < chances(asked, shift)).mean())
            said = cells_of(asked, np.zeros(500, bool)).fine(BINS)
            reference = cells_of(known, right).fine(BINS)
            for name, given in (("reference", reference), ("confidence alone", None)):
                interval = expected_accuracy(said, BINS, given)
                held[name] += interval.low <= accuracy <= interval.high
        for name, count in held.items():
            low, high = wilson(count, trials)
            row = {"shift": shift, "from": name, "trials": trials, "held": count / trials}
            found.append({**row, "low": low, "high": high})
            print(found[-1], flush=True)
    return found


def probabilities(shared: Path, images: torch.Tensor) -> torch.Tensor:
    network = public(shared, 20)
    with torch.inference_mode():
        return torch.cat([network(normalised(part)) for part in images.split(500)]).clone()


def real(shared: Path, folder: Path) -> list[Row]:
    """The network in use, on images that become worse."""
    images, labels = cifar(shared, folder, 10)[1]
    logits = probabilities(shared, images[:7_500])
    fitting, reference, clean = logits.split(2_500)
    scaling = TemperatureScaling().fit(fitting, labels[:2_500])
    found = []
    for name in CORRUPTIONS:
        for severity in (1, 3, 5):
            worse = Corrupt(name, severity, seed=1)(images[7_500:])
            stream = torch.cat([clean, probabilities(shared, worse)])
            watched = watch(scaling, reference, stream, labels)
            found.append({"corruption": name, "severity": severity, **watched})
            print(found[-1], flush=True)
    return found


def watch(
    scaling: TemperatureScaling, reference: torch.Tensor, stream: torch.Tensor, labels: torch.Tensor
) -> Row:
    """2,500 clean images and 2,500 others, in batches, with labels; and without."""
    known = scaling.predict_proba(reference.double())
    cells = Monitor.reference(known, labels[2_500:5_000], bins=BINS)
    monitor = Monitor(Settings(ALPHA, 0.02, None, BINS, cells))
    blind = Monitor(Settings(ALPHA, 0.02, None, BINS, cells))
    probs = scaling.predict_proba(stream.double())
    truth = labels[5_000:]
    for start in range(0, len(probs), BATCH):
        part = slice(start, start + BATCH)
        monitor.add(probs[part], truth[part], name=str(start))
        if start >= 2_500:
            blind.add(probs[part], name=str(start))
    after = Monitor(Settings(ALPHA, 0.02, None, BINS, cells))
    after.add(probs[2_500:], truth[2_500:])
    measured = after.standing().known
    expected = blind.standing().expected
    assert measured is not None
    assert expected is not None
    row: Row = {"accuracy": measured.accuracy, "confidence": measured.confidence}
    row |= {"ece": measured.ece, "ece_low": measured.ece_low, "ece_high": measured.ece_high}
    row |= {"expected": expected.accuracy, "expected_low": expected.low}
    row |= {"expected_high": expected.high}
    for alarm in monitor.standing().alarms:
        row[alarm.name] = None if alarm.fired_at is None else alarm.rows - 2_500
    return row


PARTS: dict[str, Callable[[Path, Path], list[Row]]] = {
    "false_alarms": lambda shared, folder: false_alarms(),
    "delays": lambda shared, folder: delays(),
    "coverage": lambda shared, folder: coverage(),
    "real": real,
}


def main(shared: Path, folder: Path, *parts: str) -> None:
    sample = drawn()(np.random.default_rng(SEED))
    ours, package = cells_of(*sample), Cells.of(*sample, BINS)
    assert np.array_equal(ours.index, package.index)
    assert np.array_equal(ours.sums, package.sums)
    file = PROJECT / "results" / "monitor.json"
    record: Row = json.loads(file.read_text()) if parts else {}
    versions = f"numpy {np.__version__}, torch {torch.__version__}"
    record |= {"alpha": ALPHA, "batch": BATCH, "seed": SEED, "versions": versions}
    for part in parts or PARTS:
        record[part] = PARTS[part](shared, folder)
    write(file, json.dumps(record, indent=1) + "\n")
    write(file.with_suffix(".md"), page(record))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
