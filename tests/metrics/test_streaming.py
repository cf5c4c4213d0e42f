"""Streams: what all rows at once give, from batches."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing
from hypothesis import given
from hypothesis import strategies as st
from strategies import outcomes, predictions

from maccal.metrics import (
    Bins,
    Stream,
    aece,
    aurc,
    debiased_squared_ce,
    e_aurc,
    inputs,
    ks,
    nll,
    smece,
    softmax,
    streaming,
    summary,
    top_label,
)
from maccal.metrics.inputs import check_logits
from maccal.metrics.sketch import INEXACT, fine_grid, read
from maccal.metrics.streaming import binned, collect_compiled, collect_torch

EQUAL_MASS = {"aece": aece, "debiased_squared_ce": debiased_squared_ce}


def sample(n=3000, sharpness=2.0):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n, 5)) * 2
    labels = (softmax(logits).cumsum(1) > rng.random((n, 1))).argmax(1)
    return sharpness * logits, labels


def streamed(logits, labels, size, **settings):
    total = Stream.empty(**settings)
    for start in range(0, len(labels), size):
        total += Stream.of(
            logits=logits[start : start + size], labels=labels[start : start + size], **settings
        )
    return total


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 64, 3000])
def test_batches_of_any_size(size):
    logits, labels = sample(300 if size == 1 else 3000)
    whole, made = (
        summary(logits=logits, labels=labels, interval=True),
        streamed(logits, labels, size).summary(interval=True),
    )
    for name in ("n", "classes", "bins", "accuracy", "ece", "mce", "mce_count"):
        assert made[name] == whole[name], name
    for name in ("confidence", "nll", "brier", "nll_low", "nll_high", "brier_low", "brier_high"):
        assert made[name] == pytest.approx(whole[name], rel=1e-12), name
    for name in INEXACT:
        assert abs(made[f"{name}_binned"] - whole[name]) <= made[f"{name}_binned_error"], name
        assert made[f"{name}_binned"] == pytest.approx(whole[name], rel=0.05, abs=2e-4), name
    for name in ("accuracy", "ece", "aece", "smece", "ks", "aurc", "e_aurc", "debiased_squared_ce"):
        for end in ("low", "high", "null_low", "null_high"):
            expected = whole[f"{name}_{end}"]
            assert made[f"{binned(name)}_{end}"] == pytest.approx(expected, rel=0.1, abs=3e-3), (
                name,
                end,
            )
    assert made["verdict"].split(":")[0] == whole["verdict"].split(":")[0] == "Overconfident"
    assert str(made).startswith(f"{len(labels):,} rows, 5 classes, 15 bins")


@given(predictions(), st.integers(1, 40))
def test_the_coarse_bins_are_the_same_bits(case, bins):
    probs, labels = case
    assert Stream.of(probs, labels, bins=bins).fine.coarsen(bins) == Bins.of(
        *top_label(probs, labels), bins
    )


def test_memory_does_not_grow():
    small, large = streamed(*sample(100), 50), streamed(*sample(3000), 500)
    assert small.fine.sums.nbytes == large.fine.sums.nbytes < 100_000


@pytest.mark.slow
@given(predictions(), st.integers(1, 40))
def test_binned_numbers_are_within_their_bounds(case, bins):
    """Few rows, many ties, bins of any width.

    The rows' own numbers are never further than the stated error.
    """
    probs, labels = case
    confidence, correct = top_label(probs, labels)
    assert_within_bounds(confidence, correct, bins)


@pytest.mark.slow
@given(outcomes(most=60), st.integers(1, 40), st.sampled_from([1.0, 1e-2, 1e-4, 1e-9]))
def test_bounds_where_rows_crowd(case, bins, spread):
    confidence, correct = case
    assert_within_bounds(1 - spread * (1 - confidence), correct, bins)


def assert_within_bounds(confidence, correct, bins):
    rows = {"smece": smece, "ks": ks, "aurc": aurc, "e_aurc": e_aurc}
    _, made = read(Bins.of(confidence, correct, fine_grid(bins).edges), bins)
    for name in INEXACT:
        expected = (
            rows[name](confidence, correct)
            if name in rows
            else EQUAL_MASS[name](confidence, correct, bins)
        )
        assert abs(made[f"{name}_binned"] - expected) <= made[f"{name}_binned_error"], name


def test_bounds_are_narrow_for_a_sure_model():
    """95 % of the rows above 99.9 %: equal-width bins alone would hold them all in one."""
    rng = np.random.default_rng(0)
    confidence = 1 - 0.5 * np.exp(-rng.exponential(8, 20_000))
    correct = rng.random(20_000) < confidence**3
    _, made = read(Bins.of(confidence, correct, fine_grid(15).edges), 15)
    assert made["aurc_binned"] == pytest.approx(aurc(confidence, correct), rel=1e-3)
    assert made["aurc_binned_error"] < 0.03 * made["aurc_binned"]
    assert made["aece_binned"] == pytest.approx(aece(confidence, correct), rel=1e-2)


def test_one_label_one_number():
    """What a stream knows only within bounds has a key and a label of its own."""
    logits, labels = sample(500)
    whole, made = summary(logits=logits, labels=labels), streamed(logits, labels, 100).summary()
    for name in set(whole) & set(made):
        assert made[name] == pytest.approx(whole[name], rel=1e-12), name
    labels_of = [
        {line[:22].rsplit("  ")[0].strip() for line in str(s).splitlines()[1:]}
        for s in (whole, made)
    ]
    assert "AURC" in labels_of[0]
    assert "AURC" not in labels_of[1]
    assert "AURC (binned)" in labels_of[1]


@pytest.mark.parametrize("rows", [2**28, 10**9, 2**40])
def test_the_summary_of_any_number_of_rows_takes_little(rows):
    """Doubling a stream stands for reading it twice. No array of the rows' length.

    8 GB at a billion rows.
    """
    logits, labels = sample(2**10, sharpness=1.1)
    part = Stream.of(logits=logits, labels=labels)
    total = Stream.empty()
    for place in range(rows.bit_length()):
        if rows >> place & 1:
            total += part
        part += part
    tracemalloc.start()
    made = total.summary(interval=True, resamples=100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6
    once = Stream.of(logits=logits, labels=labels).summary()
    assert made["n"] == rows * 2**10
    for name in (
        "accuracy",
        "confidence",
        "ece",
        "mce",
        "nll",
        "brier",
        "aece_binned",
        "ks_binned",
        "smece_binned",
    ):
        assert made[name] == pytest.approx(once[name], rel=1e-9, abs=1e-12), name
    # its first ranks weigh less
    assert made["aurc_binned"] == pytest.approx(once["aurc_binned"], abs=0.01)
    assert made["aurc_binned_low"] <= made["aurc_binned"] <= made["aurc_binned_high"]
    half = 1.96 * np.sqrt(made["accuracy"] * (1 - made["accuracy"]) / made["n"])
    assert made["accuracy_high"] - made["accuracy_low"] == pytest.approx(2 * half, rel=0.4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [2, 10, 31, 32, 40])
@pytest.mark.parametrize("as_logits", [True, False])
def test_compiled_and_torch_streams_agree(dtype, classes, as_logits):
    rng = torch.Generator().manual_seed(classes)
    logits = (6 * torch.randn(3000, classes, generator=rng)).to(dtype)
    given = check_logits(logits) if as_logits else logits.float().softmax(1).to(dtype)
    labels = torch.randint(classes, (3000,), generator=rng)
    fast, slow = (
        collect_compiled(given, labels, as_logits, 15),
        collect_torch(given, labels, as_logits, 15),
    )
    assert fast[0] == slow[0]
    exact = as_logits or dtype == torch.float64
    assert fast[1] == pytest.approx(slow[1], rel=1e-12 if exact else 1e-5)


def test_a_label_whose_probability_underflows_has_a_finite_nll():
    for dtype, far in ((np.float32, 300.0), (np.float64, 2000.0)):
        logits = np.array([[0.0, far], [0.0, 1.0]], dtype)
        made = Stream.of(logits=logits, labels=np.array([0, 1])).summary(
            interval=True, resamples=10
        )
        assert made["nll"] == pytest.approx(nll(logits=logits, labels=np.array([0, 1])), rel=1e-6)


def test_float32_logits_give_what_a_summary_gives():
    """The confidence alone is rounded elsewhere: by 2**-25 of itself at most, either way."""
    logits, labels = sample()
    logits = logits.astype(np.float32)
    whole = summary(logits=logits, labels=labels)
    made = streamed(logits, labels, 1000).summary()
    assert made["accuracy"] == whole["accuracy"]
    assert made["mce_count"] == whole["mce_count"]
    for name in ("nll", "brier"):
        assert made[name] == pytest.approx(whole[name], rel=1e-12), name
    for name in ("confidence", "ece", "mce"):
        assert made[name] == pytest.approx(whole[name], abs=1e-7), name


def test_of_equal_logits_the_first_counts():
    logits = np.array([[1, 3, 3, 0], [2, 2, 2, 2], [0, 0, 0, 5]], np.float32)
    made = Stream.of(logits=logits, labels=np.array([2, 0, 3])).summary()
    assert made["accuracy"] == 2 / 3
    assert made["confidence"] == pytest.approx(softmax(logits).max(1).mean(), rel=1e-7)


@pytest.mark.parametrize("classes", [3, 50])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_logit_that_is_not_finite_is_named(bad, classes, dtype, monkeypatch):
    """In one look: any row of a strip, any block, any place in the row."""
    monkeypatch.setattr(inputs, "BLOCK", 2000)
    for row, place in ((0, 0), (77, 1), (99, classes - 1)):
        logits = np.zeros((100, classes), dtype)
        logits[row, place] = bad
        with pytest.raises(ValueError, match=f"logits row {row} holds {bad}"):
            Stream.of(logits=logits, labels=np.zeros(100, dtype=int))


def test_an_infinite_nll_and_a_single_row_have_no_interval():
    made = Stream.of(np.array([[1.0, 0.0], [0.6, 0.4]]), np.array([1, 0])).summary(
        interval=True, resamples=10
    )
    assert made["nll"] == np.inf
    assert np.isnan(made["nll_low"])
    one = Stream.of(np.array([[0.6, 0.4]]), np.array([0])).summary(interval=True, resamples=10)
    assert np.isnan(one["brier_high"])


@pytest.mark.parametrize("compiled", [True, False])
def test_a_bad_row_is_named(compiled, monkeypatch):
    monkeypatch.setattr(inputs, "BLOCK", 8)
    if not compiled:
        monkeypatch.setattr(streaming, "kernels", None)
    for bad, message in (
        ([0.5, 0.25], r"row 77 sums to 0\.75"),
        ([np.nan, 1], "row 77 holds nan"),
        ([1.2, -0.2], "row 77 ranges"),
    ):
        probs = np.tile([0.75, 0.25], (100, 1))
        probs[77] = bad
        with pytest.raises(ValueError, match=message):
            Stream.of(probs, np.zeros(100, dtype=int))


def test_the_sum_of_streams():
    parts = [Stream.of(np.array([[0.9, 0.1]]), np.array([label])) for label in (0, 1)]
    assert sum(parts).summary()["ece"] == (parts[0] + parts[1]).summary()["ece"]
    with pytest.raises(TypeError):
        1 + parts[0]


def test_what_does_not_add_up():
    with pytest.raises(ValueError, match="2 classes and one of 3"):
        Stream.of(np.array([[0.5, 0.5]]), np.array([0])) + Stream.of(
            np.array([[0.5, 0.3, 0.2]]), np.array([0])
        )
    # both refined by the same fine bins
    with pytest.raises(ValueError, match="of 2 and of 4 bins"):
        Stream.empty(2) + Stream.empty(4)
    with pytest.raises(TypeError):
        Stream.empty() + 1
    with pytest.raises(ValueError, match="hold no rows"):
        Stream.empty().summary()
    with pytest.raises(ValueError, match="must be among the edges"):
        Bins.empty(10).coarsen(3)


def rank_main(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    logits, labels = sample()
    together = Stream.of(logits=logits[rank::world], labels=labels[rank::world]).all_reduce()
    whole = Stream.of(logits=logits, labels=labels)
    same = together.fine == whole.fine and np.allclose(together.scores, whole.scores, rtol=1e-12)
    alone = (whole if rank == 0 else Stream.empty()).all_reduce()  # a rank without rows
    same = same and alone.fine == whole.fine and alone.classes == 5
    try:
        Stream.empty(10 + rank).all_reduce()
        same = False
    except ValueError:
        pass
    Path(folder, f"rank{rank}").write_text("the same" if same else "different")
    torch.distributed.destroy_process_group()


@pytest.mark.distributed
def test_all_reduce_over_two_processes(tmp_path):
    torch.multiprocessing.spawn(rank_main, (2, str(tmp_path)), nprocs=2)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["the same"] * 2


def test_a_stream_says_what_it_is():
    stream = Stream.of(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 1]))
    assert repr(stream) == "Stream of 2 rows, 2 classes; summary() has the numbers"
