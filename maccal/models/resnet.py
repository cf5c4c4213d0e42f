"""Residual networks: He's basic ones for CIFAR, bottleneck ones with a CIFAR stem, and wide ones."""

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

from maccal.models.net import Net, scale_init


def conv(width_in: int, width: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(width_in, width, size, stride, size // 2, bias=False)


def body(width: int, stages: list[nn.Module], pool: int = 1, stride: int = 1) -> nn.Sequential:
    """A 3 x 3 stem, the stages, and an average over the image."""
    layers = OrderedDict[str, nn.Module](
        conv1=conv(3, width, 3, stride), bn1=nn.BatchNorm2d(width), relu=nn.ReLU()
    )
    layers.update({f"layer{i}": stage for i, stage in enumerate(stages, 1)})
    return nn.Sequential(
        OrderedDict(**layers, pool=nn.AdaptiveAvgPool2d(pool), flatten=nn.Flatten())
    )


class Basic(nn.Module):
    """Two 3 x 3 convolutions.

    The shortcut takes every second pixel and pads the channels, or is a 1 x 1 convolution.
    """

    def __init__(self, width_in: int, width: int, stride: int, project: bool) -> None:
        super().__init__()
        self.stride, self.pad = stride, (width - width_in) // 2
        self.conv1, self.bn1 = conv(width_in, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        if project and (stride > 1 or width != width_in):
            self.shortcut: nn.Module | None = nn.Sequential(
                conv(width_in, width, 1, stride), nn.BatchNorm2d(width)
            )
        else:
            self.shortcut = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.shortcut is not None:
            return F.relu(y + self.shortcut(x))
        return F.relu(
            y + F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad))
        )


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1 to four times the width.

    The shortcut is a 1 x 1 convolution where the shape changes.
    """

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(width_in, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        same = stride == 1 and width_in == 4 * width
        self.shortcut = (
            nn.Sequential()
            if same
            else nn.Sequential(conv(width_in, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


def basic_stages(widths: list[int], blocks: int, project: bool) -> list[nn.Module]:
    """Stages of basic blocks; each but the first halves the image."""
    return [
        nn.Sequential(
            *(
                Basic(before if i == 0 else width, width, stride if i == 0 else 1, project)
                for i in range(blocks)
            )
        )
        for before, width, stride in zip(
            widths, widths[1:], [1] + [2] * (len(widths) - 2), strict=False
        )
    ]


def basic_resnet(depth: int, classes: int) -> Net:
    """He's 6n + 2 layers, widths 16-32-64, shortcuts without parameters."""
    net = Net(
        body(16, basic_stages([16, 16, 32, 64], (depth - 2) // 6, project=False)), 64, classes
    )
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    return net


def wide_resnet(blocks: int, factor: int, classes: int) -> Net:
    """Three stages of basic blocks, activation after the sum, widths 16, 32 and 64 times the
    factor.
    """
    widths = [16, *(factor * width for width in (16, 32, 64))]
    net = Net(body(16, basic_stages(widths, blocks, project=True)), widths[-1], classes)
    scale_init(net)
    return net


def quick_resnet(classes: int) -> Net:
    """Ten layers for processors: the stem halves the image, then four basic blocks of widths 16,
    64, 128 and 256.

    Most weights are where the image is small, so that it fits its images in few epochs of little
    work."""
    net = Net(
        body(16, basic_stages([16, 16, 64, 128, 256], 1, project=True), stride=2), 256, classes
    )
    scale_init(net)
    return net


def bottleneck_resnet(
    blocks: tuple[int, ...], classes: int, pool: int = 1, scaled: bool = False
) -> Net:
    """ResNet-50 and its kin with a 3 x 3 stem.

    Pool 2 keeps four places of the image, for 64 x 64 images.
    """
    stages, before = list[nn.Module](), 64
    for count, width, stride in zip(blocks, (64, 128, 256, 512), (1, 2, 2, 2), strict=True):
        stages.append(
            nn.Sequential(
                *(
                    Bottleneck(before if i == 0 else 4 * width, width, stride if i == 0 else 1)
                    for i in range(count)
                )
            )
        )
        before = 4 * width
    net = Net(body(64, stages, pool), before * pool**2, classes)
    if scaled:
        scale_init(net)
    return net
