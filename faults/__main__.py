"""python -m faults [part ...] [--count N] [--seed S] [--out results/reliability.json] [--sample]

Runs the parts, or those that are named, puts their figures into the JSON beside those of the other
parts, and makes docs/reliability.md when the JSON is the committed one. A part that was stopped is
run again by its name; the others stay. Exit code 1 where a defect was found. `--sample` takes half
a minute: a little of each part, for the tests."""

import argparse
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from faults import page
from faults.crowd import crowd, on_a_cache
from faults.damage import damage
from faults.disk import COMMANDS, disk
from faults.fuzz import fuzz
from faults.kills import WORKLOADS, kills
from faults.load import load
from faults.sandbox import warm
from faults.specimens import FORMATS
from faults.tally import DEFECTS, Tally
from maccal.io import read_json, write, write_json

KIND = "reliability 1"
PACKAGES = ("maccal", "torch", "numpy", "scipy", "pyarrow", "Pillow", "safetensors")


@dataclass(frozen=True)
class Part:
    """What runs, how much of it a night has time for, and what a sample has."""

    work: Callable[..., None]
    count: int
    sample: int
    options: dict[str, Any] = field(default_factory=dict)  # of the sample


QUICK = tuple(workload for workload in WORKLOADS if "cache" in workload.name)
FULL = tuple(
    command for command in COMMANDS if command.name in ("calibrate with a cache", "data get")
)
READ = tuple(form for form in FORMATS if form.share == 1 or form.name == "row.json")
PARTS = {
    "kills": Part(kills, 320, 4, {"workloads": QUICK}),
    "damage": Part(damage, 10_000, 130, {"formats": READ}),
    "fuzz": Part(fuzz, 105_000, 500),
    "crowd": Part(crowd, 40, 4, {"scenes": (on_a_cache,), "workers": (4,)}),
    "disk": Part(disk, 40, 4, {"commands": FULL}),
    "load": Part(load, 1_000_000_000, 1_000_000),
}


def recorded(name: str, count: int | None, seed: int, sample: bool) -> dict[str, Any]:
    """Run a part; its figures."""
    part, tally = PARTS[name], Tally(seed)
    usual, options = (part.sample, part.options) if sample else (part.count, {})
    part.work(seed, count or usual, tally, **options)
    versions = {
        "Python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }
    return {**tally.json(), "versions": versions}


def save(path: Path, name: str, part: dict[str, Any]) -> dict[str, Any]:
    """The figures of this part in the place of its older ones."""
    before = read_json(path, KIND) if path.is_file() else {"parts": {}}
    results = {**before, "parts": {**before["parts"], name: part}}
    write_json(path, KIND, results)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], metavar="part", help=", ".join(PARTS))
    parser.add_argument("--count", type=int, help="trials of each part; rows of load")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--out", type=Path, default=page.RESULTS)
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    warm()
    bad = 0
    for name in options.parts or PARTS:
        part = recorded(name, options.count, options.seed, options.sample)
        results = save(options.out, name, part)
        found = sum(page.counted(part, word) for word in DEFECTS)
        bad += found
        minutes = part["seconds"] / 60
        print(
            f"{name}: {part['count']:,} trials, {found} defects, {minutes:.1f} minutes",
            flush=True,
        )
        for defect in part["defects"][:10]:
            print(f"  {defect['word']}: {defect['group']}: {defect['about']}", flush=True)
    if options.out.resolve() == page.RESULTS.resolve():
        write(page.PAGE, page.page(results))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
