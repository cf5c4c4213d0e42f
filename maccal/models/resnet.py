"""Residual networks: He's basic ones for CIFAR, bottlenecks with a CIFAR stem, and wide ones."""

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn

from maccal.models.convolution import Conv
from maccal.models.net import Net, scale_init


def projection(width_in: int, width: int, stride: int) -> nn.Sequential:
    """A shortcut with parameters."""
    return nn.Sequential(Conv(width_in, width, 1, stride), nn.BatchNorm2d(width))


def body(width: int, stages: list[nn.Module], pool: int = 1, stride: int = 1) -> nn.Sequential:
    """A 3 x 3 stem, the stages, and an average over the image."""
    layers = OrderedDict[str, nn.Module]()
    layers["conv1"] = Conv(3, width, 3, stride)
    layers["bn1"] = nn.BatchNorm2d(width)
    layers["relu"] = nn.ReLU()
    for number, stage in enumerate(stages, 1):
        layers[f"layer{number}"] = stage
    layers["pool"] = nn.AdaptiveAvgPool2d(pool)
    layers["flatten"] = nn.Flatten()
    return nn.Sequential(layers)


class Basic(nn.Module):
    """Two 3 x 3 convolutions.

    Where the shape changes, the shortcut is a 1 x 1 convolution if `project`; else it takes every
    second pixel and pads the channels with zeros.
    """

    def __init__(self, width_in: int, width: int, stride: int, project: bool) -> None:
        super().__init__()
        self.stride = stride
        self.pad = (width - width_in) // 2
        self.conv1 = Conv(width_in, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = Conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut: nn.Module | None = None
        if project and (stride > 1 or width != width_in):
            self.shortcut = projection(width_in, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.shortcut is not None:
            return F.relu(y + self.shortcut(x))
        thinned = x[:, :, :: self.stride, :: self.stride]
        return F.relu(y + F.pad(thinned, (0, 0, 0, 0, self.pad, self.pad)))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1 to four times the width.

    The shortcut is a 1 x 1 convolution where the shape changes.
    """

    def __init__(self, width_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Conv(width_in, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = Conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = Conv(width, 4 * width, 1)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.shortcut = nn.Sequential()
        if stride > 1 or width_in != 4 * width:
            self.shortcut = projection(width_in, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


def basic_stages(widths: list[int], blocks: int, project: bool) -> list[nn.Module]:
    """Stages of basic blocks; each but the first halves the image.

    `widths` are those of the stem and of every stage.
    """
    stages: list[nn.Module] = []
    before, *rest = widths
    for width in rest:
        stride = 2 if stages else 1
        first = Basic(before, width, stride, project)
        others = [Basic(width, width, 1, project) for _ in range(blocks - 1)]
        stages.append(nn.Sequential(first, *others))
        before = width
    return stages


def basic_resnet(depth: int, classes: int) -> Net:
    """He's 6n + 2 layers, widths 16-32-64, shortcuts without parameters."""
    stages = basic_stages([16, 16, 32, 64], (depth - 2) // 6, project=False)
    net = Net(body(16, stages), 64, classes)
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    return net


def wide_resnet(blocks: int, factor: int, classes: int) -> Net:
    """Three stages of basic blocks, activation after the sum, `factor` times as wide as He's."""
    widths = [16, 16 * factor, 32 * factor, 64 * factor]
    net = Net(body(16, basic_stages(widths, blocks, project=True)), widths[-1], classes)
    scale_init(net)
    return net


def quick_resnet(classes: int) -> Net:
    """Ten layers for CPUs: a stem that halves the image, four basic blocks of widths 16 to 256.

    Most weights are where the image is small, so that few and cheap epochs fit the training images.
    """
    stages = basic_stages([16, 16, 64, 128, 256], 1, project=True)
    net = Net(body(16, stages, stride=2), 256, classes)
    scale_init(net)
    return net


def bottleneck_resnet(
    blocks: tuple[int, ...], classes: int, pool: int = 1, scaled: bool = False
) -> Net:
    """ResNet-50 and its relatives with a 3 x 3 stem.

    `pool` 2 keeps the averages of four quarters of the image, for 64 x 64 images.
    """
    stages: list[nn.Module] = []
    before = 64
    for count, width, stride in zip(blocks, (64, 128, 256, 512), (1, 2, 2, 2), strict=True):
        first = Bottleneck(before, width, stride)
        others = [Bottleneck(4 * width, width, 1) for _ in range(count - 1)]
        stages.append(nn.Sequential(first, *others))
        before = 4 * width
    net = Net(body(64, stages, pool), before * pool**2, classes)
    if scaled:
        scale_init(net)
    return net
