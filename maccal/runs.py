"""Runs: a folder a trained network, which `maccal train` fills, and `maccal calibrate` and `maccal evaluate` read.

runs/<data>-<model>-<method>-s<seed>/
    config.json          all choices, settled: the same command on the same data gives the same bits
    checkpoint.pt        while training; the same command goes on from it
    history.jsonl        a line an epoch
    model.safetensors    the network
    test.npz             its logits on the test images, and the labels
    row.json             its numbers, each with interval and null band
    features/            once calibrated: the features of its images, so that the next calibration takes seconds
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from maccal.calibration import calibrate
from maccal.data import DataSet, Split, load
from maccal.data.pixels import PIXELS, Pixels
from maccal.files import npz, write
from maccal.heads import plain
from maccal.models import Net, build
from maccal.parallel import everywhere, my_rank
from maccal.predictions import Predictions, read
from maccal.recipes import Recipe
from maccal.report import evaluated
from maccal.stage2 import Stage2
from maccal.training import History, differing, fit, precise, predict

MEASURED = {"bins": 15, "resamples": 1000, "seed": 0}


class RunError(ValueError):
    """A folder that is not the run it should be: which one, and what to do."""

    def __init__(self, folder: Path, problem: str) -> None:
        super().__init__(f"{folder}: {problem}")


@dataclass(frozen=True)
class Config:
    """What stage I of a run is, and with `stage2` what was done to it afterwards."""

    data: str
    model: str
    method: str
    seed: int
    limit: int | None
    recipe: Recipe
    stage2: Stage2 | None = None
    feedback: str | None = None

    @property
    def name(self) -> str:
        """
        >>> Config("cifar10", "resnet8", "vanilla", 1, 10_000, Recipe()).name
        'cifar10.10000-resnet8-vanilla-s1'
        """
        return f"{self.data}{f'.{self.limit}' if self.limit else ''}-{self.model}-{self.method}-s{self.seed}"

    def json(self) -> str:
        versions = {package: version(package) for package in ("maccal", "torch")}
        return (
            json.dumps({key: value for key, value in asdict(self).items() if value is not None} | {"versions": versions}, indent=1)
            + "\n"
        )


def read_config(folder: Path) -> Config:
    try:
        values = json.loads((folder / "config.json").read_text())
        recipe = Recipe(**values["recipe"] | {"drops": tuple(values["recipe"]["drops"])})
        stage2 = Stage2(**values["stage2"]) if "stage2" in values else None
        named = {key: values.get(key) for key in ("data", "model", "method", "seed", "limit", "feedback")}
        return Config(**named, recipe=recipe, stage2=stage2)
    except FileNotFoundError:
        raise RunError(folder, "no config.json; pass a folder that `maccal train` made") from None
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(folder, f"config.json is not of a run ({error})") from error


@dataclass(frozen=True)
class Batches:
    """A split as a loader: batches of what the network sees, and the labels, in order."""

    split: Split
    pixels: Pixels
    size: int = 500

    def __len__(self) -> int:
        return -(-len(self.split) // self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for images, labels in zip(*(torch.split(part, self.size) for part in (self.split.images, self.split.labels)), strict=True):
            yield self.pixels(images), labels


def fresh(model: str, classes: int, seed: int) -> Net:
    """A new network, drawn with the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(model, classes)


def open_folder(config: Config, runs: Path) -> Path:
    """The folder of a run, new or the same run's; what a killed process left half-written is swept away."""
    folder = runs / config.name
    if (folder / "config.json").is_file():
        if (there := read_config(folder)) != config:
            raise RunError(folder, f"holds another run: {differing(flat(there), flat(config))}; delete it, or pass another --runs")
    elif my_rank()[0] == 0:
        write(folder / "config.json", config.json())
    if my_rank()[0] == 0:
        for part in folder.glob(".*.part"):
            part.unlink()
    everywhere(None)
    return folder


def flat(config: Config) -> dict[str, Any]:
    values = asdict(config)
    return values | values.pop("recipe") | (values.pop("stage2") or {})


def train_run(
    config: Config, *, runs: Path, root: Path | None = None, device: torch.device | str = "cpu", every: float = 60.0,
    tensorboard: bool = False, progress: bool = False,
) -> Path:  # fmt: skip
    """Train, or go on training, and measure; returns the folder. Nothing is done again that is already there."""
    device = torch.device(device)
    config = replace(config, recipe=precise(config.recipe, device))
    if (runs / config.name / "row.json").is_file():
        return open_folder(config, runs)
    data = load(config.data, root, limit=config.limit)
    if data.train is None:
        raise ValueError(f"{config.data} has no training images here; `maccal data get {config.data}` downloads them")
    pixels, network = PIXELS[config.data], fresh(config.model, len(data.classes), config.seed).to(device)
    folder = open_folder(config, runs)
    with logger(folder, tensorboard) as log:
        fit(
            network, data.train, config.recipe, pixels=pixels, val=data.val, seed=config.seed, checkpoint=folder / "checkpoint.pt",
            every=every, log=log, device=device, progress=progress,
        )  # fmt: skip
    finish(folder, config, network, predict(network, data.test.images, pixels), data)
    return folder


