"""Runs: a folder a trained network, which `maccal train` fills, and `maccal calibrate` and `maccal
evaluate` read.

runs/<data>-<model>-<method>-s<seed>/
    config.json          all choices, settled: the same command on the same data gives the same bits
    checkpoint.pt        while training; the same command goes on from it
    history.jsonl        one line per epoch, below its header
    model.safetensors    the network
    test.npz             its logits on the test images, and the labels
    row.json             its numbers, each with interval and null band, and the checksums of the three files above
    features/            once calibrated: the features of its images, so that the next calibration takes seconds

Every file has a checksum of its own, and row.json, which is written last, ties them together: a
file that is damaged, or of another run, is refused. maccal/runs/state.py says how they come about.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch

from maccal.calibration.heads import plain
from maccal.calibration.registry import CALIBRATORS, Choices
from maccal.calibration.stage2 import Stage2
from maccal.calibration.temperature import Temperature
from maccal.calibration.tst import TwoStage, build_head
from maccal.data.pixels import PIXELS
from maccal.evaluation.predictions import Predictions, read
from maccal.evaluation.row import PARTS as PARTS
from maccal.evaluation.row import DiagramBin, Ran, Row, read_row, worded
from maccal.evaluation.typed import fits, tupled, typed
from maccal.io import FileError, checksum, read_bytes, read_json, read_lines, read_tensors
from maccal.methods.registry import METHODS, Plan, method, settings_of
from maccal.models import MODELS, build
from maccal.training.loop import History, precise
from maccal.training.recipe import Recipe

Feedback = Literal["held-out", "mixed", "training"]
UNFINISHED = "the training has not ended; the same `maccal train` goes on with it"
AGAIN = "the same `maccal train`, or `maccal calibrate`, writes it anew"
FILES = ("history.jsonl", "model.safetensors", "test.npz")  # what a row has the checksums of
CONFIG, HISTORY, MODEL = "config 1", "history 1", "model 1"
MEASURED = {"bins": 15, "resamples": 1000, "seed": 0}


@dataclass(frozen=True)
class Config:
    """Every choice of a run: of stage I and, where the method has one, of stage II.

    An empty `settings` stands for the method's own on that data set and network; so does a `stage2`
    of None."""

    data: str
    model: str
    method: str
    seed: int
    limit: int | None
    recipe: Recipe
    settings: Mapping[str, Any] = field(default_factory=dict)
    stage2: Choices | None = None
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
        first = ",".join(
            [
                plan.first,
                *(worded(key, value) for key, value in self.settings.items() if value != own[key]),
            ]
        )
        if plan.second is None:
            return first
        usual = asdict(CALIBRATORS[plan.second]) if self.stage2 else {}
        changes = asdict(self.stage2) if self.stage2 else {}
        second = [
            plan.second,
            *(worded(key, value) for key, value in changes.items() if value != usual[key]),
        ]
        parts = ",".join(
            second + ([self.feedback] if self.feedback not in (None, "held-out") else [])
        )
        return parts if first == "vanilla" else f"{first}+{parts}"

    def settled(self, device: torch.device) -> "Config":
        """With nothing left open; ValueError for what is not known.

        Settings that only stage II has are its own.
        """
        plan, own = self.plan, METHODS[self.plan.first].settings
        stage2 = self.stage2 or (CALIBRATORS[plan.second] if plan.second else None)
        second = (
            {}
            if stage2 is None
            else {
                key: v
                for key, v in self.settings.items()
                if key not in own and hasattr(stage2, key)
            }
        )
        first = {key: value for key, value in self.settings.items() if key not in second}
        settings, recipe = (
            settings_of(plan.first, self.data, self.model, first),
            precise(self.recipe, device),
        )
        if stage2 is None:
            return replace(self, settings=settings, recipe=recipe)
        stage2 = replace(
            stage2, **{key: like(getattr(stage2, key), value) for key, value in second.items()}
        )
        feedback = self.feedback or "held-out"
        if isinstance(stage2, Temperature) and feedback != "held-out":
            raise ValueError(
                f"a temperature is fitted on held-out labels, not with {feedback} feedback; leave feedback out"
            )
        return replace(
            self,
            method=plan.name,
            settings=settings,
            recipe=recipe,
            stage2=stage2,
            feedback=feedback,
        )

    @property
    def about(self) -> dict[str, Any]:
        """What a row says of its run, as JSON has it."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return values

    @property
    def content(self) -> dict[str, Any]:
        """Of config.json: the choices that are not None, and what made the run."""
        versions = {package: version(package) for package in ("maccal", "torch")}
        chosen = {key: value for key, value in self.about.items() if value is not None}
        return chosen | {"versions": versions}


