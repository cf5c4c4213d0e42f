"""Mixed rows: the arithmetic, the sample, and what cannot be mixed."""

import pytest
import torch

from maccal.features.views import CannotMix, mixed, sample


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
    monkeypatch.setattr("maccal.features.views.BYTES", 48 * 10)
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
