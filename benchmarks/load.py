"""What large inputs cost on one thread, now and before, side by side in one run.

    python benchmarks/load.py --before 42c641b   # 25 minutes on a quiet machine, --quick for 8
    python benchmarks/load.py                    # without an earlier version: half the time
    python benchmarks/load.py --only stream      # this part anew, the others as they were

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
    stream       Stream.of, one million rows of ten classes
    report       the verb `maccal report` of 1,000 rows, the whole process

A peer whose temperature is 1 did not fit: it is marked, and not counted as the fastest.

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
from report import flat, more_rows

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
LOADS = [(1_000_000, 100), (50_000, 1000)]
FITS = [(50_000, 10), (50_000, 100), (50_000, 1000)]
FIT_NAMES = ["maccal", *PEERS]
STREAMED = (1_000_000, 10)
KINDS = ["loads", "stream", "fits", "evaluate", "report"]
FIVE_MILLION = (5_000_000, 10)


class Worker:
    """A process with one version of the package."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
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

    def verb(self, verb: str, file: Path, out: Path) -> dict[str, float]:
        """Seconds of a verb as a process of its own, by the clock and of the processor."""
        before = os.times()
        command = [sys.executable, "-m", "maccal", verb, str(file), "--out", str(out)]
        subprocess.run(command, env=self.env, cwd=self.checkout, check=True, capture_output=True)
        spent = [after - start for after, start in zip(os.times(), before, strict=True)]
        return {"seconds": spent[4], "cpu": spent[2] + spent[3]}

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
    taken: dict[str, Any] = {who: [] for who in workers}
    for _ in range(repeats):
        for who, worker in workers.items():
            taken[who].append(worker.verb("evaluate", file, folder))
    return {
        "taken": taken,
        "parts": {who: worker.ask("profile", str(file)) for who, worker in workers.items()},
    }


def reports(workers: dict[str, Worker], folder: Path, repeats: int) -> dict[str, Any]:
    """Of 1,000 rows; those of the earlier version are as it wrote them."""
    from maccal.evaluation.row import write_rows

    rows = more_rows()
    files = {"now": folder / "now.jsonl", "before": folder / "before.jsonl"}
    write_rows(files["now"], rows)
    files["before"].write_text("".join(json.dumps(flat(row)) + "\n" for row in rows))
    taken: dict[str, Any] = {who: [] for who in workers}
    for _ in range(repeats):
        for who, worker in workers.items():
            taken[who].append(worker.verb("report", files[who], folder / "page.html"))
    return taken


def middle(answers: list[dict[str, float]], key: str) -> float:
    return statistics.median(answer[key] for answer in answers)


def stream_lines(seen: dict[str, Any]) -> list[str]:
    lines = ["| version: job | million rows per CPU second |", "|---|---|"]
    for name, answers in seen.items():
        lines.append(f"| {name} | {STREAMED[0] / 1e6 / middle(answers, 'cpu'):.1f} |")
    return lines


def verb_lines(taken: dict[str, Any]) -> list[str]:
    lines = ["| version | seconds by the clock | CPU seconds |", "|---|---|---|"]
    for who, answers in taken.items():
        cells = f"{middle(answers, 'seconds'):.1f} | {middle(answers, 'cpu'):.2f}"
        lines.append(f"| {who} | {cells} |")
    return lines


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
        "| N x K | " + " | ".join(heads) + " | fastest peer that fits / maccal |",
        "|---" * (len(names) + 2) + "|",
    ]
    for size, seen in fits.items():
        cells = [fit_cell(seen, name) for name in names]
        peers = {}
        for peer in PEERS:
            if fitted(seen[f"now: {peer}"]):
                peers[peer] = ratio(seen, f"now: {peer}", "now: maccal")
        best = min(peers, key=lambda peer: peers[peer], default="")
        last = f"**{peers[best]:.1f}x** ({best})" if best else ""
        lines.append(f"| {size} | " + " | ".join(cells) + f" | {last} |")
    return lines


