"""Augmentation: every image is one of its possible crops, all equally likely.

Mixup's arithmetic and its shares.
"""

import pytest
import torch
import torch.nn.functional as F

from maccal.data.augment import crop_and_flip, mixup


def test_each_image_is_one_of_its_crops():
    """Against the obvious.

    All 9 x 9 x 2 crops of each image, and each of them about as often as any other.
    """
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(1, 256, (1, 3, 8, 6), generator=generator, dtype=torch.uint8)
    padded = F.pad(image[0], [4] * 4)
    crops = [
        c
        for i in range(9)
        for j in range(9)
        for c in (padded[:, i : i + 8, j : j + 6], padded[:, i : i + 8, j : j + 6].flip(2))
    ]
    table = torch.stack(crops).flatten(1).float()
    made = crop_and_flip(image.expand(8100, -1, -1, -1), generator)
    assert made.dtype == torch.uint8
    distance = torch.cdist(made.flatten(1).float(), table)
    nearest = distance.argmin(1)
    assert torch.equal(table[nearest], made.flatten(1).float())
    counts = torch.bincount(nearest, minlength=162)
    assert int(counts.min()) > 15  # 50 expected, standard deviation 7
    assert int(counts.max()) < 85


def test_images_move_independently_and_seeds_repeat():
    images = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8).expand(50, -1, -1, -1)
    first, again = (crop_and_flip(images, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert len(first.unique(dim=0)) > 30
    assert torch.equal(
        crop_and_flip(images, torch.Generator().manual_seed(3), padding=0).sort(3).values, images
    )


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_mixup(alpha):
    """The rows are what the share says; shares are Beta(alpha, alpha).

    Mean 1/2, variance 1 / (4 (2 alpha + 1)).
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10, 3, generator=generator)
    mixed, partner, share = mixup(x, alpha, generator)
    assert torch.allclose(mixed, share * x + (1 - share) * x[partner])
    assert sorted(partner.tolist()) == list(range(10))
    shares = torch.tensor([mixup(x, alpha, generator)[2] for _ in range(4000)])
    assert float(shares.mean()) == pytest.approx(0.5, abs=0.03)
    assert float(shares.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


def test_no_mixup():
    x = torch.randn(4, 2)
    mixed, _, share = mixup(x, 0.0, torch.Generator().manual_seed(0))
    assert share == 1.0
    assert torch.equal(mixed, x)
