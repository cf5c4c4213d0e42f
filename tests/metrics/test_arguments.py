"""Odd arguments at every public door.

A ValueError that says what and where, never another error, never a number.
"""

import re
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import maccal
from maccal import metrics as m
from maccal.metrics.arguments import MOST_BINS
from maccal.report.diagrams import prepare_model

P = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3]])
Y = np.array([0, 1, 2, 0])
C, HIT = P.max(1), P.argmax(1) == Y

# Every public function of arrays, by what its first two arrays are.
OF_PROBS = {
    "top_label": m.top_label,
    "accuracy": m.accuracy,
    "nll": m.nll,
    "brier": m.brier,
    "nll_split": m.nll_split,
    "brier_split": m.brier_split,
    "classwise_ece": m.classwise_ece,
    "summary": m.summary,
    "Bins.of_classes": m.Bins.of_classes,
    "Stream.of": m.Stream.of,
    "reliability": maccal.reliability,
    "compare": lambda p, y: m.compare(p, P, y),
    "compare the other": lambda p, y: m.compare(P, p, y),
    "max_softmax": lambda p, y: m.max_softmax(p),
    "negative_entropy": lambda p, y: m.negative_entropy(p),
}
OF_LOGITS = {
    "nll": lambda z, y: m.nll(logits=z, labels=y),
    "brier": lambda z, y: m.brier(logits=z, labels=y),
    "nll_split": lambda z, y: m.nll_split(logits=z, labels=y),
    "brier_split": lambda z, y: m.brier_split(logits=z, labels=y),
    "summary": lambda z, y: m.summary(logits=z, labels=y),
    "Stream.of": lambda z, y: m.Stream.of(logits=z, labels=y),
    "softmax": lambda z, y: m.softmax(z),
    "max_logit": lambda z, y: m.max_logit(z),
    "energy": lambda z, y: m.energy(z),
}
OF_CONFIDENCE = {
    "ece": m.ece,
    "aece": m.aece,
    "mce": m.mce,
    "debiased_squared_ce": m.debiased_squared_ce,
    "smece": m.smece,
    "ks": m.ks,
    "aurc": m.aurc,
    "e_aurc": m.e_aurc,
    "risk_curve": m.risk_curve,
    "accuracy_at_coverage": lambda c, hit: m.accuracy_at_coverage(c, hit, 0.5),
    "resample": lambda c, hit: m.resample(c, hit, resamples=4),
    "Bins.of": m.Bins.of,
    "bootstrap": lambda c, hit: m.bootstrap(m.ece, c, hit, resamples=2),
    "auroc": m.auroc,
    "fpr95": m.fpr95,
}
DOORS = [
    *(pytest.param(f, P, Y, id=f"probs-{name}") for name, f in OF_PROBS.items()),
    *(pytest.param(f, np.log(P), Y, id=f"logits-{name}") for name, f in OF_LOGITS.items()),
    *(pytest.param(f, C, HIT, id=f"confidence-{name}") for name, f in OF_CONFIDENCE.items()),
]
ONE_ARRAY = ("max_softmax", "negative_entropy", "softmax", "max_logit", "energy")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def masked(array, row):
    mask = np.zeros(array.shape, bool)
    mask[row, ...] = True
    return np.ma.array(array, mask=mask)


@pytest.mark.parametrize(("function", "first", "second"), DOORS)
def test_masked_entries_are_refused(function, first, second, request):
    """What lies under a mask is no data: numpy.asarray would read it."""
    with pytest.raises(ValueError, match="is masked in row 2"):
        function(masked(first, 2), second)
    if not any(name in request.node.name for name in ONE_ARRAY):
        with pytest.raises(ValueError, match="is masked in row 1"):
            function(first, masked(second, 1))
    function(np.ma.array(first), np.ma.array(second))  # nothing is masked
    with pytest.raises(ValueError, match="is masked in row 2"):
        function([masked(first, 2)[row] for row in range(4)], second)


