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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import safetensors
import safetensors.torch
import torch

from maccal.heads import plain
from maccal.io import FileError, write
from maccal.methods import EVERY, METHODS, Plan, Second, method, settings_of
from maccal.methods.tst import TwoStage, build_head
from maccal.models import build
from maccal.parallel import everywhere, my_rank
from maccal.posthoc import Temperature
from maccal.predictions import Predictions, read
from maccal.recipes import Recipe
from maccal.stage2 import Stage2
from maccal.training import differing, precise

Feedback = Literal["held-out", "mixed", "training"]
UNFINISHED = "the training has not ended; the same `maccal train` goes on with it"
PARTS = ("ood", "shift", "motivation")  # of a row: measured beyond the test images, or of the network itself
MEASURED = {"bins": 15, "resamples": 1000, "seed": 0}


@dataclass(frozen=True)
class Config:
    """Every choice of a run: of stage I and, where the method has one, of stage II.

    An empty `settings` stands for the method's own on that data set and network; so does a `stage2` of None.
    """

    data: str
    model: str
    method: str
    seed: int
    limit: int | None
    recipe: Recipe
    settings: Mapping[str, Any] = field(default_factory=dict)
    stage2: Second | None = None
    feedback: Feedback | None = None

    @property
    def plan(self) -> Plan:
        return method(self.method)

    @property
    def name(self) -> str:
        """Of the folder: what is not as the method has it by itself stands behind its name.

        >>> Config("cifar10", "resnet8", "vanilla", 1, 10_000, Recipe()).name
        'cifar10.10000-resnet8-vanilla-s1'
        >>> Config("cifar10", "resnet8", "mixup+maccal", 2, None, Recipe(), {"alpha": 0.5}, Stage2(gamma=0.9)).name
        'cifar10-resnet8-mixup,alpha=0.5+maccal,gamma=0.9-s2'
        """
        data = f"{self.data}.{self.limit}" if self.limit else self.data
        return f"{data}-{self.model}-{self.described_method}-s{self.seed}"

    @property
    def described_method(self) -> str:
        plan, own = self.plan, settings_of(self.plan.first, self.data, self.model)
        first = ",".join([plan.first, *(worded(key, value) for key, value in self.settings.items() if value != own[key])])
        if plan.second is None:
            return first
        usual = asdict(EVERY[plan.second].second) if self.stage2 else {}  # type: ignore[arg-type]
        changes = asdict(self.stage2) if self.stage2 else {}
        second = [plan.second, *(worded(key, value) for key, value in changes.items() if value != usual[key])]
        parts = ",".join(second + ([self.feedback] if self.feedback not in (None, "held-out") else []))
        return parts if first == "vanilla" else f"{first}+{parts}"

    def settled(self, device: torch.device) -> "Config":
        """With nothing left open; ValueError for what is not known. Settings that only stage II has are its own."""
        plan, own = self.plan, METHODS[self.plan.first].settings
        stage2 = self.stage2 or (EVERY[plan.second].second if plan.second else None)
        second = {} if stage2 is None else {key: v for key, v in self.settings.items() if key not in own and hasattr(stage2, key)}
        first = {key: value for key, value in self.settings.items() if key not in second}
        settings, recipe = settings_of(plan.first, self.data, self.model, first), precise(self.recipe, device)
        if stage2 is None:
            return replace(self, settings=settings, recipe=recipe)
        stage2 = replace(stage2, **{key: like(getattr(stage2, key), value) for key, value in second.items()})
        feedback = self.feedback or "held-out"
        if isinstance(stage2, Temperature) and feedback != "held-out":
            raise ValueError(f"a temperature is fitted on held-out labels, not with {feedback} feedback; leave feedback out")
        return replace(self, method=plan.name, settings=settings, recipe=recipe, stage2=stage2, feedback=feedback)

    @property
    def about(self) -> dict[str, Any]:
        """What a row says of its run, as JSON has it."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    def json(self) -> str:
        versions = {package: version(package) for package in ("maccal", "torch")}
        return (
            json.dumps({key: value for key, value in asdict(self).items() if value is not None} | {"versions": versions}, indent=1)
            + "\n"
        )


def like(old: Any, new: Any) -> Any:
    """A whole number where one is expected; the command line gives all numbers as floats."""
    return int(new) if isinstance(old, int) and isinstance(new, float) and new.is_integer() else new


def worded(key: str, value: Any) -> str:
    """
    >>> worded("gamma", 2.0), worded("gammas", (5.0, 3.0)), worded("form", "as coded")
    ('gamma=2', 'gammas=5;3', 'form=as_coded')
    """
    values = value if isinstance(value, tuple) else (value,)
    return f"{key}={';'.join(f'{v:g}' if isinstance(v, float) else str(v).replace(' ', '_') for v in values)}"


def read_config(folder: Path) -> Config:
    try:
        values = json.loads((folder / "config.json").read_text())
        values.pop("versions", None)
        recipe = Recipe(**tupled(values.pop("recipe")))
        settings, stage2 = tupled(values.pop("settings", {})), values.pop("stage2", None)
        usual: Any = EVERY[method(values["method"]).second or "vanilla"].second
        made = None if stage2 is None else type(usual)(**stage2)
        return Config(**{"limit": None, **values}, recipe=recipe, settings=settings, stage2=made)
    except FileNotFoundError:
        raise FileError(folder, "no config.json; pass a folder that `maccal train` made") from None
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(folder, f"config.json is not of a run ({error})") from error


def tupled(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def fresh(config: Config, classes: int) -> Any:
    """A new network, drawn with the seed, with what the method adds to it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return METHODS[config.plan.first].network(build(config.model, classes), config.seed)


