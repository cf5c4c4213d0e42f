"""Two-stage training: TST and V-TST (Jordahn & Olmos 2024), a new and deeper head on the features
of a trained network.

    TST      Linear(d -> 3Z), ReLU, Linear(3Z -> Z), Linear(Z -> K); cross-entropy
    V-TST    the first two layers twice, for mu and, through log-sigmoid, log sigma^2; z = mu + sigma eps, eps ~ N(0, 1)
             loss = CE(decoder(z)) + (1 / Z) KL(N(mu, sigma^2), N(0, 1)), both means over the rows

two_stage_head    on features as they are cached, the body in eval mode: our default
two_stage_live    the body runs in every step, in train mode on augmented images, as in the published code
build_head        an untrained head of the same shape: load_state_dict makes it the trained one

Cost: N = 50,000, D = 64, K = 10, 40 epochs, one core: about half a minute for TST, three quarters
for V-TST.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import partial, reduce
from math import isfinite, log
from numbers import Integral
from typing import Any, Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from rich.progress import track
from torch import Tensor, nn

from maccal.calibration.mac_cal import check_classes, judges
from maccal.data.augment import crop_and_flip
from maccal.data.pixels import Pixels
from maccal.data.split import Split
from maccal.features.extraction import check_range
from maccal.features.table import FeatureTable, Standard, Standardised
from maccal.methods.losses import cross_entropy, standard_normal_kl
from maccal.metrics.inputs import Array
from maccal.models import Net
from maccal.training.steps import Diverged, History, batch_ranges

Batches: TypeAlias = Iterator[tuple[Tensor, Tensor]]  # of features and labels


@dataclass(frozen=True)
class TwoStage:
    """How the new head trains.

    The defaults are what the MaC-Cal paper says of it, `TwoStage.authors()` what its authors do.
    """

    variational: bool = False  # V-TST
    width: int = 128  # Z; the paper does not state it, this is the default of the authors' classes
    epochs: int = 40
    batch_size: int = 128
    optimiser: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.1  # constant
    momentum: float = 0.9  # of SGD
    weight_decay: float = 5e-4
    clip: float = 2.0  # largest norm of the whole gradient; 0 is no limit
    samples: int = 10  # passes that V-TST averages at evaluation; 1 is a single random one
    # of the frozen body; train is the published code's, which runs it in every step
    batchnorm: Literal["eval", "train"] = "eval"
    # the epoch that is kept, as the authors do; the last where nothing is held out
    select: Literal["val-nll", "last"] = "val-nll"

    def __post_init__(self) -> None:
        for field in fields(self):
            allowed, value = get_args(field.type), getattr(self, field.name)
            if allowed and value not in allowed:
                raise ValueError(
                    f"TwoStage: {field.name} is {value!r}; choose one of {', '.join(allowed)}"
                )
        for name in ("width", "epochs", "batch_size", "samples"):
            if not isinstance(getattr(self, name), Integral) or getattr(self, name) < 1:
                raise ValueError(
                    f"TwoStage: {name} is {getattr(self, name)}; pass a whole number from 1 up"
                )
        for name in ("lr", "momentum", "weight_decay", "clip"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(
                    f"TwoStage: {name} is {getattr(self, name)}; pass a number from 0 up"
                )

    @classmethod
    def authors(cls, **changes: Any) -> "TwoStage":
        """The published code: Adam at 1e-4, batches of 256, no weight decay and no clipping."""
        return replace(
            cls(optimiser="adam", lr=1e-4, batch_size=256, weight_decay=0.0, clip=0.0), **changes
        )


DEFAULT = TwoStage()


class TSTHead(nn.Module):
    """Features N x D in, logits N x K out. The last two layers have no ReLU between them.

    Together they are one linear map.
    """

    def __init__(self, features: int, classes: int, width: int = 128) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder(features, width), nn.Linear(width, classes)
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
    """Features N x D in, logits N x K out: in train mode of one random z a row, in eval mode of the
    mean of many.

    In eval mode softmax(logits) is the mean of the probabilities over `samples` draws of eps. These
    are made once, with the weights, kept in state_dict and shared by all rows: each row's mean is a
    fair estimate, and does not depend on the batch that the row comes in or on how often it is
    asked for. But the errors of the rows are alike, and do not average out over them."""

    eps: Tensor

    def __init__(self, features: int, classes: int, width: int = 128, samples: int = 10) -> None:
        super().__init__()
        self.mean, self.variance = encoder(features, width), encoder(features, width)
        self.decoder = nn.Linear(width, classes)
        self.register_buffer("eps", torch.randn(samples, width))
        self.history = History()

    def latent(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """mu and log sigma^2, both N x Z; sigma^2 lies between 0 and 1."""
        return self.mean(z), F.logsigmoid(self.variance(z))

    def decode(self, mean: Tensor, log_variance: Tensor, eps: Tensor) -> Tensor:
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
        """The mean loss and the logits of one random z a row."""
        mean, log_variance = self.latent(z)
        logits = self.decode(mean, log_variance, noise(mean, generator))
        return cross_entropy(logits, y) + standard_normal_kl(mean, log_variance), logits


Head: TypeAlias = TSTHead | VTSTHead


def encoder(features: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, 3 * width), nn.ReLU(), nn.Linear(3 * width, width))


def noise(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers, drawn where the generator is."""
    device = generator.device if generator is not None else like.device
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=device).to(
        like.device
    )


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


