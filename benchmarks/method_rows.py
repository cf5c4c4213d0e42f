"""Every method on 10,000 CIFAR-10 images with a ResNet-8, from the command line, and stage II on top of each.

    python benchmarks/method_rows.py ROOT build/runs      # ROOT holds cifar-10-batches-py; about 40 minutes on a core, resumable

Writes results/methods_cifar10.jsonl, a row a run, and fills in the results at the end of each page of docs/methods. One seed, 12
epochs, no augmentation: it shows that every method trains, resumes, calibrates and is measured, not which of them is best.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from maccal.files import write
from maccal.methods import METHODS, method

HOME = Path(__file__).parents[1]
RECIPE = shlex.split("--data cifar10 --limit 10000 --model resnet8 --epochs 12 --schedule cosine --padding 0 --no-flip")
NAMES = [*METHODS, *(f"{name}+maccal" for name, row in METHODS.items() if row.objective and name != "vanilla")]


def run(name: str, root: Path, runs: Path) -> dict:
    """The row of a run; the command makes it, or finds it made."""
    command = [sys.executable, "-m", "maccal", "train", *RECIPE, "--method", name, "--root", str(root), "--runs", str(runs)]
    subprocess.run(command, check=True, capture_output=True)
    folder = runs / f"cifar10.10000-resnet8-{method(name).name}-s1"
    return json.loads((folder / "row.json").read_text())


def words(row: dict) -> str:
    low, high, null_low, null_high = (100 * row[f"ece_{end}"] for end in ("low", "high", "null_low", "null_high"))
    ece = f"{100 * row['ece']:.2f} ({low:.2f} to {high:.2f}) | {null_low:.2f} to {null_high:.2f}"
    return f"{100 * row['accuracy']:.2f} | {ece} | {row['nll']:.3f}"


def page(name: str, rows: dict[str, dict]) -> str:
    """The table at the end of a method's page: vanilla, the method, and MaC-Cal on top of it."""
    shown = dict.fromkeys(["vanilla", name, "maccal" if name == "vanilla" else f"{name}+maccal"])
    lines = [f"| {key} | {words(rows[key])} |" for key in shown if key in rows]
    head = ["| | accuracy, % | ECE, % (95 % interval) | a calibrated model | NLL |", "|---|---:|---:|---:|---:|"]
    note = (
        "10,000 CIFAR-10 images, ResNet-8, 12 epochs without augmentation, seed 1; `benchmarks/method_rows.py`. One seed: a sample."
    )
    return "\n".join(["", "## Results", "", *head, *lines, "", note, ""])


def fill(name: str, rows: dict[str, dict]) -> None:
    path = HOME / "docs" / "methods" / f"{name}.md"
    marks = rf"(<!-- results: {name} -->\n).*?(<!-- /results -->)"
    text, count = re.subn(marks, lambda m: m[1] + page(name, rows) + m[2], path.read_text(), flags=re.DOTALL)
    assert count == 1, path
    write(path, text)


def main() -> None:
    rows = {}
    for name in NAMES:
        rows[name] = run(name, Path(sys.argv[1]), Path(sys.argv[2]))
        print(f"{name:16} {words(rows[name])}", flush=True)
        write(HOME / "results" / "methods_cifar10.jsonl", "".join(json.dumps(row) + "\n" for row in rows.values()))
    for name in METHODS:
        fill(name, rows)


if __name__ == "__main__":
    main()
