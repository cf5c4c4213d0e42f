"""A grid of one's own on a Ray cluster: three methods, two seeds, one task per run.

    pip install 'maccal[ray]'
    python examples/ray_grid.py FOLDER          FOLDER/ray_grid.png; about a minute on two cores

Without an address a cluster is started on this machine; `Ray(address="auto", gpus=1)` joins yours,
if all its nodes see the folder of the runs. Stage II of MaC-Cal waits for its stage I; a run whose
worker dies is tried again; what is done is not made again. The paper's own grids need no code:
`maccal bench table1 --scale cpu --executor ray`.
"""

import sys
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure

from maccal.bench import Ray
from maccal.bench.executors import work
from maccal.bench.grids import Job
from maccal.evaluation.row import Row, read_row
from maccal.runs import Config
from maccal.runs.making import make_run
from maccal.training import Recipe

# what a run is called, and the picture; stage I of MaC-Cal is vanilla
METHODS = {"vanilla": "as trained", "ls": "label smoothing", "maccal": "MaC-Cal"}
RECIPE = Recipe(epochs=6, batch_size=64, schedule="cosine", padding=0, flip=False)


def made(job: Job, runs: Path) -> Path:
    """What a worker does; it is imported there by its name."""
    return make_run(job.config, runs=runs)


def errors(rows: list[Row]) -> list[float]:
    """The ECE of each, in per cent."""
    found = []
    for row in rows:
        error = row.numbers["ece"]
        assert error is not None  # only of a run that failed
        found.append(100 * error)
    return found


def drawn(rows: dict[str, list[Row]]) -> Figure:
    """ECE of every run, and of every method the mean."""
    figure = Figure(figsize=(6, 2.4), layout="constrained")
    axes = figure.subplots()
    for line, own in enumerate(rows.values()):
        axes.plot(errors(own), [line] * len(own), "o", color="tab:blue", alpha=0.5)
        axes.plot(mean(errors(own)), line, "|", color="black", markersize=16)
    titles = [METHODS[name] for name in rows]
    axes.set(yticks=range(len(rows)), yticklabels=titles, xlabel="ECE, %", xlim=(0, None))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title("dots: seeds, bars: their mean", fontsize=9, loc="right")
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/gallery").absolute()
    runs = folder / "runs"
    grid = []
    for method, seed in product(METHODS, (1, 2)):
        config = Config("digits", "resnet8", method, seed, None, RECIPE)
        grid.append(Job(config.planned()))
    for job, error in work(grid, partial(made, runs=runs), runs, Ray()):
        print(f"{job.config.name}: {error or 'done'}", flush=True)

    rows: dict[str, list[Row]] = {}
    for job in grid:
        row = read_row(runs / job.config.name / "row.json")
        rows.setdefault(job.config.method, []).append(row)
    for name, own in rows.items():
        print(f"{name}: ECE {mean(errors(own)):.1f}% over {len(own)} seeds")
    drawn(rows).savefig(folder / "ray_grid.png", dpi=110)
