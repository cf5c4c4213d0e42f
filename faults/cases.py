"""Odd arguments for the public functions, drawn by hypothesis: mostly nearly right ones, for those
get far.

A case says what is known of it: `sound` True must be answered, False must be refused, None may be
either."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

ROWS = (1, 2, 3, 16, 200)
CLASSES = (2, 3, 10)


@dataclass(frozen=True)
class Value:
    """An argument, what is known of it, and its name for the description of a defect."""

    value: Any
    sound: bool | None
    name: str


def examples(strategy: st.SearchStrategy[Any], number: int, count: int) -> list[Any]:
    """So many draws, the same for the same number."""
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


# Sound probabilities and labels, with the values that give trouble


def dirichlet(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return rng.dirichlet(np.ones(k), n)


def nearly_uniform(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return np.full((n, k), 1 / k) + rng.choice([0, 1e-16, 1e-12, 1e-7]) * rng.permutation(
        np.r_[1, -1, np.zeros(k - 2)]
    )


def one_hot(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return np.eye(k)[rng.integers(0, k, n)]


def ties(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    weights = rng.integers(0, 3, (n, k)) + 1.0
    return weights / weights.sum(1, keepdims=True)


def tiny(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    small = 10.0 ** -rng.integers(5, 300, (n, k))
    small[np.arange(n), rng.integers(0, k, n)] = 1.0
    return small / small.sum(1, keepdims=True)


def same_row(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return np.repeat(rng.dirichlet(np.ones(k), 1), n, 0)


PROBS = (dirichlet, nearly_uniform, one_hot, ties, tiny, same_row)


def sure_logits(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return rng.normal(size=(n, k)) * 10.0 ** rng.integers(-8, 9)


def equal_logits(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    return np.full((n, k), float(rng.integers(-5, 6)))


LOGITS = (sure_logits, equal_logits)


def sound_labels(rng: np.random.Generator, scores: np.ndarray) -> np.ndarray:
    """At random, all right, all wrong, or all the same."""
    n, k = scores.shape
    best = scores.argmax(1)
    return [rng.integers(0, k, n), best, (best + 1) % k, np.zeros(n, np.int64)][rng.integers(4)]


# Containers that hold the same numbers: those in SAME must be taken, those in ODD may be refused


def big_endian(x: np.ndarray) -> Any:
    return x.astype(x.dtype.newbyteorder(">"))


def read_only(x: np.ndarray) -> Any:
    y = x.copy()
    y.flags.writeable = False
    return y


SAME: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda x: x,
    "tensor": torch.tensor,
    "Fortran order": np.asfortranarray,
    "every second": lambda x: np.repeat(x, 2, 0)[::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
    "big-endian": big_endian,
    "read-only": read_only,
    "list": lambda x: x.tolist(),
    "tensor with gradient": lambda x: torch.tensor(x, requires_grad=x.dtype.kind == "f"),
    "view of a tensor": lambda x: torch.tensor(x).T.contiguous().T,
}


ODD: dict[str, Callable[[np.ndarray], Any]] = {
    "masked array": lambda x: np.ma.masked_array(x, np.arange(x.size).reshape(x.shape) % 3 == 0),
    "objects": lambda x: x.astype(object),
    "text": lambda x: x.astype(str),
    "complex": lambda x: x.astype(complex),
    "bool": lambda x: x > 0,
    "long double": lambda x: x.astype(np.longdouble),
    "structured": lambda x: np.zeros(len(x), dtype=[("a", float), ("b", int)]),
    "dates": lambda x: np.zeros(x.shape, "M8[s]"),
    "sparse tensor": lambda x: torch.tensor(x).to_sparse(),
    "meta tensor": lambda x: torch.tensor(x).to("meta"),
    "float8": lambda x: torch.tensor(x).float().to(torch.float8_e4m3fn),
    "bfloat16": lambda x: torch.tensor(x).to(torch.bfloat16),
    "float16": lambda x: x.astype(np.float16),
    "quantised": lambda x: torch.quantize_per_tensor(torch.tensor(x).float(), 0.1, 0, torch.quint8),
    "nested tensor": lambda x: torch.nested.nested_tensor([torch.tensor(x)]),
    "ragged list": lambda x: [[0.5, 0.5], [1.0]],
    "nothing": lambda x: None,
    "a word": lambda x: "probs",
    "a number": lambda x: 0.5,
    "a dict": lambda x: {"a": x},
    "a generator": lambda x: (row for row in x),
    "transposed": lambda x: x.T,
    "one more axis": lambda x: x[..., None],
    "flat": lambda x: x.reshape(-1),
    "no rows": lambda x: x[:0],
    "one row less": lambda x: x[:-1],
    "one column": lambda x: x[:, :1] if x.ndim == 2 else x,
    "no columns": lambda x: x[:, :0] if x.ndim == 2 else x,
    "zeros of int8": lambda x: np.zeros(x.shape, np.int8),
    "largest of uint64": lambda x: np.full(x.shape, np.iinfo(np.uint64).max),
    "large": lambda x: np.full(x.shape, 1 << 40),
}


# One value that must not be: refused
BAD = (float("nan"), float("inf"), -float("inf"), -0.25, 1.75, 1e300)
SAFE_LABELS = (np.int64, np.int32, np.int8, np.uint8, np.uint16, np.int16)


@st.composite
def scores(
    draw: Any,
    makers: tuple[Any, ...] = PROBS,
    bad: tuple[float, ...] = BAD,
    classes: tuple[int, ...] = CLASSES,
) -> tuple[Value, Value]:
    """Probabilities or logits, and labels."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    n, k = draw(st.sampled_from(ROWS)), draw(st.sampled_from(classes))
    maker = draw(st.sampled_from(makers))
    exact = maker(rng, n, k)
    labels = sound_labels(rng, exact)
    exact = exact.astype(draw(st.sampled_from([np.float64, np.float32])))
    twist = draw(
        st.sampled_from(["sound", "sound", "odd scores", "odd labels", "bad value", "bad label"])
    )
    if twist == "sound":
        return packed(draw, exact, maker.__name__), packed(
            draw, labels.astype(draw(st.sampled_from(SAFE_LABELS))), "labels"
        )
    if twist == "bad value":
        exact[rng.integers(n), rng.integers(k)] = value = draw(st.sampled_from(bad))
        return Value(exact, False, f"{maker.__name__} with {value}"), Value(labels, True, "labels")
    if twist == "bad label":
        labels = labels.copy()
        labels[rng.integers(n)] = draw(st.sampled_from([-1, k, k + 1, 1 << 40, -(1 << 62)]))
        return Value(exact, True, maker.__name__), Value(labels, False, "a label out of range")
    name = draw(st.sampled_from(sorted(ODD)))
    if twist == "odd scores":
        return odd(name, exact), Value(labels, True, "labels")
    return Value(exact, True, maker.__name__), odd(name, labels)


