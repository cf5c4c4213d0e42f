"""What a file of a calibrated model notes beside its weights, checked before anything is written.

A checksum shows damage, not intent: whoever changes a note can mend the checksum. So each note has
to be what we write, or the model would come back with notes that break a card, or stand in it.
"""

from pathlib import Path
from types import NoneType
from typing import Any

from torch import nn

from maccal.calibration.feedback import SOURCES
from maccal.features.layers import is_linear, is_pointwise
from maccal.io import FileError, readable

NUMBER = (int, float, NoneType)
FEEDBACK: dict[str, Any] = {
    "source": str,
    "view": (str, NoneType),
    "rows": (int, NoneType),
    "accuracy": NUMBER,
    "aimed": NUMBER,
    "within": NUMBER,
    "words": str,
}
AGAIN = "save the model again"


def kind_of(head: nn.Module) -> str | None:
    """Whether the head is in the trained one's place, or stands there as layers of its own.

    None for a head that a file of tensors cannot rebuild.
    """
    if is_linear(head) or is_pointwise(head):
        return "in place"
    if isinstance(head, nn.Sequential) and all(type(one) in (nn.Linear, nn.ReLU) for one in head):
        return "layers"
    return None


def check_notes(notes: dict[str, Any], path: Path) -> None:
    """FileError where a note is not what we write."""
    for key, kind in (("classifier", list), ("history", list), ("feedback", dict)):
        if not isinstance(notes.get(key), kind):
            raise FileError(path, f"its note {key!r} is no {kind.__name__}; {AGAIN}")
    if notes.get("head") not in ("in place", "layers"):
        raise FileError(path, f"its note 'head' is {notes.get('head')!r:.40}; {AGAIN}")
    if not all(isinstance(entry, dict) for entry in notes["history"]):
        raise FileError(path, f"its note 'history' holds what is no dict; {AGAIN}")
    if not is_feedback(notes["feedback"]):
        raise FileError(path, f"its note 'feedback' is not what calibrate says; {AGAIN}")


def is_feedback(card: dict[str, Any]) -> bool:
    """Whether it has the keys and types of `Feedback.card`, and words that a page can show."""
    if card.keys() != FEEDBACK.keys():
        return False
    if not all(isinstance(card[key], kind) for key, kind in FEEDBACK.items()):
        return False
    start = f"feedback from {SOURCES.get(card['source'])}"
    return card["words"].startswith(start) and readable(card["words"]) == card["words"]


def checked_names(model: nn.Module, notes: dict[str, Any], path: Path) -> list[str]:
    """The names of the calibrated layers, each of which is a classifier in the model."""
    names = [str(name) for name in notes["classifier"]]
    layers = dict(model.named_modules())
    for name in names:
        if name not in layers:
            problem = f"no layer {name!r:.80} in the model"
            raise FileError(path, f"weights of another architecture: {problem}")
        if kind_of(layers[name]) is None:
            problem = f"{name!r} is a {type(layers[name]).__name__}, no classifier, in the model"
            raise FileError(path, f"weights of another architecture: {problem}")
    if not names:
        raise FileError(path, f"it does not say which layer was calibrated; {AGAIN}")
    return names
