"""Stage I: one loop for every method, on whole tensors, resumable to the bit.

    fit(network, train, recipe, pixels=..., val=..., checkpoint="run/checkpoint.pt")

What a step does, and what a checkpoint holds, is in steps.py. A checkpoint replaces the one before
it in one rename, and has a checksum: damaged, it is refused.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from maccal.data.pixels import Pixels
from maccal.data.split import Split
from maccal.training.objective import Objective
from maccal.training.progress import Bar
from maccal.training.recipe import Recipe
from maccal.training.steps import History, Training

LOOK = 20  # steps between looks at the loss: each look waits for the device


def fit(
    network: nn.Module,
    train: Split,
    recipe: Recipe,
    *,
    pixels: Pixels,
    val: Split | None = None,
    objective: Objective | None = None,
    seed: int = 1,
    checkpoint: Path | str | None = None,
    about: Mapping[str, Any] | None = None,
    every: float = 60.0,
    log: Callable[[History], None] | None = None,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> History:
    """Train the network in place; returns one dict per epoch.

    Each dict has the loss and accuracy of the training images as the steps saw them, and, as often
    as the recipe watches them, of the held-out images.

    `checkpoint` is a file. The state is saved there after every so many seconds and at the end of
    each epoch. A file that is already there is resumed; what `about` says is kept in it, and must
    then be the same. `log` is given the history after each epoch, and once when a checkpoint is
    resumed. Raises Diverged when the loss or a weight is no longer a finite number.
    """
    training = Training(
        network, train, recipe, pixels, objective or Objective(), seed, torch.device(device), about
    )
    path = None if checkpoint is None else Path(checkpoint)
    first = training.rank == 0
    if path is not None and path.exists():
        training.restore(path)
        if log is not None and first and training.history:
            log(training.history)  # the kill may have come between checkpoint and log
    with Bar(training, progress) as bar:
        for _ in epochs(training, bar, path, every):
            training.end(val)
            if path is not None:
                training.save(path)
            if log is not None and first:
                log(training.history)
    network.eval()
    return training.history


def epochs(training: Training, bar: Bar, checkpoint: Path | None, every: float) -> Iterator[None]:
    """Take all steps that are left, and yield after the last one of each epoch."""
    saved = before = time.monotonic()
    while training.epoch < training.recipe.epochs:
        training.begin()
        while training.batch < len(training.batches):
            training.step()
            now = time.monotonic()
            training.seconds += now - before
            before = now
            if training.batch % LOOK == 0 or training.batch == len(training.batches):
                bar.update(*training.look())
            if checkpoint is not None and now - saved >= every:
                training.save(checkpoint)
                saved = now
        yield
