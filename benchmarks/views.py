"""Feedback without any label: how far off is a temperature that views of training images give?

    python benchmarks/views.py SHARED DATA FOLDER

measures the networks of view_networks.py that are in FOLDER, and writes results/views.jsonl and
results/views.md; about ten seconds per network on one core. One temperature for each view, the one
at which the mean confidence is the accuracy on 3,000 changed training images. It is judged on test
images: ECE on both halves, beside a temperature fitted on 5,000 labels of the other half (or on the
whole other half, if it is smaller).
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from view_networks import CHOSEN_ON, OTHERS, PUBLIC, TRAINED, network_of

from maccal.calibration.looks import DOUBTFUL, KNOWN, WIDEST, looked_at, scores_of
from maccal.calibration.posthoc.temperature import TemperatureScaling
from maccal.calibration.solving import mean_confidence, nearest_scale
from maccal.features import extract
from maccal.features.views import FAMILIES, SHARE, UNCHANGED, Changed, View, sample_for
from maccal.io import write
from maccal.metrics import ece
from maccal.runs.second import Batches

RESULTS = Path(__file__).parent.parent / "results"
MIX = View(share=SHARE)  # what was looked at before
LABELS = 5000
MISLED = 0.01  # of ECE more than with labels


@dataclass(frozen=True)
class Measured:
    """What views say of a network, and what is true; shares, not per cent."""

    network: str
    chosen_on: bool
    family: str
    accuracy: float
    confidence: float
    ece: float  # as trained
    ece_labels: float  # temperature, labels of the other half
    ece_mix: float  # temperature, mixed images
    ece_views: float  # temperature, the middle view
    off: float  # the confidence on test images that the middle view asks for, minus the accuracy
    view: str
    within: float
    known: float  # accuracy on training images
    warned: bool
    temperatures: dict[str, float]
    confidences: dict[str, float]

    @property
    def misled(self) -> bool:
        return self.ece_views > self.ece_labels + MISLED


def halves(count: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    return order[: count // 2], order[count // 2 :]


def error(scores: Tensor, y: Tensor, temperature: float) -> float:
    sure, best = (scores / temperature).softmax(1).max(1)
    return float(ece(sure, best == y))


def error_with_labels(scores: Tensor, y: Tensor) -> float:
    """Mean over both halves, each with the temperature of the other."""
    first, second = halves(len(y))
    errors = []
    for fitted, judged in ((first, second), (second, first)):
        some = fitted[:LABELS]
        temperature = TemperatureScaling().fit(scores[some], y[some]).temperature_
        errors.append(error(scores[judged], y[judged], temperature))
    return sum(errors) / 2


def error_of(scores: Tensor, y: Tensor, temperature: float) -> float:
    return sum(error(scores[half], y[half], temperature) for half in halves(len(y))) / 2


def measured(name: str, shared: Path, root: Path, folder: Path) -> Measured:
    network, data, pixels = network_of(name, shared, root, folder)
    assert data.train is not None
    family = FAMILIES["mirror" if pixels.mirrors else "shift"]
    rows = sample_for(family.name, Batches(data.train, pixels))
    seen = [
        extract(network, Changed(rows, view), head="head") for view in (*family.all, UNCHANGED, MIX)
    ]
    head = network.head
    look = looked_at(family, seen[:-1], head)
    mixed = scores_of(head, seen[-1][0])
    right = float((mixed.argmax(1) == seen[-1][1]).double().mean())
    before = 1 / nearest_scale(mixed, right, WIDEST)
    z, y = extract(network, Batches(data.test, pixels), head="head")
    scores = scores_of(head, z)
    accuracy = float((scores.argmax(1) == y).double().mean())
    own = look.temperatures[look.view]
    return Measured(
        network=name,
        chosen_on=name in CHOSEN_ON,
        family=family.name,
        accuracy=accuracy,
        confidence=mean_confidence(scores),
        ece=error_of(scores, y, 1.0),
        ece_labels=error_with_labels(scores, y),
        ece_mix=error_of(scores, y, before),
        ece_views=error_of(scores, y, own),
        off=mean_confidence(scores, 1 / own) - accuracy,
        view=look.view,
        within=look.within,
        known=look.known,
        warned=look.warning is not None,
        temperatures={"mix 0.7": before, **look.temperatures},
        confidences=look.confidences,
    )


def line(row: Measured) -> str:
    numbers = (
        row.known,
        row.accuracy,
        row.confidence,
        row.ece,
        row.ece_labels,
        row.ece_mix,
        row.ece_views,
    )
    cells = [row.network, *(f"{100 * number:.2f}" for number in numbers)]
    cells += [f"{100 * row.off:+.2f}", row.view, f"{100 * row.within:.2f}"]
    cells += ["yes" if row.warned else "", "yes" if row.misled else ""]
    return "| " + " | ".join(cells) + " |"


COLUMNS = (
    "network | training accuracy | accuracy | confidence | ECE as trained | ECE, 5,000 labels | "
    "ECE, mix alone | ECE, views | off | view aimed at | views apart | warned | misled"
)


ABOUT = f"""\
Made by `benchmarks/views.py`; [views.jsonl](views.jsonl) has the rows. One temperature for each
network, found without any label of an unseen image; numbers in per cent, of networks measured once,
with one sample of 3,000 training images.

