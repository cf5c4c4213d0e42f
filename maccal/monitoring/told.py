"""The door of a monitor: what users pass, checked, as plain arrays.

rows_told       confidence, predicted class and correctness of a batch
check_ids       ids of rows as text, each once
check_names     names of the classes
check_time      a moment in UTC
"""

from datetime import datetime, timezone
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from maccal.metrics.arguments import Array, as_tensor
from maccal.metrics.given import Classes, class_names
from maccal.metrics.inputs import check_labels, check_logits, check_probs

UNKNOWN = -1  # the label of a row whose label is not known yet


class Rows(NamedTuple):
    """A batch as a monitor sees it."""

    confidence: np.ndarray
    predicted: np.ndarray
    labels: np.ndarray  # UNKNOWN where there is none
    classes: int


def rows_told(probs: Array | None, labels: Array | None, logits: Array | None) -> Rows:
    """Of probabilities or logits, and labels if there are some.

    >>> rows_told(np.array([[0.2, 0.8], [0.5, 0.5]]), [1, -1], None)[:3]
    (array([0.8, 0.5]), array([1, 0]), array([ 1, -1]))
    """
    if (probs is None) == (logits is None):
        raise ValueError("pass either probs or logits=..., exactly one of them")
    p = check_probs(probs) if logits is None else check_logits(logits).double().softmax(1)
    top = p.double().max(1)
    predicted = p.argmax(1)  # the first of those that share the largest probability
    confidence = top.values.clamp(max=1).cpu().numpy()
    return Rows(confidence, predicted.cpu().numpy(), known_labels(labels, p), p.shape[1])


def known_labels(labels: Array | None, p: Tensor) -> np.ndarray:
    if labels is None:
        return np.full(len(p), UNKNOWN)
    given = as_tensor(labels, "labels")
    if given.is_floating_point() or given.ndim != 1:
        return check_labels(given, p).cpu().numpy()  # says what is wrong
    waiting = given == UNKNOWN
    filled = torch.where(waiting, torch.zeros_like(given), given)
    checked = check_labels(filled, p).cpu().numpy()
    return np.where(waiting.cpu().numpy(), UNKNOWN, checked)


def check_ids(ids: Any, rows: int) -> np.ndarray:
    """As text; ValueError unless they are texts or whole numbers, one per row, each once.

    >>> check_ids([7, 8], 2).tolist()
    ['7', '8']
    """
    array = np.asarray(ids)
    if array.dtype == object and all(isinstance(one, str) for one in array.flat):
        array = array.astype(np.str_)
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        kind = f"ids have shape {array.shape} and dtype {array.dtype}"
        raise ValueError(f"{kind}; expected one text or whole number per row")
    if len(array) != rows:
        raise ValueError(f"{rows} rows but {len(array)} ids; they must match one to one")
    texts = array.astype(np.str_)
    found, count = np.unique(texts, return_counts=True)
    if len(found) < rows:
        twice = str(found[count > 1][0])
        raise ValueError(f"id {twice!r} comes twice; every row needs an id of its own")
    try:
        "".join(texts.tolist()).encode()
    except UnicodeEncodeError:
        raise ValueError("an id has half a letter (a surrogate); it cannot be stored") from None
    return texts


def check_names(names: Classes, classes: int) -> tuple[str, ...]:
    """The names of the classes as text, one for each; none if there are none.

    >>> check_names(["cat", "dog"], 2), check_names((), 2)
    (('cat', 'dog'), ())
    """
    if isinstance(names, tuple | list) and not names:
        return ()
    return tuple(str(name) for name in class_names(names, classes))


def check_time(time: datetime | str | None, now: datetime) -> str:
    """As ISO 8601 in UTC; a time without a zone is one in UTC, and None is now.

    >>> check_time("2026-03-01T12:00:00+02:00", datetime.now(timezone.utc))
    '2026-03-01T10:00:00+00:00'
    """
    if time is None:
        return now.isoformat()
    try:
        moment = time if isinstance(time, datetime) else parsed(time)
    except (ValueError, TypeError, AttributeError):
        example = "2026-03-01 or 2026-03-01T12:00:00+02:00"
        raise ValueError(f"time is {time!r}; expected ISO 8601, such as {example}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    try:
        return moment.astimezone(timezone.utc).isoformat()
    except OverflowError:
        raise ValueError(f"time is {time!r}; in UTC that is outside the years 1 to 9999") from None


def parsed(text: str) -> datetime:
    return datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
