"""Net: a body that makes features of images, and a linear head that makes logits of features."""

from torch import Tensor, nn


class Net(nn.Module):
    """Images N x 3 x H x W in, logits N x K out; `features` stops before the head."""

    def __init__(self, body: nn.Module, num_features: int, classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(num_features, classes)
        self.num_features = num_features

    def features(self, x: Tensor) -> Tensor:
        z: Tensor = self.body(x)
        return z

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


def scale_init(network: nn.Module) -> None:
    """Draw convolutions from N(0, 2 / (k^2 out)), as the code of the wide networks does.

    BatchNorm stays at torch's 1 and 0.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            height, width = module.kernel_size
            variance = 2 / (height * width * module.out_channels)
            nn.init.normal_(module.weight, 0, variance**0.5)
