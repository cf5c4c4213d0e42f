"""Views of rows: the arithmetic, the sample, kinds of input, and what has no view."""

import pytest
import torch

from maccal.features.sampling import CannotMix, sample
from maccal.features.views import (
    FAMILIES,
    Changed,
    View,
    check_views,
    family_of,
    is_image,
    mixed,
    sample_for,
    shifted,
)


def batches(n=1000, size=64, seed=0):
    x = torch.randn(n, 3, 2, 2, generator=torch.Generator().manual_seed(seed))
    return x, [
        (part, rows) for part, rows in zip(x.split(size), torch.arange(n).split(size), strict=True)
    ]


def test_each_row_is_mixed_with_one_other():
    """share of the row whose label it has, the rest of another row of the sample, each row a
    partner once.
    """
    x, loader = batches(200)
    seen = mixed(loader, 0.7)
    assert [len(y) for _, y in seen] == [64, 64, 64, 8]
    labels = torch.cat([y for _, y in seen])
    assert sorted(labels.tolist()) == list(range(200))
    rest = (torch.cat([blend for blend, _ in seen]) - 0.7 * x[labels]) / 0.3
    partners = torch.cdist(rest.flatten(1), x.flatten(1)).argmin(1)
    assert torch.allclose(rest, x[partners], atol=1e-5)
    assert sorted(partners.tolist()) == list(range(200))
    assert not (partners == labels).any()


@pytest.mark.slow
def test_the_sample_is_even():
    """Every row of the loader is as likely to be in it, wherever it stands."""
    counts = torch.zeros(300)
    loader = [(torch.zeros(len(y), 1), y) for y in torch.arange(300).split(7)]
    for seed in range(400):
        inputs, y, size = sample(loader, 30, torch.Generator().manual_seed(seed))
        assert len(y.unique()) == len(inputs[0]) == 30
        assert size == 7
        counts[y] += 1
    thirds = counts.view(3, 100).sum(1) / 4000
    assert torch.allclose(thirds, torch.ones(3), atol=0.05)  # five standard deviations


def test_same_seed_same_bits():
    _, loader = batches()
    for (a, label), (b, again) in zip(
        mixed(loader, rows=100, seed=3), mixed(loader, rows=100, seed=3), strict=True
    ):
        assert torch.equal(a, b)
        assert torch.equal(label, again)
    assert not torch.equal(
        mixed(loader, rows=100, seed=3)[0][1], mixed(loader, rows=100, seed=4)[0][1]
    )


def test_mappings_and_integers():
    """The keys stay, floats are mixed, integers are the row's own."""
    loader = [
        {
            "pixel_values": torch.tensor([[0.0], [4.0]]),
            "position": torch.tensor([5, 6]),
            "label": torch.tensor([0, 1]),
        }
    ]
    (batch,) = mixed(loader, 0.5)
    assert batch["pixel_values"].tolist() == [[2.0], [2.0]]
    assert torch.equal(batch["position"], batch["labels"] + 5)


def test_bytes_are_pixels():
    (batch,) = mixed([(torch.tensor([[0], [255]], dtype=torch.uint8), torch.tensor([0, 1]))], 0.7)
    assert batch[0].dtype == torch.uint8
    assert sorted(zip(batch[0].flatten().tolist(), batch[1].tolist(), strict=True)) == [
        (76, 0),
        (178, 1),
    ]


def test_large_rows_are_fewer(monkeypatch):
    monkeypatch.setattr("maccal.features.sampling.BYTES", 48 * 10)
    assert sum(len(y) for _, y in mixed(batches(200)[1])) == 10


@pytest.mark.parametrize(
    "loader",
    [
        [(torch.tensor([[1, 2], [3, 4]]), torch.tensor([0, 1]))],  # tokens
        [({"nested": torch.ones(2, 1)}, torch.tensor([0, 1]))],
        [(torch.ones(1, 3), torch.tensor([0, 1]))],
    ],
)
def test_what_cannot_be_mixed(loader):
    with pytest.raises(CannotMix, match="expected tensors with a row for each label"):
        mixed(loader)


def test_too_few_rows():
    with pytest.raises(ValueError, match="the loader gave 1 rows"):
        mixed([(torch.ones(1, 3), torch.tensor([0]))])


def images(n=40, size=16, channels=3, dtype=torch.float32):
    x = torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(0))
    return (x * 50 + 128).clamp(0, 255).to(dtype) if dtype == torch.uint8 else x.to(dtype)


def drawn(x):
    return sample_for("mix", [(x, torch.arange(len(x)))])


