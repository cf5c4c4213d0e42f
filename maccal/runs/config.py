"""Config: every choice of a run, checked and settled, and the name of the run's folder."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_type_hints

import torch

from maccal.calibration.registry import CALIBRATORS
from maccal.calibration.task import Choices
from maccal.data.pixels import PIXELS
from maccal.evaluation.row import Ran, worded
from maccal.evaluation.typed import coerced, fits, tupled, typed
from maccal.methods.registry import METHODS, Plan, method, settings_of
from maccal.models import MODELS
from maccal.training import precise
from maccal.training.recipe import RECIPES, Recipe

RunFeedback = Literal["held-out", "views", "mixed", "training"]
# choices of the recipe that are not in a run's name: they do not change what is trained
UNNAMED = ("precision", "compile", "watch")


@dataclass(frozen=True)
class Config:
    """Every choice of a run: of stage I and, where the method has one, of stage II.

    An empty `settings` stands for the method's own on that data set and network; so does a `stage2`
    of None.
    """

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
        """The name of the folder: what is not as usual stands behind what it changes.

        >>> Config("cifar10", "resnet8", "vanilla", 1, 10_000, Recipe()).name
        'cifar10.10000-resnet8-vanilla-s1'
        >>> from maccal.calibration import Stage2
        >>> changed = {"settings": {"alpha": 0.5}, "stage2": Stage2.ablation("decaying", gamma=0.9)}
        >>> Config("cifar10", "resnet8", "mixup+maccal", 2, None, Recipe(epochs=45), **changed).name
        'cifar10-resnet8,epochs=45-mixup,alpha=0.5+maccal,start=fresh,hidden=512,gamma=0.9-s2'
        """
        data = f"{self.data}.{self.limit}" if self.limit else self.data
        model = ",".join([self.model, *self.recipe_changes])
        return f"{data}-{model}-{self.described_method}-s{self.seed}"

    @property
    def recipe_changes(self) -> list[str]:
        """What is not as the recipe of the data set has it, in words."""
        usual = asdict(RECIPES.get(self.data, Recipe()))
        own = asdict(self.recipe)
        return [worded(key, own[key]) for key in changed(own, usual) if key not in UNNAMED]

    @property
    def described_method(self) -> str:
        """The method, or both, each with what is not its own."""
        what = self.ran
        first = ",".join([what.first, *what.words("settings")])
        if what.second is None:
            return first
        second = ",".join([what.second, *what.words("calibration")])
        return second if first == "vanilla" else f"{first}+{second}"

    @property
    def ran(self) -> Ran:
        """What a row says of this run."""
        about = self.about
        return Ran(
            data=self.data,
            model=self.model,
            first=self.plan.first,
            second=self.plan.second,
            seed=self.seed,
            limit=self.limit,
            recipe=about["recipe"],
            settings=about["settings"],
            calibration=about["stage2"],
            feedback=self.feedback,
            changes=tuple(self.changes),
        )

    @property
    def changes(self) -> list[str]:
        """The choices that are not the method's or calibrator's own, by their names in a Ran."""
        plan = self.plan
        own = settings_of(plan.first, self.data, self.model)
        found = [f"settings.{key}" for key in changed(self.settings, own)]
        if plan.second is None or self.stage2 is None:
            return found
        found += [f"calibration.{word}" for word in told_apart(plan.second, self.stage2)]
        if self.feedback not in (None, "held-out"):
            found.append("feedback")
        return found

    def settled(self, device: torch.device) -> "Config":
        """With nothing left open; ValueError for what is not known.

        Settings that only stage II has are its own. The precision is settled for this device: call
        this where the run is made.
        """
        planned = self.planned()
        return replace(planned, recipe=precise(planned.recipe, device))

    def planned(self) -> "Config":
        """With nothing left open but the precision, which depends on the machine of the run."""
        plan = self.plan
        if plan.second is None:
            own = settings_of(plan.first, self.data, self.model, self.settings)
            return replace(self, settings=own)
        row = CALIBRATORS[plan.second]
        choices = self.stage2 or row.choices
        first: dict[str, Any] = {}
        second: dict[str, Any] = {}
        hints = get_type_hints(type(choices))
        for key, value in self.settings.items():
            if key not in METHODS[plan.first].settings and key in hints:
                second[key] = of_kind(plan.second, key, value, hints[key])
            else:
                first[key] = value
        return replace(
            self,
            method=plan.name,
            settings=settings_of(plan.first, self.data, self.model, first),
            # what is left open may depend on what was chosen: a bottleneck starts afresh
            stage2=row.settle(replace(choices, **second)),
            feedback=self.feedback or "held-out",
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


def told_apart(calibrator: str, choices: Choices) -> list[str]:
    """What tells these choices from the calibrator's own: the names of choices.

    First among them may be the name of the variant that they are nearest to. What follows from
    where the head starts is not said.

    >>> from maccal.calibration import Stage2
    >>> told_apart("maccal", Stage2(start="fresh").settled(trained=True))
    ['start']
    >>> told_apart("maccal", Stage2.paper(gamma=0.5))
    ['as_printed', 'gamma']
    """
    row = CALIBRATORS[calibrator]
    values = asdict(choices)
    own = row.choices
    if "start" in values:
        own = row.settle(replace(own, start=values["start"]))
    found = changed(values, asdict(own))
    if "start" in values and values["start"] != row.settle(row.choices).start:
        found = ["start", *found]
    for name, variant in row.variants.items():
        words = [name, *changed(values, asdict(variant))]
        if len(words) < len(found):
            found = words
    return found


def changed(values: Mapping[str, Any], usual: Mapping[str, Any]) -> list[str]:
    """The names of the values that are not as usual.

    >>> changed({"alpha": 0.5, "beta": 1.0}, {"alpha": 1.0, "beta": 1.0})
    ['alpha']
    """
    return [key for key, value in values.items() if value != usual[key]]


def of_kind(calibrator: str, key: str, value: Any, hint: Any) -> Any:
    """The value of a choice; ValueError, which names it, for one of another kind."""
    try:
        return coerced(value, hint)
    except ValueError as error:
        raise ValueError(f"{calibrator}: {key} is {error}") from None


def config_of(values: Mapping[str, Any]) -> Config:
    """A settled Config; one of the errors above where there is none with these values."""
    given = {key: value for key, value in values.items() if value is not None and key != "versions"}
    second = method(str(given.get("method"))).second
    given["recipe"] = typed(Recipe, given["recipe"])
    given["settings"] = tupled(given.get("settings", {}))
    if "stage2" in given:
        if second is None:
            raise ValueError(f"method {given['method']!r} with a stage2")
        row = CALIBRATORS[second]
        # a choice that did not exist when the run was made is as it was before, or has its default
        given["stage2"] = row.settle(typed(type(row.choices), {**row.before, **given["stage2"]}))
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
