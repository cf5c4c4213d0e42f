"""Making runs: stage I, then where the method has one stage II, then the numbers.

make_run(config, runs=...)    the whole of it; what is there already is not made again
"""

from dataclasses import replace
from pathlib import Path

import torch

from maccal.data import load
from maccal.data.pixels import PIXELS
from maccal.distributed import held
from maccal.methods import METHODS
from maccal.runs.config import Config
from maccal.runs.ending import finish, predict_again
from maccal.runs.folder import fresh
from maccal.runs.history import logger
from maccal.runs.origin import check_origin
from maccal.runs.second import calibrate_run
from maccal.runs.state import opened
from maccal.training import fit, predict


def make_run(
    config: Config,
    *,
    runs: Path | str,
    root: Path | str | None = None,
    device: torch.device | str = "cpu",
    every: float = 60.0,
    tensorboard: bool = False,
    progress: bool = False,
) -> Path:
    """Train, go on training, or go on to stage II, and measure; returns the folder.

    What is there already is not made again. Another process that makes the same run is waited for.
    `every` is the number of seconds between checkpoints.
    """
    runs = Path(runs)
    device = torch.device(device)
    config = config.settled(device)
    target = runs / config.name
    first = replace(config, method=config.plan.first, stage2=None, feedback=None)
    if is_finished(target, config):
        if config.stage2 is not None and (runs / first.name / "row.json").exists():
            check_origin(target, runs / first.name)
        return target
    folder = train_run(
        first,
        runs=runs,
        root=root,
        device=device,
        every=every,
        tensorboard=tensorboard,
        progress=progress,
    )
    if config.stage2 is None:
        return folder
    return calibrate_run(folder, config, root=root, device=device, progress=progress)


def is_finished(folder: Path, config: Config) -> bool:
    """Whether there is nothing left to do.

    Asked before anything is loaded, and without making the folder.
    """
    if not (folder / "row.json").exists():
        return False
    with held(folder):
        return opened(folder, config) == "finished"


def train_run(
    config: Config,
    *,
    runs: Path,
    root: Path | str | None,
    device: torch.device,
    every: float,
    tensorboard: bool,
    progress: bool,
) -> Path:
    """Stage I of a settled config."""
    folder = runs / config.name
    if is_finished(folder, config):
        return folder
    data = load(config.data, root, limit=config.limit)
    if data.train is None:
        remedy = f"`maccal data get {config.data}` downloads them"
        raise ValueError(f"{config.data} has no training images here; {remedy}")
    pixels = PIXELS[config.data]
    network = fresh(config, len(data.classes))
    objective = METHODS[config.method].objective
    assert objective is not None
    with held(folder):
        state = opened(folder, config)
        if state == "predict":
            predict_again(folder, config, data, device)
        if state != "make":
            return folder
        with logger(folder, tensorboard) as log:
            fit(
                network,
                data.train,
                config.recipe,
                pixels=pixels,
                val=data.val,
                objective=objective(network, **config.settings),
                seed=config.seed,
                checkpoint=folder / "checkpoint.pt",
                about={"run": config.about},
                every=every,
                log=log,
                device=device,
                progress=progress,
            )
        finish(folder, config, network, predict(network, data.test.images, pixels), data)
    return folder
