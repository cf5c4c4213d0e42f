"""From bytes to what a network sees: three channels, each centred and divided by its spread."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

Three = tuple[float, float, float]


@dataclass(frozen=True)
class Pixels:
    """Mean and standard deviation of the channels, for values from 0 to 1."""

    mean: Three
    std: Three
    mirrors: bool = True  # whether a mirrored image is still of its class; digits and text are not

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 N x C x H x W as float32 N x 3 x H x W in channels_last.

        A single channel is repeated three times.
        """
        mean = torch.tensor(self.mean, device=images.device)[:, None, None]
        std = torch.tensor(self.std, device=images.device)[:, None, None]
        coloured = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images
        # (x / 255 - mean) / std in one pass
        scaled = torch.addcmul(-mean / std, coloured.float(), 1 / (255 * std))
        return scaled.contiguous(memory_format=torch.channels_last)


CIFAR = Pixels((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
IMAGENET = Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
DIGITS = Pixels((0.305,) * 3, (0.376,) * 3, mirrors=False)

# CIFAR-100 has the constants of CIFAR-10, for training and for test. The published code tests with
# other constants than it trains with.
PIXELS = {
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "svhn": replace(CIFAR, mirrors=False),
    "tiny-imagenet": IMAGENET,
    "digits": DIGITS,
}