ODD = {
    "sparse": lambda a: torch.tensor(a).to_sparse(),
    "csr": lambda a: torch.tensor(np.atleast_2d(a)).to_sparse_csr(),
    "meta": lambda a: torch.tensor(a).to("meta"),
    "float8": lambda a: torch.tensor(a).to(torch.float8_e4m3fn),
    "complex tensor": lambda a: torch.tensor(a).to(torch.complex64),
    "quantised": lambda a: torch.quantize_per_tensor(torch.tensor(a).float(), 0.1, 0, torch.quint8),
    "nested": lambda a: torch.nested.nested_tensor([torch.tensor(a), torch.tensor(a)]),
    "mkldnn": lambda a: torch.tensor(a).float().to_mkldnn(),
    "0-d tensor": lambda a: torch.tensor(0.5),
    "0-d array": lambda a: np.array(0.5),
    "number": lambda a: 0.5,
    "empty": lambda a: a[:0],
    "complex": lambda a: a.astype(complex),
    "objects": lambda a: a.astype(object),
    "strings": lambda a: a.astype(str),
    "bytes": lambda a: a.astype("S8"),
    "long double": lambda a: a.astype(np.longdouble),
    "dates": lambda a: np.zeros(a.shape, "datetime64[s]"),
    "structured": lambda a: np.zeros(len(a), [("a", float), ("b", float)]),
    "ragged": lambda a: [[0.5], [0.5, 0.5], 0.5, []],
    "list of tensors that need grad": lambda a: [
        torch.tensor(row, requires_grad=True) for row in np.atleast_2d(a)
    ],
    "NaN": lambda a: a * np.nan,
    "None": lambda a: [None] * len(a),
    "dict": lambda a: {"a": a},
    "a string": lambda a: "probs",
    "three dimensions": lambda a: a.reshape(-1, 1, 1, 1),
    "pandas with NA": lambda a: (
        pd.DataFrame(a).astype("Float64").mask(pd.DataFrame(a) == a.flat[0])
    ),
    "pandas of strings": lambda a: pd.DataFrame(a.astype(str)),
    "pyarrow with null": lambda a: pa.array([None, *a.ravel()[1:].tolist()]),
    "huge whole numbers": lambda a: [10**30] * len(a),
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize(("function", "first", "second"), DOORS)
def test_odd_arrays_are_refused(function, first, second, make, request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own prototypes when they are made
        odd = make(first)
    if request.node.callspec.id == "probs-reliability-dict":
        odd = {"a": odd}  # a dict is several models there
    with pytest.raises(ValueError, match=r"\w"):
        function(odd, second)


@pytest.mark.parametrize(
    ("function", "first", "second"), [door for door in DOORS if door.id != "probs-reliability"]
)
def test_usual_arrays_are_taken(function, first, second):
    expected = str(function(first, second))
    plt.close("all")
    usual = [
        (torch.tensor(first, requires_grad=True), torch.tensor(second)),
        (first.tolist(), second.tolist()),
        (pd.DataFrame(first) if first.ndim == 2 else pd.Series(first), pd.Series(second)),
        (first, pa.array(second)),
        (np.broadcast_to(first, first.shape), np.asfortranarray(second)),
    ]
    for one, other in usual:
        assert numbers_in(function(one, other)) == numbers_in(expected)


def numbers_in(result):
    """All numbers that are printed of a result, whatever kind of array it is."""
    return [round(float(x), 3) for x in re.findall(r"-?\d+\.\d*(?:e-?\d+)?", str(result))]


def test_tables_of_nullable_columns_are_numbers():
    table = pd.DataFrame(P).astype("Float64")
    assert m.nll(table, pd.Series(Y, dtype="Int64")) == m.nll(P, Y)
    with pytest.raises(ValueError, match="labels is missing in row 3"):
        m.nll(P, pd.Series([0, 1, 2, None], dtype="Int64"))
    with pytest.raises(ValueError, match="probs is missing in row 2"):
        m.nll(table.mask(table == 0.4), Y)


def test_a_field_of_a_packed_record_is_an_array():
    packed = np.zeros(4, np.dtype([("flag", "i1"), ("p", "f8")]))
    packed["p"] = C
    assert m.ece(packed["p"], HIT) == m.ece(C, HIT)


def test_negated_views_are_read_as_they_print():
    """The imaginary part of a conjugate is a view whose sign is only noted."""
    view = torch.complex(torch.zeros(4), -torch.tensor(C).float()).conj().imag
    assert view.is_neg()
    assert m.ece(view, HIT) == m.ece(C.astype(np.float32), HIT)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8])
def test_whole_numbers_of_any_type(dtype):
    assert m.nll(P, Y.astype(dtype)) == m.nll(P, Y)
    assert m.ece(C, HIT.astype(dtype)) == m.ece(C, HIT)
    with pytest.raises(ValueError, match="2\\*\\*63"):
        m.nll(P, np.array([0, 1, 2, 2**64 - 1], np.uint64))


