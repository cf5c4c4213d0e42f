"""How long `maccal report` takes: the whole command on 1,000 rows, against what it cannot do
without, and against an older maccal.

    python benchmarks/report.py                    # about a minute; writes results/report.json
    python benchmarks/report.py OLDER_CHECKOUT     # the same, and how many times longer it takes

An older checkout is one from before rows had checksums. The rows are those of
results/bench-cpu.jsonl, again and again with other seeds. Every command is a process of its own on
one thread; they take turns, and a ratio is the median over rounds of the ratio within a round, with
its quartiles.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

from maccal.evaluation.row import PARTS, Row, read_rows, write_rows

HERE = Path(__file__).parents[1]
ROWS, ROUNDS = 1000, 5
NEEDED = (
    "import matplotlib.figure, matplotlib.backends.backend_svg, scipy.special, jinja2,"
    " rich.console, tyro"
)


def more_rows() -> list[Row]:
    found = read_rows(HERE / "results" / "bench-cpu.jsonl")
    made = []
    for number in range(ROWS):
        row = found[number % len(found)]
        assert row.ran is not None
        seed = row.ran.seed + 3 * (number // len(found))
        name = row.name.removesuffix(f"-s{row.ran.seed}") + f"-s{seed}"
        made.append(replace(row, name=name, ran=replace(row.ran, seed=seed)))
    return made


def flat(row: Row) -> dict[str, object]:
    """The row as version 0 had it, without checksums."""
    assert row.ran is not None
    assert row.measured is not None
    parts = {part: getattr(row, part) for part in PARTS if getattr(row, part)}
    shown = {"trained": row.trained, "diagram": row.diagram, "verdict": row.verdict}
    keep = {"keep": row.keep} if row.keep else {}
    about = {"name": row.name, "run": row.ran.about, **asdict(row.measured)}
    return {**about, **row.numbers, **shown, **keep, **parts}


def report(rows: Path) -> list[str]:
    return ["-m", "maccal", "report", str(rows), "--out", str(rows.with_suffix(".html"))]


def seconds(words: list[str], checkout: Path) -> float:
    """Of the processor, which other work on the machine changes less than the clock on the wall."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    before = os.times()
    subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **threads, "PYTHONPATH": str(checkout)},
        cwd=checkout,  # first in the path of `python -m`
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = more_rows()
        rows = Path(folder) / "rows.jsonl"
        old = Path(folder) / "old.jsonl"
        write_rows(rows, made)
        # of version 0: no checksums
        old.write_text("".join(json.dumps(flat(row)) + "\n" for row in made))
        work = {"maccal report": (report(rows), HERE), "imports it needs": (["-c", NEEDED], HERE)}
        if sys.argv[1:]:
            work["older maccal"] = (report(old), Path(sys.argv[1]))
        for words, checkout in work.values():
            seconds(words, checkout)  # warm-up
        rounds = []
        for _ in range(ROUNDS):
            rounds.append({name: seconds(*what) for name, what in work.items()})
    result = {"rows": ROWS, "rounds": ROUNDS, "when": time.strftime("%Y-%m-%d")}
    for name in work:
        ratios = [one[name] / one["maccal report"] for one in rounds]
        low, middle, high = (round(quartile, 3) for quartile in statistics.quantiles(ratios, n=4))
        spent = round(statistics.median(one[name] for one in rounds), 2)
        result[name] = {"seconds": spent, "ratio": middle, "low": low, "high": high}
        print(f"{name:18} {spent:6.2f} s   {middle:.2f} ({low:.2f} to {high:.2f}) of maccal report")
    (HERE / "results" / "report.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
