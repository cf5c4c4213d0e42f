"""Streams: what all rows at once give, from batches."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing
from hypothesis import given
from hypothesis import strategies as st
from strategies import predictions

from maccal.metrics import Bins, Stream, softmax, summary, top_label


def sample(n=3000, sharpness=2.0):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(n, 5)) * 2
    labels = (softmax(logits).cumsum(1) > rng.random((n, 1))).argmax(1)
    return sharpness * logits, labels


def streamed(logits, labels, size, **settings):
    total = Stream.empty(**settings)
    for start in range(0, len(labels), size):
        total += Stream.of(logits=logits[start : start + size], labels=labels[start : start + size], **settings)
    return total


@pytest.mark.parametrize("size", [1, 64, 3000])
def test_batches_of_any_size(size):
    logits, labels = sample(300 if size == 1 else 3000)
    whole, made = summary(logits=logits, labels=labels, interval=True), streamed(logits, labels, size).summary(interval=True)
    for name in ("n", "classes", "bins", "accuracy", "ece", "mce", "mce_count"):
        assert made[name] == whole[name], name
    for name in ("confidence", "nll", "brier"):
        assert made[name] == pytest.approx(whole[name], rel=1e-12), name
    for name in ("aece", "smece", "ks", "aurc", "e_aurc", "debiased_squared_ce"):
        assert made[name] == pytest.approx(whole[name], rel=0.05, abs=1.5e-3), name
    for name in ("accuracy", "ece", "aece", "smece", "ks", "aurc", "nll", "brier"):
        assert made[f"{name}_low"] == pytest.approx(whole[f"{name}_low"], rel=0.1, abs=3e-3), name
        assert made[f"{name}_high"] == pytest.approx(whole[f"{name}_high"], rel=0.1, abs=3e-3), name
    assert made["verdict"].split(":")[0] == whole["verdict"].split(":")[0] == "Overconfident"
    assert str(made).startswith(f"{len(labels):,} rows, 5 classes, 15 bins")


@given(predictions(), st.integers(1, 40))
def test_the_coarse_bins_are_the_same_bits(case, bins):
    probs, labels = case
    assert Stream.of(probs, labels, bins=bins).fine.coarsen(bins) == Bins.of(*top_label(probs, labels), bins)


def test_memory_does_not_grow():
    small, large = streamed(*sample(100), 50), streamed(*sample(3000), 500)
    assert small.fine.sums.nbytes == large.fine.sums.nbytes < 50_000


def test_what_does_not_add_up():
    with pytest.raises(ValueError, match="2 classes and one of 3"):
        Stream.of(np.array([[0.5, 0.5]]), np.array([0])) + Stream.of(np.array([[0.5, 0.3, 0.2]]), np.array([0]))
    with pytest.raises(ValueError, match="only like Bins"):
        Stream.empty(10) + Stream.empty(15)
    with pytest.raises(ValueError, match="hold no rows"):
        Stream.empty().summary()
    with pytest.raises(ValueError, match="must be among the edges"):
        Bins.empty(10).coarsen(3)


def rank_main(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    logits, labels = sample()
    together = Stream.of(logits=logits[rank::world], labels=labels[rank::world]).all_reduce()
    whole = Stream.of(logits=logits, labels=labels)
    same = together.fine == whole.fine and np.allclose(together.scores, whole.scores, rtol=1e-12)
    Path(folder, f"rank{rank}").write_text("the same" if same else "different")
    torch.distributed.destroy_process_group()


def test_all_reduce_over_two_processes(tmp_path):
    torch.multiprocessing.spawn(rank_main, (2, str(tmp_path)), nprocs=2)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["the same"] * 2
