"""MaC-Cal that starts from the trained classifier, beside a temperature, a fresh head, and the same
training with the masks off: on many networks, with many labels, few, and none.

    python benchmarks/starts.py FEATURES [--out results/starts.jsonl] [--networks NAME ...]

FEATURES is what starts_features.py made. Adds the rows that are missing, and makes the page beside
them, results/starts.md (starts_page.py). To measure again after a change of defaults, delete the
rows of the method that it changed.

One half of the rows that were never trained on gives the labels, the other half is measured; then
the halves change places. A seed draws the labels, where fewer than the half are used, and the
masks. Without labels the feedback looks at changed training rows. One to three seconds per head on
one core.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch
from starts_arrays import Network, networks_in, read_network
from starts_features import family_of
from starts_page import write_page
from starts_rows import NONE, Row, add, key_of, read
from torch import Tensor, nn

from maccal.calibration import Stage2, TemperatureScaling, calibrate_head
from maccal.calibration.looks import WIDEST, Look, looked_at
from maccal.calibration.solving import nearest_scale
from maccal.evaluation.shift import pooled
from maccal.features import Features
from maccal.features.views import SHARE, UNCHANGED, View
from maccal.metrics import Bins, compare, nll, summary, top_label

RESULTS = Path(__file__).parent.parent / "results"
SEEDS = (1, 2, 3)
BUDGETS = (5000, 500, 100)
KEPT = ("accuracy", "confidence", "ece", "aece", "nll", "brier", "aurc")
SEVERITIES = [1, 2, 3, 4, 5]


@dataclass(frozen=True)
class Asked:
    """What a row is asked for: labels of one half, measured on the other."""

    labels: int  # at most; 0 is none
    half: int  # that is measured
    seed: int


def look(net: Network) -> Look:
    """The view that `calibrate` would aim at, and how sure that is."""
    family = family_of(net.name, images=net.corrupted is not None)
    views = (*family.all, UNCHANGED)
    return looked_at(family, [net.views[view.name] for view in views], net.head)


def feedback(net: Network, asked: Asked) -> Features:
    """The rows on which confidence should equal accuracy."""
    if asked.labels == NONE:
        return net.views[look(net).view]
    return net.labelled(1 - asked.half, asked.labels, asked.seed)


class Scaled(nn.Module):
    """The trained classifier with its logits divided by a temperature."""

    def __init__(self, head: nn.Linear, temperature: float) -> None:
        super().__init__()
        self.head = head
        self.temperature = temperature

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.head(z) / self.temperature
        return logits


def as_trained(net: Network, asked: Asked) -> nn.Module:
    return net.head


def temperature(net: Network, asked: Asked) -> nn.Module:
    """The optimum of NLL on labels; without any, where confidence meets accuracy on the views.

    NLL on views would be another question: their labels are those of training rows.
    """
    z, y = feedback(net, asked)
    if asked.labels == NONE:
        return Scaled(net.head, matched(net.head(z), y))
    return Scaled(net.head, TemperatureScaling().fit(net.head(z), y).temperature_)


def accuracy(head: nn.Module, rows: Features) -> float:
    return float((head(rows.z).argmax(1) == rows.y).double().mean())


def matched(logits: Tensor, y: Tensor) -> float:
    """The temperature at which mean confidence equals accuracy."""
    right = float((logits.argmax(1) == y).double().mean())
    return 1 / nearest_scale(logits, right, WIDEST)


def fresh(net: Network, asked: Asked) -> nn.Module:
    """The default so far: a random head; without labels, mixed images."""
    if asked.labels > NONE:
        val = feedback(net, asked)
        return calibrate_head(*net.train, val=val, config=Stage2(start="fresh"), seed=asked.seed)
    z, y = net.views[View(share=SHARE).name]
    sure = float(net.head(z).softmax(1).amax(1).mean())
    known = min(accuracy(net.head, Features(z, y)), sure)  # never surer than as trained
    config = Stage2(start="fresh")
    return calibrate_head(*net.train, accuracy=known, unlabelled=z, config=config, seed=asked.seed)


def started(config: Stage2, net: Network, asked: Asked) -> nn.Module:
    """MaC-Cal from the trained classifier."""
    val = feedback(net, asked)
    return calibrate_head(*net.train, start=net.start, val=val, config=config, seed=asked.seed)


def from_trained(net: Network, asked: Asked) -> nn.Module:
    return started(Stage2(), net, asked)


def masks_off(net: Network, asked: Asked) -> nn.Module:
    return started(Stage2(masking="none"), net, asked)


def printed(net: Network, asked: Asked) -> nn.Module:
    """The equations of the paper as printed: no feedback but the training rows."""
    return calibrate_head(*net.train, config=Stage2.paper(), seed=asked.seed)


METHODS: Mapping[str, Callable[[Network, Asked], nn.Module]] = {
    "as trained": as_trained,
    "temperature": temperature,
    "fresh head": fresh,
    "MaC-Cal": from_trained,
    "masks off": masks_off,
    "as printed": printed,
}


def wanted(net: Network) -> Iterator[tuple[str, Asked]]:
    """Every row of a network, the temperature before what is compared with it."""
    available = len(net.test.y) // 2
    budgets = [count for count in BUDGETS[1:] if count < available]
    for half in (0, 1):
        yield "as trained", Asked(NONE, half, 1)
        yield "as printed", Asked(NONE, half, 1)
    for labels, half, seed in product([BUDGETS[0], *budgets, NONE], (0, 1), SEEDS):
        for method in ("temperature", "MaC-Cal", "masks off"):
            yield method, Asked(labels, half, seed)
        # forty epochs: one seed where the labels are few
        if seed == 1 or labels in (BUDGETS[0], NONE):
            yield "fresh head", Asked(labels, half, seed)


@torch.inference_mode()
def measured(net: Network, head: nn.Module, half: int) -> Row:
    """The numbers of a head on one half, and on its corrupted images."""
    z, y = net.half(half)
    numbers = summary(logits=head(z), labels=y)
    row: Row = {key: round(numbers[key], 6) for key in KEPT}
    if net.corrupted is not None:
        row["shift"] = under_corruption(head, net.corrupted, half)
    return row


def under_corruption(head: nn.Module, corrupted: Features, half: int) -> Row:
    """Means over the cells of corruption and severity, and ECE pooled by severity."""
    labels = corrupted.y[half]
    kinds = [str(number) for number in range(len(corrupted.z))]
    sums, losses = {}, {}
    for number, level in product(range(len(kinds)), SEVERITIES):
        logits = head(corrupted.z[number, level - 1, half])
        cell = (kinds[number], level)
        sums[cell] = Bins.of(*top_label(logits.double().softmax(1), labels))
        losses[cell] = nll(logits=logits, labels=labels)
    found = pooled(sums, losses, kinds, SEVERITIES)
    return {
        **{key: round(value, 6) for key, value in found["overall"].items()},
        "ece_by_severity": [round(float(value), 6) for value in found["ece_pooled"]],
    }


@torch.inference_mode()
def against(net: Network, first: nn.Module, second: nn.Module, half: int) -> Row:
    """The paired tests of two heads on the same rows: second minus first, and p."""
    z, y = net.half(half)
    tests = compare(first(z).double().softmax(1), second(z).double().softmax(1), y)
    return {key: [round(t.difference, 6), round(t.p_value, 4)] for key, t in tests.items()}


def made(net: Network, method: str, asked: Asked) -> Row:
    """One row."""
    start = time.perf_counter()
    head = METHODS[method](net, asked)
    seconds = time.perf_counter() - start
    rows = 0 if method in ("as trained", "as printed") else len(feedback(net, asked).y)
    row = {"network": net.name, "method": method, **asdict(asked), "rows": rows}
    row |= measured(net, head, asked.half)
    row["seconds"] = round(seconds, 3)
    if method not in ("as trained", "temperature", "as printed"):
        row["against temperature"] = against(net, temperature(net, asked), head, asked.half)
    if asked.labels == NONE and rows > 0:
        seen = look(net)
        row |= {"view": seen.view, "within": round(seen.within, 6)}
    if method == "as trained":
        row["train_accuracy"] = accuracy(net.head, net.train)
    history = getattr(head, "history", None)
    if history:
        row["keep"] = round(float(history[-1]["keep"]), 4)
    return row


def run(folder: Path, out: Path, names: list[str]) -> None:
    """Add the rows that are missing."""
    done = {key_of(row) for row in read(out)}
    for file in networks_in(folder):
        if names and file.stem not in names:
            continue
        net = read_network(file)
        for method, asked in wanted(net):
            if (net.name, method, *asdict(asked).values()) not in done:
                row = made(net, method, asked)
                add(out, row)
                print(*key_of(row), *(row[name] for name in ("accuracy", "ece", "nll")), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("features", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "starts.jsonl")
    parser.add_argument("--networks", nargs="*", default=[])
    given = parser.parse_args()
    torch.set_num_threads(1)
    run(given.features, given.out, given.networks)
    write_page(given.out)


if __name__ == "__main__":
    main()
