"""The heads of TST and V-TST (Jordahn & Olmos 2024), and their choices.

    TST      Linear(d -> 3Z), ReLU, Linear(3Z -> Z), Linear(Z -> K); cross-entropy
    V-TST    the first two layers twice, for mu and, through log-sigmoid, log sigma^2;
             z = mu + sigma eps, eps ~ N(0, 1)
             loss = CE(decoder(z)) + (1 / Z) KL(N(mu, sigma^2), N(0, 1)), both means over the rows

build_head makes an untrained head; load_state_dict makes it the trained one. two_stage.py trains.
"""

from dataclasses import dataclass, fields, replace
from functools import reduce
from math import log
from numbers import Integral
from typing import Any, Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.methods.losses import cross_entropy, standard_normal_kl
from maccal.training import History


@dataclass(frozen=True)
class TwoStage:
    """How the new head trains.

    The defaults are its authors', but for the features, which are cached: batchnorm="train" is
    theirs to the letter. `TwoStage.as_in_maccal()` is what the MaC-Cal paper says of it.
    """

    variational: bool = False  # V-TST
    # Z; 128 is the default of the authors' classes, 10 of their command line, 256 their example
    width: int = 128
    epochs: int = 40
    batch_size: int = 256
    optimiser: Literal["sgd", "adam"] = "adam"
    lr: float = 1e-4  # constant
    momentum: float = 0.9  # of SGD
    weight_decay: float = 0.0
    clip: float = 0.0  # largest norm of the whole gradient; 0 is no limit
    samples: int = 10  # passes that V-TST averages at evaluation; 1 is a single random one
    # mode of the frozen body's BatchNorm; the published code runs the body in every step, in train
    batchnorm: Literal["eval", "train"] = "eval"
    # which epoch is kept: the best on held-out rows, as the authors do, or the last; always the
    # last where nothing is held out
    select: Literal["val-nll", "last"] = "val-nll"

    def __post_init__(self) -> None:
        for field in fields(self):
            allowed = get_args(field.type)
            value = getattr(self, field.name)
            if allowed and value not in allowed:
                words = ", ".join(allowed)
                raise ValueError(f"TwoStage: {field.name} is {value!r}; choose one of {words}")
        for name in ("width", "epochs", "batch_size", "samples"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"TwoStage: {name} is {value}; pass a whole number from 1 up")
        for name in ("lr", "momentum", "weight_decay", "clip"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"TwoStage: {name} is {value}; pass a number from 0 up")

    @classmethod
    def as_in_maccal(cls, **changes: Any) -> "TwoStage":
        """What the MaC-Cal paper says of it: SGD at a constant 0.1; the rest as in its stage I."""
        sentence = cls(optimiser="sgd", lr=0.1, batch_size=128, weight_decay=5e-4, clip=2.0)
        return replace(sentence, **changes)


DEFAULT = TwoStage()


class TSTHead(nn.Module):
    """Features N x D in, logits N x K out.

    The last two layers have no ReLU between them, so together they are one linear map.
    """

    def __init__(self, features: int, classes: int, width: int = 128) -> None:
        super().__init__()
        self.encoder = encoder(features, width)
        self.decoder = nn.Linear(width, classes)
        self.history = History()

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.decoder(self.encoder(z))
        return logits

    def loss(
        self, z: Tensor, y: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """The mean loss and the logits; nothing is random."""
        logits = self(z)
        return cross_entropy(logits, y), logits


class VTSTHead(nn.Module):
    """Features N x D in, logits N x K out, through a random z per row.

    In train mode the logits are those of one draw of z. In eval mode softmax(logits) is the mean of
    the probabilities over `samples` draws of eps. These are made once, with the weights, kept in
    state_dict and shared by all rows: each row's mean is a fair estimate, and depends neither on
    the batch that the row comes in nor on how often it is asked for. But the errors of the rows are
    alike, and do not average out over them.
    """

    eps: Tensor

    def __init__(self, features: int, classes: int, width: int = 128, samples: int = 10) -> None:
        super().__init__()
        self.mean = encoder(features, width)
        self.variance = encoder(features, width)
        self.decoder = nn.Linear(width, classes)
        self.register_buffer("eps", torch.randn(samples, width))
        self.history = History()

    def latent(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """mu and log sigma^2, both N x Z; sigma^2 lies between 0 and 1."""
        return self.mean(z), F.logsigmoid(self.variance(z))

    def decode(self, mean: Tensor, log_variance: Tensor, eps: Tensor) -> Tensor:
        """The logits of z = mu + sigma eps."""
        logits: Tensor = self.decoder(mean + (log_variance / 2).exp() * eps)
        return logits

    def forward(self, z: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The generator, by default torch's global one, is for train mode only."""
        mean, log_variance = self.latent(z)
        if self.training:
            return self.decode(mean, log_variance, noise(mean, generator))
        log_p = (self.decode(mean, log_variance, eps).log_softmax(-1) for eps in self.eps)
        return reduce(torch.logaddexp, log_p) - log(len(self.eps))

    def loss(
        self, z: Tensor, y: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """The mean loss and the logits of one random z per row."""
        mean, log_variance = self.latent(z)
        logits = self.decode(mean, log_variance, noise(mean, generator))
        return cross_entropy(logits, y) + standard_normal_kl(mean, log_variance), logits


Head: TypeAlias = TSTHead | VTSTHead


def encoder(features: int, width: int) -> nn.Sequential:
    """The first two layers: features to Z numbers, through 3Z."""
    return nn.Sequential(nn.Linear(features, 3 * width), nn.ReLU(), nn.Linear(3 * width, width))


def noise(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers, drawn where the generator is."""
    device = generator.device if generator is not None else like.device
    drawn = torch.randn(like.shape, generator=generator, dtype=like.dtype, device=device)
    return drawn.to(like.device)


def build_head(config: TwoStage, features: int, classes: int, seed: int = 1) -> Head:
    """An untrained head, drawn with the seed; torch's global generator stays as it was.

    >>> build_head(TwoStage(width=4), features=3, classes=2)(torch.zeros(5, 3)).shape
    torch.Size([5, 2])
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed GPUs too, which are not put back here
        torch.default_generator.manual_seed(seed)
        if config.variational:
            return VTSTHead(features, classes, config.width, config.samples)
        return TSTHead(features, classes, config.width)