def two_stage_head(
    z: Array,
    y: Array,
    *,
    val: tuple[Array, Array] | None = None,
    classes: int | None = None,
    config: TwoStage = DEFAULT,
    seed: int = 1,
    progress: bool = False,
) -> Head:
    """A new classifier for features z (N x D) with labels y: a TSTHead or VTSTHead in eval mode,
    with `.history`.

    With held-out rows it is that of the epoch with their lowest NLL, unless config says the last
    one. `classes` is how many outputs it has, if labels do not show them all. Features larger than
    memory are read in parts (table.py). Same seed, same bits. ValueError says what is wrong with an
    array; Diverged, one too, that the training left the finite numbers."""
    train, judged, classes = checked(z, y, val, classes)
    head = build_head(config, train.width, classes, seed)
    return fit(
        head,
        config,
        seed,
        partial(drawn, train, config.batch_size),
        judged.chunks if judged else None,
        progress=progress,
    )


def checked(
    z: Array, y: Array, val: tuple[Array, Array] | None, classes: int | None
) -> tuple[Standardised, Standardised | None, int]:
    """The rows, raw as the authors take them, and how many classes there are."""
    train = FeatureTable(z, y, "z")
    judged = judges(train, val, None, None)
    classes = check_classes(train, judged, classes)
    raw = Standard(torch.zeros(train.width), 1.0)
    held_out = judged.standardised(raw) if judged is not None else None
    return train.standardised(raw), held_out, classes


def drawn(rows: Standardised, size: int, generator: torch.Generator) -> Batches:
    """An epoch of cached features."""
    return ((x[0], y[0]) for x, y in rows.epoch([generator], size))


