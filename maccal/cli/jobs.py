"""What `maccal calibrate` does: features or a model in; a calibrated classifier, its history and,
with test rows, a report out.

features.npz        arrays z, y; optional val_z, val_y (held-out labels), unlabelled_z, test_z, test_y (measured before and
                    after), weight, bias (the classifier as trained, for "before")
mine.py:build       a function that returns model, train[, val[, test]]: a torch model and loaders; also package.module:build
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from maccal.calibration.heads import save_head
from maccal.calibration.mac_cal import calibrate_head
from maccal.calibration.model import calibrate, first_batch
from maccal.calibration.stage2 import Stage2
from maccal.evaluation.arrays import load_npz, npz_names
from maccal.evaluation.evaluated import Compared, measure, paired
from maccal.evaluation.predictions import Predictions
from maccal.features.extraction import Features, extract, find_head
from maccal.io import FileError, npz, write, write_json, write_tensors
from maccal.report.evaluation import evaluation_page
from maccal.runs.folder import MODEL

PAIRS = (("z", "y"), ("val_z", "val_y"), ("test_z", "test_y"), ("weight", "bias"))
# more than any labels mean, unless there are as many rows or a classifier of as many classes
CLASSES = 1 << 16


@dataclass(frozen=True)
class Settings:
    """How to calibrate, and where the results go."""

    config: Stage2
    seed: int
    accuracy: float | None
    head: str | None
    cache: Path | None
    out: Path


@dataclass(frozen=True)
class Done:
    """What was written, and the measured models, if there were test rows."""

    files: list[Path]
    history: list[dict[str, float]]
    models: list[Any]
    report: Path | None = None


def calibrate_file(path: Path, settings: Settings) -> Done:
    """From a file of features."""
    if settings.head or settings.cache:
        raise ValueError("--head and --cache are for models; a file of features has neither")
    arrays = load_features(path)
    val = (arrays["val_z"], arrays["val_y"]) if "val_z" in arrays else None
    new = calibrate_head(
        arrays["z"], arrays["y"], val=val, accuracy=settings.accuracy, unlabelled=arrays.get("unlabelled_z"),
        classes=len(arrays["weight"]) if "weight" in arrays else None, config=settings.config, seed=settings.seed, progress=True,
    )  # fmt: skip
    test = Features(*(torch.as_tensor(arrays[k]) for k in PAIRS[2])) if "test_z" in arrays else None
    old = linear(arrays["weight"], arrays["bias"]) if "weight" in arrays else None
    return finish(path.stem, new, old, test, settings)


def load_features(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of features.

    Of the right types and of sizes that go together, or FileError.
    """
    arrays = load_npz(path, [*(name for pair in PAIRS for name in pair), "unlabelled_z"])
    for first, second in PAIRS:
        if (first in arrays) != (second in arrays):
            raise FileError(
                path, f"{first} and {second} belong together; found {', '.join(arrays)}"
            )
    if "z" not in arrays:
        found = ", ".join(npz_names(path)[:20]) or "nothing"
        raise FileError(
            path, f"no z and y; found {found}; expected features z (rows x dimensions) and labels y"
        )
    for name in ("z", "val_z", "unlabelled_z", "test_z", "weight"):
        if name in arrays:
            arrays[name] = checked_matrix(path, name, arrays[name], width=arrays["z"].shape[-1:])
    classes = len(arrays["weight"]) if "weight" in arrays else None
    for rows, name in PAIRS[:3]:
        if name in arrays:
            arrays[name] = checked_labels(path, name, arrays[name], len(arrays[rows]), classes)
        if classes is None and name == "val_y":  # what the labels of the test must not go beyond
            classes = 1 + max(
                int(arrays[known].max()) for known in ("y", "val_y") if known in arrays
            )
    if "bias" in arrays:
        arrays["bias"] = checked_bias(path, arrays["bias"], len(arrays["weight"]))
    return arrays


