"""TST and V-TST on networks that know their images by heart, by both readings of their settings.

    python benchmarks/two_stage.py DATA RUNS

The networks are those of the scale `cpu`, seed 1: resnet10 on 10,000 CIFAR-10 and 20,000 CIFAR-100
images. The recorded rows of that scale have what the MaC-Cal paper says of TST and V-TST
(SGD at 0.1); here their authors' optimiser stands beside it. Ten to twenty minutes of two cores.
Writes results/two_stage.jsonl and results/two_stage.md.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from markdown_table import table

from maccal.bench.lines import Book, Line
from maccal.bench.scales import SCALES
from maccal.bench.titles import points
from maccal.calibration.tst import TwoStage
from maccal.evaluation.row import Row, read_row, write_rows
from maccal.io import write
from maccal.runs import Config, make_run

RESULTS = Path(__file__).parents[1] / "results"
CPU = SCALES["cpu"]
# method, the reading of its settings, and its choices where they are not its own
READINGS = (
    ("vanilla", "", None),
    ("tst", "its authors'", None),
    ("tst", "as the MaC-Cal paper says", TwoStage.as_in_maccal()),
    ("vtst", "its authors'", None),
    ("vtst", "as the MaC-Cal paper says", TwoStage.as_in_maccal(variational=True)),
)
HEAD = ("", "settings", "accuracy, %", "ECE, %", "95 % interval", "a calibrated model, %", "NLL")


def made(data: str, root: Path, runs: Path) -> list[Row]:
    """The rows of the network as trained and of both methods; what is there is not made again."""
    (model,) = CPU.networks[data]
    first = Config(data, model, "vanilla", 1, CPU.limits[data], CPU.recipes[data])
    rows = []
    for method, _, choices in READINGS:
        config = replace(first, method=method, stage2=choices).planned()
        folder = make_run(config, runs=runs, root=root)
        rows.append(replace(read_row(folder / "row.json"), files=None))
    return rows


def words(line: Line) -> list[str]:
    ends = [points(line.mean(f"ece_{end}")) for end in ("low", "high", "null_low", "null_high")]
    low, high, null_low, null_high = ends
    shown = [points(line.mean("accuracy")), points(line.mean("ece"))]
    return [*shown, f"{low} to {high}", f"{null_low} to {null_high}", f"{line.mean('nll'):.3f}"]


def page(rows: list[Row]) -> str:
    book = Book.of(rows)
    parts = ["# TST and V-TST by both readings of their settings", ""]
    parts += ["Made by `python benchmarks/two_stage.py DATA RUNS`; one seed.", ""]
    for setting in book.settings:
        lines = []
        for method, reading, choices in READINGS:
            line = book.get(setting, method if choices is None else f"{method},as_in_maccal")
            assert line is not None
            lines.append([method, reading, *words(line)])
        parts += [f"{setting.title}, {setting.model}:", "", table(HEAD, lines), ""]
    return "\n".join(parts)


def main(root: Path, runs: Path) -> None:
    rows = []
    for data in CPU.networks:
        rows += made(data, root, runs)
    write_rows(RESULTS / "two_stage.jsonl", sorted(rows, key=lambda row: row.name))
    write(RESULTS / "two_stage.md", page(rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder with the data sets")
    parser.add_argument("runs", type=Path, help="a folder for the runs")
    given = parser.parse_args()
    main(given.data, given.runs)
