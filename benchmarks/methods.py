"""What a method costs: a training step against vanilla's, and a second stage against the epochs it
would cost the paper's way.

    python benchmarks/methods.py SHARED build/networks

About eight minutes on two cores; writes results/methods.json and .md.

Single steps of all methods take turns on the same network, images and cores; the ratio is the
median over rounds of the ratio within a round, with its quartiles. PLP is the mean over its cuts,
since it gets cheaper from cut to cut. The paper's Table 4 is of whole training, in which by its
code a tenth of vanilla's time is validation, three passes over 5,000 images an epoch: "as Table 4"
counts that too, 0.9 ratio + 0.1. A second stage (features of 45,000 images, then 40 epochs) is in
units of 40 vanilla epochs, beside (method - vanilla) / 40 epochs of Table 4.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from networks import channels_last, cifar
from torch import nn

from maccal.bench.paper import table as table_of
from maccal.calibration.mac_cal import calibrate_head
from maccal.calibration.stage2 import BOTTLENECK, Stage2
from maccal.calibration.tst import TwoStage
from maccal.calibration.two_stage import two_stage_head
from maccal.data.pixels import CIFAR
from maccal.data.split import Split
from maccal.features.extraction import extract
from maccal.io import write
from maccal.methods.registry import METHODS, settings_of
from maccal.models import build
from maccal.runs.making import Batches
from maccal.training import Objective, Training
from maccal.training.memory import keep_memory
from maccal.training.recipe import RECIPES, Recipe

RESULTS = Path(__file__).parents[1] / "results"
MODEL, ROUNDS, BATCH = "resnet20", 41, 128


def paper(name: str) -> list[float] | None:
    """Least and most of Table 4 relative to vanilla.

    Of a second stage, the extra cost of an epoch.
    """
    seconds = {
        (row["method"], row["data"], row["model"]): row["seconds"] for row in table_of("cost")
    }
    ratios = []
    for (method, data, model), spent in seconds.items():
        if method == name:
            ratio = spent / seconds["vanilla", data, model]
            ratios.append(
                (ratio - 1) * RECIPES[data].epochs / 40 if METHODS[name].second else ratio
            )
    return [min(ratios), max(ratios)] if ratios else None


def steps(name: str, train: Split, epoch: int = 0) -> Iterator[None]:
    """Training steps of a method, as if in that epoch of 350."""
    torch.manual_seed(1)
    network = METHODS[name].network(build(MODEL, 10), 1)
    objective = METHODS[name].objective
    assert objective is not None
    made: Objective = objective(network, **settings_of(name, "cifar10", MODEL))
    training = Training(network, train, Recipe(), CIFAR, made, 1, torch.device("cpu"))
    training.epoch = epoch
    while True:
        training.begin()
        while training.batch < len(training.batches) - 1:
            training.step()
            yield
        training.batch = 0
        made.end(network, epoch, 350)


def seconds(work: Iterator[None]) -> float:
    start = time.perf_counter()
    next(work)
    return time.perf_counter() - start


def first_stages(train: Split) -> tuple[list[dict], float]:
    names = [name for name, row in METHODS.items() if row.objective]
    # one in the middle of each of its cuts
    epochs = {name: [0] for name in names} | {"plp": [25, 75, 125, 175, 225, 275, 325]}
    work = {}
    for name in names:
        for epoch in epochs[name]:
            work[name, epoch] = steps(name, train, epoch)
    for contestant in (*work.values(), *work.values()):
        seconds(contestant)  # warm-up
    rounds = []
    for _ in range(ROUNDS):
        rounds.append({key: seconds(contestant) for key, contestant in work.items()})
    rows = []
    for name in names:
        ratios = []
        for spent in rounds:
            mean = statistics.mean(spent[name, epoch] for epoch in epochs[name])
            ratios.append(mean / spent["vanilla", 0])
        low, middle, high = (round(quartile, 3) for quartile in statistics.quantiles(ratios, n=4))
        table4 = (
            {"as table 4": round(0.9 * middle + 0.1, 3), "paper": paper(name)}
            if paper(name)
            else {}
        )
        rows.append({"method": name, "ratio": middle, "low": low, "high": high, **table4})
    return rows, statistics.median(r["vanilla", 0] for r in rounds)


def second_stages(images: torch.Tensor, labels: torch.Tensor, step: float) -> list[dict]:
    torch.manual_seed(1)
    network = channels_last(build(MODEL, 10))
    whole = step * 45_000 / BATCH * 40
    rows = []
    start = time.perf_counter()
    train = extract(network, Batches(Split(images[:45_000], labels[:45_000]), CIFAR))
    once = time.perf_counter() - start
    val = extract(network, Batches(Split(images[45_000:], labels[45_000:]), CIFAR))
    jobs: dict[str, Callable[..., nn.Module]] = {
        "tst": partial(two_stage_head, config=TwoStage()),
        "vtst": partial(two_stage_head, config=TwoStage(variational=True)),
        "maccal": partial(calibrate_head, config=Stage2(hidden=BOTTLENECK)),
    }
    for name, make in jobs.items():
        start = time.perf_counter()
        make(*train, val=val)
        spent = time.perf_counter() - start
        rows.append(
            {
                "method": name,
                "extract": once,
                "head": spent,
                "ratio": (once + spent) / whole,
                "paper": paper(name),
            }
        )
    return rows


def table(first: list[dict], second: list[dict]) -> str:
    lines = [__doc__.split("\n\n")[0], "", f"{MODEL}, batches of {BATCH}, {ROUNDS} rounds.", ""]
    lines += [
        "| a step of | vanilla steps | quartiles | as Table 4 | paper's Table 4 |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in first:
        both = "|"
        if row.get("paper"):
            least, most = row["paper"]
            both = f"{row['as table 4']:.2f} | {least:.2f} to {most:.2f}"
        quartiles = f"{row['low']:.2f} to {row['high']:.2f}"
        lines.append(f"| {row['method']} | {row['ratio']:.2f} | {quartiles} | {both} |")
    lines += [
        "",
        "| second stage | features, s | head, s | of 40 vanilla epochs | paper's Table 4 |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in second:
        theirs = f"{row['paper'][0]:.2f} to {row['paper'][1]:.2f}"
        ours = f"{row['extract']:.1f} | {row['head']:.1f} | {row['ratio']:.3f}"
        lines.append(f"| {row['method']} | {ours} | {theirs} |")
    lines += [
        "",
        "maccal with the paper's bottleneck, `hidden=512`; the default, a linear head, is cheaper.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    keep_memory()
    images, labels = cifar(Path(sys.argv[1]), Path(sys.argv[2]), 10)[0]
    first, step = first_stages(Split(images[:4_000], labels[:4_000]))
    second = second_stages(images, labels, step)
    about = {
        "model": MODEL,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "seconds a vanilla step": step,
    }
    write(
        RESULTS / "methods.json",
        json.dumps({**about, "steps": first, "second stages": second}, indent=1) + "\n",
    )
    write(RESULTS / "methods.md", table(first, second))
    print(table(first, second))


if __name__ == "__main__":
    main()
