"""What every calibrator is given, and what every calibrator is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from maccal.calibration.feedback import Feedback
from maccal.calibration.live import Images
from maccal.features.table import FeatureTable
from maccal.metrics.arguments import check_count

Choices: TypeAlias = Any  # a frozen dataclass: Stage2, TwoStage, Temperature, or one's own


@dataclass(frozen=True)
class Task:
    """Features with labels, the truth about confidence, and the classifier as trained."""

    train: FeatureTable
    feedback: Feedback
    classes: int
    start: nn.Linear | None  # the classifier as trained
    seed: int = 1
    progress: bool = False


def keep(choices: Choices, head: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """Rebuild a head that has the shape of the one it replaced."""
    return head


def as_they_are(choices: Choices) -> Choices:
    return choices


def never(choices: Choices) -> bool:
    return False


def always(choices: Choices) -> bool:
    return True


@dataclass(frozen=True)
class Calibrator:
    """A row of the registry.

    fit            of the choices and a Task: the new head in eval mode, with `.history`
    rebuild        of the choices, the head it replaced, and the saved weights ("0.weight", ...):
                   an untrained head of the new one's shape
    looks_beyond   whether these choices listen to rows that the network has not trained on
    needs_images   whether these choices are fitted on images, by fit_images, and not on features
    settle         fills in choices that are left open
    needs_start    whether it changes the classifier as trained, and does not train a new one
    only_scales    whether it does no more than divide the logits by one number
    plain          whether the head is made of linear layers, which a file of a head can hold
    variants       other choices that have a name, which then stands in the names of runs
    before         choices as they were in runs that were made before there was a choice
    """

    title: str
    choices: Choices  # with the values it has by itself
    fit: Callable[[Choices, Task], nn.Module]
    rebuild: Callable[[Choices, nn.Module, Mapping[str, Tensor]], nn.Module] = keep
    looks_beyond: Callable[[Choices], bool] = always
    needs_images: Callable[[Choices], bool] = never
    fit_images: Callable[[Choices, Images], nn.Module] | None = None
    settle: Callable[[Choices], Choices] = as_they_are
    needs_start: bool = False
    only_scales: bool = False
    plain: bool = True
    variants: Mapping[str, Choices] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)


def check_seed(seed: Any) -> int:
    """A seed that torch's generators take."""
    return check_count(seed, "seed", least=-(1 << 63), most=(1 << 64) - 1)


def device_of(head: nn.Module | None) -> torch.device:
    """Where a new head belongs: where the old one is."""
    if head is None:
        return torch.device("cpu")
    return next(head.parameters()).device
