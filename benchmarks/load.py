"""What large inputs cost on one thread, now and before, side by side in one run.

    python benchmarks/load.py --before 42c641b   # 25 minutes on a quiet machine, --quick for 8
    python benchmarks/load.py                    # without an earlier version: half the time

`--before` names an earlier commit. It is checked out beside this one, its kernels are compiled, and
a process of its own runs it; every job runs in turns, now, before, now, before, and a ratio is the
median of the ratios of neighbours. Without the `bench` extra the peers of the temperature are left
out, and the table says so.

    summary      every metric of N x K probabilities, or logits, without intervals
    ece          top label and 15 bins; `plain` is what one writes down: max, compare, bucketize,
                 three bincounts
    temperature  TemperatureScaling.fit and its peers
    evaluate     the verb `maccal evaluate` of five million rows of ten logits, the whole process;
                 and where the time goes

A read pass is `probs.sum()`: one trip through the N x K float32 numbers. Writes results/load.md and
results/load.json.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from load_jobs import PARTS, PEERS, data

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
LOADS = [(1_000_000, 100), (50_000, 1000)]
FITS = [(50_000, 10), (50_000, 100), (50_000, 1000)]
FIVE_MILLION = (5_000_000, 10)


class Worker:
    """A process with one version of the package."""

    def __init__(self, checkout: Path) -> None:
        self.env = os.environ | {
            "PYTHONPATH": str(checkout),
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        command = [sys.executable, str(Path(__file__).with_name("load_jobs.py"))]
        self.process = subprocess.Popen(
            command,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, *request: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def evaluate(self, file: Path, out: Path) -> float:
        """Seconds of the verb, as a process of its own."""
        start = time.perf_counter()
        command = [sys.executable, "-m", "maccal", "evaluate", str(file), "--out", str(out)]
        subprocess.run(command, env=self.env, check=True, capture_output=True)
        return time.perf_counter() - start

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def turns(
    workers: dict[str, Worker], kind: str, size: tuple[int, int], names: list[str], repeats: int
) -> dict[str, Any]:
    """Every job by every version in turns, after a warm-up: the answers, in their order."""
    for worker in workers.values():
        worker.ask(kind, *size)
    seen: dict[str, Any] = {}
    for turn in range(repeats + 1):
        for name in names:
            for who, worker in workers.items():
                if name in PEERS and who != "now":
                    continue
                answer = worker.ask("run", name)
                if turn:
                    seen.setdefault(f"{who}: {name}", []).append(answer)
    return seen


def median(seen: dict[str, Any], key: str) -> float:
    return statistics.median(answer["seconds"] for answer in seen[key])


def ratio(seen: dict[str, Any], above: str, below: str) -> float:
    """The median of the ratios of neighbours in time."""
    return statistics.median(
        a["seconds"] / b["seconds"] for a, b in zip(seen[above], seen[below], strict=True)
    )


def checked_out(commit: str, folder: Path) -> Path:
    """The earlier version with its kernels compiled."""
    place = folder / "before"
    subprocess.run(
        ["git", "worktree", "add", "--detach", str(place), commit],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=place,
        check=True,
        capture_output=True,
    )
    return place


def evaluations(workers: dict[str, Worker], folder: Path, repeats: int) -> dict[str, Any]:
    logits, labels = data(*FIVE_MILLION)
    file = folder / "five.npz"
    np.savez(file, logits=logits.numpy(), labels=labels.numpy())
    seconds: dict[str, list[float]] = {who: [] for who in workers}
    for _ in range(repeats):
        for who, worker in workers.items():
            seconds[who].append(worker.evaluate(file, folder))
    return {
        "seconds": seconds,
        "parts": {who: worker.ask("profile", str(file)) for who, worker in workers.items()},
    }


def load_lines(loads: dict[str, dict[str, Any]], both: bool) -> list[str]:
    lines = [
        "| N x K | job | read passes before | read passes now | before / now |",
        "|---|---|---|---|---|",
    ]
    for size, seen in loads.items():
        for name in ("ece", "summary of probs", "summary of logits"):
            now = ratio(seen, f"now: {name}", "now: read")
            before = f"{ratio(seen, f'before: {name}', 'before: read'):.1f}" if both else ""
            gain = f"**{ratio(seen, f'before: {name}', f'now: {name}'):.1f}x**" if both else ""
            lines.append(f"| {size} | {name} | {before} | **{now:.1f}** | {gain} |")
    for size, seen in loads.items():
        faster = f"{ratio(seen, 'now: plain', 'now: ece'):.1f}"
        lines += ["", f"{size}: ECE is {faster} times as fast as max-and-bucketize."]
    return lines


def fit_lines(fits: dict[str, dict[str, Any]], both: bool) -> list[str]:
    names = [
        "now: maccal",
        *(["before: maccal"] if both else []),
        *(f"now: {peer}" for peer in PEERS),
    ]
    heads = [name.removeprefix("now: ") for name in names]
    lines = [
        "| N x K | " + " | ".join(heads) + " | fastest peer / maccal |",
        "|---" * (len(names) + 2) + "|",
    ]
    for size, seen in fits.items():
        cells = [f"{1e3 * median(seen, name):.1f} ({seen[name][0]['value']:.9f})" for name in names]
        peers = [ratio(seen, f"now: {peer}", "now: maccal") for peer in PEERS]
        fastest = min((peer for peer in peers if not math.isnan(peer)), default=math.nan)
        lines.append(f"| {size} | " + " | ".join(cells) + f" | **{fastest:.1f}x** |")
    return lines


def evaluate_lines(found: dict[str, Any]) -> list[str]:
    seconds = {who: statistics.median(times) for who, times in found["seconds"].items()}
    lines = [
        "; ".join(f"{who} {took:.1f} s" for who, took in seconds.items())
        + ". CPU seconds of its parts:",
        "",
    ]
    lines += ["| part | " + " | ".join(seconds) + " |", "|---" * (len(seconds) + 1) + "|"]
    for part in [*PARTS, "whole"]:
        lines.append(
            f"| {part} | "
            + " | ".join(f"{found['parts'][who][part]:.2f}" for who in seconds)
            + " |"
        )
    return lines


def version_of(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} (not installed)"


def page(record: dict[str, Any]) -> str:
    both = "before" in record["evaluate"]["seconds"]
    before = f" --before {record['before']}" if both else ""
    lines = [
        "# Large inputs on one thread",
        "",
        f"`python benchmarks/load.py{before}`, one thread, torch {version('torch')}, float32.",
        "Versions and jobs in turns in one run; ratios are medians of neighbours."
        " A read pass is one `sum` of the N x K numbers.",
        "",
        *load_lines(record["loads"], both),
        "",
        "## The exact temperature",
        "",
        "Milliseconds, and in brackets the temperature found."
        " The peers stop where they stop; ours is the optimum.",
        "",
        *fit_lines(record["fits"], both),
        "",
        f"Peers: {', '.join(version_of(peer) for peer in PEERS)}.",
        "",
        "## maccal evaluate of five million rows",
        "",
        *evaluate_lines(record["evaluate"]),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", help="an earlier commit to compare with")
    parser.add_argument("--quick", action="store_true", help="two repeats instead of seven")
    arguments = parser.parse_args()
    repeats = 2 if arguments.quick else 7
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkouts = {"now": ROOT}
        if arguments.before:
            checkouts["before"] = checked_out(arguments.before, folder)
        workers = {who: Worker(place) for who, place in checkouts.items()}
        try:
            measure(workers, folder, repeats, arguments.before)
        finally:
            for worker in workers.values():
                worker.close()
            if arguments.before:
                subprocess.run(
                    ["git", "worktree", "remove", "--force", str(checkouts["before"])],
                    cwd=ROOT,
                    check=True,
                )


def measure(workers: dict[str, Worker], folder: Path, repeats: int, before: str | None) -> None:
    from maccal.io import write

    machine = {"processor": platform.machine(), "python": platform.python_version()}
    record: dict[str, Any] = {
        "machine": machine,
        "repeats": repeats,
        "before": before,
        "loads": {},
        "fits": {},
    }
    for rows, classes in LOADS:
        names = ["read", "plain", "ece", "summary of probs", "summary of logits"]
        record["loads"][f"{rows:,} x {classes:,}"] = turns(
            workers, "load", (rows, classes), names, repeats
        )
        print(rows, classes, flush=True)
    for rows, classes in FITS:
        record["fits"][f"{rows:,} x {classes:,}"] = turns(
            workers, "fit", (rows, classes), ["maccal", *PEERS], repeats
        )
        print("fit", rows, classes, flush=True)
    record["evaluate"] = evaluations(workers, folder, min(3, repeats))
    write(RESULTS / "load.json", json.dumps(record, indent=1) + "\n")
    text = page(record)
    write(RESULTS / "load.md", text)
    print(text)


if __name__ == "__main__":
    main()
