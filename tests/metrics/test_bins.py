"""Bins: exact sums, in any order and any number of pieces."""

from fractions import Fraction
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing
from hypothesis import given
from hypothesis import strategies as st
from reference import bin_of, bin_sums, classwise, equal_width, worst_gap
from strategies import outcomes, predictions

from maccal.metrics import Bins, inputs
from maccal.metrics.binning import (
    TICK,
    assign,
    collect_classes,
    collect_classes_torch,
    collect_compiled,
    collect_equal,
    collect_torch,
    equal_width_edges,
    mass_edges,
    settled,
)
from maccal.metrics.inputs import check_confidence


def kept(made, number):
    """The sum of confidences in a bin, as the fraction that it stands for."""
    high, low, whole = (Fraction(x) for x in made.sums[2:, number])
    return whole + high / Fraction(TICK) + low / Fraction(TICK) ** 2


@given(outcomes(), st.integers(1, 40))
def test_sums_are_the_exact_ones(case, bins):
    """The count and the hits to the unit; the sum of confidences to half a tick a row."""
    confidence, correct = case
    made = Bins.of(confidence, correct, bins)
    for place, (count, right, total) in enumerate(
        bin_sums(confidence.tolist(), correct.tolist(), equal_width(bins))
    ):
        assert made.count[place] == count
        assert made.correct[place] == right
        assert abs(kept(made, place) - total) <= count * Fraction(1, 2) / Fraction(TICK) ** 2


@given(outcomes(), st.integers(1, 40), st.randoms())
def test_any_order_and_any_sharding_give_the_same_bits(case, bins, random):
    confidence, correct = case
    whole = Bins.of(confidence, correct, bins)
    order = random.sample(range(len(confidence)), len(confidence))
    cuts = sorted(random.choices(range(1, len(order) + 1), k=3))
    shards = [rows for rows in np.split(np.array(order), cuts) if len(rows)]
    parts = [Bins.of(confidence[rows], correct[rows], bins) for rows in shards]
    assert sum(parts) == whole
    assert reduce(add, reversed(parts), Bins.empty(bins)) == whole


@given(outcomes(), st.integers(1, 30))
def test_every_row_twice_changes_no_ratio(case, bins):
    confidence, correct = case
    once, twice = (
        Bins.of(confidence, correct, bins),
        Bins.of(np.tile(confidence, 2), np.tile(correct, 2), bins),
    )
    assert twice == once + once
    assert twice.ece() == once.ece()
    assert twice.mce().gap == once.mce().gap


@given(st.lists(st.floats(0, 1), min_size=1), st.integers(1, 200))
def test_assign_is_the_comparison_with_the_edges(values, bins):
    edges = equal_width_edges(bins)
    on_edges = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1), values])
    index = assign(torch.from_numpy(on_edges), edges, "maccal")
    assert index.tolist() == [bin_of(v, edges.tolist()) for v in on_edges.tolist()]


def test_floor_of_the_product_would_be_wrong():
    """0.29 x 100 is 28.999999999999996 in floating point; 0.29 belongs to [0.29, 0.30)."""
    assert int(0.29 * 100) == 28
    assert Bins.of(np.array([0.29]), np.array([1]), 100).count[29] == 1


@given(outcomes())
def test_focal_convention(case):
    """(lo, hi]: the mirror image of [lo, hi); a confidence of 0 is left out."""
    confidence, correct = case
    made = Bins.of(confidence, correct, 10, convention="focal")
    edges = equal_width(10)
    expected = [sum(edges[j] < c <= edges[j + 1] for c in confidence) for j in range(10)]
    assert made.count.tolist() == expected
    assert made.n == len(confidence)


@given(outcomes(most=80), st.integers(1, 20))
def test_compiled_and_torch_sums_agree(case, bins):
    confidence, correct = check_confidence(*case)
    index = assign(confidence, equal_width_edges(bins), "focal")
    assert np.array_equal(
        collect_compiled(index, confidence, correct, bins),
        collect_torch(index, confidence, correct, bins),
    )


