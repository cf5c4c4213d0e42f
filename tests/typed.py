"""What a type checker knows of the public names: `make lint` reads this file, nothing runs it.

A line with `type: ignore` must be an error, for an ignore that is not needed is one itself.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from typing_extensions import assert_type

import maccal as mc
from maccal.metrics import ece

ROWS = [(torch.zeros(2, 3), torch.tensor([0, 1]))]
PROBS = np.array([[0.9, 0.1], [0.2, 0.8]])


def what_comes_back_is_what_was_passed(model: nn.Sequential) -> None:
    assert_type(mc.calibrate(model, ROWS, val=ROWS), nn.Sequential)
    assert_type(mc.load_calibrated(model, "out"), nn.Sequential)


def arrays_lists_and_tensors(model: nn.Module, path: Path) -> None:
    assert_type(mc.summary(PROBS, [0, 1]), mc.Summary)
    assert_type(mc.summary(torch.tensor(PROBS), torch.tensor([0, 1]), interval=True), mc.Summary)
    assert_type(mc.summary([[0.9, 0.1]], np.array([0])), mc.Summary)
    assert_type(ece([0.5, 0.9], [True, False]), float)
    mc.reliability({"before": PROBS, "after": PROBS}, [0, 1]).savefig(path)
    mc.summary("probs.npy", [0, 1])  # type: ignore[arg-type]


def names_where_classes_are_named() -> None:
    names, classes = ["cat", "dog"], ["cat", "dog"]
    mc.summary(PROBS, names, classes=classes)
    mc.reliability(PROBS, names, classes=classes)
    mc.compare(PROBS, PROBS, names, classes=classes)
    mc.Stream.of(PROBS, names, classes=classes)
    mc.by_group(PROBS, [0, 1], ["north", "south"])
    mc.compare_calibrators(PROBS, names, inputs="probs", classes=classes)
    fitted = mc.TemperatureScaling(inputs="probs", classes=classes).fit(PROBS, names)
    assert_type(fitted.temperature_, float)
    mc.TemperatureScaling(inputs="percent")  # type: ignore[arg-type]


def estimators() -> None:
    assert_type(mc.MaCCalClassifier(C=0.5).fit(PROBS, [0, 1]), mc.MaCCalClassifier)
    mc.MaCCalClassifier(c=0.5)  # type: ignore[call-arg]


def rooms_and_names() -> None:
    assert_type(mc.__version__, str)
    assert_type(mc.metrics.accuracy(PROBS, [0, 1]), float)
    mc.calibrat  # type: ignore[attr-defined]  # noqa: B018
    mc.calibration.calibrat  # type: ignore[attr-defined]  # noqa: B018
