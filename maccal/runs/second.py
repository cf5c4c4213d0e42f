"""Stage II of a run: features from its cache, the calibrator, and a new run beside it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maccal.calibration import CALIBRATORS, Calibrator, Images, calibrate
from maccal.calibration.heads import history_of
from maccal.data import DataSet, Split, load
from maccal.data.pixels import PIXELS, Pixels
from maccal.distributed import everywhere, held, my_rank
from maccal.features import extract
from maccal.io import FileError, checksum, read_bytes, read_json, write_json
from maccal.methods.balcal import Dual
from maccal.runs.config import Config
from maccal.runs.ending import finish, predict_again
from maccal.runs.folder import load_run, read_config
from maccal.runs.history import write_history
from maccal.runs.origin import check_origin
from maccal.runs.state import opened
from maccal.training import History, predict

EXTRACTION = "extraction 1"


@dataclass(frozen=True)
class Batches:
    """A split as a loader: batches of what the network sees, and the labels, in order."""

    split: Split
    pixels: Pixels
    size: int = 500

    def __len__(self) -> int:
        return -(-len(self.split) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        images = torch.split(self.split.images, self.size)
        labels = torch.split(self.split.labels, self.size)
        for some, theirs in zip(images, labels, strict=True):
            yield self.pixels(some), theirs


def calibrate_run(
    folder: Path | str,
    config: Config | None = None,
    *,
    root: Path | str | None = None,
    device: torch.device | str = "cpu",
    progress: bool = False,
    **changes: Any,
) -> Path:
    """Stage II on a run: a new run beside it, whose method is `<method>+<calibrator>`.

    `changes` are those of the config: method, stage2 and feedback. By default MaC-Cal, with
    feedback from the held-out labels of the data set. Vanilla and maccal are `maccal` for short.
    """
    folder = Path(folder)
    before = read_config(folder)
    if before.stage2 is not None:
        raise FileError(folder, "is calibrated already; pass the run that it was made from")
    device = torch.device(device)
    if config is None:
        wanted = {"method": f"{before.method}+maccal", **changes}
        config = replace(before, **wanted).settled(device)
    data = load(before.data, root, limit=before.limit)
    if data.train is None or data.val is None:
        remedy = f"`maccal data get {before.data}` downloads them"
        raise ValueError(f"{before.data} has no training images here; {remedy}")
    network = load_run(folder, len(data.classes)).to(device)
    if isinstance(network, Dual):
        if calibrator_of(config).needs_start:
            remedy = "scale the logits of its test.npz"
            raise ValueError(
                f"BalCAL has two classifiers, a {config.plan.second} is of one; {remedy}"
            )
        # the new head speaks alone; from the trained classifier, it starts from the linear one
        network.share.fill_(1)
    target = folder.parent / config.name
    source = checksum(read_bytes(folder / "model.safetensors"))
    with held(target):
        state = opened(target, config)
        if state != "make":
            check_origin(target, folder)
        if state == "predict":
            predict_again(target, config, data, device)
        if state == "make":
            history = new_stage(network, data, config, folder, progress)
            if my_rank()[0] == 0:
                write_history(target, history)
            logits = predict(network, data.test.images, PIXELS[before.data])
            finish(target, config, network, logits, data, source=source)
    return target


def calibrator_of(config: Config) -> Calibrator:
    """The row of the registry that makes the run's stage II."""
    assert config.plan.second is not None
    return CALIBRATORS[config.plan.second]


def new_stage(network: Any, data: DataSet, config: Config, folder: Path, progress: bool) -> History:
    """Give the network its new head.

    Returns the head's history, with the seconds of extraction and training in its last epoch.
    """
    assert data.train is not None
    assert data.val is not None
    pixels = PIXELS[config.data]
    train = Batches(data.train, pixels)
    val = Batches(data.val, pixels) if config.feedback == "held-out" else None
    if calibrator_of(config).needs_images(config.stage2):
        spent = 0.0
        start = time.monotonic()
        network.head = head_on_images(network, train, val, config, progress)
    else:
        spent = extraction(network, [train] if val is None else [train, val], folder)
        start = time.monotonic()
        network.head = head_on_features(network, train, val, config, folder / "features", progress)
    history = history_of(network.head)
    history[-1]["seconds"] = spent + time.monotonic() - start
    return list(history)


def extraction(network: Any, parts: list[Batches], folder: Path) -> float:
    """Put the features of these images into the run's cache.

    Returns the seconds that it took when it was done, now or for an earlier head.
    """
    file = folder / "extraction.json"
    start = time.monotonic()
    for part in parts:
        extract(network, part, head="head", cache=folder / "features")
    if my_rank()[0] == 0 and not file.exists():
        write_json(file, EXTRACTION, {"seconds": time.monotonic() - start})
    everywhere(None)
    try:
        return float(read_json(file, EXTRACTION)["seconds"])
    except FileError as error:
        both = "delete it and the folder features beside it"
        remedy = f"{both}, and the same command extracts and times them again"
        raise FileError(file, f"{error.problem}; {remedy}") from None


def head_on_images(
    network: Any, train: Batches, val: Batches | None, config: Config, progress: bool
) -> nn.Module:
    """The new head of choices that run the body in every step."""
    if config.feedback not in ("held-out", "training"):
        raise ValueError(
            f"batchnorm=train makes features of the images as they are, so that it has no feedback "
            f"from {config.feedback} images; pass held-out or training"
        )
    fit_images = calibrator_of(config).fit_images
    assert fit_images is not None
    images = Images(
        network,
        train.split,
        None if val is None else val.split,
        train.pixels,
        config.recipe.padding,
        config.recipe.flip,
        config.seed,
        progress,
    )
    return fit_images(config.stage2, images)


def head_on_features(
    network: Any, train: Batches, val: Batches | None, config: Config, cache: Path, progress: bool
) -> nn.Module:
    """The new head, fitted on the features in the cache."""
    assert config.plan.second is not None
    new = calibrate(
        network,
        train,
        val=val,
        views=None if val is not None else views_of(config, train.pixels),
        calibrator=config.plan.second,
        head="head",
        config=config.stage2,
        seed=config.seed,
        cache=cache,
        progress=progress,
    )
    return new.get_submodule("head")


def views_of(config: Config, pixels: Pixels) -> str | bool:
    """The views of a run without held-out labels: those that its data set allows, or mixing."""
    own = "mirror" if pixels.mirrors else "shift"
    return {"views": own, "mixed": "mix"}.get(config.feedback or "", False)
