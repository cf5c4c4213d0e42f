"""From bytes to what a network sees."""

import torch

from maccal.data import DATASETS, load
from maccal.data.pixels import PIXELS, Pixels


def test_by_hand():
    pixels = Pixels((0.5, 0.0, 0.25), (0.5, 1.0, 0.25))
    x = pixels(torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 3, 1, 1))
    torch.testing.assert_close(x.flatten(), torch.tensor([-1.0, 1.0, (0.2 - 0.25) / 0.25]))


def test_layout_and_grey():
    images = torch.arange(2 * 16, dtype=torch.uint8).view(2, 1, 4, 4)
    x = PIXELS["digits"](images)
    assert x.shape == (2, 3, 4, 4)
    assert x.dtype == torch.float32
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(x[:, 0], x[:, 2])
    coloured = torch.randint(256, (2, 3, 4, 4), dtype=torch.uint8)
    assert PIXELS["cifar10"](coloured).is_contiguous(memory_format=torch.channels_last)


def test_training_and_test_images_are_seen_alike():
    """The published code normalises CIFAR-100's test images otherwise than its training images.

    One constant a set cannot.
    """
    assert set(PIXELS) == {name for name in DATASETS if not name.endswith("-c")}


def test_digits_are_centred():
    x = PIXELS["digits"](load("digits").train.images)
    assert abs(float(x.mean())) < 0.01
    assert abs(float(x.std()) - 1) < 0.01
