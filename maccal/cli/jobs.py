"""What `maccal calibrate` does with features or a model.

    features.npz     features_file.py says which arrays
    mine.py:build    a function that returns model, train[, val[, test]]: a torch model and loaders;
                     also package.module:build

Out come a calibrated classifier, its history and, with test rows, a report.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from maccal.calibration.feedback import feedback_card, feedback_of, with_feedback
from maccal.calibration.heads import history_of, save_head, with_history
from maccal.calibration.mac_cal import count_classes
from maccal.calibration.model import calibrate, first_batch, told
from maccal.calibration.registry import CALIBRATORS
from maccal.calibration.task import Choices, Task
from maccal.cli.features_file import load_features
from maccal.evaluation.evaluated import Compared, measure, paired
from maccal.evaluation.predictions import Predictions
from maccal.features.classifiers import Classifier
from maccal.features.extraction import Features, extract, find_head
from maccal.features.layers import is_linear, is_pointwise
from maccal.features.table import FeatureTable
from maccal.io import npz, write, write_json, write_tensors
from maccal.report.evaluation import evaluation_page
from maccal.runs.folder import MEASURED, MODEL


@dataclass(frozen=True)
class Settings:
    """How to calibrate, and where the results go."""

    calibrator: str
    config: Choices
    seed: int
    accuracy: float | None
    head: str | None
    cache: Path | None
    device: str | None
    out: Path


@dataclass(frozen=True)
class Done:
    """What was written, and the measured models, if there were test rows."""

    files: list[Path]
    history: list[dict[str, float]]
    models: list[Any]
    feedback: str  # one sentence
    report: Path | None = None


def calibrate_file(path: Path, settings: Settings) -> Done:
    """From a file of features."""
    arrays = load_features(path)
    old = linear(arrays["weight"], arrays["bias"]) if "weight" in arrays else None
    train = FeatureTable(arrays["z"], arrays["y"], "z")
    feedback = feedback_of(
        train,
        val=(arrays["val_z"], arrays["val_y"]) if "val_z" in arrays else None,
        accuracy=settings.accuracy,
        unlabelled=arrays.get("unlabelled_z"),
    )
    classes = count_classes(train, feedback.rows, None if old is None else old.out_features)
    task = Task(train, feedback, classes, old, settings.seed, progress=True)
    new = CALIBRATORS[settings.calibrator].fit(settings.config, task)
    if old is not None:
        feedback = told(feedback, train, old, getattr(settings.config, "gamma", 1.0))
    with_feedback(new, feedback.card())
    test = None
    if "test_z" in arrays:
        test = Features(torch.as_tensor(arrays["test_z"]), torch.as_tensor(arrays["test_y"]))
    return finish(path.stem, new, old, test, settings)


def calibrate_model(spec: str, settings: Settings) -> Done:
    """From a function that gives a model and its loaders; the whole model is written too."""
    model, train, val, test = built(spec)
    name = find_head(model, first_batch(train), settings.head)
    old = head_of(model, name)
    rows = None
    if test is not None:
        rows = extract(
            model, test, head=name, cache=settings.cache, device=settings.device, progress=True
        )
    calibrated = calibrate(
        model,
        train,
        val=val,
        accuracy=settings.accuracy,
        calibrator=settings.calibrator,
        head=name,
        config=settings.config,
        seed=settings.seed,
        cache=settings.cache,
        device=settings.device,
        progress=True,
    )
    stem = spec.split(":")[0].removesuffix(".py").replace("/", ".").split(".")[-1]
    whole = write_tensors(settings.out / f"{stem}.model.safetensors", MODEL, weights_of(calibrated))
    done = finish(stem, head_of(calibrated, name), old, rows, settings)
    return replace(done, files=[whole, *done.files])


def head_of(model: nn.Module, name: str) -> nn.Module:
    """The classifier as one module, features to logits, with how it came about where it says so."""
    place = Classifier.parse(name)
    first = model.get_submodule(place.names[0])
    if place.alone and not (is_linear(first) or is_pointwise(first)):
        return first  # of several layers, in the place of the old one
    head = place.linear(model)
    if hasattr(first, "history"):
        with_history(head, history_of(first))
    if hasattr(first, "feedback"):
        with_feedback(head, feedback_card(first))
    return head


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor of the model.

    Of those that share memory the first that has all of it, as safetensors' load_model expects.
    """
    named = sorted(model.state_dict().items())
    owners: dict[int, str] = {}
    for name, value in named:
        memory = value.untyped_storage()
        if 0 < value.nbytes == memory.nbytes():
            owners.setdefault(memory.data_ptr(), name)
    found = {}
    for name, value in named:
        if owners.get(value.untyped_storage().data_ptr(), name) == name:
            # a part of memory that nobody has whole is written as its own
            found[name] = value.clone()
    return found


