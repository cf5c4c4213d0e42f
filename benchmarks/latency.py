"""Whether a calibrated model is slower than the same model as trained: side by side, in one run.

    python benchmarks/latency.py

Writes results/latency.json and results/latency.md. Three models are timed in turn, in an order that
changes with every round:

    as trained     the network
    copy           a copy of it: how far apart two equal models are timed, by chance alone
    calibrated     what maccal.calibrate returns

Each round times new copies of all three: where a model lies in memory changes its time by a few per
cent, and would else be taken for the calibration.

Seconds are those of the processor, in one thread. A ratio is the median over rounds of the ratio
within a round; its interval is that of the median, by the binomial order of the rounds (95 %).
Weights are random: they do not change how long a pass takes. Cost: two minutes of one core.
"""

import json
import platform
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor, nn

import maccal as mc
from maccal.io import write

RESULTS = Path(__file__).parent.parent / "results"
ROUNDS = 81
SECONDS = 0.03  # of passes in one timing
NAMES = ("as trained", "copy", "calibrated")


@dataclass(frozen=True)
class Line:
    """One network and batch size."""

    network: str
    rows: int
    milliseconds: float  # of a pass of the network as trained
    copy: tuple[float, float, float]  # ratio to it, and the ends of its interval
    calibrated: tuple[float, float, float]


def networks() -> dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]:
    """Each with the shape of one input."""
    wide = [nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1000)]
    return {
        "ResNet-20, 10 classes": (lambda: mc.build("resnet20", 10), (3, 32, 32)),
        "WRN-16-2, 100 classes": (lambda: mc.build("wrn16_2", 100), (3, 32, 32)),
        "two layers, 1,000 classes": (lambda: nn.Sequential(*wide), (512,)),
    }


def calibrated(model: nn.Module, inputs: Tensor) -> nn.Module:
    """By MaC-Cal, on noise with labels of which the model is right on three of four."""
    with torch.no_grad():
        labels = model(inputs).argmax(1)
    labels[::4] = (labels[::4] + 1) % 10
    rows = [(inputs, labels)]
    return mc.calibrate(model, rows, val=rows, config=mc.Stage2(epochs=1))


def timed(model: nn.Module, inputs: Tensor, passes: int) -> float:
    """Seconds of one pass."""
    start = time.process_time()
    for _ in range(passes):
        model(inputs)
    return (time.process_time() - start) / passes


def ratio(seconds: np.ndarray, base: np.ndarray) -> tuple[float, float, float]:
    """The median of the rounds' ratios, and the order statistics around it."""
    values = np.sort(seconds / base)
    low = int(binom.ppf(0.025, len(values), 0.5))
    return float(np.median(values)), float(values[low]), float(values[-1 - low])


@torch.no_grad()
def measured(name: str, models: dict[str, nn.Module], inputs: Tensor) -> Line:
    """All models on one batch, round by round."""
    once = max(timed(model, inputs, 3) for model in models.values())
    passes = max(1, round(SECONDS / once))
    seconds: dict[str, list[float]] = {name: [] for name in NAMES}
    for number in range(ROUNDS):
        fresh = {kind: deepcopy(model) for kind, model in models.items()}
        order = np.roll(NAMES, number)
        for kind in order if number % 2 else order[::-1]:
            timed(fresh[kind], inputs, 1)
            seconds[kind].append(timed(fresh[kind], inputs, passes))
    found = {kind: np.array(values) for kind, values in seconds.items()}
    base = found["as trained"]
    return Line(
        name,
        len(inputs),
        round(1000 * float(np.median(base)), 4),
        ratio(found["copy"], base),
        ratio(found["calibrated"], base),
    )


def lines() -> list[Line]:
    found = []
    for name, (build, shape) in networks().items():
        torch.manual_seed(0)
        model = build().eval()
        models = {"as trained": model, "copy": deepcopy(model)}
        models["calibrated"] = calibrated(model, torch.randn(64, *shape)).eval()
        for rows in (1, 32):
            found.append(measured(name, models, torch.randn(rows, *shape)))
            print(found[-1], flush=True)
    return found


def shown(values: tuple[float, float, float]) -> str:
    middle, low, high = values
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def page(found: list[Line], machine: dict[str, Any]) -> str:
    """The numbers, and what they say."""
    rows = [
        "| network | rows | as trained | a copy of it, ratio | calibrated, ratio |",
        "|---|---:|---:|---:|---:|",
    ]
    for line in found:
        cells = [line.network, line.rows, f"{line.milliseconds:.3f} ms"]
        cells += [shown(line.copy), shown(line.calibrated)]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    farthest = max(abs(line.calibrated[0] - 1) for line in found)
    by_chance = max(abs(line.copy[0] - 1) for line in found)
    apart = sum(not overlap(line) for line in found)
    text = [
        "# Latency of a calibrated model",
        f"Written by `python benchmarks/latency.py` ({machine['torch']}, {machine['processor']}, "
        f"one thread, {ROUNDS} rounds). Processor time of one pass; ratios to the network as "
        "trained, medians over rounds with their 95 % intervals.",
        "\n".join(rows),
        f"The largest difference is {100 * farthest:.1f} %; two equal models differ by up to "
        f"{100 * by_chance:.1f} %. The intervals of the calibrated model and of the copy are "
        f"apart in {apart} of {len(found)} lines. MaC-Cal writes its weights into the layer that "
        "is there, so the pass is the same.",
    ]
    return "\n\n".join(text) + "\n"


def overlap(line: Line) -> bool:
    return line.copy[1] <= line.calibrated[2] and line.calibrated[1] <= line.copy[2]


if __name__ == "__main__":
    torch.set_num_threads(1)
    machine = {
        "torch": f"torch {torch.__version__}",
        "processor": platform.machine(),
        "rounds": ROUNDS,
    }
    found = lines()
    content = {"machine": machine, "lines": [asdict(line) for line in found]}
    write(RESULTS / "latency.json", json.dumps(content, indent=1) + "\n")
    write(RESULTS / "latency.md", page(found, machine))