def checked_matrix(path: Path, name: str, array: np.ndarray, width: tuple[int, ...]) -> np.ndarray:
    """Floating-point rows as wide as those of z."""
    if array.dtype.kind != "f" or array.dtype.itemsize > 8 or array.ndim != 2 or not array.size:
        raise FileError(
            path, f"{name} is {described(array)}; expected floating-point rows x dimensions"
        )
    if array.shape[1:] != width:
        raise FileError(
            path,
            f"z has {width[0]} features and {name} {array.shape[1]}; they must be of one network",
        )
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def checked_bias(path: Path, array: np.ndarray, classes: int) -> np.ndarray:
    if array.dtype.kind != "f" or array.dtype.itemsize > 8 or array.shape != (classes,):
        raise FileError(
            path,
            f"bias is {described(array)}; expected {classes} floats, one for each row of weight",
        )
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def checked_labels(
    path: Path, name: str, array: np.ndarray, rows: int, classes: int | None
) -> np.ndarray:
    """Class indices as int64, one for each row, of as many classes as are known or can be meant."""
    if array.dtype.kind not in "iu" or array.shape != (rows,):
        raise FileError(
            path, f"{name} is {described(array)}; expected {rows} whole numbers, one for each row"
        )
    low, high = int(array.min()), int(array.max())
    if low >= 0 and classes is not None and high >= classes:
        raise FileError(
            path,
            f"label {high} in {name} is outside 0 .. {classes - 1}; do the labels count from 1?",
        )
    if low < 0 or (classes is None and high >= max(CLASSES, rows)):
        problem = f"{name} has labels from {low} to {high}"
        raise FileError(
            path,
            f"{problem}; expected class indices 0, 1, ... (for more classes pass weight and bias)",
        )
    return array.astype(np.int64)


def described(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {array.shape}"


def calibrate_model(spec: str, settings: Settings) -> Done:
    """From a function that gives a model and its loaders; the whole model is written too."""
    model, train, val, test = built(spec)
    name = find_head(model, first_batch(train), settings.head)
    old = model.get_submodule(name)
    rows = (
        None
        if test is None
        else extract(model, test, head=name, cache=settings.cache, progress=True)
    )
    how: dict[str, Any] = {
        "config": settings.config,
        "seed": settings.seed,
        "cache": settings.cache,
        "progress": True,
    }
    calibrated = calibrate(model, train, val=val, accuracy=settings.accuracy, head=name, **how)
    new = calibrated.get_submodule(name)
    stem = spec.split(":")[0].removesuffix(".py").replace("/", ".").split(".")[-1]
    whole = write_tensors(settings.out / f"{stem}.model.safetensors", MODEL, weights_of(calibrated))
    done = finish(
        stem, new if isinstance(new, nn.Sequential) else as_sequence(new), old, rows, settings
    )
    return Done([whole, *done.files], done.history, done.models, done.report)


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


def as_sequence(layer: nn.Module) -> nn.Sequential:
    result = nn.Sequential(layer)
    result.history = layer.history
    return result


def linear(weight: Any, bias: Any) -> nn.Module:
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
            f"{spec} returned ({kinds}); expected model, train[, val[, test]]: a torch model and loaders"
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
    stem: str, new: nn.Sequential, old: nn.Module | None, test: Features | None, settings: Settings
) -> Done:
    """Write the head, its history and, with test rows, predictions and a report."""
    history: Any = new.history
    about = {
        "maccal_version": version("maccal"),
        "seed": settings.seed,
        "config": asdict(settings.config),
    }
    files = [save_head(new, settings.out / f"{stem}.head.safetensors", **about)]
    record = {**about, "accuracy": settings.accuracy, "history": history}
    files.append(write_json(settings.out / f"{stem}.history.json", "calibration 1", record))
    if test is None:
        return Done(files, history, [])
    heads = {**({"as trained": old} if old is not None else {}), "MaC-Cal": new}
    made = [
        Predictions(scores(head, test.z), "logits", test.y.numpy(), name)
        for name, head in heads.items()
    ]
    models = []
    for p in made:
        file = write(
            settings.out / f"{stem}.{p.name.lower().replace(' ', '-')}.npz",
            npz(logits=p.scores, labels=p.labels),
        )
        models.append(measure(p, file, bins=15, resamples=1000, seed=0))
        files.append(file)
    pairs = (
        [Compared(models[0], models[1], paired(made[0], made[1], bins=15, resamples=1000, seed=0))]
        if len(made) == 2
        else []
    )
    page = write(
        settings.out / f"{stem}.report.html", evaluation_page(models, pairs, {"MaC-Cal": history})
    )
    return Done(files, history, models, page)


@torch.no_grad()
def scores(head: nn.Module, z: Tensor) -> np.ndarray:
    weight = next(head.parameters())
    return head(z.to(weight.device, weight.dtype)).float().cpu().numpy()
