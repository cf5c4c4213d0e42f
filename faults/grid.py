"""A grid of the benchmark that takes seconds: two networks for digits and their calibrated heads.

python -m faults.grid FOLDER local|ray    makes it, as `maccal bench` would
"""

import sys
from pathlib import Path
from typing import Any

from maccal.bench import grids
from maccal.bench.scales import Scale
from maccal.cli import bench as bench_verb
from maccal.training.recipe import Recipe

SCALE = "tiny"


def bench(folder: Path, executor: Any = "local", workers: int | None = 2) -> None:
    """Rows in FOLDER/bench-tiny.jsonl, runs in FOLDER/runs."""
    recipe = Recipe(epochs=1, padding=0, flip=False, precision="fp32")
    scale = Scale({"digits": ("resnet8",)}, {"digits": 100}, {"digits": recipe})
    for module in (grids, bench_verb):
        module.__dict__["SCALES"] = {SCALE: scale}
    places: Any = {"runs": folder / "runs", "results": folder}
    bench_verb.bench(("sparsity",), SCALE, (1, 2), executor=executor, workers=workers, **places)


if __name__ == "__main__":
    try:
        bench(Path(sys.argv[1]), sys.argv[2], 2 if sys.argv[2] == "local" else None)
    except ValueError as error:  # as the command line says it
        sys.exit(f"maccal: {error}")
