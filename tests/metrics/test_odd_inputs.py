"""Every public function on odd inputs: a number within its range, or ValueError; nothing else.

`MACCAL_FUZZ=20000` tries that many inputs of each kind instead of the bounded sample.
"""

import math
import os

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maccal import metrics as m

EXAMPLES = int(os.environ.get("MACCAL_FUZZ", "60"))
fuzz = settings(
    max_examples=EXAMPLES,
    suppress_health_check=list(HealthCheck),
    derandomize=EXAMPLES < 1000,
    database=None,
)

SHARES = [
    0.0,
    1.0,
    0.5,
    1 / 3,
    1e-320,
    2.0**-1074,
    np.nextafter(1, 0),
    np.nextafter(1, 2),
    1e-30,
    0.999999,
]
NUMBERS = [
    *SHARES,
    -0.0,
    -1.0,
    2.0,
    88.0,
    750.0,
    -750.0,
    1e5,
    65504.0,
    3e38,
    -3e38,
    1e300,
    -1e300,
    1.7e308,
    -1.7e308,
]
BAD = [math.nan, math.inf, -math.inf]
TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
ODD_TYPES = [torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float8_e5m2]


@st.composite
def arrays(draw, shape, values):
    """An array of these values, of any type and kind; sometimes spoiled."""
    pool = st.sampled_from(values) | st.floats(0, 1)
    flat = draw(st.lists(pool, min_size=math.prod(shape), max_size=math.prod(shape)))
    if flat and draw(st.integers(0, 9)) == 0:
        flat[draw(st.integers(0, len(flat) - 1))] = draw(st.sampled_from(BAD))
    if flat and draw(st.booleans()):
        flat = [flat[0]] * len(flat)  # all the same
    return dressed(draw, torch.tensor(flat, dtype=torch.float64).reshape(shape))


def dressed(draw, tensor):
    odd = draw(st.integers(0, 19)) == 0
    tensor = tensor.to(draw(st.sampled_from(ODD_TYPES if odd else TYPES)))
    kind = draw(st.sampled_from(["torch", "torch", "numpy", "list", "transposed", "grad"]))
    if kind == "grad" and tensor.is_floating_point():
        return tensor.requires_grad_()
    if kind == "transposed":
        return tensor.t().contiguous().t() if tensor.ndim == 2 else tensor.repeat_interleave(2)[::2]
    if kind == "list":
        return tensor.tolist()
    if kind == "numpy" and tensor.dtype not in (torch.bfloat16, torch.float8_e5m2):
        return tensor.numpy()
    return tensor


@st.composite
def shapes(draw):
    rows, classes = draw(st.integers(0, 6)), draw(st.integers(1, 5))
    return draw(st.sampled_from([(rows, classes)] * 8 + [(rows,), (), (rows, classes, 1)]))


@st.composite
def probabilities(draw):
    """Rows that sum to one in the precision of their type, mostly.

    Ties, zeros, ones and uniform rows among them.
    """
    rows, classes = draw(st.integers(1, 6)), draw(st.integers(2, 5))
    pool = st.sampled_from([0.0, 1.0, 1.0, 1e-320, 1e-38, 1e-8, 0.1, 3.0]) | st.floats(0, 1)
    weights = (
        torch.tensor(draw(st.lists(pool, min_size=rows * classes, max_size=rows * classes)))
        .double()
        .reshape(rows, classes)
    )
    weights[weights.sum(1) < 1e-300] = 1.0
    if draw(st.booleans()):
        weights[:] = 1.0 + draw(st.sampled_from([0.0, 1e-7, 1e-3])) * weights
    return dressed(draw, weights / weights.sum(1, keepdim=True))


@st.composite
def labels_for(draw, rows):
    rows = max(0, rows + draw(st.sampled_from([0] * 18 + [1, -1])))
    whole = (
        st.integers(0, 1) if draw(st.booleans()) else st.sampled_from([0, 1, 2, 3, 4, 5, -1, 2**40])
    )
    made = draw(st.lists(whole, min_size=rows, max_size=rows))
    return draw(
        st.sampled_from(
            [np.array(made, dtype=np.int64), torch.tensor(made, dtype=torch.int64), made]
        )
    )


def rows_of(array):
    try:
        return len(array)
    except TypeError:
        return 1


def check(call, within, endless=False):
    """The result is inside its range, or the call raised ValueError.

    NaN and infinity only where `endless` says so.
    """
    try:
        result = call()
    except ValueError:
        return
    values = np.asarray(
        torch.as_tensor(result).detach().double() if not isinstance(result, float) else result
    )
    if not endless:
        assert np.isfinite(values).all(), result
    known = values[np.isfinite(values)]
    assert ((known >= within[0] - 1e-9) & (known <= within[1] + 1e-9)).all(), result