def as_sequence(head: nn.Module) -> nn.Sequential:
    """The head as a sequence of layers, as files have it."""
    if isinstance(head, nn.Sequential):
        return head
    return with_history(nn.Sequential(head), history_of(head))


def linear(weight: np.ndarray, bias: np.ndarray) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    layer.weight, layer.bias = (
        nn.Parameter(torch.as_tensor(t).float(), False) for t in (weight, bias)
    )
    return layer


def built(spec: str) -> tuple[nn.Module, Iterable[Any], Iterable[Any] | None, Iterable[Any] | None]:
    """The model and loaders that the named function returns."""
    place, _, name = spec.rpartition(":")
    try:
        module = from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        function = getattr(module, name)
    except (ImportError, AttributeError, FileNotFoundError) as error:
        raise ValueError(
            f"{spec}: cannot be loaded ({error}); pass file.py:function or package.module:function"
        ) from error
    given = function()
    parts = given if isinstance(given, tuple) else (given,)
    if not 2 <= len(parts) <= 4 or not isinstance(parts[0], nn.Module):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise ValueError(
            f"{spec} returned ({kinds}); "
            "expected model, train[, val[, test]]: a torch model and loaders"
        )
    model, train, val, test = (*parts, None, None)[:4]
    return model, train, val, test


def from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise FileNotFoundError(f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # so that loader workers find what the file defines
    spec.loader.exec_module(module)
    return module


def finish(
    stem: str, new: nn.Module, old: nn.Module | None, test: Features | None, settings: Settings
) -> Done:
    """Write the head, its history and, with test rows, predictions and a report."""
    head = as_sequence(new).cpu()
    card = feedback_card(new)
    history = history_of(head)
    about = {
        "maccal_version": version("maccal"),
        "calibrator": settings.calibrator,
        "seed": settings.seed,
        "config": asdict(settings.config),
        "feedback": card,
    }
    record = {**about, "accuracy": settings.accuracy, "history": history}
    files = [
        save_head(head, settings.out / f"{stem}.head.safetensors", **about),
        write_json(settings.out / f"{stem}.history.json", "calibration 1", record),
    ]
    if test is None:
        return Done(files, history, [], card["words"])
    title = CALIBRATORS[settings.calibrator].title
    heads: dict[str, nn.Module] = {} if old is None else {"as trained": old}
    heads[title] = head
    made = []
    models = []
    for name, one in heads.items():
        said = Predictions(scores(one, test.z), "logits", test.y.numpy(), name)
        file = settings.out / f"{stem}.{name.lower().replace(' ', '-')}.npz"
        files.append(write(file, npz(logits=said.scores, labels=said.labels)))
        made.append(said)
        models.append(measure(said, file, **MEASURED))
    pairs = []
    if len(made) == 2:
        pairs.append(Compared(models[0], models[1], paired(made[0], made[1], **MEASURED)))
    paths = {title: history} if "keep" in history[0] else {}
    page = evaluation_page(models, pairs, paths)
    report = write(settings.out / f"{stem}.report.html", page)
    return Done(files, history, models, card["words"], report)


@torch.no_grad()
def scores(head: nn.Module, z: Tensor) -> np.ndarray:
    weight = next(head.parameters())
    return head(z.to(weight.device, weight.dtype)).float().cpu().numpy()