def open_folder(config: Config, runs: Path) -> Path:
    """The folder of a run, new or the same run's; what a killed process left half-written is swept away."""
    folder = runs / config.name
    if (folder / "config.json").is_file():
        if (there := read_config(folder)) != config:
            raise FileError(folder, f"holds another run: {differing(flat(there), flat(config))}; delete it, or pass another --runs")
    elif my_rank()[0] == 0:
        write(folder / "config.json", config.json())
    if my_rank()[0] == 0:
        for part in folder.glob(".*.part"):
            part.unlink()
    everywhere(None)
    return folder


def flat(config: Config) -> dict[str, Any]:
    values = asdict(config)
    return values | values.pop("recipe") | values.pop("settings") | (values.pop("stage2") or {})


def described(folder: Path) -> dict[str, Any]:
    """What a row says of its run beside the numbers: the choices, how long it trained, how sure and right it became, its diagram.

    `diagram` has count, mean confidence and accuracy of each of 15 bins that is not empty; `keep` the path of stage II's.
    """
    config = read_config(folder)
    history = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    paths = {"keep": [round(epoch["keep"], 6) for epoch in history]} if "keep" in history[0] else {}
    bins = predictions_of(folder).bins(MEASURED["bins"])
    sums = zip(bins.count, bins.confidence, bins.correct, strict=True)
    diagram = [[int(n), round(float(sure / n), 6), round(float(right / n), 6)] for n, sure, right in sums if n]
    return {"run": config.about, "trained": {"epochs": len(history), **history[-1]}, "diagram": diagram, **paths}


def whole_row(folder: Path, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The run's row with these numbers; what was measured beyond its test images stays."""
    file = folder / "row.json"
    before = json.loads(file.read_text()) if file.is_file() else {}
    return described(folder) | dict(numbers) | {part: before[part] for part in PARTS if part in before}


def predictions_of(folder: Path) -> Predictions:
    """What the run's network said about the test images."""
    if not (folder / "test.npz").is_file():
        raise FileError(folder, f"no test.npz: {UNFINISHED}")
    return read(folder / "test.npz", name=folder.name)


def load_run(folder: Path, classes: int) -> Any:
    """The network of a run, in eval mode."""
    config = read_config(folder)
    try:
        weights = safetensors.torch.load_file(folder / "model.safetensors")
    except FileNotFoundError:
        raise FileError(
            folder, "no model.safetensors: the training has not ended; the same `maccal train` goes on with it"
        ) from None
    except safetensors.SafetensorError as error:
        raise FileError(folder, f"model.safetensors is damaged ({error}); train again") from error
    network = fresh(config, classes)
    if isinstance(config.stage2, TwoStage):
        network.head = build_head(config.stage2, network.num_features, classes)
    elif isinstance(config.stage2, Stage2) and config.stage2.hidden is not None:
        layers = sorted(key for key in weights if key.startswith("head.") and key.endswith(".weight"))
        network.head = plain([weights[key] for key in layers], [weights[key.replace("weight", "bias")] for key in layers])
    network.load_state_dict(weights)
    return network.to(memory_format=torch.channels_last).eval()
