"""A card: what a calibrated model is, by what it was calibrated, and how well that worked.

    card(model, test, name="resnet20", data="CIFAR-10", task="image-classification").save("out")

writes out/card.json, with a checksum, and out/README.md, which starts with the block of metadata
that model hubs read (a model index with accuracy, ECE, NLL and Brier score). Every number has its
interval, ECE also the band of a calibrated model, and the verdict is in words.

Cost: one pass over the test rows, and a summary with intervals.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from maccal.deployment.facts import facts_of
from maccal.evaluation.predictions import Predictions
from maccal.features.batches import as_batch, check_loader
from maccal.features.running import Runner, device_of, frozen, unwrap
from maccal.io import FileError, read_bytes, sealed, write_all
from maccal.metrics import METRICS, Summary
from maccal.metrics.summaries import show, span

CARD = "card 1"
MARK = "<!-- a card of maccal -->"  # a README.md without it is somebody's own
SHOWN = ("accuracy", "confidence", "ece", "nll", "brier")
LARGEST = 1 << 24


@dataclass(frozen=True)
class Card:
    """Plain values: what the files say."""

    content: dict[str, Any]

    @property
    def json(self) -> str:
        """With its format and checksum."""
        return json.dumps(sealed(self.content, CARD), indent=1, allow_nan=False) + "\n"

    @property
    def markdown(self) -> str:
        """With the metadata that model hubs read in front."""
        parts = [metadata(self.content), MARK, f"# {self.content['name']}", *sections(self.content)]
        return "\n\n".join(parts) + "\n"

    def save(self, folder: Path | str) -> Path:
        """Write card.json and README.md, both or none; a README.md that is not ours is refused."""
        readme = Path(folder) / "README.md"
        if readme.exists() and MARK.encode() not in read_bytes(readme, LARGEST):
            raise FileError(readme, "is there already, and no card; choose another folder")
        write_all({Path(folder) / "card.json": self.json, readme: self.markdown})
        return Path(folder)


def card(
    model: nn.Module,
    test: Iterable[Any] | Predictions,
    *,
    name: str,
    data: str,
    task: str,
    before: nn.Module | Predictions | None = None,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> Card:
    """The card of a calibrated model, measured on test rows that neither training nor `val` had.

    `test` is a loader, or what the model said about such rows. `name`, `data` and `task` are what a
    hub lists it under: "resnet20", "CIFAR-10", "image-classification". `before` is the model as it
    was trained, or what that said: its numbers then stand beside the new ones.
    """
    after = predictions(model, test)
    settings = {"bins": bins, "resamples": resamples, "seed": seed}
    content: dict[str, Any] = {"name": name, "data": data, "task": task, **facts_of(model)}
    content["measured"] = settings
    content["after"] = plain_numbers(after.summary(**settings))
    if before is not None:
        old = before if isinstance(before, Predictions) else predictions(before, test)
        if not np.array_equal(old.labels, after.labels):
            raise ValueError("before and test do not have the same labels; pass the same rows")
        content["before"] = plain_numbers(old.summary(**settings))
    return Card(content)


def predictions(model: nn.Module, test: Iterable[Any] | Predictions) -> Predictions:
    """What the model says about the rows of a loader."""
    if isinstance(test, Predictions):
        return test
    check_loader(test, "test")
    inside, _ = unwrap(model)
    run = Runner(inside, device_of(inside))
    logits = []
    labels = []
    with frozen(inside):
        for batch in map(as_batch, test):
            logits.append(run(batch).float().cpu())
            labels.append(batch.y)
    if not logits:
        raise ValueError("test is empty; pass a loader of rows that can be read twice")
    return Predictions(torch.cat(logits).numpy(), "logits", torch.cat(labels).numpy())


def plain_numbers(summary: Summary) -> dict[str, Any]:
    """Those that the card shows, with their ends; None for what JSON cannot say."""
    kept: dict[str, Any] = {key: summary[key] for key in ("n", "classes", "bins", "verdict")}
    for name in SHOWN:
        for end in ("", "_low", "_high", "_null_low", "_null_high"):
            value = summary.get(name + end)
            kept[name + end] = value if value is not None and np.isfinite(value) else None
    kept["p_value"] = summary["p_value"]
    return kept


# Markdown


def metadata(content: dict[str, Any]) -> str:
    """The block in front: YAML, in which every JSON text is a text too."""
    lines = [
        "---",
        "tags:",
        "- calibration",
        "- maccal",
        f"pipeline_tag: {json.dumps(content['task'])}",
        "model-index:",
        f"- name: {json.dumps(content['name'])}",
        "  results:",
        "  - task:",
        f"      type: {json.dumps(content['task'])}",
        "    dataset:",
        f"      name: {json.dumps(content['data'])}",
        f"      type: {json.dumps(slug(content['data']))}",
        "    metrics:",
    ]
    for name in SHOWN:
        value = content["after"][name]
        if value is not None:
            lines += [f"    - type: {name}", f"      value: {value:.6g}"]
            lines.append(f"      name: {json.dumps(METRICS[name].label)}")
    return "\n".join([*lines, "---"])


def slug(text: str) -> str:
    """A name as hubs have it in addresses.

    >>> slug("CIFAR-10, test images")
    'cifar-10-test-images'
    """
    letters = [letter if letter.isalnum() else " " for letter in text.lower()]
    return "-".join("".join(letters).split())


def sections(content: dict[str, Any]) -> list[str]:
    after = content["after"]
    rows = f"{after['n']:,} rows of {content['data']}, {after['classes']} classes"
    found = [after["verdict"], "## Confidence", f"Measured on {rows}; 95 % intervals."]
    found.append(table(content))
    found += ["## Calibration", calibrated_by(content), "## Fingerprint", fingerprint(content)]
    return found


def table(content: dict[str, Any]) -> str:
    """One line per metric."""
    before = content.get("before")
    head = ["", "value", "interval", "a calibrated model would have"]
    if before is not None:
        head.insert(1, "as trained")
    lines = [cells(head), "|" + "---|" * len(head)]
    for name in SHOWN:
        metric = METRICS[name]
        line = [metric.label]
        if before is not None:
            line.append(shown(before[name], metric.percent))
        after = Summary(
            {key: value for key, value in content["after"].items() if value is not None}
        )
        line.append(shown(content["after"][name], metric.percent))
        line += [span(after, key, metric.percent) for key in (name, f"{name}_null")]
        lines.append(cells(line))
    return "\n".join(lines)


def cells(words: list[str]) -> str:
    return f"| {' | '.join(words)} |"


def shown(value: float | None, percent: bool) -> str:
    return "infinite" if value is None else show(value, percent)


def calibrated_by(content: dict[str, Any]) -> str:
    feedback = content["feedback"]
    if feedback is None:
        return "No layer says what it was calibrated by: this model is as it was trained."
    names = ", ".join(f"`{name}`" for name in content["classifier"])
    # the words may come from a file; a page must not take them for its own
    return f"The classifier {names} was calibrated: {escape(feedback['words'], quote=False)}."


def fingerprint(content: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in content["versions"].items())
    weights = f"{content['parameters']:,} parameters, SHA-256 of the weights"
    return f"`{content['model']}`, {weights} `{content['weights_sha256']}`. Made with {versions}."