- *off*: the confidence on the test images that the views ask for, minus the accuracy there.
- *views apart*: the farthest that another view's confidence is from that aimed at, in points. Above
  {100 * DOUBTFUL:g} `calibrate` warns. Unchanged training images count as a view where fewer than
  {100 * KNOWN:g} % of them are right: for such networks the views are too hard.
- *misled*: ECE more than one point above that of a temperature with 5,000 labels.

The views, the rule of the middle one and the unchanged images come from the networks of the first
table. The threshold lies between the largest distance of a network there that knows its images, is
not misled and learnt no view (4.3) and the smallest of a misled one (7.1). But the rows of the
second table are not blind: these networks had been measured once before the unchanged images were
counted, the threshold went from 6 to 5, and the middle of three took the place of shift + mix where
images are not mirrored. tiny-40 was trained anew since."""


def table(rows: list[Measured]) -> list[str]:
    return [f"| {COLUMNS} |", "|---" * (COLUMNS.count("|") + 1) + "|", *map(line, rows)]


def verdict(rows: list[Measured]) -> str:
    misled = [row for row in rows if row.misled]
    silent = [row.network for row in misled if not row.warned]
    alarms = [row.network for row in rows if row.warned and not row.misled]
    said = f"{len(rows) - len(misled)} of {len(rows)} are within a point of the labels. "
    said += f"Misled without a warning: {', '.join(silent) or 'none'}. "
    return said + f"Warned of needlessly: {', '.join(alarms) or 'none'}."


def page(rows: list[Measured]) -> str:
    chosen = [row for row in rows if row.chosen_on]
    reported = [row for row in rows if not row.chosen_on]
    parts = [
        "# Feedback without labels: views of the training images",
        "",
        ABOUT,
        "",
        "## Networks on which the views and the threshold were chosen",
        "",
        *table(chosen),
        "",
        verdict(chosen),
        "",
        "## Networks that are only reported on",
        "",
        *table(reported),
        "",
        verdict(reported),
        "",
    ]
    return "\n".join(parts)


def main(shared: Path, root: Path, folder: Path) -> None:
    rows = []
    for name in (*PUBLIC, *TRAINED, *OTHERS):
        there = folder / "starts" / f"{OTHERS[name]}.pt" if name in OTHERS else None
        if there is not None and not there.exists():
            continue
        row = measured(name, shared, root, folder)
        print(line(row), flush=True)
        rows.append(row)
    lines: list[dict[str, Any]] = [asdict(row) for row in rows]
    write(RESULTS / "views.jsonl", "".join(json.dumps(row) + "\n" for row in lines))
    write(RESULTS / "views.md", page(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
