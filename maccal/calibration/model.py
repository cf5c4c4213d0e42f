"""A whole model calibrated: find its classifier, extract features once, calibrate, put it back.

    calibrate(model, train, val=...)    feedback from held-out labels
    calibrate(model, train)             from harder views of the training rows: no label needed

Everything else about the model stays as it was, to the bit.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from maccal.calibration.feedback import GUESS, Feedback, check_known, feedback_of, with_feedback
from maccal.calibration.heads import history_of, with_history
from maccal.calibration.looks import looked_at, scores_of
from maccal.calibration.mac_cal import count_classes
from maccal.calibration.registry import CALIBRATORS, calibrator_of
from maccal.calibration.task import Calibrator, Choices, Task, check_seed
from maccal.caution import warn
from maccal.distributed import from_first, my_rank
from maccal.features.alone import check_alone
from maccal.features.batches import check_loader
from maccal.features.classifiers import ONLY_LINEAR, ONLY_TEMPERATURE, Classifier, named, put_head
from maccal.features.extraction import extract, find_head
from maccal.features.table import CHUNK, FeatureTable
from maccal.features.views import (
    UNCHANGED,
    CannotMix,
    Changed,
    Family,
    Views,
    check_views,
    family_of,
    sample_for,
)
from maccal.io import FileError

LOG = logging.getLogger("maccal")
Model = TypeVar("Model", bound=nn.Module)  # what comes back is of the type that was passed
NO_GOOD_VIEW = (
    "the inputs are no images, and no good view of such rows is known: swapping a fifth of their "
    "numbers is a makeshift, up to 10 points off; pass val= with held-out labels, accuracy= (such "
    "as that of cross-validation), or views= with a function of your own"
)


def calibrate(
    model: Model,
    train: Iterable[Any],
    *,
    val: Iterable[Any] | None = None,
    accuracy: float | None = None,
    views: Views = None,
    calibrator: str = "maccal",
    head: str | None = None,
    config: Choices | None = None,
    seed: int = 1,
    inplace: bool = False,
    cache: str | Path | None = None,
    device: str | torch.device | None = None,
    autocast: torch.dtype | None = None,
    progress: bool = False,
) -> Model:
    """The model with its classifier replaced by a calibrated one; all else is as it was.

    `train` and `val` are loaders (features/batches.py says of what). Without val and accuracy the
    feedback comes from views of the training rows, where their inputs have any: views="mirror",
    "shift" where mirroring changes the meaning, "mix", or a function that changes a batch of inputs
    and keeps their labels. True insists on views, False takes the training rows as they are.
    `calibrator` is a name of CALIBRATORS, `config` its choices. `head` names the classifier where
    it cannot be found. The new weights are in the old one's parameters (a head of several layers
    takes its place); its layers have the attributes `.history` and `.feedback`, a dict that says
    what was aimed at. cache, device and autocast are those of extract.
    """
    check_views(views)
    check_known(val, accuracy)
    if views and (val is not None or accuracy is not None):
        raise ValueError(
            "views stand in for held-out labels and a known accuracy; pass one of them"
        )
    if isinstance(train, Iterator):
        raise ValueError(
            "train is an iterator, which can be read once; pass a DataLoader or a list"
        )
    check_loader(train, "train")
    check_loader(val, "val")
    choices = calibrator_of(calibrator, config)
    row = CALIBRATORS[calibrator]
    seed = check_seed(seed)
    batch = first_batch(train)
    name = find_head(model, batch, head)
    place = Classifier.parse(name)
    check_fit(model, place, row, choices)
    check_alone(model, batch, name)
    old = place.linear(model)
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
    looks = changed_rows(train, views) if unknown else None
    # 2. Features of all rows, once
    with saying("train"):
        table = FeatureTable(*features_of(train), "train")
    held_out = None
    if val is not None:
        with saying("val"):
            held_out = features_of(val)
    # 3. What the confidence should be
    if looks is None:
        feedback = feedback_of(table, val=held_out, accuracy=accuracy)
    else:
        feedback = by_views(table, *looks, old, features_of)
    if unknown and feedback.source == "training":
        warn(f"{GUESS}, or views=False if gamma is what you mean")
    feedback = told(feedback, table, old, getattr(choices, "gamma", 1.0))
    LOG.info(feedback.describe())
    if feedback.vague:
        warn(f"{feedback.describe()}; more held-out rows would say it better")
    # 4. The new classifier in the place of the old one
    classes = count_classes(table, feedback.rows, old.out_features)
    new = row.fit(choices, Task(table, feedback, classes, old, seed, progress))
    result = model if inplace else deepcopy(model)
    put_head(result, name, new)
    for layer in place.names:
        written = with_history(result.get_submodule(layer), history_of(new))
        with_feedback(written, feedback.card())
    return result


@contextmanager
def saying(name: str) -> Iterator[None]:
    """What is wrong with a loader is said with its name."""
    try:
        yield
    except FileError:
        raise
    except ValueError as error:
        words = str(error)
        if name in words:
            raise
        raise ValueError(f"{name}: {words}") from error


def check_fit(model: nn.Module, place: Classifier, row: Calibrator, choices: Choices) -> None:
    """ValueError for a calibrator whose head could not take the classifier's place.

    Known before the features are extracted; what is not is found out when the head is put in.
    """
    place.check_place(model)
    if place.shares is None and not row.only_scales:
        raise ValueError(f"{place.name!r}: {ONLY_TEMPERATURE}")
    deep = not row.plain or getattr(choices, "hidden", None) is not None
    lone = place.alone and isinstance(named(model, place.names[0]), nn.Linear)
    if deep and not lone:
        raise ValueError(f"{place.name!r} is not one nn.Linear: {ONLY_LINEAR}")


def told(feedback: Feedback, train: FeatureTable, head: nn.Linear, gamma: float) -> Feedback:
    """The feedback with what it asks of the classifier as trained."""
    rows = feedback.rows or train
    right = 0
    for start in range(0, rows.count, CHUNK) if feedback.labelled else ():
        z = rows.raw(start)
        right += int((scores_of(head, z).argmax(1) == rows.y[start : start + len(z)]).sum())
    return feedback.told(right / rows.count, rows.count, gamma)


def first_batch(loader: Iterable[Any]) -> Any:
    for batch in loader:
        return batch
    raise ValueError("train is empty: there is no batch to find the classifier with")


def changed_rows(train: Iterable[Any], views: Views) -> tuple[Family, list[Changed]] | None:
    """Views of training rows that are about as hard as unseen ones; None where there is no view.

    The processes may have different rows, but must look at the same: those of the first.
    """
    rows = None
    problem = None
    if my_rank()[0] == 0:
        try:
            rows = sample_for(views, train)
        except CannotMix as error:
            problem = str(error)
    rows, problem = from_first((rows, problem))
    if problem is not None:
        if views is not None:
            raise CannotMix(problem)
        return None
    family = family_of(views, rows.inputs)
    if family.name == "swap" and views != "swap":
        warn(NO_GOOD_VIEW)
    return family, [Changed(rows, view) for view in (*family.all, UNCHANGED)]


def by_views(
    train: FeatureTable,
    family: Family,
    loaders: list[Changed],
    head: nn.Linear,
    features_of: Callable[[Iterable[Any]], tuple[Tensor, Tensor]],
) -> Feedback:
    """The feedback of the middle view; a warning where the others are far from it."""
    seen = [features_of(loader) for loader in loaders]
    look = looked_at(family, seen, head)
    feedback = feedback_of(train, views=seen[look.number])
    if look.warning is not None:
        warn(look.warning)
    return replace(feedback, view=look.view, within=look.within if len(family.all) > 1 else None)