def fitted(answers: list[dict[str, float]]) -> bool:
    """Whether it is there and found a temperature of its own: 1 is where it began."""
    value = answers[0]["value"]
    return not math.isnan(value) and value != 1


def fit_cell(seen: dict[str, Any], name: str) -> str:
    value = seen[name][0]["value"]
    words = "does not fit: 1" if value == 1 else f"{value:.9f}"
    return f"{1e3 * median(seen, name):.1f} ({words})"


def evaluate_lines(found: dict[str, Any]) -> list[str]:
    parts = found["parts"]
    lines = [*verb_lines(found["taken"]), "", "CPU seconds of its parts, under a profiler:", ""]
    lines += ["| part | " + " | ".join(parts) + " |", "|---" * (len(parts) + 1) + "|"]
    for part in [*PARTS, "whole"]:
        cells = [f"{parts[who][part]:.2f}" for who in parts]
        lines.append(f"| {part} | " + " | ".join(cells) + " |")
    return lines


def version_of(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} (not installed)"


def page(record: dict[str, Any]) -> str:
    both = record["before"] is not None
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
        f"Peers: {', '.join(record['peers'])}.",
        "",
        "## maccal evaluate of five million rows",
        "",
        *evaluate_lines(record["evaluate"]),
        "",
        "## Stream, one million rows of ten classes",
        "",
        *stream_lines(record["stream"]),
        "",
        "## maccal report of 1,000 rows",
        "",
        *verb_lines(record["report"]),
        "",
        "Measured: " + "; ".join(f"{kind} {made}" for kind, made in record["made"].items()) + ".",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", help="an earlier commit to compare with")
    parser.add_argument("--quick", action="store_true", help="two repeats instead of seven")
    parser.add_argument("--only", nargs="+", choices=KINDS, help="the other parts stay")
    arguments = parser.parse_args()
    repeats = 2 if arguments.quick else 7
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checkouts = {"now": ROOT}
        if arguments.before:
            checkouts["before"] = checked_out(arguments.before, folder)
        workers = {who: Worker(place) for who, place in checkouts.items()}
        try:
            measure(workers, folder, repeats, arguments.before, arguments.only or KINDS)
        finally:
            for worker in workers.values():
                worker.close()
            if arguments.before:
                subprocess.run(
                    ["git", "worktree", "remove", "--force", str(checkouts["before"])],
                    cwd=ROOT,
                    check=True,
                )


def measure(
    workers: dict[str, Worker], folder: Path, repeats: int, before: str | None, kinds: list[str]
) -> None:
    from maccal.io import write

    old = RESULTS / "load.json"
    record: dict[str, Any] = json.loads(old.read_text()) if kinds != KINDS else {"made": {}}
    record["machine"] = {"processor": platform.machine(), "python": platform.python_version()}
    record |= {"repeats": repeats, "before": before}
    for kind in kinds:
        record[kind] = measured(kind, workers, folder, repeats)
        record["made"][kind] = f"{commit()} on {time.strftime('%Y-%m-%d')}"
        if kind == "fits":
            record["peers"] = [version_of(peer) for peer in PEERS]
        print(kind, flush=True)
    write(RESULTS / "load.json", json.dumps(record, indent=1) + "\n")
    text = page(record)
    write(RESULTS / "load.md", text)
    print(text)


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout[:-1]


def measured(kind: str, workers: dict[str, Worker], folder: Path, repeats: int) -> Any:
    """One part of the record."""
    if kind == "evaluate":
        return evaluations(workers, folder, min(3, repeats))
    if kind == "report":
        return reports(workers, folder, repeats)
    if kind == "stream":
        names = ["stream of probs", "stream of logits"]
        return turns(workers, "stream", STREAMED, names, repeats)
    loads = ["read", "plain", "ece", "summary of probs", "summary of logits"]
    job, sizes, names = ("load", LOADS, loads) if kind == "loads" else ("fit", FITS, FIT_NAMES)
    found = {}
    for rows, classes in sizes:
        found[f"{rows:,} x {classes:,}"] = turns(workers, job, (rows, classes), names, repeats)
    return found


if __name__ == "__main__":
    main()
