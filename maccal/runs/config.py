"""Config: every choice of a run, checked and settled, and the name that it gives the run's folder."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch

from maccal.calibration.registry import CALIBRATORS
from maccal.calibration.task import Choices
from maccal.data.pixels import PIXELS
from maccal.evaluation.row import worded
from maccal.evaluation.typed import fits, tupled, typed
from maccal.methods.registry import METHODS, Plan, method, settings_of
from maccal.models import MODELS
from maccal.training import precise
from maccal.training.recipe import Recipe

RunFeedback = Literal["held-out", "mixed", "training"]


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
    feedback: RunFeedback | None = None

    @property
    def plan(self) -> Plan:
        return method(self.method)

    @property
    def name(self) -> str:
        """Of the folder: what is not as the method has it by itself stands behind its name.

        >>> Config("cifar10", "resnet8", "vanilla", 1, 10_000, Recipe()).name
        'cifar10.10000-resnet8-vanilla-s1'
        >>> from maccal.calibration import Stage2
        >>> changed = {"settings": {"alpha": 0.5}, "stage2": Stage2(gamma=0.9)}
        >>> Config("cifar10", "resnet8", "mixup+maccal", 2, None, Recipe(), **changed).name
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
        usual = asdict(CALIBRATORS[plan.second].choices) if self.stage2 else {}
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
        stage2 = self.stage2 or (CALIBRATORS[plan.second].choices if plan.second else None)
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


def config_of(values: Mapping[str, Any]) -> Config:
    """A settled Config; one of the errors above where there is none with these values."""
    given = {key: value for key, value in values.items() if value is not None and key != "versions"}
    second = method(str(given.get("method"))).second
    given["recipe"] = typed(Recipe, given["recipe"])
    given["settings"] = tupled(given.get("settings", {}))
    if "stage2" in given:
        if second is None:
            raise ValueError(f"method {given['method']!r} with a stage2")
        given["stage2"] = typed(type(CALIBRATORS[second].choices), given["stage2"])
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