def packed(draw: Any, array: np.ndarray, name: str) -> Value:
    how = draw(st.sampled_from(sorted(SAME)))
    return Value(SAME[how](array), True, f"{name} as {how}")


def odd(name: str, array: np.ndarray) -> Value:
    """Something else instead; torch itself cannot make every one of them from every array."""
    try:
        return Value(ODD[name](array), None, name)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return Value(None, None, "nothing")


@st.composite
def outcomes(draw: Any) -> tuple[Value, Value]:
    """Confidences and whether each was right."""
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    n = draw(st.sampled_from(ROWS))
    some = [
        rng.random(n),
        np.full(n, rng.random()),
        rng.integers(0, 2, n).astype(float),
        rng.integers(0, 16, n) / 15,
    ]
    confidence = some[draw(st.integers(0, 3))]
    correct = [rng.random(n) < confidence, np.ones(n, bool), np.zeros(n, bool)][
        draw(st.integers(0, 2))
    ]
    twist = draw(st.sampled_from(["sound", "sound", "odd", "odd correct", "bad value"]))
    if twist == "sound":
        hits = correct.astype(draw(st.sampled_from([bool, np.int64, np.float64, np.uint8])))
        return packed(draw, confidence, "confidence"), packed(draw, hits, "correct")
    if twist == "bad value":
        confidence = confidence.copy()
        confidence[rng.integers(n)] = draw(st.sampled_from(BAD))
        return Value(confidence, False, "a confidence out of range"), Value(
            correct, True, "correct"
        )
    name = draw(st.sampled_from(sorted(ODD)))
    if twist == "odd":
        return odd(name, confidence), Value(correct, True, "correct")
    return Value(confidence, True, "confidence"), odd(name, correct.astype(np.int64))


def choice(
    sound: tuple[Any, ...], unsound: tuple[Any, ...], either: tuple[Any, ...] = ()
) -> st.SearchStrategy[Value]:
    """A parameter: mostly sound."""
    values = [Value(value, True, repr(value)) for value in sound for _ in range(3)]
    values += [Value(value, False, repr(value)) for value in unsound]
    values += [Value(value, None, repr(value)) for value in either]
    return st.sampled_from(values)


BINS = choice(
    (15, 1, 2, 100, np.int64(15)),
    (0, -1, 2.5, "15", float("nan")),
    (None, True, 10**8, 10**30, np.float64(15)),
)
RESAMPLES = choice((10, 1), (0, -1, 2.5, "10"), (None,))
SEEDS = choice((0, 1, 2**31), (), (-1, None, 2**64, "0", 1.5))
SHARE = choice((0.5, 1.0, 0.01), (0.0, -0.5, 1.5, float("nan"), float("inf")), (None, "0.5"))
LEVEL = choice((0.95, 0.5), (-0.5, 1.5, float("nan")), (None, "0.5", 0.0, 1.0))
RATE = choice((0.95, 0.5, 1.0), (-0.1, 1.5, float("nan")), (None, 0.0, "0.95"))
COUNT = choice((1, 2), (), (0, -1, 1000, None, 2.5))
