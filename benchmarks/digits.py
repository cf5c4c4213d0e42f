"""Where mixed images mislead: the network of `maccal demo`, calibrated with every kind of feedback.

    python benchmarks/digits.py      # writes results/digits.json; about two minutes on one core

Its images are full of noise, which mixing averages out, so that mixed ones are easier than unseen
ones. Seeds 1, 2, 3."""

import json
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress

from maccal.calibration.model import calibrate
from maccal.cli.demo import DEFAULT_TASK, digits, fit, one_thread
from maccal.io import write
from maccal.metrics import summary

RESULTS = Path(__file__).parent.parent / "results"


def rows(seed: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    train, val, test = digits(DEFAULT_TASK, generator).values()
    with Progress(disable=True) as progress:
        network = fit(train, DEFAULT_TASK, seed, generator, progress)
    with torch.no_grad():
        right = float((network(val.x).argmax(1) == val.y).double().mean())
        models = {
            "as trained": network,
            "shifted and mixed images": calibrate(
                network, [tuple(train)], seed=seed, views="shift"
            ),
            "accuracy known": calibrate(network, [tuple(train)], accuracy=right, seed=seed),
            "held out": calibrate(network, [tuple(train)], val=[tuple(val)], seed=seed),
        }
        made = {
            name: summary(logits=model(test.x), labels=test.y, interval=True)
            for name, model in models.items()
        }
    kept = ("accuracy", "ece", "ece_low", "ece_high", "ece_null_low", "ece_null_high", "nll")
    found = []
    for name, numbers in made.items():
        rounded = {key: round(numbers[key], 6) for key in kept}
        found.append({"kind": name, "seed": seed, **rounded})
    return found


if __name__ == "__main__":
    with one_thread():
        found = [*rows(1), *rows(2), *rows(3)]
    for row in found:
        print(row["kind"], row["seed"], f"accuracy {row['accuracy']:.4f} ECE {row['ece']:.4f}")
    write(
        RESULTS / "digits.json",
        json.dumps({"torch": torch.__version__, "rows": found}, indent=1) + "\n",
    )
