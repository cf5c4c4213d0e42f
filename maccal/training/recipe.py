"""Recipe: how stage I trains. The defaults are the paper's protocol on CIFAR, which is that of the
focal-calibration code base.

That protocol steps on the *sum* of a batch's losses and cuts the gradient to norm 2. As long as the
images are not yet learnt, every step therefore has the same length. Once they are, the gradient is
short enough not to be cut: then the learning rate is 128 times that of a mean loss, and weight
decay is 128 times weaker beside it. `reduction="mean", clip=0` is plain SGD, which regularises
more: a different protocol, with smaller calibration errors.
"""

from dataclasses import dataclass
from math import cos, inf, pi
from typing import Literal

Precision = Literal["auto", "bf16", "fp32"]
LEAST = {
    "epochs": 1,
    "batch_size": 2,
    "lr": 0,
    "momentum": 0,
    "weight_decay": 0,
    "padding": 0,
    "clip": 0,
    "watch": 1,
}


@dataclass(frozen=True)
class Recipe:
    """How a network is trained in stage I: epochs, steps and images."""

    epochs: int = 350  # passes over the training images
    batch_size: int = 128  # images per step
    lr: float = 0.1  # learning rate at the start
    schedule: Literal["steps", "cosine"] = "steps"  # cosine falls to zero; for short training
    # shares of the epochs after which the rate falls tenfold
    drops: tuple[float, ...] = (150 / 350, 250 / 350)
    # share of the last step that goes on in the next
    momentum: float = 0.9
    weight_decay: float = 5e-4  # on every parameter, BatchNorm and biases too
    reduction: Literal["sum", "mean"] = "sum"  # of the losses of a batch; the paper: their sum
    clip: float = 2.0  # largest norm of the whole gradient; 0 is no limit
    padding: int = 4  # of the random crop, in pixels
    flip: bool = True  # mirror images, half of the time
    precision: Precision = "auto"  # bf16 autocast where the processor has bf16 arithmetic
    watch: int = 1  # epochs between looks at the held-out images; the last epoch always has one
    compile: bool = False  # torch.compile: worth it for long training

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if not least <= value < inf:
                raise ValueError(f"{name} is {value}; pass a number from {least} up")
        in_range = all(0 < share <= 1 for share in self.drops)
        if not in_range or list(self.drops) != sorted(self.drops):
            raise ValueError(
                f"drops is {self.drops}; pass rising shares of the epochs, such as 0.5 0.75"
            )

    def lr_at(self, epoch: int, step: int = 0, steps: int = 1) -> float:
        """The learning rate before a step of an epoch, both counted from 0.

        >>> [round(Recipe().lr_at(epoch), 6) for epoch in (0, 149, 150, 250)]
        [0.1, 0.1, 0.01, 0.001]
        """
        if self.schedule == "cosine":
            return self.lr * (1 + cos(pi * (epoch + step / steps) / self.epochs)) / 2
        return self.lr * 0.1 ** sum(epoch >= round(share * self.epochs) for share in self.drops)


RECIPES = {
    "cifar10": Recipe(),
    "cifar100": Recipe(),
    "tiny-imagenet": Recipe(epochs=100, drops=(0.4, 0.6)),
    "svhn": Recipe(flip=False),
    "digits": Recipe(epochs=20, padding=1, flip=False),
}
