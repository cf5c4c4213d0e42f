"""The arguments of the metrics as plain tensors and numbers, or a ValueError that says why not.

Arrays come as numpy arrays, torch tensors, lists, pandas or pyarrow columns. What numpy or torch
would misread without a word is refused: masked and missing entries, and tensors that are not a
plain array of real numbers (complex, quantised, sparse, ...).
"""

import warnings
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.masked import MaskedTensor

from maccal.limits import check_count as check_count
from maccal.limits import check_number as check_number
from maccal.limits import check_share as check_share
from maccal.limits import real as real
from maccal.limits import shortened as shortened
from maccal.metrics.frames import check_index, check_numbered


class SupportsArray(Protocol):
    """What numpy.asarray reads: numpy arrays, torch tensors, columns of pandas, pyarrow, polars."""

    def __array__(self) -> np.ndarray: ...


# What public functions take. Those that check it take Any, for it may be anything.
Array: TypeAlias = Tensor | np.ndarray | SupportsArray | Sequence[float] | Sequence[Sequence[float]]
Labels: TypeAlias = Array | Sequence[str]  # indices; names where the function takes classes=
Same: TypeAlias = Any  # what they return: a tensor for a tensor, otherwise a numpy array

MOST_BINS = 10_000  # bounds the memory of classes x bins; no real data set fills more
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
NUMBERS = (*FLOATS, *SIGNED, *UNSIGNED, torch.uint8, torch.bool)


def as_tensor(values: Any, name: str) -> Tensor:
    """A tensor over the caller's memory, with a copy only if one is needed."""
    if isinstance(values, Tensor):
        return plain_tensor(values, name)
    refuse_missing(values, name)
    check_numbered(values, name)
    array = as_array(values, name)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        kind = f"{name} has dtype {array.dtype}"
        raise ValueError(f"{kind}; pass an array of numbers, float64 at most")
    odd_steps = any(step < 0 or step % array.itemsize for step in array.strides)
    if odd_steps or not array.dtype.isnative or not array.flags.aligned:
        # Not ascontiguousarray, which leaves the strides of a single number as they are
        array = np.array(array, array.dtype.newbyteorder("="), order="C", copy=True)
    with warnings.catch_warnings():  # memory maps are not writable; we only read
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return plain_tensor(torch.from_numpy(array), name)


def plain_tensor(tensor: Tensor, name: str) -> Tensor:
    """The tensor without its gradient; ValueError if it is not a plain array of real numbers."""
    if isinstance(tensor, MaskedTensor):
        raise ValueError(f"{name} is a masked tensor; pass a plain one of the rows that count")
    if tensor.is_nested or tensor.layout != torch.strided:
        raise ValueError(f"{name} is a sparse or nested tensor; pass a dense one: .to_dense()")
    if tensor.device.type == "meta":
        raise ValueError(f"{name} is on the meta device, which holds no numbers")
    if tensor.dtype not in NUMBERS:
        raise ValueError(f"{name} has dtype {tensor.dtype}; pass usual real numbers: .float()")
    tensor = tensor.detach().resolve_neg()
    if tensor.dtype not in UNSIGNED:
        return tensor
    signed = tensor.to(torch.int64)  # torch hardly compares or indexes with these types
    if bool((signed < 0).any()):
        raise ValueError(f"{name} holds whole numbers of 2**63 and more")
    return signed


def as_array(values: Any, name: str) -> np.ndarray:
    """The values as numpy sees them."""
    try:
        array = np.asarray(values)
        columns = getattr(values, "dtypes", None) if array.ndim == 2 else None
        if columns is not None and all(column.kind in "biuf" for column in columns):
            # pandas gives an array of objects if a column could hold NA
            truths = all(column.kind == "b" for column in columns)
            array = array.astype(np.bool_ if truths else np.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError, BufferError) as error:
        reason = f"{error}".split("\n")[0]
        raise ValueError(f"{name} is not an array of numbers: {reason}") from error
    return array


def refuse_missing(values: Any, name: str) -> None:
    """ValueError if an entry is masked or missing: numpy would read what lies under the mask."""
    if isinstance(values, np.ma.MaskedArray):
        refuse_rows(np.ma.getmaskarray(values), name, "masked")
    elif isinstance(values, (list, tuple)):
        for row, value in enumerate(values):
            inner = value if isinstance(value, (list, tuple)) else [value]
            if any(is_masked(x) for x in inner):
                raise masked_row(name, row, "masked")
    elif hasattr(values, "isna"):  # pandas
        refuse_rows(np.asarray(values.isna()), name, "missing")
    elif hasattr(values, "is_null"):  # pyarrow, polars
        refuse_rows(np.asarray(values.is_null()), name, "missing")


def is_masked(value: object) -> bool:
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.getmaskarray(value).any())


def refuse_rows(missing: np.ndarray, name: str, word: str) -> None:
    if missing.any():
        rows = missing.reshape(len(missing), -1).any(1) if missing.ndim else missing[None]
        raise masked_row(name, int(rows.argmax()), word)


def masked_row(name: str, row: int, word: str) -> ValueError:
    remedy = "leave such rows out of all arrays, or fill them"
    return ValueError(f"{name} is {word} in row {row}; {remedy}")


def check_bins(bins: Any) -> int:
    """A number of bins."""
    return check_count(bins, "bins", most=MOST_BINS)


def generator(seed: Any) -> np.random.Generator:
    """numpy's generator for a seed."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError, RuntimeError) as error:
        text = f"seed is {shortened(seed)}; expected a whole number of at least 0"
        raise ValueError(text) from error


def check_given(probs: Array | None, labels: Labels | None, logits: Array | None) -> None:
    """ValueError unless labels and exactly one of probabilities and logits are given."""
    if (probs is None) == (logits is None):
        raise ValueError("pass either probs or logits=..., exactly one of them")
    if labels is None:
        raise ValueError("labels are missing")
    check_index(logits if probs is None else probs, labels)