TAKES_BINS = {
    "ece": lambda bins: m.ece(C, HIT, bins),
    "aece": lambda bins: m.aece(C, HIT, bins),
    "mce": lambda bins: m.mce(C, HIT, bins),
    "debiased_squared_ce": lambda bins: m.debiased_squared_ce(C, HIT, bins),
    "classwise_ece": lambda bins: m.classwise_ece(P, Y, bins),
    "summary": lambda bins: m.summary(P, Y, bins=bins)["ece"],
    "summary with intervals": lambda bins: m.summary(P, Y, bins=bins, interval=True, resamples=5)[
        "ece_low"
    ],
    "resample": lambda bins: m.resample(C, HIT, bins=bins, resamples=3)[0]["ece"][0],
    "compare": lambda bins: m.compare(P, P, Y, bins=bins, resamples=5)["ece"].difference,
    "Bins.empty": lambda bins: float(m.Bins.empty(bins).n),
    "Bins.of": lambda bins: m.Bins.of(C, HIT, bins).ece(),
    "Bins.of_classes": lambda bins: m.Bins.of_classes(P, Y, bins).ece(),
    "Stream.empty": lambda bins: float(m.Stream.empty(bins).classes),
    "Stream.of": lambda bins: m.Stream.of(P, Y, bins=bins).summary()["ece"],
    "reliability": lambda bins: float(prepare_model(P, Y, bins, "", 0).numbers["ece"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("function", TAKES_BINS.values(), ids=TAKES_BINS)
def test_the_number_of_bins(function):
    expected = function(15)
    for same in (np.int64(15), np.uint8(15), np.array(15), torch.tensor(15)):
        assert function(same) == expected
    for wrong, message in [
        (0, "bins is 0; at least one"),
        (-3, "bins is -3; at least one"),
        (100_000_000, f"bins is 100,000,000; at most {MOST_BINS:,}"),
        (10**30, "at most 10,000"),
        (float("nan"), "bins is nan; expected a whole number"),
        (15.0, "expected a whole number"),
        (True, "expected a whole number"),
        ("15", "expected a whole number"),
        (None, "expected a whole number"),
    ]:
        with pytest.raises(ValueError, match=message):
            function(wrong)
    assert np.isfinite(function(MOST_BINS))


def test_edges():
    assert m.ece(C, HIT, [0, 0.5, 1]) == m.ece(C, HIT, torch.tensor([0, 0.5, 1]))
    for edges in (
        [0, np.nan, 1],
        [0, "a", 1],
        [None, 1],
        [[0, 1]],
        [],
        [-np.inf, 1],
        np.ma.array([0, 0.5, 1], mask=[0, 1, 0]),
    ):
        with pytest.raises(ValueError, match="bins"):
            m.ece(C, HIT, edges)
    own = np.array([0, 0.5, 1.0])
    made = m.Bins.of(C, HIT, own)
    own[1] = 0.9
    assert made.edges.tolist() == [0, 0.5, 1]  # the caller's array may change later


@pytest.mark.parametrize("resamples", [0, -1, 2.5, "many", None, 10**12])
def test_resamples(resamples):
    for function in (
        lambda: m.summary(P, Y, interval=True, resamples=resamples),
        lambda: m.resample(C, HIT, resamples=resamples),
        lambda: m.compare(P, P, Y, resamples=resamples),
        lambda: m.bootstrap(m.ece, C, HIT, resamples=resamples),
        lambda: m.Stream.of(P, Y).summary(interval=True, resamples=resamples),
    ):
        with pytest.raises(ValueError, match="resamples is"):
            function()


@pytest.mark.parametrize("seed", [-1, 0.5, "seed"])
def test_seed(seed):
    for function in (
        lambda: m.summary(P, Y, interval=True, seed=seed),
        lambda: m.resample(C, HIT, seed=seed),
        lambda: m.compare(P, P, Y, seed=seed),
        lambda: m.bootstrap(m.ece, C, HIT, seed=seed),
        lambda: m.Stream.of(P, Y).summary(interval=True, seed=seed),
        lambda: maccal.reliability(P, Y, seed=seed),
    ):
        with pytest.raises(ValueError, match="seed is"):
            function()


@pytest.mark.parametrize("share", [0, -0.1, 1.5, float("nan"), "half", None, 10**400])
def test_shares(share):
    with pytest.raises(ValueError, match="tpr is"):
        m.fpr95(C, C, tpr=share)
    with pytest.raises(ValueError, match="coverage is"):
        m.accuracy_at_coverage(C, HIT, share)
    with pytest.raises(ValueError, match="level is"):
        m.bootstrap(m.ece, C, HIT, level=share)


def test_shares_at_the_ends():
    assert m.fpr95(np.array([1.0, 2.0]), np.array([0.0, 3.0]), tpr=1) == 0.5
    assert m.accuracy_at_coverage(C, HIT, 1e-12) in (0.0, 1.0)  # one row at least
    with pytest.raises(ValueError, match="level is 1"):
        m.bootstrap(m.ece, C, HIT, level=1)


@pytest.mark.parametrize("count", [-1, 1.5, float("nan"), "one"])
def test_min_count_and_classes(count):
    with pytest.raises(ValueError, match="min_count is"):
        m.mce(C, HIT, min_count=count)
    with pytest.raises(ValueError, match="classes is"):
        m.Bins.empty(classes=count)


@pytest.mark.parametrize("function", [m.ece, m.aece, m.mce, m.Bins.of])
def test_convention(function):
    with pytest.raises(ValueError, match="choose 'maccal' or 'focal'"):
        function(C, HIT, convention="guo")
    with pytest.raises(ValueError, match="choose 'maccal' or 'focal'"):
        m.Bins.empty(convention="guo")


def test_nothing_to_draw_from():
    for arrays in ((), (np.empty(0),), (np.array(1.0),)):
        with pytest.raises(ValueError, match="no rows to draw from"):
            m.bootstrap(lambda *a: 0.0, *arrays)


@pytest.mark.parametrize("count", [1, 2])
def test_arrays_that_run_backwards(count):
    """A single number has a step too, which may be negative."""
    assert m.ece(np.full(count, 0.75)[::-1], np.full(count, True)[::-1]) == 0.25
