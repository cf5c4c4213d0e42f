"""results/starts.md from the rows of starts.py and starts_choice.py: one table per question, and
whether each target is met.

    python benchmarks/starts_page.py results/starts.jsonl
"""

import math
import sys
from pathlib import Path
from statistics import mean, stdev

from starts_chosen import choice_table
from starts_networks import PUBLIC, TRAINED
from starts_rows import NONE, Rows, average, read
from starts_tables import ABOUT
from starts_targets import (
    MACCAL,
    MANY,
    SCOPES,
    TEMPERATURE,
    differences,
    image_networks,
    percent_more,
    tests_over_networks,
    verdicts,
)

from maccal.io import write

METHODS = ("as trained", TEMPERATURE, "fresh head", MACCAL, "masks off", "as printed")
PERCENT = ("accuracy", "ece", "aece")
COLUMNS = ("accuracy", "ece", "aece", "nll", "brier", "aurc")
TITLES = {
    "accuracy": "accuracy",
    "ece": "ECE",
    "aece": "AECE",
    "nll": "NLL",
    "brier": "Brier",
    "aurc": "AURC",
}


def table(header: list[str], lines: list[list[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def number(value: float, key: str) -> str:
    if math.isnan(value):
        return ""
    return f"{100 * value:.2f}" if key in PERCENT else f"{value:.4f}"


def about_networks(rows: Rows, tuned: tuple[str, ...]) -> str:
    lines = []
    for name in rows.networks:
        first = rows.of(name, "as trained", NONE)
        shares = [f"{100 * average(first, key):.2f}" for key in ("train_accuracy", "accuracy")]
        sure = [f"{100 * average(first, key):.2f}" for key in ("confidence", "ece")]
        lines.append([name, role(name, tuned), described(name), *shares, *sure])
    columns = ["training accuracy", "accuracy", "confidence", "ECE"]
    return table(["network", "defaults", "what it is", *columns], lines)


def fewer(rows: Rows) -> str:
    """The networks whose halves have fewer rows than asked for, and how many."""
    found = []
    for name in rows.networks:
        used = int(rows.mean(name, TEMPERATURE, MANY, "rows"))
        if used < MANY:
            found.append(f"{name} {used:,}")
    return ", ".join(found)


def role(name: str, tuned: tuple[str, ...]) -> str:
    return "chosen on it" if name in tuned else "reported on it"


def described(name: str) -> str:
    if name in PUBLIC:
        return f"public {name} for CIFAR-10, crops and flips"
    return TRAINED[name].about if name in TRAINED else ABOUT[name]


def means(rows: Rows, names: list[str], labels: int) -> str:
    """Methods x numbers, mean over networks; NLL also against the temperature's."""
    lines = []
    for method in METHODS:
        cells = [method]
        for key in COLUMNS:
            cells.append(number(mean(rows.mean(n, method, labels, key) for n in names), key))
        cells.append(f"{percent_more(rows, names, method, labels, 'nll'):+.2f} %")
        cells.append(f"{mean(rows.mean(n, method, labels, 'seconds') for n in names):.2f}")
        lines.append(cells)
    heads = [TITLES[key] for key in COLUMNS]
    return table(["method", *heads, "NLL against temperature", "seconds"], lines)


def all_means(rows: Rows, labels: int) -> str:
    """One table per scope, of the networks that every method has rows of with so many labels."""
    parts = []
    for scope, names in SCOPES(rows).items():
        there = [name for name in names if has_all(rows, name, labels)]
        if not there:
            continue
        absent = [name for name in names if name not in there]
        without = f"; not {', '.join(absent)}" if absent else ""
        parts.append(f"{scope} ({len(there)}{without}):\n\n{means(rows, there, labels)}")
    return "\n\n".join(parts)


def has_all(rows: Rows, name: str, labels: int) -> bool:
    return all(rows.has(name, method, labels) for method in METHODS)


def spread(rows: Rows, name: str, method: str, labels: int, key: str) -> str:
    """The standard deviation over seeds, halves averaged."""
    found = rows.of(name, method, labels)
    seeds = sorted({row["seed"] for row in found})
    by_seed = [average([row for row in found if row["seed"] == seed], key) for seed in seeds]
    return f" ± {100 * stdev(by_seed):.2f}" if len(by_seed) > 1 else ""


def each_network(rows: Rows, labels: int) -> str:
    """Per network: temperature / MaC-Cal / masks off, for each number."""
    lines = []
    for name in rows.networks:
        cells = [name]
        for key in COLUMNS:
            three = [
                number(rows.mean(name, method, labels, key), key)
                for method in (TEMPERATURE, MACCAL, "masks off")
            ]
            more = spread(rows, name, MACCAL, labels, key) if key == "ece" else ""
            cells.append(f"{three[0]} / {three[1]}{more} / {three[2]}")
        lines.append(cells)
    return table(["network", *(TITLES[key] for key in COLUMNS)], lines)


def under_corruption(rows: Rows) -> str:
    lines = []
    for name in image_networks(rows):
        cells = [name]
        for key in ("shift.ece_pooled_mean", "shift.ece", "shift.nll", "shift.accuracy"):
            each = []
            for method in (TEMPERATURE, MACCAL, "masks off", "fresh head"):
                value = rows.mean(name, method, MANY, key)
                each.append(f"{value:.4f}" if key.endswith("nll") else f"{100 * value:.2f}")
            cells.append(" / ".join(each))
        lines.append(cells)
    heads = ["ECE pooled by severity", "ECE per cell", "NLL", "accuracy"]
    return table(["network", *heads], lines)


def without_labels(rows: Rows) -> str:
    lines = []
    for name in rows.networks:
        ece = [rows.mean(name, "as trained", NONE, "ece")]
        ece += [rows.mean(name, TEMPERATURE, labels, "ece") for labels in (MANY, NONE)]
        ece += [rows.mean(name, method, NONE, "ece") for method in ("fresh head", MACCAL)]
        more = 100 * (ece[-1] - ece[1])
        confidence = [rows.mean(name, MACCAL, NONE, key) for key in ("confidence", "accuracy")]
        gap = 100 * (confidence[0] - confidence[1])
        cells = [f"{100 * value:.2f}" for value in ece]
        lines.append([name, *cells, f"{more:+.2f}", f"{gap:+.2f}"])
    heads = [
        "as trained",
        "temperature, labels",
        "temperature, views",
        "fresh head, mixed",
        "MaC-Cal, views",
        "MaC-Cal more than temperature with labels",
        "its confidence - accuracy",
    ]
    return table(["ECE", *heads], lines)


def tests_table(rows: Rows, labels: int) -> str:
    lines = []
    for method in (MACCAL, "masks off", "fresh head"):
        for scope, names in SCOPES(rows).items():
            for key in COLUMNS:
                found = differences(rows, names, method, labels, key)
                if len(found) > 1:
                    lines.append([method, scope, TITLES[key], *tests_over_networks(found, key)])
    heads = ["lower / equal / higher", "mean difference", "t test p", "sign test p"]
    return table(["method", "networks", "number", *heads], lines)


def single_tests(rows: Rows, labels: int) -> str:
    """How many rows are really different from the temperature's, at the 5 % level."""
    lines = []
    for method in (MACCAL, "masks off", "fresh head"):
        tests = []
        for name in rows.networks:
            tests += [row["against temperature"] for row in rows.of(name, method, labels)]
        cells = [method]
        for key in ("accuracy", "ece", "nll", "brier"):
            lower = sum(test[key][0] < 0 and test[key][1] < 0.05 for test in tests)
            higher = sum(test[key][0] > 0 and test[key][1] < 0.05 for test in tests)
            cells.append(f"{lower} / {higher}")
        lines.append([*cells, str(len(tests))])
    return table(["method", "accuracy", "ECE", "NLL", "Brier", "rows"], lines)


TEXT = """# From the trained classifier

`python benchmarks/starts.py FEATURES`; rows in [starts.jsonl](starts.jsonl). FEATURES comes from
`benchmarks/starts_networks.py` and `benchmarks/starts_features.py`, whose heads say how. One half
of the rows that were never trained on gives the labels, the other half is measured; then they
change places. Seeds {seeds} of stage II, which also draw the labels where fewer than the half are
used. Accuracy, ECE and AECE in %, 15 bins; ± is the standard deviation over seeds, halves averaged.
Seconds: one thread, on a machine that others used too.

- *temperature*: the optimum of NLL on the labels; without labels, where confidence meets accuracy
  on the views.
- *fresh head*: a random linear head, 40 epochs: the default until now. Without labels its feedback
  is mixed images, never surer than as trained: also as until now.
- *MaC-Cal*: `calibrate_head(z, y, start=(weight, bias), val=...)` with `Stage2()`.
- *masks off*: the same with `Stage2(masking="none")`. What differs from it is what the masks do.
- *as printed*: `Stage2.paper()`, one seed, no feedback but the training rows.

The defaults of `Stage2` were chosen on the networks marked so, and on no other.

## The targets

{verdicts}

## The networks

{networks}

Where a half has fewer than 5,000 rows, all of it gives the labels: {fewer}.
Of SVHN only test digits were at hand: 6,000 of them train the network, the others test it. Of
Tiny-ImageNet, 40 classes with 100 training and 50 validation images each.

## With 5,000 labels

{many}

Each network: temperature / MaC-Cal / masks off.

{each}

## With 500 labels

{some}

## With 100 labels

{few}

## Under corruption

Fifteen corruptions at five severities of 300 images of the measured half; calibrated with 5,000
labels of the other half, uncorrupted. Temperature / MaC-Cal / masks off / fresh head. An ECE of
300 rows is high by chance alone; pooled by severity it has 4,500.

{shift}

## Without any label

What `calibrate` does by itself: three views of the training images, each mixed 0.7 / 0.3 with
another image, after mirroring, shifting or both; the middle answer is aimed at. For SVHN, where
mirroring changes the meaning, shifted and mixed; for text and tables, swapped numbers, which is a
makeshift and warned of. [views.md](views.md) has each view by itself.

{none}

## Is it chance?

Over networks, the mean of halves and seeds of each: method minus temperature, 5,000 labels.

{tests}

Row by row, with 5,000 labels: how many are really lower / higher than the temperature on the same
rows (paired normal test of the means, paired bootstrap of ECE, 5 % level each).

{single}
{choice}"""


def write_page(file: Path) -> None:
    """The page beside the rows."""
    rows = Rows(read(file))
    tuned = tuple(SCOPES(rows)["chosen on"])
    text = TEXT.format(
        seeds=", ".join(str(seed) for seed in sorted({row["seed"] for row in rows.all})),
        verdicts=verdicts(rows),
        networks=about_networks(rows, tuned),
        fewer=fewer(rows),
        many=all_means(rows, MANY),
        each=each_network(rows, MANY),
        some=all_means(rows, 500),
        few=all_means(rows, 100),
        shift=under_corruption(rows),
        none=without_labels(rows),
        tests=tests_table(rows, MANY),
        single=single_tests(rows, MANY),
        choice=choice_table(file.with_name("starts_choice.jsonl")),
    )
    write(file.with_suffix(".md"), text)


if __name__ == "__main__":
    write_page(Path(sys.argv[1]))
