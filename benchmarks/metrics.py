"""How fast is ECE? Ours against every package we know, and against one read of the array, in one
run.

    make bench            # or: python benchmarks/metrics.py [--quick]; five minutes on two cores

Each (package, size) runs in its own process on the same generated probabilities: one warm-up, then
the median of the repeats. Peak memory is how far the process rises above the input during the first
call. Every package gets probabilities and labels in the array type it asks for and does the whole
job, its own checks included: from N x K numbers to one ECE with 15 bins. Writes results/metrics.md
and results/metrics.json.
"""

import argparse
import json
import math
import multiprocessing
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from maccal.io import write

SIZES = [(1_000_000, 10), (100_000, 100), (1_000_000, 100), (50_000, 1000)]
RESULTS = Path(__file__).parent.parent / "results"
BINS = 15
Job = Callable[[], float]


def data(rows: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of an overconfident classifier that is right about three times in four, and
    labels.
    """
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(classes, (rows,), generator=generator)
    logits = torch.randn(rows, classes, generator=generator)
    logits[torch.arange(rows), labels] += math.sqrt(2 * math.log(classes)) + 1
    return torch.softmax(2.5 * logits, 1), labels


def read_pass(probs: torch.Tensor, labels: torch.Tensor) -> Job:
    return lambda: float(probs.sum())


def maccal(probs: torch.Tensor, labels: torch.Tensor) -> Job:
    from maccal.metrics import ece, top_label

    return lambda: ece(*top_label(probs, labels), BINS)


def torchmetrics(probs: torch.Tensor, labels: torch.Tensor) -> Job:
    from torchmetrics.functional.classification import multiclass_calibration_error

    return lambda: float(multiclass_calibration_error(probs, labels, probs.shape[1], n_bins=BINS))


def torch_uncertainty(probs: torch.Tensor, labels: torch.Tensor) -> Job:
    from torch_uncertainty.metrics import CalibrationError

    def job() -> float:
        metric = CalibrationError(task="multiclass", num_classes=probs.shape[1], num_bins=BINS)
        metric.update(probs, labels)
        return float(metric.compute())

    return job


def netcal(probs: torch.Tensor, labels: torch.Tensor) -> Job:
    from netcal.metrics import ECE

    p, y = probs.numpy(), labels.numpy()
    return lambda: float(ECE(bins=BINS).measure(p, y))


def probmetrics(probs: torch.Tensor, labels: torch.Tensor) -> Job:
    from probmetrics.distributions import CategoricalDirac, CategoricalProbs
    from probmetrics.metrics import CalibrationError

    def job() -> float:
        truth = CategoricalDirac(labels, probs.shape[1])
        return float(CalibrationError(n_bins=BINS).compute(truth, CategoricalProbs(probs)))

    return job


def relplot(probs: torch.Tensor, labels: torch.Tensor) -> Job:
    from relplot.metrics import binnedECE, multiclass_logits_to_confidences

    p, y = probs.numpy(), labels.numpy()
    return lambda: float(binnedECE(*multiclass_logits_to_confidences(p, y, probs=True), nbins=BINS))


def scikit_learn(probs: torch.Tensor, labels: torch.Tensor) -> Job:
    from sklearn.calibration import calibration_curve

    p, y = probs.numpy(), labels.numpy()

    # calibration_curve gives the two means of each bin; the weights are the caller's to count
    def job() -> float:
        confidence = p.max(1)
        fraction, mean = calibration_curve(p.argmax(1) == y, confidence, n_bins=BINS)
        count = np.histogram(confidence, BINS, (0, 1))[0]
        return float(np.abs(fraction - mean) @ count[count > 0] / len(p))

    return job


PACKAGES = [
    read_pass,
    maccal,
    torchmetrics,
    torch_uncertainty,
    netcal,
    probmetrics,
    relplot,
    scikit_learn,
]


def memory(field: str) -> int:
    """A line of /proc/self/status, in bytes; 0 where there is no such file."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(field + ":")), 0)


def measure(
    package: str, size: tuple[int, int], repeats: int, send: "multiprocessing.connection.Connection"
) -> None:
    warnings.simplefilter("ignore")
    # two peers import torchvision, whose wheel does not load without CUDA
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    job = next(p for p in PACKAGES if p.__name__ == package)(*data(*size))
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")  # start the high-water mark anew
    before = memory("VmRSS")
    value = job()
    peak = max(0, memory("VmHWM") - before)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - start)
    send.send(
        {
            "value": value,
            "seconds": statistics.median(seconds),
            "best": min(seconds),
            "peak_bytes": peak,
        }
    )


