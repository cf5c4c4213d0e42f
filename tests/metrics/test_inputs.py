"""The door: every kind of bad input is refused with the row and the fix.

Every kind of good array is taken.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from reference import top_label as slow_top_label
from strategies import predictions

from maccal.metrics import (
    accuracy,
    brier,
    classwise_ece,
    compare,
    ece,
    inputs,
    max_softmax,
    nll,
    summary,
    top_label,
)

P = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.2, 0.5, 0.3]])
Y = np.array([0, 1, 2, 0])


def broken(row, values):
    p = P.copy()
    p[row] = values
    return p


TAKES_PROBS = [
    top_label,
    accuracy,
    nll,
    brier,
    classwise_ece,
    summary,
    lambda p, y: max_softmax(p),
    lambda p, y: compare(P, p, y),
]
BAD_PROBS = {
    "NaN": (broken(2, [0.5, np.nan, 0.5]), "probs row 2 holds nan"),
    "infinite": (broken(1, [np.inf, 0, 0]), "probs row 1 holds inf"),
    "sum": (broken(3, [0.5, 0.2, 0.1]), "probs row 3 sums to 0.8, not 1"),
    "negative though it sums to one": (
        broken(1, [0.7, 0.5, -0.2]),
        "probs row 1 ranges from -0.2 to 0.7",
    ),
    "logits": (np.array([[2.0, 1.0, 0.0]] * 4), "row 0 ranges from 0 to 2: these look like logits"),
    "logits in [0, 1]": (np.array([[0.9, 0.3, 0.6]] * 4), "row 0 sums to 1.8, not 1; .* logits="),
    "one column": (np.ones((4, 1)), "one column"),
    "vector": (np.ones(4), r"shape \(4,\); expected \(rows, classes\); for a binary score"),
    "integers": (np.eye(3, dtype=int)[Y], "expected floating point"),
    "words": (np.array([["a", "b"]] * 4), "dtype <U1; pass an array of numbers"),
}


@pytest.mark.parametrize("function", TAKES_PROBS)
@pytest.mark.parametrize(("probs", "message"), BAD_PROBS.values(), ids=BAD_PROBS)
@pytest.mark.parametrize("as_array", [np.asarray, torch.tensor], ids=["numpy", "torch"])
def test_bad_probabilities(function, probs, message, as_array):
    as_array = np.asarray if probs.dtype.kind == "U" else as_array  # torch has no strings
    with pytest.raises(ValueError, match=message):
        function(as_array(probs), Y)


BAD_LABELS = {
    "out of range": (np.array([0, 3, 1, 0]), "label 3 in row 1 is outside 0 .. 2$"),
    "negative": (np.array([0, 1, 2, -1]), "label -1 in row 3"),
    "from one": (np.array([1, 2, 3, 1]), "count from 1: pass labels - 1"),
    "one-hot": (np.eye(3, dtype=int)[Y], "one-hot; pass class indices"),
    "column": (Y[:, None], r"shape \(4, 1\)"),
    "short": (Y[:3], "4 rows of predictions but 3 labels"),
    "floats": (Y.astype(float), r"expected integer class indices: labels.astype\(int\)"),
    "a fraction": (Y + 0.5, "the label of row 0 is 0.5; expected integer class indices$"),
    "missing": (np.where(np.arange(4) == 2, np.nan, Y), "the label of row 2 is NaN"),
}


@pytest.mark.parametrize("function", TAKES_PROBS[:-2])
@pytest.mark.parametrize(("labels", "message"), BAD_LABELS.values(), ids=BAD_LABELS)
def test_bad_labels(function, labels, message):
    with pytest.raises(ValueError, match=message):
        function(P, labels)


@pytest.mark.parametrize("function", TAKES_PROBS[:-1])
def test_no_rows(function):
    with pytest.raises(ValueError, match="probs is empty"):
        function(P[:0], Y[:0])


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, 1.2], [1, 0], "confidence 1.2 in row 1 is outside"),
        ([0.5, 1.0000001], [1, 0], "confidence 1.0000001 in row 1 is outside"),
        ([0.5, -0.1], [1, 0], "confidence -0.1 in row 1"),
        ([np.nan, 0.5], [1, 0], "confidence nan in row 0"),
        ([0.5, 0.5], [1, 2], "correct is 2 in row 1; expected 0 or 1"),
        ([0.5, 0.5], [1, np.nan], "correct is nan in row 1"),
        ([0.5, 0.5], [1], "two vectors of one length"),
        ([[0.5, 0.5]], [[1, 0]], "two vectors of one length"),
        ([1, 0], [1, 0], "expected floating point"),
    ],
)
def test_bad_confidence(confidence, correct, message):
    with pytest.raises(ValueError, match=message):
        ece(np.array(confidence), np.array(correct))


def test_empty_confidence():
    with pytest.raises(ValueError, match="confidence is empty"):
        ece(np.array([]), np.array([]))


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_bad_logits(value):
    with pytest.raises(ValueError, match=f"logits row 1 holds {value}"):
        nll(logits=np.array([[0.0, 1.0], [value, 0.0]]), labels=np.array([0, 1]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_are_refused_as_logits(dtype):
    """Ten rows are no chance; fewer may be, and so may zeros and ones that someone made up."""
    probs = np.random.default_rng(0).dirichlet([1, 1, 1], 10).astype(dtype)
    labels = np.arange(10) % 3
    with pytest.raises(ValueError, match="these are probabilities; pass them as probs"):
        nll(logits=probs, labels=labels)
    for logits in (probs[:9], np.eye(3)[labels], 2 * probs):
        assert nll(logits=logits, labels=labels[: len(logits)]) > 0


def test_large_finite_logits_are_fine():
    huge = np.full((2, 2), 3e38, dtype=np.float32)  # their sum overflows, they do not
    assert nll(logits=huge, labels=np.array([0, 1])) == pytest.approx(np.log(2))


def test_exactly_one_of_probs_and_logits():
    with pytest.raises(ValueError, match="either probs or logits"):
        nll(P, Y, logits=P)
    with pytest.raises(ValueError, match="either probs or logits"):
        summary(labels=Y)
    with pytest.raises(ValueError, match="labels are missing"):
        nll(P)


def test_error_in_the_second_block_names_its_row(monkeypatch):
    monkeypatch.setattr(inputs, "BLOCK", 8)
    monkeypatch.setattr(inputs, "STRETCH", 3)
    p = np.tile([0.75, 0.25], (100, 1))
    p[77, 0] = 0.5
    with pytest.raises(ValueError, match=r"row 77 sums to 0\.75"):
        top_label(p, np.zeros(100, dtype=int))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_float_type(dtype):
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(500, 50, generator=generator).softmax(1).to(dtype)
    confidence, correct = top_label(p, torch.randint(50, (500,), generator=generator))
    assert torch.equal(confidence, p.max(1).values)
    assert confidence.dtype == dtype
    assert 0 <= ece(confidence, correct) <= 1


def test_strange_memory_layouts_give_the_same(tmp_path):
    expected = top_label(P, Y)
    path = tmp_path / "p.npy"
    np.save(path, P)
    layouts = [
        np.asfortranarray(P),
        P[::-1][::-1],
        P.astype(">f8"),
        np.load(path, mmap_mode="r"),
        P.repeat(2, 1)[:, ::2],
        torch.tensor(P.T).T,
    ]
    for layout in layouts:
        for labels in (
            Y,
            torch.tensor(Y).repeat_interleave(2)[::2],
            Y.repeat(3)[::3],
            Y[::-1][::-1],
            Y.astype(np.int16),
        ):
            confidence, correct = top_label(layout, labels)
            assert np.array_equal(confidence, expected[0])
            assert np.array_equal(correct, expected[1])


@pytest.mark.parametrize("compiled", [True, False])
def test_rounding_above_one_is_one(compiled, monkeypatch):
    """Rows that sum to one within float32, like an average of models, may hold 1.0000001."""
    if not compiled:
        monkeypatch.setattr(inputs, "kernels", None)
    probs = np.array(
        [[np.nextafter(np.float32(1), np.float32(2)), 0.0], [0.5, 0.5]], dtype=np.float32
    )
    confidence, correct = top_label(probs, np.array([0, 1]))
    assert confidence.tolist() == [1.0, 0.5]
    assert correct.tolist() == [True, False]
    assert summary(probs, np.array([0, 1]), interval=True, resamples=20, bins=1000)[
        "ece"
    ] == pytest.approx(0.25)


def test_strided_vectors_give_the_same():
    confidence, correct = (
        torch.linspace(0.1, 0.9, 30, dtype=torch.float64),
        torch.arange(30) % 3 > 0,
    )
    wide = (
        torch.stack([confidence, -confidence], 1)[:, 0],
        torch.stack([correct, ~correct], 1)[:, 0],
    )
    assert ece(*wide) == ece(confidence, correct)


def test_the_kind_of_array_is_kept():
    assert isinstance(top_label(P, Y)[0], np.ndarray)
    assert isinstance(top_label(torch.tensor(P), torch.tensor(Y))[0], torch.Tensor)
    assert isinstance(top_label(P.tolist(), Y.tolist())[0], np.ndarray)


@given(predictions())
def test_top_label_is_argmax(case):
    probs, labels = case
    confidence, correct = top_label(probs, labels)
    slow_confidence, slow_correct = slow_top_label(probs.tolist(), labels.tolist())
    assert confidence.tolist() == slow_confidence
    assert correct.tolist() == slow_correct


@pytest.mark.parametrize("classes", [2, 10, 31, 32, 100, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1.0, 8.0])
def test_compiled_and_torch_scans_agree(classes, dtype, scale):
    """scale 0: every class ties for the maximum in every row."""
    assert inputs.kernels is not None, "the compiled kernels were not built"
    generator = torch.Generator().manual_seed(classes)
    probs = (scale * torch.randn(700, classes, generator=generator, dtype=dtype)).softmax(1)
    labels = torch.randint(classes, (700,), generator=generator)
    fast, slow = inputs.scan_compiled(probs, labels), inputs.scan_torch(probs, labels)
    assert torch.equal(fast[0], slow[0])
    assert torch.equal(fast[1], slow[1])
    assert torch.allclose(fast[2], slow[2], rtol=1e-6)
    assert fast[3] == slow[3]
    assert torch.equal(fast[1], probs.argmax(1) == labels)


def test_threads_share_the_rows(monkeypatch):
    monkeypatch.setattr(inputs, "BLOCK", 64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    probs = torch.randn(101, 7, generator=torch.Generator().manual_seed(1)).softmax(1)
    labels = torch.arange(101) % 7
    confidence, correct, totals, lowest = inputs.scan_compiled(probs, labels)
    assert torch.equal(confidence, probs.amax(1))
    assert torch.equal(correct, probs.argmax(1) == labels)
    assert torch.allclose(totals, torch.ones(101))
    assert lowest == probs.min()


def test_without_a_compiler(monkeypatch):
    expected = [np.asarray(x) for x in top_label(P, Y)]
    monkeypatch.setattr(inputs, "kernels", None)
    assert all(np.array_equal(a, b) for a, b in zip(top_label(P, Y), expected, strict=True))