@given(st.lists(st.floats(0, 1), min_size=1), st.integers(1, 200))
def test_bins_of_equal_width_are_found_in_the_compiled_loop(values, bins):
    """At the edges, and a hair to either side of them."""
    edges = equal_width_edges(bins)
    confidence = torch.from_numpy(
        np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1), values]).clip(0, 1)
    )
    correct = torch.arange(len(confidence)) % 3 == 0
    expected = collect_torch(assign(confidence, edges, "maccal"), confidence, correct, bins)
    assert np.array_equal(settled(collect_equal(confidence, correct, edges)), settled(expected))


@given(outcomes(), st.integers(1, 40))
def test_ordered_rows_give_the_same_sums(case, bins):
    confidence, correct = check_confidence(*case)
    order = confidence.argsort()
    for edges in (equal_width_edges(bins), mass_edges(confidence[order].numpy(), bins)):
        made = Bins.of_ordered(confidence[order].numpy(), correct[order].numpy(), edges)
        assert made == Bins.of(confidence, correct, edges)


@pytest.mark.parametrize("bins", [1, 2, 15, 1000])
@pytest.mark.parametrize("classes", [2, 7, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [0.0, 2.0, 60.0])
def test_compiled_and_torch_classes_agree(bins, classes, dtype, spread):
    """Spread 0: all classes alike; 60: zeros and ones."""
    generator = torch.Generator().manual_seed(classes)
    probs = (spread * torch.randn(200, classes, generator=generator, dtype=dtype)).softmax(1)
    # a row may overshoot by rounding
    probs[0] = torch.eye(classes, dtype=dtype)[0] * (1 + torch.finfo(dtype).eps)
    labels = torch.randint(classes, (200,), generator=generator)
    edges = equal_width_edges(bins)
    made = [
        take(probs, labels, edges, "maccal") for take in (collect_classes, collect_classes_torch)
    ]
    assert np.array_equal(settled(made[0]), settled(made[1]))


def test_float32_sums_would_drift():
    """Ten million rows of 0.9, all right: ECE is 0.1.

    Summed in float32, one row at a time, it is off by half.
    """
    part = Bins.of(np.full(1_000_000, 0.9), np.ones(1_000_000, bool))
    assert sum([part] * 10).ece() == pytest.approx(0.1, abs=1e-15)
    drifting = torch.zeros(1).index_add_(
        0, torch.zeros(10_000_000, dtype=torch.int64), torch.full((10_000_000,), 0.9)
    )
    assert abs(float(drifting) / 1e7 - 0.9) > 0.04


def test_float32_confidences_are_kept_without_rounding():
    confidence = torch.rand(5000, generator=torch.Generator().manual_seed(0)) * 0.999 + 0.001
    made = Bins.of(confidence, torch.ones(5000), 1)
    assert kept(made, 0) == sum(Fraction(c) for c in confidence.tolist())


@given(outcomes(), st.integers(28, 46), st.integers(1, 5))
def test_sums_of_very_many_rows_are_exact(case, doublings, bins):
    """Doubled 2**27 times and more, the sums are still the exact ones, and in one form however they
    were added up.
    """
    confidence, correct = case
    once = Bins.of(confidence, correct, bins)
    total = once
    for _ in range(doublings):
        total = total + total
    odd = total + once
    for place in range(bins):
        assert kept(odd, place) == (2**doublings + 1) * kept(once, place)
        assert odd.count[place] == (2**doublings + 1) * once.count[place]
        assert odd.correct[place] == (2**doublings + 1) * once.correct[place]
    assert odd.n == (2**doublings + 1) * len(confidence)
    assert sum([total, once]) == once + total == odd
    assert odd.coarsen(1) == once.coarsen(1) + total.coarsen(1)
    assert (odd.sums[2:4] < TICK).all()


def test_more_rows_than_can_be_counted_are_refused():
    total = Bins.of(np.array([0.5]), np.array([1]), 2)
    for _ in range(53):
        total = total + total
    assert total.n == 2**53
    with pytest.raises(ValueError, match=r"more than 2\*\*53 rows"):
        total + total


def test_one_call_of_more_rows_than_a_sum_can_hold(monkeypatch):
    """Sums are carried between the steps of one call, not only between calls."""
    monkeypatch.setattr(inputs, "STRETCH", 2)
    one = 1 - 2.0**-52
    made = Bins.of(np.full(9, one), np.ones(9), 1)
    assert kept(made, 0) == 9 * Fraction(one)
    assert (made.sums[2:4] < TICK).all()


def test_a_stream_needs_only_the_bins():
    rng = np.random.default_rng(0)
    total, everything = Bins.empty(15), []
    for _ in range(20):
        confidence = rng.uniform(0, 1, 999)
        correct = rng.random(999) < confidence
        total += Bins.of(confidence, correct)
        everything.append((confidence, correct))
    assert total == Bins.of(*(np.concatenate(column) for column in zip(*everything, strict=True)))
    assert total.sums.nbytes == 5 * 15 * 8


def test_worst_bin_tells_its_count():
    made = Bins.of(np.array([0.95, 0.95, 0.31]), np.array([1, 1, 1]), 10)
    worst = made.mce()
    assert (worst.count, worst.low, worst.high) == (1, 0.3, 0.4)
    assert worst.gap == pytest.approx(0.69)
    assert made.mce(min_count=2).count == 2
    nothing = made.mce(min_count=9)
    assert np.isnan(nothing.gap)
    assert nothing.count == 0


@given(outcomes(), st.integers(1, 20), st.integers(1, 4))
def test_worst_gap(case, bins, min_count):
    confidence, correct = case
    expected = worst_gap(confidence.tolist(), correct.tolist(), equal_width(bins), min_count)
    assert Bins.of(confidence, correct, bins).mce(min_count).gap == pytest.approx(
        expected, abs=1e-12, nan_ok=True
    )


@given(predictions(), st.integers(1, 20))
def test_classwise_bins(case, bins):
    probs, labels = case
    made = Bins.of_classes(probs, labels, bins)
    assert made.ece() == pytest.approx(classwise(probs.tolist(), labels.tolist(), bins), abs=1e-12)
    half = len(probs) // 2
    if half:
        assert (
            Bins.of_classes(probs[:half], labels[:half], bins)
            + Bins.of_classes(probs[half:], labels[half:], bins)
            == made
        )


def test_only_like_bins_add_up():
    for other in (Bins.empty(10), Bins.empty(15, classes=3), Bins.empty(15, convention="focal")):
        with pytest.raises(ValueError, match="only like Bins add up"):
            Bins.empty(15) + other
    with pytest.raises(TypeError):
        1 + Bins.empty()
    assert Bins.empty() != "bins"


def test_bad_bins():
    with pytest.raises(ValueError, match="at least one"):
        Bins.empty(0)
    with pytest.raises(ValueError, match="ascending"):
        Bins.empty([0, 0.8, 0.2, 1])
    with pytest.raises(ValueError, match="must cover 0 to 1"):
        Bins.empty([0.2, 1])
    with pytest.raises(ValueError, match="hold no rows"):
        Bins.empty().ece()
    with pytest.raises(ValueError, match="choose 'maccal' or 'focal'"):
        Bins.of(np.array([0.5]), np.array([1]), convention="guo")


def rank_main(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world
    )
    rng = np.random.default_rng(7)
    confidence = rng.uniform(0, 1, 1000)
    correct = rng.random(1000) < confidence
    whole = Bins.of(confidence, correct)
    mine = slice(rank, None, world)
    shard = Bins.of(confidence[mine], correct[mine])
    for _ in range(32):  # four billion times the rows
        shard, whole = shard + shard, whole + whole
    together = shard.all_reduce()
    Path(folder, f"rank{rank}").write_text(
        "the same bits" if together == whole else f"{together.sums} is not {whole.sums}"
    )
    torch.distributed.destroy_process_group()


def test_all_reduce_over_two_processes(tmp_path):
    torch.multiprocessing.spawn(rank_main, (2, str(tmp_path)), nprocs=2)
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["the same bits"] * 2