def logger(folder: Path, tensorboard: bool) -> AbstractContextManager[Callable[[History], None]]:
    """Writes history.jsonl whole after each epoch, and the epoch's numbers to TensorBoard if asked to."""

    def lines(history: History) -> None:
        write(folder / "history.jsonl", "".join(json.dumps(epoch) + "\n" for epoch in history))

    return Board(folder, lines) if tensorboard and my_rank()[0] == 0 else nullcontext(lines)


class Board(AbstractContextManager[Callable[[History], None]]):
    """TensorBoard's files beside the history's."""

    def __init__(self, folder: Path, lines: Callable[[History], None]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError("--tensorboard needs the package: pip install 'maccal[tensorboard]'") from error
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


def finish(folder: Path, config: Config, network: nn.Module, logits: Tensor, data: DataSet) -> None:
    """Write the network, its predictions and, last of all, its row; then the checkpoint is no longer needed."""
    if my_rank()[0] == 0:
        weights = {name: value.cpu().contiguous() for name, value in network.state_dict().items()}
        write(folder / "model.safetensors", safetensors.torch.save(weights, {"maccal": "run", "name": config.name}))
        write(folder / "test.npz", npz(logits=logits.numpy(), labels=data.test.labels.numpy()))
        row = evaluated(predictions_of(folder), folder / "test.npz", **MEASURED).row
        write(folder / "row.json", json.dumps(described(folder) | dict(row), indent=1, allow_nan=False) + "\n")
        (folder / "checkpoint.pt").unlink(missing_ok=True)
    everywhere(None)


def described(folder: Path) -> dict[str, Any]:
    """What a row says of its run beside the numbers: the choices, how long it trained, and how sure and right it became."""
    config = read_config(folder)
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    about = {key: getattr(config, key) for key in ("data", "model", "method", "seed", "limit", "feedback")}
    return {"run": about} | {"trained": {"epochs": len(history), **history[-1]}}


def predictions_of(folder: Path) -> Predictions:
    """What the run's network said about the test images."""
    if not (folder / "test.npz").is_file():
        raise RunError(folder, "no test.npz: the training has not ended; the same `maccal train` goes on with it")
    return read(folder / "test.npz", name=folder.name)


def load_run(folder: Path, classes: int) -> Net:
    """The network of a run, in eval mode."""
    config = read_config(folder)
    try:
        weights = safetensors.torch.load_file(folder / "model.safetensors")
    except FileNotFoundError:
        raise RunError(
            folder, "no model.safetensors: the training has not ended; the same `maccal train` goes on with it"
        ) from None
    except safetensors.SafetensorError as error:
        raise RunError(folder, f"model.safetensors is damaged ({error}); train again") from error
    network = fresh(config.model, classes, config.seed)
    layers = sorted(key for key in weights if key.startswith("head.") and key.endswith(".weight"))
    if layers != ["head.weight"]:  # of stage II
        network.head = plain(  # type: ignore[assignment]
            [weights[key] for key in layers], [weights[key.replace("weight", "bias")] for key in layers]
        )
    network.load_state_dict(weights)
    return network.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]


Feedback = Literal["held-out", "mixed"]


def calibrate_run(
    folder: Path, stage2: Stage2, *, feedback: Feedback = "held-out", root: Path | None = None,
    device: torch.device | str = "cpu", progress: bool = False,
) -> Path:  # fmt: skip
    """Stage II on a run: a new run beside it, `vanilla` becoming `maccal` and any other `<method>+maccal`.

    Feedback is from the held-out labels of the data set, or from mixed training images and no held-out label.
    """
    before = read_config(folder)
    if before.stage2 is not None:
        raise RunError(folder, "is calibrated already; pass the run that it was made from")
    method = "maccal" if before.method == "vanilla" else f"{before.method}+maccal"
    config = replace(before, method=method, stage2=stage2, feedback=feedback)
    data = load(before.data, root, limit=before.limit)
    if data.train is None or data.val is None:
        raise ValueError(f"{before.data} has no training images here; `maccal data get {before.data}` downloads them")
    target, pixels = open_folder(config, folder.parent), PIXELS[before.data]
    train, val = Batches(data.train, pixels), Batches(data.val, pixels) if feedback == "held-out" else None
    network = load_run(folder, len(data.classes)).to(device)
    start = time.monotonic()
    new = calibrate(
        network, train, val=val, head="head", config=stage2, seed=config.seed, cache=folder / "features", progress=progress
    )
    if my_rank()[0] == 0:
        history: Any = new.get_submodule("head").history
        history[-1]["seconds"] = time.monotonic() - start  # of the whole: extraction and training
        write(target / "history.jsonl", "".join(json.dumps(epoch) + "\n" for epoch in history))
    finish(target, config, new, predict(new, data.test.images, pixels), data)
    return target
