"""Recipe: how stage I trains. The defaults are the paper's protocol on CIFAR, which is that of the
focal-calibration code base.

That protocol steps on the *sum* of the losses of a batch and cuts the gradient to norm 2. While the
data are not yet fitted a step is thus one of fixed length; once they are, the rate is 128 times
that of a mean loss and weight decay relatively 128 times weaker. `reduction="mean"`, `clip=0` is
plain SGD, which regularises more: a different protocol, with smaller errors."""

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from math import cos, pi
from typing import Any, Literal

import torch

Precision = Literal["auto", "bf16", "fp32"]


@dataclass(frozen=True)
class Recipe:
    """Epochs, steps and images of stage I."""

    epochs: int = 350
    batch_size: int = 128
    lr: float = 0.1
    schedule: Literal["steps", "cosine"] = "steps"  # cosine falls to zero; for short training
    # shares of the epochs after which the rate falls tenfold
    drops: tuple[float, ...] = (150 / 350, 250 / 350)
    momentum: float = 0.9
    weight_decay: float = 5e-4  # on every parameter, BatchNorm and biases too
    reduction: Literal["sum", "mean"] = "sum"
    clip: float = 2.0  # largest norm of the whole gradient; 0 is no limit
    padding: int = 4  # of the random crop, in pixels
    flip: bool = True  # mirror images, half of the time
    precision: Precision = "auto"  # bf16 autocast where the processor has bf16 arithmetic
    watch: int = 1  # epochs between looks at the held-out images; the last epoch always has one
    compile: bool = False  # torch.compile: worth it for long training

    def __post_init__(self) -> None:
        least = {
            "epochs": 1,
            "batch_size": 2,
            "lr": 0,
            "momentum": 0,
            "weight_decay": 0,
            "padding": 0,
            "clip": 0,
            "watch": 1,
        }
        for name, low in least.items():
            if not low <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; pass a number from {low} up")
        if any(not 0 < share <= 1 for share in self.drops) or list(self.drops) != sorted(
            self.drops
        ):
            raise ValueError(
                f"drops is {self.drops}; pass rising shares of the epochs, such as 0.5 0.75"
            )

    def lr_at(self, epoch: int, step: int = 0, steps: int = 1) -> float:
        """The rate before a step of an epoch, both counted from 0.

        >>> [Recipe().lr_at(epoch) for epoch in (0, 149, 150, 250)] == [0.1, 0.1, 0.1 * 0.1, 0.1 * 0.1**2]
        True
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


def has_bf16(device: torch.device) -> bool:
    """Whether bf16 is faster than float32 there, and runs."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = capabilities()
    if known.get("amx_bf16"):
        return bf16_runs()
    return bool(known.get("avx512_bf16") or known.get("bf16"))


def capabilities() -> dict[str, Any]:
    """What the processor announces; older versions of torch do not tell."""
    return getattr(torch.cpu, "get_capabilities", dict)()


PROBE = """
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Conv2d(16, 32, 3), torch.nn.Flatten(), torch.nn.Linear(1152, 64))
with torch.autocast("cpu", torch.bfloat16):
    loss = model(torch.ones(32, 16, 8, 8)).float().sum()
loss.backward()
"""


@cache
def bf16_runs() -> bool:
    """Whether a layer in bf16 survives here.

    Some virtual machines announce AMX and then refuse its instructions, which kills the process;
    so it is tried in another one, once. That takes about two seconds.
    """
    tried = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False)
    return tried.returncode == 0