def run(package: str, size: tuple[int, int], repeats: int) -> dict[str, float]:
    receive, send = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=measure, args=(package, size, repeats, send)
    )
    process.start()
    send.close()
    try:
        return receive.recv()
    except EOFError:
        return {"value": math.nan, "seconds": math.nan, "best": math.nan, "peak_bytes": math.nan}
    finally:
        process.join()


def interval_seconds(rows: int) -> float:
    """1,000 resamples of the bootstrap and of the null band, of every top-label statistic."""
    from maccal.metrics import resample

    rng = np.random.default_rng(1)
    confidence = rng.beta(8, 1, rows)
    correct = rng.random(rows) < confidence**1.3
    resample(confidence, correct)
    start = time.perf_counter()
    resample(confidence, correct)
    return time.perf_counter() - start


def table(rows: list[dict], intervals: dict[str, float]) -> str:
    names = [p.__name__ for p in PACKAGES]
    cell = {(r["package"], r["rows"], r["classes"]): r for r in rows}
    apart = max(
        abs(r["value"] - cell["maccal", r["rows"], r["classes"]]["value"])
        for r in rows
        if r["package"] != "read_pass"
    )
    took = "; ".join(f"{name} rows {1e3 * seconds:.0f} ms" for name, seconds in intervals.items())
    packages = [f"{p.replace('_', '-')} {version(p.replace('_', '-'))}" for p in names[2:]]
    lines = [
        "# ECE: time and memory",
        "",
        f"`python benchmarks/metrics.py`, {torch.get_num_threads()} threads,"
        f" torch {version('torch')}, float32, 15 bins.",
        "Milliseconds (median of the repeats; all sizes and packages one after the other in one"
        " run) and, in brackets, the peak",
        "memory above the input in MB. `read_pass` is `probs.sum()`:"
        " the least that anything costs that looks at every number.",
        "",
        "| N x K | " + " | ".join(names) + " | best peer / maccal | maccal / read pass |",
        "|---" * (len(names) + 3) + "|",
    ]
    for n, k in SIZES:
        here = [cell[name, n, k] for name in names]
        best_peer = min(r["seconds"] for r in here[2:] if not math.isnan(r["seconds"]))
        cells = [f"{1e3 * r['seconds']:.1f} ({r['peak_bytes'] / 1e6:.0f})" for r in here]
        ours = here[1]["seconds"]
        ratios = f"**{best_peer / ours:.1f}x** | {ours / here[0]['seconds']:.2f}x"
        lines.append(f"| {n:,} x {k} | " + " | ".join(cells) + f" | {ratios} |")
    lines += [
        "",
        f"Intervals: 1,000 bootstrap and 1,000 null resamples of nine statistics: {took}.",
        "",
        f"Peers: {', '.join(packages)}."
        " scikit-learn has no ECE: its column is `calibration_curve` plus what a user adds.",
        f"The values differ from ours by up to {apart:.1e}, where sums are kept in float32.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three repeats instead of fifteen")
    repeats = 3 if parser.parse_args().quick else 15
    rows = []
    for n, k in SIZES:
        for package in PACKAGES:
            r = run(package.__name__, (n, k), repeats)
            rows.append({"package": package.__name__, "rows": n, "classes": k, **r})
            numbers = (
                f"{1e3 * r['seconds']:9.1f} ms {r['peak_bytes'] / 1e6:8.0f} MB  {r['value']:.6f}"
            )
            print(f"{n:>9,} x {k:<5} {package.__name__:<18}{numbers}", flush=True)
    intervals = {f"{n:,}": interval_seconds(n) for n in (10_000, 1_000_000)}
    text = table(rows, intervals)
    machine = {
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
    }
    record = {"machine": machine, "repeats": repeats, "rows": rows, "interval_seconds": intervals}
    write(RESULTS / "metrics.md", text)
    write(RESULTS / "metrics.json", json.dumps(record, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
