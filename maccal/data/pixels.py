"""From bytes to what a network sees.

Three channels, each with its mean taken away and divided by its spread.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

Three = tuple[float, float, float]


@dataclass(frozen=True)
class Pixels:
    """Mean and standard deviation of the channels, for values from 0 to 1."""

    mean: Three
    std: Three

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 N x C x H x W as float32 N x 3 x H x W in channels_last.

        One channel is shown three times.
        """
        mean, std = (
            torch.tensor(values, device=images.device)[:, None, None]
            for values in (self.mean, self.std)
        )
        x = images.expand(-1, 3, -1, -1).float() if images.shape[1] == 1 else images.float()
        return torch.addcmul(-mean / std, x, 1 / (255 * std)).contiguous(
            memory_format=torch.channels_last
        )


CIFAR = Pixels((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
IMAGENET = Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
DIGITS = Pixels((0.305,) * 3, (0.376,) * 3)

# CIFAR-100 with the constants of CIFAR-10, for training and for test: the published code tests with
# another pair than it trains
PIXELS = {
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "svhn": CIFAR,
    "tiny-imagenet": IMAGENET,
    "digits": DIGITS,
}
