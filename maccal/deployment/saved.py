"""A calibrated model in a folder, and back into a fresh instance of the same architecture.

    save_calibrated(model, "out")               out/model.safetensors
    model = load_calibrated(build(), "out")     the same weights, `.history` and `.feedback`

Nothing is unpickled: the file holds tensors, and notes in its header. Its format and checksum are
verified, and so are the names, shapes and types of all weights, and their SHA-256, before one of
them is written. Cost: two hashes of the weights, about two seconds per gigabyte.
"""

from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from maccal.calibration.feedback import with_feedback
from maccal.calibration.heads import layers_of, plain, with_history
from maccal.deployment.facts import calibrated_parts, facts_of, weights_sha256
from maccal.deployment.notes import check_notes, checked_names, kind_of
from maccal.features.classifiers import replace_head
from maccal.features.running import unwrap
from maccal.io import FileError, read_tensors, write_tensors

Model = TypeVar("Model", bound=nn.Module)
CALIBRATED = "calibrated 1"  # the kind of file, and the version of its format
FILE = "model.safetensors"
KEPT = ("model", "classifier", "feedback", "weights_sha256", "versions")
ELSEWHERE = "save its state_dict with torch.save, and build the head before you load it"


def save_calibrated(model: nn.Module, folder: Path | str) -> Path:
    """Write the weights of a calibrated model, and how they came about; returns the folder.

    ValueError for a model that `calibrate` has not seen, and for a head that is more than linear
    layers (TST), which a file of tensors cannot rebuild.
    """
    inside, _ = unwrap(model)
    parts = calibrated_parts(inside)
    if not parts:
        raise ValueError(
            "no layer of the model says what it was calibrated by; pass what calibrate returned"
        )
    name, head = next(iter(parts.items()))
    kind = kind_of(head)
    if kind is None:
        raise ValueError(f"the head {name!r} is a {type(head).__name__}: {ELSEWHERE}")
    facts = facts_of(inside)
    notes = {key: facts[key] for key in KEPT}
    history = getattr(head, "history", [])
    weights = unshared(inside.state_dict())
    write_tensors(Path(folder) / FILE, CALIBRATED, weights, head=kind, history=history, **notes)
    return Path(folder)


def unshared(state: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors of a state dict; those that share memory are copied, as a file cannot say so."""
    seen: set[int] = set()
    weights = {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise ValueError(f"{name!r} in the state dict is a {kind}, no tensor: {ELSEWHERE}")
        place = value.untyped_storage().data_ptr()
        weights[name] = value.clone() if place in seen else value
        seen.add(place)
    return weights


def load_calibrated(model: Model, folder: Path | str) -> Model:
    """The model, a fresh instance of the architecture that was saved, with the calibrated weights.

    In eval mode. FileError, and no weight changed, where the file is damaged or of another model.
    """
    path = Path(folder) / FILE
    if path.parent.is_file():
        raise FileError(folder, "a file; pass the folder that save_calibrated wrote")
    inside, _ = unwrap(model)
    weights, notes = read_tensors(path, CALIBRATED)
    check_type(inside, notes, path)
    check_notes(notes, path)
    names = checked_names(inside, notes, path)
    name = names[0]
    head = None
    if notes["head"] == "layers":
        head = rebuilt(weights, name, path)
    check_weights(inside, weights, name if head is not None else None, path)
    if weights_sha256(weights) != notes.get("weights_sha256"):
        raise FileError(path, "its weights are not those that were saved; save them again")
    if head is not None:
        replace_head(inside, name, head)
    inside.load_state_dict(weights)
    for name in names:
        with_feedback(with_history(inside.get_submodule(name), notes["history"]), notes["feedback"])
    return model.eval()


def check_type(model: nn.Module, notes: dict[str, Any], path: Path) -> None:
    here = f"{type(model).__module__}.{type(model).__qualname__}"
    there = notes.get("model")
    # a script's own classes are in __main__ there and in a module here
    if str(there).rpartition(".")[2] != here.rpartition(".")[2]:
        raise FileError(path, f"weights of a {there}; the model that was passed is a {here}")


def rebuilt(weights: dict[str, Tensor], name: str, path: Path) -> nn.Sequential:
    """An untrained head of the saved one's shape."""
    start = f"{name}."
    own = {key.removeprefix(start): weights[key] for key in weights if key.startswith(start)}
    try:
        return plain(*layers_of(own))
    except (KeyError, ValueError) as error:
        raise FileError(path, f"the layers of its head {name!r} do not fit: {error}") from None


def check_weights(
    model: nn.Module, weights: dict[str, Tensor], replaced: str | None, path: Path
) -> None:
    """FileError unless every weight has its place; those of a head that is replaced are spared."""

    def rest(state: dict[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
        kept = {}
        for name, tensor in state.items():
            if replaced is None or not name.startswith(f"{replaced}."):
                kept[name] = (tensor.shape, tensor.dtype)
        return kept

    here, there = rest(model.state_dict()), rest(weights)
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            found = said(there.get(name))
            wanted = said(here.get(name))
            problem = f"{name} is {found} in the file and {wanted} in the model"
            raise FileError(path, f"weights of another architecture: {problem}")


def said(weight: tuple[torch.Size, torch.dtype] | None) -> str:
    return "absent" if weight is None else f"{tuple(weight[0])} of {weight[1]}"
