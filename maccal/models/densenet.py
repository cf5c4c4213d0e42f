"""Densely connected networks with bottleneck layers and compression 0.5, for 32 x 32 images."""

import torch
from torch import Tensor, nn

from maccal.models.convolution import Conv
from maccal.models.net import Net


class Dense(nn.Module):
    """BN-ReLU-1x1-BN-ReLU-3x3; the new channels are put before the old ones."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.new = nn.Sequential(
            nn.BatchNorm2d(width),
            nn.ReLU(),
            Conv(width, 4 * growth, 1),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            Conv(4 * growth, growth, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.new(x), x], 1)


def densenet(blocks: tuple[int, ...], growth: int, classes: int) -> Net:
    """Blocks of so many dense layers, each of which adds `growth` channels."""
    width = 2 * growth
    layers: list[nn.Module] = [Conv(3, width, 3)]
    for block, count in enumerate(blocks):
        if block > 0:
            layers += transition(width)
            width //= 2
        layers += [Dense(width + i * growth, growth) for i in range(count)]
        width += count * growth
    layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return Net(nn.Sequential(*layers), width, classes)


def transition(width: int) -> list[nn.Module]:
    """Half the channels and half the image, between two blocks."""
    return [
        nn.BatchNorm2d(width),
        nn.ReLU(),
        Conv(width, width // 2, 1),
        nn.AvgPool2d(2),
    ]
