"""Several processes on one cache, one run folder and one grid at the same time.

    crowd(seed, count, tally)    about `count` processes in all, 4 to 8 at a time

Outcomes: same (as alone: heads as accurate, runs and rows to the bit), silent (another result),
wrong (litter, or exit code 2), crash. The cache is read by loaders that shuffle: features must stay
with their labels."""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import maccal
from faults.commands import differences, run, snapshot
from faults.kills import GRID, TRAIN, program, said
from faults.sandbox import forked, waited, workspace
from faults.tally import Outcome, Tally

PATIENCE = 600.0
WORKERS = (4, 6, 8)

# The features of the classes are far apart, so that any head worth its name is right; the rows come
# in random order
SHUFFLED = """
import os
import torch
from torch import nn

def rows(seed, n=300):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (n,), generator=g)
    return list(zip(torch.randn(n, 4, generator=g) + 9 * nn.functional.one_hot(y, 4), y))

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():  # as if trained: the largest of the first three features wins
        for layer in (model[0], model[2]):
            layer.weight.copy_(torch.eye(*layer.weight.shape))
    torch.manual_seed(int(os.environ["ORDER"]))
    loaders = [torch.utils.data.DataLoader(rows(seed), 50, shuffle=True) for seed in (1, 2)]
    return model, *loaders
"""


def together(starts: list[int]) -> list[int | None]:
    """The exit codes of processes that run at the same time."""
    return [waited(pid, PATIENCE) for pid in starts]


def on_a_cache(number: int, seed: int, place: Path) -> Iterator[Outcome]:
    """Each process calibrates the same model through one cache, its rows in an order of its own."""
    (place / "mine.py").write_text(SHUFFLED)
    if waited(calibrated(place, "alone", "own", 0), PATIENCE) != 0:
        raise RuntimeError("the model could not be calibrated alone")
    alone = accuracy(place, "alone")
    codes = together(
        [
            calibrated(place, f"out{member}", "cache", 100 * seed + member)
            for member in range(number)
        ]
    )
    for member, code in enumerate(codes):
        word, why = ended(code)
        right = accuracy(place, f"out{member}") if code == 0 else 0.0
        if code == 0 and right < alone - 0.02:
            word, why = (
                "silent",
                f"a head is right in {right:.1%} of the rows, alone in {alone:.1%}",
            )
        yield Outcome("one cache", word, f"seed {seed}, {number} processes: {why}")
    if left := [path.name for path in (place / "cache").iterdir() if path.name.endswith(".part")]:
        yield Outcome("one cache", "wrong", f"seed {seed}, {number} processes: left over {left}")


def calibrated(place: Path, out: str, cache: str, order: int) -> int:
    """A process that calibrates the model, its rows in this order."""

    def work() -> int:
        os.environ["ORDER"] = str(order)
        return run(
            ["calibrate", "mine.py:build", "--cache", cache, "--epochs", "10", "--out", out], place
        ).code

    return forked(work)


def accuracy(place: Path, out: str) -> float:
    """Of the body with this head on the rows that it was made from."""
    head = maccal.load_head(place / out / "mine.head.safetensors")
    names: dict[str, Any] = {}
    os.environ.setdefault("ORDER", "0")
    exec(SHUFFLED, names)
    model, _, _ = names["build"]()
    pairs = names["rows"](1)
    x, y = torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])
    with torch.no_grad():
        return float((head(model[:2](x)).argmax(1) == y).double().mean())


def on_a_run(number: int, seed: int, place: Path) -> Iterator[Outcome]:
    """Each process is told to make the same run."""
    alone = place.parent / "run alone"
    if not alone.is_dir():
        alone.mkdir()
        if waited(forked(lambda: run(TRAIN, alone).code), PATIENCE) != 0:
            raise RuntimeError("the run could not be made alone")
    codes = together([forked(lambda: run(TRAIN, place).code) for _ in range(number)])
    yield from compared(
        "one run folder",
        codes,
        snapshot(place),
        snapshot(alone),
        f"seed {seed}, {number} processes",
    )


def on_a_grid(number: int, seed: int, place: Path) -> Iterator[Outcome]:
    """Each process is told to make the same grid, with two workers of its own."""
    alone = place.parent / "grid alone" / "work"
    if not alone.is_dir():
        alone.mkdir(parents=True)
        if waited(program(*GRID, "local")(alone, None), PATIENCE) != 0:
            raise RuntimeError(f"the grid could not be made alone: {said(alone)}")
    codes = together([program(*GRID, "local")(place, None) for _ in range(number)])
    yield from compared(
        "one grid", codes, snapshot(place), snapshot(alone), f"seed {seed}, {number} processes"
    )


def ended(code: int | None) -> tuple[str, str]:
    if code == 0:
        return "same", ""
    return ("wrong", "exit code 2") if code == 2 else ("crash", f"exit code {code}")


def compared(
    group: str, codes: list[int | None], found: dict[str, str], wanted: dict[str, str], about: str
) -> Iterator[Outcome]:
    """One outcome for each process, and one for what they leave behind."""
    for code in codes:
        word, why = ended(code)
        yield Outcome(group, word, f"{about}: {why}")
    if different := differences(found, wanted):
        yield Outcome(
            group, "silent" if "another" in different else "wrong", f"{about}: {different}"
        )


SCENES = (on_a_cache, on_a_run, on_a_grid)


def crowd(
    seed: int,
    count: int,
    tally: Tally,
    scenes: tuple[Any, ...] = SCENES,
    workers: tuple[int, ...] = WORKERS,
) -> None:
    rng, top, done = random.Random(seed), workspace(), 0
    try:
        while done < count:
            for scene in scenes:
                number = rng.choice(workers) if scene is not on_a_grid else workers[0]
                place = top / f"{done}" / "work"
                place.mkdir(parents=True)
                for outcome in scene(number, rng.randrange(1000), place):
                    tally.add(outcome)
                done += number
    finally:
        shutil.rmtree(top, ignore_errors=True)