def test_mirror_of_a_mirror():
    rows = drawn(images())
    once = torch.cat([x for x, _ in Changed(rows, View(mirror=True))])
    assert torch.equal(once.flip(-1), rows.inputs[0])
    again = Changed(rows._replace(inputs={0: once}), View(mirror=True))
    assert torch.equal(torch.cat([x for x, _ in again]), rows.inputs[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("size", [8, 32, 33])
def test_a_shift_moves_every_image_a_little(dtype, size):
    """Shape, dtype and label stay; the inside of each image is found again, moved."""
    x = images(60, size, dtype=dtype)
    steps = torch.rand(60, 2, generator=torch.Generator().manual_seed(1))
    moved = shifted(x, steps)
    reach = max(1, round(size / 16))
    assert moved.shape == x.shape
    assert moved.dtype == dtype
    for one, other in zip(x, moved, strict=True):
        found = []
        for down in range(-reach, reach + 1):
            for right in range(-reach, reach + 1):
                back = torch.roll(other, (down, right), (1, 2))
                inside = (slice(None), slice(reach, -reach), slice(reach, -reach))
                if torch.equal(back[inside], one[inside]):
                    found.append((down, right))
        assert found
        assert (0, 0) not in found
    for batch, y in Changed(drawn(x), View(shift=True)):
        assert batch.shape[1:] == x.shape[1:]
        assert len(batch) == len(y)


def test_the_edge_is_repeated():
    x = torch.arange(8.0).expand(1, 1, 8, 8).contiguous()
    moved = shifted(x, torch.tensor([[0.5, 0.99]]))  # one to the left
    assert moved[0, 0, 3].tolist() == [1, 2, 3, 4, 5, 6, 7, 7]


def test_swapped_numbers_come_from_one_other_row():
    x = torch.arange(4000.0).view(100, 40)
    rows = drawn(x)
    seen = torch.cat([batch for batch, _ in Changed(rows, View(swap=0.2))])
    own = seen == rows.inputs[0]
    assert float(own.double().mean()) == pytest.approx(0.8, abs=0.03)  # five standard deviations
    other = rows.inputs[0].roll(1, 0)
    assert torch.equal(seen[~own], other[~own])


@pytest.mark.parametrize("view", [view for family in FAMILIES.values() for view in family.all])
def test_every_pass_gives_the_same_bits(view):
    """And every mirrored or mixed row has the label of the row it came from."""
    rows = drawn(images())
    first, second = list(Changed(rows, view, 3)), list(Changed(rows, view, 3))
    for (a, label), (b, again) in zip(first, second, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(label, again)
    assert torch.equal(torch.cat([y for _, y in first]), rows.y)


def test_kinds_of_input():
    assert is_image(images(2, 8, 1))
    assert is_image(images(2, 8, 4, torch.uint8))
    for x in (images(2, 7), images(2, 8, 2), torch.zeros(2, 3, 8, 8, dtype=torch.long)):
        assert not is_image(x)
    assert family_of(None, {0: images(2)}).name == "mirror"
    assert family_of(None, {0: torch.zeros(2, 30)}).name == "swap"
    assert family_of("shift", {0: images(2)}) is FAMILIES["shift"]
    with pytest.raises(ValueError, match="is for images"):
        family_of("mirror", {0: torch.zeros(2, 30)})
    with pytest.raises(ValueError, match="pass one of 'mirror', 'shift', 'mix', 'swap'"):
        check_views("flip")
    assert not any(view.mirror for view in FAMILIES["shift"].all)


def test_a_function_of_ones_own():
    """It is used, sees a seeded generator, and leaves torch's own as it was."""
    rows = drawn(images())

    def noisy(x):
        return x + torch.randn(x.shape)

    view = family_of(noisy, rows.inputs).candidates[0]
    assert view.name == "noisy + mix 0.7"
    before = torch.get_rng_state()
    first, second = (torch.cat([x for x, _ in Changed(rows, view)]) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    plain = torch.cat([x for x, _ in Changed(rows, View(share=0.7))])
    assert float((first - plain).std()) == pytest.approx((0.49 + 0.09) ** 0.5, rel=0.05)
    tokens = sample_for(noisy, [(torch.zeros(4, 5, dtype=torch.long), torch.arange(4))])
    assert family_of(lambda x: x, tokens.inputs).candidates[0].share == 1


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (lambda x: None, "returned a NoneType; expected a tensor of shape"),
        (lambda x: x[:-1], r"returned shape \(39, 3, 16, 16\)"),
        (lambda x: x.double(), "torch.float64; expected a tensor"),
        (lambda x: x / 0, "not finite"),
    ],
)
def test_bad_outputs_of_ones_own(own, message):
    with pytest.raises(ValueError, match=message):
        list(Changed(drawn(images()), View(own=own)))


def test_several_inputs_of_ones_own():
    """A mapping is given as one, and so is a tuple."""
    loader = [{"a": torch.ones(4, 2), "b": torch.zeros(4, dtype=torch.long), "y": torch.arange(4)}]
    rows = sample_for("mix", loader)
    (batch,) = Changed(rows, View(own=lambda x: {**x, "a": 2 * x["a"]}))
    assert bool((batch["a"] == 2).all())
    rows = sample_for("mix", [(torch.ones(4, 2), torch.ones(4, 3), torch.arange(4))])
    (batch,) = Changed(rows, View(own=lambda x: (x[0], 3 * x[1])))
    assert bool((batch[1] == 3).all())
    with pytest.raises(ValueError, match="expected 2 inputs as it was given"):
        list(Changed(rows, View(own=lambda x: x[0])))