def like(old: Any, new: Any) -> Any:
    """A whole number where one is expected; the command line gives all numbers as floats."""
    return int(new) if isinstance(old, int) and isinstance(new, float) and new.is_integer() else new


def read_config(folder: Path) -> Config:
    """The choices of a run.

    FileError where its config.json is missing, damaged, or says what no run can have.
    """
    file = folder / "config.json"
    if not file.exists():
        raise FileError(folder, "no config.json; pass a folder that `maccal train` made")
    try:
        values = read_json(file, CONFIG)
    except FileError as error:
        raise FileError(file, f"{error.problem}; {AGAIN}") from None
    try:
        return config_of(values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileError(file, f"not of a run ({error}); {AGAIN}") from None


def config_of(values: Mapping[str, Any]) -> Config:
    """A settled Config; one of the errors above where there is none with these values."""
    given = {key: value for key, value in values.items() if value is not None and key != "versions"}
    second = method(str(given.get("method"))).second
    given["recipe"] = typed(Recipe, given["recipe"])
    given["settings"] = tupled(given.get("settings", {}))
    if "stage2" in given:
        if second is None:
            raise ValueError(f"method {given['method']!r} with a stage2")
        given["stage2"] = typed(type(CALIBRATORS[second]), given["stage2"])
    config = typed(Config, {"limit": None, **given})
    check_choices(config)
    return config


def is_of(config: Config, about: Any) -> bool:
    """Whether a row or a network that says this of its run is of this one."""
    try:
        return config_of(about) == config
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def check_choices(config: Config) -> None:
    """ValueError for a data set, network, seed, limit or setting that no run has."""
    if config.data not in PIXELS or config.model not in MODELS:
        raise ValueError(f"data {config.data!r}, model {config.model!r}")
    if (config.plan.second is None) != (config.stage2 is None):
        raise ValueError(f"method {config.method!r} with stage2 {config.stage2}")
    if abs(config.seed) >= 1 << 63 or (config.limit is not None and config.limit < 1):
        raise ValueError(f"seed {config.seed}, limit {config.limit}")
    for key, value in config.settings.items():
        if not fits(value, float | str | tuple[float, ...]):
            raise ValueError(f"{key} is {str(value)[:100]!r}")
    settings_of(config.plan.first, config.data, config.model, config.settings)
    if Path(config.name).name != config.name:
        raise ValueError(f"{config.name!r} is no name of a folder")


def fresh(config: Config, classes: int) -> Any:
    """A new network, drawn with the seed, with what the method adds to it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return METHODS[config.plan.first].network(build(config.model, classes), config.seed)


def run_of(folder: Path) -> tuple[Config, Row]:
    """The choices and the row of a finished run.

    FileError where it is not finished, or where the two do not belong together.
    """
    config, file = read_config(folder), folder / "row.json"
    if not file.exists():
        raise FileError(folder, f"no row.json: {UNFINISHED}")
    try:
        row = read_row(file)
    except FileError as error:
        raise FileError(file, f"{error.problem}; {AGAIN}") from None
    if row.ran is None or not is_of(config, row.ran.about):
        raise FileError(
            folder,
            "config.json and row.json are of different runs; delete the one that does not belong here",
        )
    return config, row


def check_file(folder: Path, name: str, row: Row) -> None:
    """FileError unless the file is the one that the row was made with."""
    file, files = folder / name, row.files
    anew = "delete the folder of the run, and the same `maccal train` makes it anew"
    remedy = (
        "the same `maccal train`, or `maccal calibrate`, predicts the images again"
        if name == "test.npz"
        else anew
    )
    if not file.exists():
        raise FileError(folder, f"no {name}; {remedy}")
    if files is None or checksum(read_bytes(file)) != files.get(name):
        raise FileError(
            file, f"damaged, or of another run: not the file that row.json was made with; {remedy}"
        )


def read_history(folder: Path) -> History:
    """What was noted after each epoch."""
    history = read_lines(folder / "history.jsonl", HISTORY)
    if not history:
        raise FileError(
            folder / "history.jsonl", "no epochs; it is damaged, or was changed by another program"
        )
    return history


def ran(config: Config) -> Ran:
    """What a row says of the run that it is of."""
    about, plan = config.about, config.plan
    return Ran(
        data=config.data,
        model=config.model,
        first=plan.first,
        second=plan.second,
        seed=config.seed,
        limit=config.limit,
        recipe=about["recipe"],
        settings=about["settings"],
        calibration=about["stage2"],
        feedback=config.feedback,
        changes=tuple(changes(config)),
    )


def changes(config: Config) -> list[str]:
    """The choices that are not the method's or the calibrator's own, by their names in a Ran."""
    plan = config.plan
    own = settings_of(plan.first, config.data, config.model)
    found = [f"settings.{key}" for key, value in config.settings.items() if value != own[key]]
    if plan.second is None or config.stage2 is None:
        return found
    usual = asdict(CALIBRATORS[plan.second])
    for key, value in asdict(config.stage2).items():
        if value != usual[key]:
            found.append(f"calibration.{key}")
    if config.feedback not in (None, "held-out"):
        found.append("feedback")
    return found


def described(folder: Path, config: Config, row: Row) -> Row:
    """The measured row with what is said of its run beside the numbers: the choices, how long it
    trained, how sure and right it became, its diagram, and the path of stage II's keep.
    """
    history = read_history(folder)
    keep = [round(epoch["keep"], 6) for epoch in history] if "keep" in history[0] else []
    return replace(
        row,
        ran=ran(config),
        trained={"epochs": len(history), **history[-1]},
        diagram=diagram(folder),
        keep=tuple(keep),
    )


def diagram(folder: Path) -> tuple[DiagramBin, ...]:
    """Count, mean confidence and accuracy of each of 15 bins that is not empty."""
    bins = said(folder).bins(MEASURED["bins"])
    found = []
    for count, sure, right in zip(bins.count, bins.confidence, bins.correct, strict=True):
        if count:
            confidence, accuracy = float(sure / count), float(right / count)
            found.append(DiagramBin(int(count), round(confidence, 6), round(accuracy, 6)))
    return tuple(found)


def whole_row(folder: Path, row: Row) -> Row:
    """The run's row with these numbers; what was measured beyond its test images stays."""
    config, before = run_of(folder)
    for name in ("history.jsonl", "test.npz"):
        check_file(folder, name, before)
    kept = replace(before, name=row.name, measured=row.measured, numbers=row.numbers)
    return described(folder, config, replace(kept, verdict=row.verdict))


def said(folder: Path) -> Predictions:
    """The predictions in a folder, of a run that need not be finished."""
    return read(folder / "test.npz", name=folder.name)


def predictions_of(folder: Path) -> Predictions:
    """What the run's network said about the test images."""
    check_file(folder, "test.npz", run_of(folder)[1])
    return said(folder)


def load_run(folder: Path, classes: int) -> Any:
    """The network of a run, in eval mode."""
    config, row = run_of(folder)
    check_file(folder, "model.safetensors", row)
    return read_network(folder, config, classes)


def read_weights(folder: Path, config: Config) -> dict[str, torch.Tensor]:
    """The tensors of a network; FileError where they are damaged, or of another run."""
    weights, notes = read_tensors(folder / "model.safetensors", MODEL)
    if not is_of(config, notes.get("run")):
        raise FileError(folder / "model.safetensors", "the network of another run")
    return weights


def read_network(folder: Path, config: Config, classes: int) -> Any:
    """The network in a folder, of a run that need not be finished."""
    weights, network = read_weights(folder, config), fresh(config, classes)
    if isinstance(config.stage2, TwoStage):
        network.head = build_head(config.stage2, network.num_features, classes)
    elif isinstance(config.stage2, Stage2) and config.stage2.hidden is not None:
        layers = sorted(
            key for key in weights if key.startswith("head.") and key.endswith(".weight")
        )
        network.head = plain(
            [weights[key] for key in layers],
            [weights[key.replace("weight", "bias")] for key in layers],
        )
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise FileError(
            folder / "model.safetensors", f"not the network that config.json describes ({reason})"
        ) from None
    return network.to(memory_format=torch.channels_last).eval()