ANY = (-math.inf, math.inf)
SHARE = (0.0, 1.0)
OF_ROWS = {
    "nll": (m.nll, (0.0, math.inf), True),  # infinite where a label was given probability 0
    "brier": (m.brier, (0.0, 2.0), False),
    "nll_split": (lambda *a, **k: list(m.nll_split(*a, **k)), (0.0, math.inf), True),
    "brier_split": (lambda *a, **k: list(m.brier_split(*a, **k)), (0.0, math.inf), False),
}
OF_PROBS = {
    "accuracy": (m.accuracy, SHARE, False),
    "top_label": (lambda p, y: m.top_label(p, y)[0], SHARE, False),
    "classwise_ece": (m.classwise_ece, SHARE, False),
    "max_softmax": (lambda p, y: m.max_softmax(p), (0.0, 1.02), False),
    "negative_entropy": (lambda p, y: m.negative_entropy(p), (-1.7, 0.05), False),
    "Bins.of_classes": (lambda p, y: m.Bins.of_classes(p, y, 3).ece(), SHARE, False),
}
OF_LOGITS = {
    "softmax": (m.softmax, SHARE, False),
    "max_logit": (m.max_logit, ANY, False),
    "energy": (m.energy, ANY, False),
}
OF_CONFIDENCE = {
    "ece": (m.ece, SHARE, False),
    "aece": (m.aece, SHARE, False),
    "mce": (m.mce, SHARE, False),
    "smece": (m.smece, SHARE, False),
    "ks": (m.ks, SHARE, False),
    "debiased_squared_ce": (m.debiased_squared_ce, (-1.0, 1.0), False),
    "aurc": (m.aurc, SHARE, False),
    "e_aurc": (m.e_aurc, SHARE, False),
    "risk_curve": (m.risk_curve, SHARE, False),
    "accuracy_at_coverage": (lambda c, h: m.accuracy_at_coverage(c, h, 0.3), SHARE, False),
    "resample": (lambda c, h: m.resample(c, h, resamples=2)[0]["ece"], SHARE, False),
    "bootstrap": (lambda c, h: list(m.bootstrap(m.ece, c, h, resamples=2)), (-1.0, 2.0), False),
    "focal": (lambda c, h: m.ece(c, h, convention="focal"), SHARE, False),
    "adaptive focal": (lambda c, h: m.aece(c, h, convention="focal"), SHARE, False),
    "auroc": (m.auroc, SHARE, False),
    "fpr95": (m.fpr95, SHARE, False),
}


@fuzz
@given(st.data(), st.booleans())
def test_probabilities(data, regular):
    probs = (
        data.draw(probabilities())
        if regular
        else data.draw(shapes().flatmap(lambda s: arrays(s, SHARES)))
    )
    labels = data.draw(labels_for(rows_of(probs)))
    for function, within, endless in (OF_ROWS | OF_PROBS).values():
        check(lambda f=function: f(probs, labels), within, endless)


@fuzz
@given(st.data())
def test_logits(data):
    logits = data.draw(shapes().flatmap(lambda s: arrays(s, NUMBERS)))
    labels = data.draw(labels_for(rows_of(logits)))
    for function, within, endless in OF_ROWS.values():
        check(lambda f=function: f(logits=logits, labels=labels), within, endless)
    for function, within, endless in OF_LOGITS.values():
        check(lambda f=function: f(logits), within, endless)


@fuzz
@given(st.data())
def test_confidences(data):
    shape = data.draw(st.integers(0, 8).map(lambda n: (n,)) | shapes())
    confidence = data.draw(arrays(shape, SHARES))
    correct = data.draw(
        arrays(shape, [0.0, 1.0])
        | st.lists(st.booleans(), min_size=rows_of(confidence), max_size=rows_of(confidence))
    )
    for function, within, endless in OF_CONFIDENCE.values():
        check(lambda f=function: f(confidence, correct), within, endless)


@settings(fuzz, max_examples=max(40, EXAMPLES // 10))
@given(st.data(), st.booleans())
def test_summaries(data, as_logits):
    """summary, Stream and compare: every number finite, or endless where the NLL is.

    The stream's within its bounds.
    """
    given_rows = data.draw(
        shapes().flatmap(lambda s: arrays(s, NUMBERS)) if as_logits else probabilities()
    )
    labels = data.draw(labels_for(rows_of(given_rows)))
    arguments = {"logits": given_rows} if as_logits else {"probs": given_rows}
    try:
        whole = m.summary(**arguments, labels=labels, interval=True, resamples=3)
    except ValueError:
        with pytest.raises(ValueError, match=r"\w"):
            m.Stream.of(**arguments, labels=labels)
        return
    stream = m.Stream.of(**arguments, labels=labels).summary(interval=True, resamples=3)
    for numbers in (whole, stream):
        for name, value in numbers.items():
            endless = name.startswith(("nll", "temperature")) or numbers["n"] == 1
            assert endless or isinstance(value, str) or math.isfinite(value), (name, value)
    for name in ("accuracy", "ece", "mce", "n", "classes"):
        assert stream[name] == whole[name], name
    for name in (key for key in stream if key.endswith("_binned")):
        assert abs(stream[name] - whole[name.removesuffix("_binned")]) <= stream[f"{name}_error"], (
            name
        )
    assert stream["brier"] == pytest.approx(whole["brier"], abs=1e-5)
    if math.isfinite(whole["nll"]):
        assert stream["nll"] == pytest.approx(whole["nll"], rel=1e-4, abs=1e-5)
    if not as_logits:
        result = m.compare(given_rows, given_rows, labels, resamples=3)
        assert result["ece"].difference == 0
