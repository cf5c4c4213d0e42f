"""Making runs: stage I, then where the method has one stage II, then the numbers.

make_run(config, runs=...)    the whole of it; what is there already is not made again
calibrate_run(folder)         stage II on a run that is there
motivation_run(folder)        what the paper's first two figures show of it
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from maccal.calibration.model import calibrate
from maccal.calibration.registry import CALIBRATORS
from maccal.calibration.task import Calibrator, Images
from maccal.data import DataSet, Split, load
from maccal.data.pixels import PIXELS, Pixels
from maccal.distributed import everywhere, held, my_rank
from maccal.evaluation.masks import (
    calibration_curve,
    logit_map,
    masked_inference,
    masked_retraining,
    prototype_angles,
)
from maccal.features.extraction import extract
from maccal.io import (
    FileError,
    checksum,
    npz,
    read_bytes,
    read_json,
    read_tensors,
    write,
    write_json,
    write_lines,
    write_tensors,
)
from maccal.methods.balcal import Dual
from maccal.methods.registry import METHODS
from maccal.runs.config import Config
from maccal.runs.folder import (
    HISTORY,
    MODEL,
    fresh,
    load_run,
    predictions_of,
    read_config,
    read_network,
)
from maccal.runs.state import measured, opened, tell
from maccal.training import History, fit, predict

EXTRACTION = "extraction 1"
RATIOS = tuple(ratio / 10 for ratio in range(10))  # of weights masked, in Fig. 1


@dataclass(frozen=True)
class Batches:
    """A split as a loader: batches of what the network sees, and the labels, in order."""

    split: Split
    pixels: Pixels
    size: int = 500

    def __len__(self) -> int:
        return -(-len(self.split) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in zip(
            *(torch.split(part, self.size) for part in (self.split.images, self.split.labels)),
            strict=True,
        ):
            yield self.pixels(images), labels


def make_run(
    config: Config, *, runs: Path, root: Path | None = None, device: torch.device | str = "cpu", every: float = 60.0,
    tensorboard: bool = False, progress: bool = False,
) -> Path:  # fmt: skip
    """Train, go on training, or go on to stage II, and measure; returns the folder. What is there
    already is not made again.

    Another process that makes the same run is waited for.
    """
    device = torch.device(device)
    config = config.settled(device)
    if is_finished(runs / config.name, config):
        return runs / config.name
    first = replace(config, method=config.plan.first, stage2=None, feedback=None)
    folder = train_run(
        first,
        runs=runs,
        root=root,
        device=device,
        every=every,
        tensorboard=tensorboard,
        progress=progress,
    )
    return (
        folder
        if config.stage2 is None
        else calibrate_run(folder, config, root=root, device=device, progress=progress)
    )


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
    root: Path | None,
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
        raise ValueError(
            f"{config.data} has no training images here; `maccal data get {config.data}` downloads them"
        )
    pixels, network = PIXELS[config.data], fresh(config, len(data.classes))
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
                network, data.train, config.recipe, pixels=pixels, val=data.val, objective=objective(network, **config.settings),
                seed=config.seed, checkpoint=folder / "checkpoint.pt", about={"run": config.about}, every=every, log=log,
                device=device, progress=progress,
            )  # fmt: skip
        finish(folder, config, network, predict(network, data.test.images, pixels), data)
    return folder


def predict_again(folder: Path, config: Config, data: DataSet, device: torch.device) -> None:
    """Where only test.npz is damaged."""
    tell(
        f"{folder / 'test.npz'} is missing, damaged or of another run; the images are predicted again"
    )
    network = read_network(folder, config, len(data.classes)).to(device)
    conclude(folder, config, predict(network, data.test.images, PIXELS[config.data]), data)


def logger(folder: Path, tensorboard: bool) -> AbstractContextManager[Callable[[History], None]]:
    """Writes history.jsonl whole after each epoch, and the epoch's numbers to TensorBoard if asked
    to.
    """
    lines = partial(write_history, folder)
    return Board(folder, lines) if tensorboard and my_rank()[0] == 0 else nullcontext(lines)


def write_history(folder: Path, history: History) -> None:
    """One line per epoch; a number that JSON cannot say (infinity, NaN) becomes null."""
    records = []
    for epoch in history:
        records.append(
            {name: value if math.isfinite(value) else None for name, value in epoch.items()}
        )
    write_lines(folder / "history.jsonl", HISTORY, records)


class Board(AbstractContextManager[Callable[[History], None]]):
    """TensorBoard's files beside the history's."""

    def __init__(self, folder: Path, lines: Callable[[History], None]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                "--tensorboard needs the package: pip install 'maccal[tensorboard]'"
            ) from error
        self.writer: Any = SummaryWriter(str(folder / "tensorboard"))
        self.lines = lines

    def __enter__(self) -> Callable[[History], None]:
        return self.log

    def __exit__(self, *_: object) -> None:
        self.writer.close()

    def log(self, history: History) -> None:
        self.lines(history)
        for name, value in history[-1].items():
            self.writer.add_scalar(name, value, int(history[-1]["epoch"]))
        self.writer.flush()


def finish(
    folder: Path, config: Config, network: nn.Module, logits: Tensor, data: DataSet, **notes: str
) -> None:
    """Write the network, with these notes, and then all that is said of it."""
    if my_rank()[0] == 0:
        # it is always of the network beside it, also after a kill
        (folder / "test.npz").unlink(missing_ok=True)
        write_tensors(
            folder / "model.safetensors", MODEL, network.state_dict(), run=config.about, **notes
        )
    conclude(folder, config, logits, data)


def conclude(folder: Path, config: Config, logits: Tensor, data: DataSet) -> None:
    """Write the predictions and, last of all, the row; then the checkpoint is no longer needed."""
    if my_rank()[0] == 0:
        write(folder / "test.npz", npz(logits=logits.numpy(), labels=data.test.labels.numpy()))
        measured(folder, config)
        (folder / "checkpoint.pt").unlink(missing_ok=True)
    everywhere(None)


def calibrate_run(
    folder: Path, config: Config | None = None, *, root: Path | None = None, device: torch.device | str = "cpu",
    progress: bool = False, **changes: Any,
) -> Path:  # fmt: skip
    """Stage II on a run: a new run beside it, `vanilla` becoming `maccal` and any other
    `<method>+maccal`.

    `changes` are those of the config: method, stage2, and feedback, from the held-out labels of the
    data set or from mixed training images and no held-out label."""
    before = read_config(folder)
    if before.stage2 is not None:
        raise FileError(folder, "is calibrated already; pass the run that it was made from")
    config = config or replace(before, **{"method": f"{before.method}+maccal", **changes}).settled(
        torch.device(device)
    )
    data = load(before.data, root, limit=before.limit)
    if data.train is None or data.val is None:
        raise ValueError(
            f"{before.data} has no training images here; `maccal data get {before.data}` downloads them"
        )
    pixels, network = PIXELS[before.data], load_run(folder, len(data.classes)).to(device)
    train, val = (
        Batches(data.train, pixels),
        Batches(data.val, pixels) if config.feedback == "held-out" else None,
    )
    if isinstance(network, Dual):
        if calibrator_of(config).needs_start:
            raise ValueError(
                "BalCAL has two classifiers, and the temperature of a run is of one; scale the logits of its test.npz"
            )
        network.share.fill_(1)  # the new head speaks alone
    target, source = folder.parent / config.name, checksum(read_bytes(folder / "model.safetensors"))
    with held(target):
        state = opened(target, config)
        if (
            state != "make"
            and read_tensors(target / "model.safetensors", MODEL)[1].get("source") != source
        ):
            problem = f"was made from another network than {folder} holds now"
            raise FileError(target, f"{problem}; delete it, and the same command makes it anew")
        if state == "predict":
            predict_again(target, config, data, torch.device(device))
        if state == "make":
            history = new_stage(network, train, val, config, folder, progress)
            if my_rank()[0] == 0:
                write_history(target, history)
            finish(
                target,
                config,
                network,
                predict(network, data.test.images, pixels),
                data,
                source=source,
            )
    return target


def new_stage(
    network: Any, train: Batches, val: Batches | None, config: Config, folder: Path, progress: bool
) -> History:
    """Give the network its new head.

    Returns the head's history, with the seconds of extraction and training in its last epoch.
    """
    spent = extraction(network, [train, *([val] if val else [])], config, folder)
    start = time.monotonic()
    head: Any = new_head(network, train, val, config, folder / "features", progress)
    network.head, history = head, head.history
    history[-1]["seconds"] = spent + time.monotonic() - start
    return list(history)


def extraction(network: Any, parts: list[Batches], config: Config, folder: Path) -> float:
    """Put the features of these images into the run's cache.

    The seconds that took when it was done, now or for an earlier head.
    """
    file = folder / "extraction.json"
    if calibrator_of(config).needs_images(config.stage2):
        return 0.0  # there are no features
    start = time.monotonic()
    for part in parts:
        extract(network, part, head="head", cache=folder / "features")
    if my_rank()[0] == 0 and not file.exists():
        write_json(file, EXTRACTION, {"seconds": time.monotonic() - start})
    everywhere(None)
    try:
        return float(read_json(file, EXTRACTION)["seconds"])
    except FileError as error:
        remedy = "delete it and the folder features beside it, and the same command extracts and times them again"
        raise FileError(file, f"{error.problem}; {remedy}") from None


def motivation_run(folder: Path, root: Path | None = None, *, rows: int = 1000) -> dict[str, Any]:
    """What Figs. 1 and 2 show of a run.

    Map, angles and curve of its logits and, of a linear head, what masks do to it.
    """
    config, said = read_config(folder), predictions_of(folder)
    logits, labels = torch.from_numpy(said.scores), said.labels
    curve = {
        key: np.nan_to_num(values) for key, values in calibration_curve(logits, labels).items()
    }
    spots = logit_map(logits, labels, rows=rows)
    shown = spots | {"place": spots["place"].round(2), "entropy": spots["entropy"].round(4)}
    result: dict[str, Any] = {
        "map": shown,
        "angles": prototype_angles(logits, labels),
        "curve": curve,
    }
    if config.stage2 is not None:
        return result
    data, pixels = load(config.data, root, limit=config.limit), PIXELS[config.data]
    assert data.train is not None
    network = load_run(folder, len(data.classes))
    train = extract(network, Batches(data.train, pixels), head="head", cache=folder / "features")
    test = extract(network, Batches(data.test, pixels), head="head")
    masks = masked_inference(
        network.head.weight.detach(), network.head.bias.detach(), *test, RATIOS
    )
    return result | {"inference": masks, "retraining": masked_retraining(train, test, RATIOS)}


def calibrator_of(config: Config) -> Calibrator:
    """The row of the registry that makes the run's stage II."""
    assert config.plan.second is not None
    return CALIBRATORS[config.plan.second]


def new_head(
    network: Any, train: Batches, val: Batches | None, config: Config, cache: Path, progress: bool
) -> nn.Module:
    """The head that stage II makes, with its history, where the old one was."""
    calibrator = calibrator_of(config)
    if calibrator.needs_images(config.stage2):
        assert calibrator.fit_images is not None
        held_out = None if val is None else val.split
        recipe = config.recipe
        seen = Images(
            network,
            train.split,
            held_out,
            train.pixels,
            recipe.padding,
            recipe.flip,
            config.seed,
            progress,
        )
        return calibrator.fit_images(config.stage2, seen)
    new = calibrate(
        network,
        train,
        val=val,
        views=None if val is not None else config.feedback == "mixed",
        calibrator=config.plan.second or "",
        head="head",
        config=config.stage2,
        seed=config.seed,
        cache=cache,
        progress=progress,
    )
    return new.get_submodule("head")
