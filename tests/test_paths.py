"""A path may be a text wherever the package asks for one: every public function, by its types and,
for the ones that users meet, by a call.
"""

import importlib
import inspect
import typing

import numpy as np
import pytest
import torch
from extraction import X, mostly_right, net
from test_imports import ROOMS
from torch import nn

import maccal as mc
from maccal.calibration.stage2 import Stage2
from maccal.data import Pixels, Split
from maccal.training import Recipe

# integrations are tested with their frameworks, the command line's functions are given Paths by it
PUBLIC = [room for room in ROOMS if room not in ("cli", "integrations")]


def public_functions():
    """The functions and methods that the rooms list, by name."""
    for room in PUBLIC:
        module = importlib.import_module(f"maccal.{room}")
        for name in getattr(module, "__all__", []):
            found = getattr(module, name)
            if inspect.isclass(found):
                for own, method in inspect.getmembers(found, inspect.isroutine):
                    if own == "__init__" or not own.startswith("_"):
                        yield f"{room}.{name}.{own}", method
            elif inspect.isfunction(found):
                yield f"{room}.{name}", found


def parameters_of(function):
    try:
        return inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of C
        return []


def asks_for_a_path(annotation):
    """Whether a Path can be passed: not a function of paths."""
    return "Path" in str(annotation) and "Callable" not in str(annotation)


def test_every_path_may_be_a_text():
    wrong = []
    seen = 0
    for name, function in public_functions():
        for parameter in parameters_of(function):
            if asks_for_a_path(parameter.annotation):
                seen += 1
                kinds = typing.get_args(parameter.annotation)
                if str not in kinds:
                    wrong.append(f"{name}: {parameter.name}")
    assert seen > 40
    assert wrong == []


def train(path):
    images = torch.randint(0, 255, (8, 3, 8, 8), dtype=torch.uint8)
    split = Split(images, torch.arange(8) % 3)
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = mc.models.Net(body, 4, 3)
    pixels = Pixels((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
    recipe = Recipe(epochs=1, batch_size=4)
    mc.fit(network, split, recipe, pixels=pixels, checkpoint=path)
    mc.fit(network, split, recipe, pixels=pixels, checkpoint=path)  # goes on from it


def save_and_load_head(path):
    head = nn.Sequential(nn.Linear(3, 2))
    mc.save_head(head, path)
    assert torch.equal(mc.load_head(path)[0].weight, head[0].weight)


def save_and_load_model(path):
    model = net()
    rows = mostly_right(model, X)
    kept = mc.calibrate(model, rows, val=rows, calibrator="temperature", cache=f"{path}-features")
    mc.save_calibrated(kept, path)
    mc.load_calibrated(net(), path)
    named = {"name": "a", "data": "b", "task": "c"}
    mc.card(kept, rows, resamples=50, **named).save(path)


def predictions(path):
    np.savez(f"{path}.npz", probs=[[0.4, 0.6], [0.9, 0.1]], labels=[1, 0])
    said = mc.read(f"{path}.npz")
    model = mc.evaluation.measure(said, f"{path}.npz", bins=15, resamples=50, seed=0)
    mc.evaluation.write_row(f"{path}.json", model.row)
    assert mc.evaluation.read_row(f"{path}.json") == model.row
    mc.evaluation.write_rows(f"{path}.jsonl", [model.row])
    assert mc.evaluation.read_rows(f"{path}.jsonl") == [model.row]


def whole_files(path):
    mc.io.write_json(path, "x 1", {"a": 1})
    assert mc.io.read_json(path, "x 1") == {"a": 1}
    mc.io.write_all({path: "b", f"{path}2": "c"})
    assert mc.io.read_bytes(path) == b"b"
    with mc.io.locked(f"{path}-folder"):
        mc.io.sweep(f"{path}-folder")


CALLS = (train, save_and_load_head, save_and_load_model, predictions, whole_files)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_text_works(call, tmp_path):
    call(str(tmp_path / "here"))


@pytest.mark.slow
def test_runs_by_text(tmp_path):
    recipe = Recipe(epochs=1, precision="fp32")
    config = mc.runs.Config("digits", "resnet8", "vanilla", 1, 60, recipe)
    folder = str(mc.runs.make_run(config, runs=str(tmp_path)))
    assert mc.runs.read_config(folder).model == "resnet8"
    assert len(mc.runs.read_history(folder)) == 1
    assert mc.runs.run_of(folder)[1] is not None
    assert mc.runs.predictions_of(folder).labels.size > 0
    after = mc.runs.calibrate_run(folder, stage2=Stage2(epochs=1))
    assert mc.runs.load_run(str(after), 10) is not None
    mc.runs.extend_row(folder)
