"""A whole model calibrated: find its classifier, extract features once, calibrate, put it back.

    calibrate(model, train, val=...)    feedback from held-out labels
    calibrate(model, train)             from harder views of the training rows: no label needed

Everything else about the model stays as it was, to the bit.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from maccal.calibration.feedback import GUESS, check_known, feedback_of
from maccal.calibration.mac_cal import count_classes
from maccal.calibration.registry import CALIBRATORS, calibrator_of
from maccal.calibration.task import Choices, Task, check_seed
from maccal.caution import warn
from maccal.distributed import from_first, my_rank
from maccal.features.classifiers import named
from maccal.features.extraction import extract, find_head, replace_head
from maccal.features.table import CHUNK, FeatureTable
from maccal.features.views import CannotMix, mixed


def calibrate(
    model: nn.Module,
    train: Iterable[Any],
    *,
    val: Iterable[Any] | None = None,
    accuracy: float | None = None,
    views: bool | None = None,
    calibrator: str = "maccal",
    head: str | None = None,
    config: Choices | None = None,
    seed: int = 1,
    inplace: bool = False,
    cache: str | Path | None = None,
    device: str | torch.device | None = None,
    autocast: torch.dtype | None = None,
    progress: bool = False,
) -> nn.Module:
    """The model with its classifier replaced by a calibrated one; all else is as it was.

    `train` and `val` are loaders (features/batches.py says of what). Without val and accuracy the
    feedback comes from views of the training rows, where their inputs have any; views=True insists
    on them, views=False takes the training rows as they are. `calibrator` is a name of CALIBRATORS,
    `config` its choices. `head` names the classifier where it cannot be found. The new one is at
    the old one's place, with its `.history`. cache, device and autocast are those of extract.
    """
    check_known(val, accuracy)
    if views and (val is not None or accuracy is not None):
        raise ValueError(
            "views stand in for held-out labels and a known accuracy; pass one of them"
        )
    if isinstance(train, Iterator):
        raise ValueError(
            "train is an iterator, which can be read once; pass a DataLoader or a list"
        )
    choices = calibrator_of(calibrator, config)
    row = CALIBRATORS[calibrator]
    seed = check_seed(seed)
    name = find_head(model, first_batch(train), head)
    old = named(model, name, [])
    features_of = partial(
        extract,
        model,
        head=name,
        cache=cache,
        device=device,
        autocast=autocast,
        progress=progress,
    )
    # 1. Rows that say something about unseen ones
    unknown = val is None and accuracy is None and views is not False and row.looks_beyond(choices)
    harder = harder_rows(train, insist=bool(views)) if unknown else None
    # 2. Features of all rows, once
    table = FeatureTable(*features_of(train), "z")
    held_out = None if val is None else features_of(val)
    changed = None if harder is None else features_of(harder)
    # 3. What the confidence should be
    ceiling = 1.0 if changed is None else mean_confidence(old, changed.z)
    feedback = feedback_of(table, val=held_out, accuracy=accuracy, views=changed, ceiling=ceiling)
    if unknown and feedback.source == "training":
        warn(f"{GUESS}, or views=False if gamma is what you mean")
    # 4. The new classifier in the place of the old one
    classes = count_classes(table, feedback.rows, old.out_features)
    new = row.fit(choices, Task(table, feedback, classes, old, seed, progress))
    result = model if inplace else deepcopy(model)
    replace_head(result, name, new)
    return result


@torch.no_grad()
def mean_confidence(head: nn.Linear, z: Tensor) -> float:
    """Of the classifier as trained.

    Views only stand in for unseen rows: they may make a network less sure, never surer.
    """
    weight = head.weight.cpu().float()
    bias = torch.zeros(1) if head.bias is None else head.bias.cpu().float()
    parts = []
    for x in torch.split(z, CHUNK):
        logits = x.float() @ weight.T + bias
        parts.append(logits.softmax(1).amax(1))
    return float(torch.cat(parts).mean())


def first_batch(loader: Iterable[Any]) -> Any:
    for batch in loader:
        return batch
    raise ValueError("the loader is empty: there is no batch to find the classifier with")


def harder_rows(train: Iterable[Any], insist: bool) -> list[Any] | None:
    """Training rows made as hard as unseen ones; None where their inputs are not of such a kind.

    The processes may have different rows, but must look at the same: those of the first.
    """
    views = None
    problem = None
    if my_rank()[0] == 0:
        try:
            views = mixed(train)
        except CannotMix as error:
            problem = str(error)
    views, problem = from_first((views, problem))
    if problem is not None and insist:
        raise CannotMix(problem)
    return cast(list[Any] | None, views)
