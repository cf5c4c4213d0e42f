"""A method, a data set, a network and a calibrator of one's own, one `register` call each.

    maccal train --plugin examples/plugin.py --data stripes --model small --method squared
    maccal calibrate runs/stripes-small-squared-s1 --plugin examples/plugin.py --calibrator shrunk

They then behave as ours do everywhere: in runs, in `maccal evaluate`, in the benchmark's rows.
"""

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import maccal as mc
from maccal.calibration import Calibrator, Task
from maccal.calibration.heads import with_history
from maccal.data import DataSet, Pixels, Split
from maccal.methods import Method
from maccal.models import Net
from maccal.training import Objective

# A method of stage I: an Objective of the network and the method's settings


def squared(network: nn.Module, weight: float) -> Objective:
    """Cross-entropy, and the squared distance of the probabilities from the label."""

    def loss(network: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = network(x).float()
        right = F.one_hot(y, logits.shape[1]).float()
        distance = (logits.softmax(1) - right).square().sum(1).mean()
        return F.cross_entropy(logits, y) + weight * distance, logits

    return Objective(loss=loss)


mc.methods.register("squared", Method("Squared", "ours", squared, {"weight": 1.0}))


# A data set: a function from the root folder to a DataSet, and its pixels


def stripes(root: Path) -> DataSet:
    """Noisy images with stripes across, down, or neither."""
    generator = torch.Generator().manual_seed(0)

    def split(count: int) -> Split:
        labels = torch.arange(count) % 3
        images = torch.randint(0, 160, (count, 1, 8, 8), generator=generator, dtype=torch.uint8)
        images[labels == 0, :, ::2, :] += 90
        images[labels == 1, :, :, ::2] += 90
        return Split(images, labels)

    return DataSet(split(240), split(90), split(150), ("across", "down", "neither"))


mc.data.register("stripes", stripes, Pixels((0.4, 0.4, 0.4), (0.25, 0.25, 0.25)))


# A network: a function from the number of classes to a Net, which is a body and a head


def small(classes: int) -> Net:
    convolution = nn.Conv2d(3, 12, 3, padding=1)
    body = nn.Sequential(convolution, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Net(body, 12, classes)


mc.models.register("small", small)


# A calibrator: a function from its choices and a Task to a new head


@dataclass(frozen=True)
class Shrunk:
    """The classifier as trained, with all its weights made smaller."""

    factor: float = 0.5


def shrink(choices: Shrunk, task: Task) -> nn.Module:
    head = copy.deepcopy(task.start)
    assert head is not None
    with torch.no_grad():
        for weight in head.parameters():
            weight.mul_(choices.factor)
    return with_history(head.eval(), [{"epoch": 1, "factor": choices.factor}])


mc.calibration.register("shrunk", Calibrator("Shrunk", Shrunk(), shrink, needs_start=True))
