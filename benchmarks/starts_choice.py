"""What the defaults of a head that starts from the trained classifier are chosen by.

    python benchmarks/starts_choice.py FEATURES [--out results/starts_choice.jsonl]

Rates, epochs, centred features or not, and weight decay, on the networks of starts.py that are
tuned on, and on no other. 5,000 labels, both halves, seed 1. Rate 0 is a temperature that is
matched. Adds the rows that are missing; about half an hour on one core. Rows of the page: mean over
the networks, and NLL against the temperature's of the same labels.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch
from starts import RESULTS, Asked, measured, started, temperature
from starts_arrays import TUNED, Network, networks_in, read_network
from starts_rows import Row, add, read

from maccal.calibration import Stage2

RATES = (1e-4, 3e-4, 1e-3, 3e-3)
EPOCHS = (3, 5, 10)
LABELS = 5000


@dataclass(frozen=True)
class Choice:
    """One cell of the sweep; rate and epochs 0 are the temperature that is the optimum of NLL."""

    lr: float
    epochs: int
    centre: bool = False
    weight_decay: float = 0.0
    masking: str = "forward"


OPTIMUM = Choice(0.0, 0)


def choices() -> Iterator[Choice]:
    yield OPTIMUM
    yield Choice(0.0, 1)
    for lr, epochs in product(RATES, EPOCHS):
        for centre, decay in product((False, True), (0.0, 5e-4)):
            yield Choice(lr, epochs, centre, decay)
        yield Choice(lr, epochs, False, 5e-4, masking="none")


def made(net: Network, choice: Choice, half: int) -> Row:
    asked = Asked(LABELS, half, 1)
    if choice == OPTIMUM:
        head = temperature(net, asked)
    else:
        head = started(Stage2(**asdict(choice)), net, asked)
    return {"network": net.name, **asdict(choice), "half": half, **measured(net, head, half)}


def run(folder: Path, out: Path) -> None:
    done = {key_of(row) for row in read(out)}
    for file in networks_in(folder):
        if file.stem not in TUNED:
            continue
        net = read_network(file)
        for choice, half in product(choices(), (0, 1)):
            if json.dumps([net.name, *asdict(choice).values(), half]) not in done:
                add(out, made(net, choice, half))
        print(file.stem, flush=True)


def key_of(row: Row) -> str:
    names = ("network", *asdict(OPTIMUM), "half")
    return json.dumps([row[name] for name in names])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("features", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "starts_choice.jsonl")
    given = parser.parse_args()
    torch.set_num_threads(1)
    run(given.features, given.out)


if __name__ == "__main__":
    main()