def two_stage_live(
    network: Net,
    train: Split,
    val: Split | None = None,
    *,
    pixels: Pixels,
    config: TwoStage = DEFAULT,
    padding: int = 4,
    flip: bool = True,
    seed: int = 1,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> Head:
    """The same as the published code trains it: on features that the body makes anew in each step,
    of cropped and mirrored images.

    The body runs in train mode without gradients. So its weights stay, but BatchNorm takes the
    statistics of the batch and goes on updating its running ones: the network's BatchNorm buffers
    are changed in place, to those of the epoch that is kept, and the head belongs to them. Held-out
    images are neither augmented nor seen in train mode. The network keeps its own head."""
    classes, mode = network.head.out_features, network.training
    for name, split in (("train", train), ("val", val)):
        if split is not None and not len(split):
            raise ValueError(
                f"{name} has no images; pass at least one{', or None' if name == 'val' else ''}"
            )
        if split is not None:
            check_range(split.labels, classes, 0, 1 << 62)
    network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    head = build_head(config, network.num_features, classes, seed).to(device)
    epoch = partial(augmented, network, train, pixels, config.batch_size, padding, flip)
    held_out = partial(plain, network, val, pixels) if val is not None else None
    try:
        return fit(head, config, seed, epoch, held_out, list(network.body.buffers()), progress)
    finally:
        network.train(mode)


def augmented(
    network: Net,
    split: Split,
    pixels: Pixels,
    size: int,
    padding: int,
    flip: bool,
    generator: torch.Generator,
) -> Batches:
    """An epoch of features as the body makes them in train mode."""
    network.train()
    device, order = network.head.weight.device, torch.randperm(len(split), generator=generator)
    for first, last in batch_ranges(len(split), size, 1):
        rows = order[first:last]
        images = crop_and_flip(split.images[rows].to(device), generator, padding, flip)
        with torch.no_grad():
            z = network.features(pixels(images))
        yield z, split.labels[rows].to(device)


def plain(network: Net, split: Split, pixels: Pixels, size: int = 500) -> Batches:
    """Features of the images as they are, in order, from eval mode."""
    network.eval()
    device = network.head.weight.device
    for images, labels in zip(
        torch.split(split.images, size), torch.split(split.labels, size), strict=True
    ):
        with torch.no_grad():
            z = network.features(pixels(images.to(device)))
        yield z, labels.to(device)


def fit(
    head: Head,
    config: TwoStage,
    seed: int,
    epoch: Callable[[torch.Generator], Batches],
    held_out: Callable[[], Batches] | None,
    buffers: Sequence[Tensor] = (),
    progress: bool = False,
) -> Head:
    """Train the head on whatever the epochs are made of.

    `buffers` are tensors that change along and go with the kept epoch.
    """
    generator, optimiser = torch.Generator().manual_seed(seed), optimiser_of(head, config)
    state, kept = [*head.state_dict().values(), *buffers], list[Tensor]()
    for number in track(range(1, config.epochs + 1), "stage II", disable=not progress):
        numbers = {"epoch": number} | means(
            steps(head, epoch(generator), optimiser, config.clip, generator), "loss", "accuracy"
        )
        if held_out is not None:
            numbers |= means(looks(head, held_out()), "val_nll", "val_accuracy")
        check_finite(head, numbers)
        head.history.append(numbers)
        if held_out is not None and config.select == "val-nll" and lowest(head.history) is numbers:
            kept = deepcopy(state)
    # without a kept epoch all stays as it is
    for tensor, value in zip(state, kept or state, strict=True):
        tensor.copy_(value)
    return head.eval().requires_grad_(False)


def optimiser_of(head: Head, config: TwoStage) -> torch.optim.Optimizer:
    if config.optimiser == "adam":
        return torch.optim.Adam(head.parameters(), config.lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        head.parameters(), config.lr, config.momentum, weight_decay=config.weight_decay
    )


def steps(
    head: Head,
    batches: Batches,
    optimiser: torch.optim.Optimizer,
    clip: float,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """A step a batch; how each went, from before the step."""
    head.train()
    for z, y in batches:
        loss, logits = head.loss(z, y, generator)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        if clip:
            nn.utils.clip_grad_norm_(head.parameters(), clip)
        optimiser.step()
        yield tally(loss.detach(), logits.detach(), y)


def looks(head: Head, batches: Batches) -> Iterator[Tensor]:
    """How the head does on batches as it would be used."""
    head.eval()
    for z, y in batches:
        with torch.no_grad():
            logits = head(z).double()
        yield tally(cross_entropy(logits, y), logits, y)


def tally(loss: Tensor, logits: Tensor, y: Tensor) -> Tensor:
    """Of a batch: the sum of its losses, of right answers, of rows; left on the device."""
    return torch.stack(
        [loss.double() * len(y), (logits.argmax(1) == y).sum(), y.new_tensor(len(y))]
    )


def means(tallies: Iterator[Tensor], loss: str, accuracy: str) -> dict[str, float]:
    losses, right, rows = reduce(torch.add, tallies).tolist()
    return {loss: losses / rows, accuracy: right / rows}


def lowest(history: History) -> dict[str, float]:
    """The first epoch with the lowest held-out NLL."""
    return min(history, key=lambda numbers: numbers["val_nll"])


def check_finite(head: Head, numbers: dict[str, float]) -> None:
    if not all(map(isfinite, numbers.values())) or not all(
        bool(p.isfinite().all()) for p in head.parameters()
    ):
        raise Diverged(
            f"the loss or a weight is no longer a finite number, in epoch {numbers['epoch']}; pass a lower lr or a smaller clip"
        )
