"""Stage II of MaC-Cal: a new classifier on frozen features, retrained under random masks (Eqs. 7-13, Algorithm 1).

In every epoch t the head trains with each weight kept with probability keep_t. Then its confidence and accuracy are compared, and
the sparsity, 1 - keep, moves by their gap, at most by eta_t:

    eta_t      = eta_init (eta_final / eta_init)^(t / T)                       Eq. 13
    sparsity  += clip(Conf_t - gamma Acc_t, -eta_t, eta_t)                     Eq. 12, read so that overconfident means sparser

At the end keep and the standardisation of the features are folded into plain linear layers. `Stage2` names every reading of the
paper; the default is the one that calibrates, `Stage2.paper()` the equations as printed, which do not.

Cost: N = 50,000, D = 64, K = 10, hidden 512, 40 epochs: about 15 s on two cores. The gradient is written out: four matrix products.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import torch
from rich.progress import track
from torch import Tensor, nn

from maccal.heads import plain
from maccal.metrics.inputs import Array, as_tensor, check_labels, first

CHUNK = 8192  # rows of one evaluation step


@dataclass(frozen=True)
class Stage2:
    """Every choice of stage II; the comments give the paper's words where ours differ."""

    epochs: int = 40
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["cosine", "constant"] = "cosine"  # the paper: constant
    hidden: int | None = 512  # width of the bottleneck; None is a linear head
    standardise: bool = True  # features less their mean, over one common scale; the paper: raw
    refresh: Literal["batch", "epoch"] = "batch"  # when masks are drawn; Algorithm 1 says batch, the text epoch
    masking: Literal["forward", "reset", "straight-through"] = (
        "forward"  # multiply, zero the weights in place, or pass gradients by
    )
    restrict: Literal["none", "gradient", "frozen"] = "gradient"  # Eq. 11; frozen spares dropped weights momentum and decay too
    inference: Literal["expected", "dense", "last"] = "expected"  # keep x W, W, or the last mask's weights
    adapt: Literal["sparsity", "retention", "none"] = "sparsity"  # Eq. 12 moves this; as printed it is the retention, and runs away
    statistics: Literal["deployed", "masked"] = "deployed"  # whose Conf and Acc: the head as it would be used, or the masked passes
    eta: Literal["decay", "static"] = "decay"
    eta_init: float = 0.1
    eta_final: float = 0.001
    q0: float = 0.5
    gamma: float = 0.97  # accuracy on unseen data over accuracy in training, about; 1 with held-out features

    @classmethod
    def paper(cls, **changes: Any) -> "Stage2":
        """The equations as printed: constant rate, raw features, dense weights at inference, Eq. 12 on the retention."""
        literal = cls(schedule="constant", standardise=False, refresh="epoch", inference="dense", adapt="retention")
        return replace(literal, **{"statistics": "masked", **changes})

    def eta_at(self, epoch: int) -> float:
        """Eq. 13: the largest change of keep after epoch 1, 2, ..."""
        if self.eta == "static":
            return self.eta_init
        return self.eta_init * math.exp(math.log(self.eta_final / self.eta_init) * epoch / self.epochs)

    def next_keep(self, keep: float, confidence: float, accuracy: float, gamma: float, epoch: int) -> float:
        """Eq. 12, clamped so that at least a hundredth of the weights stays."""
        bound = self.eta_at(epoch)
        change = max(-bound, min(bound, confidence - gamma * accuracy))
        sign = {"sparsity": -1, "retention": 1, "none": 0}[self.adapt]
        return min(1.0, max(0.01, keep + sign * change))

    def lr_at(self, step: int, steps: int) -> float:
        return self.lr if self.schedule == "constant" else 0.5 * self.lr * (1 + math.cos(math.pi * step / steps))


DEFAULT = Stage2()


class Head:
    """The weights of a head in training, their momenta and masks. Lists run over the layers."""

    def __init__(self, widths: list[int], generator: torch.Generator) -> None:
        """nn.Linear's own initialisation, drawn from the generator."""
        pairs = list(pairwise(widths))
        self.weights = [uniform((b, a), a, generator) for a, b in pairs]
        self.biases = [uniform((b,), a, generator) for a, b in pairs]
        self.speeds = [torch.zeros_like(t) for t in (*self.weights, *self.biases)]
        self.masks = [torch.ones_like(w) for w in self.weights]
        self.sizes = [w.numel() for w in self.weights]

    def draw(self, keep: float, generator: torch.Generator) -> None:
        """Fresh masks of all layers from one call."""
        kept = (torch.rand(sum(self.sizes), generator=generator) < keep).float()
        self.masks = [part.view_as(w) for part, w in zip(torch.split(kept, self.sizes), self.weights, strict=True)]

    def used(self, config: Stage2, keep: float) -> list[Tensor]:
        """The weights at inference."""
        if config.masking == "reset" or config.inference == "dense":
            return self.weights
        if config.inference == "last":
            return [w * m for w, m in zip(self.weights, self.masks, strict=True)]
        return [keep * w for w in self.weights]


def uniform(shape: tuple[int, ...], fan_in: int, generator: torch.Generator) -> Tensor:
    return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(fan_in)


def forward(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Inputs of every layer, and the logits."""
    inputs = [x]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        inputs.append(torch.addmm(bias, inputs[-1], weight.T).relu_())
    return inputs, torch.addmm(biases[-1], inputs[-1], weights[-1].T)


def train_step(head: Head, x: Tensor, y: Tensor, lr: float, config: Stage2) -> Tensor:
    """One step of SGD on the mean cross-entropy of a batch; returns its log-probabilities, from before the step."""
    if config.masking == "reset":
        for w, m in zip(head.weights, head.masks, strict=True):
            w.mul_(m)
        weights = head.weights
    else:
        weights = [w * m for w, m in zip(head.weights, head.masks, strict=True)]
    inputs, logits = forward(x, weights, head.biases)
    log_p = logits.log_softmax(1)
    delta = log_p.exp()
    delta[torch.arange(len(y)), y] -= 1
    delta /= len(y)
    masked = config.masking == "forward" or (config.masking == "reset" and config.restrict != "none")
    layers = len(weights)
    for layer in reversed(range(layers)):
        gradient, shift = delta.T @ inputs[layer], delta.sum(0)
        if layer:
            delta = (delta @ weights[layer]).mul_(inputs[layer] > 0)
        update(head, layer, gradient.mul_(head.masks[layer]) if masked else gradient, lr, config)
        descend(head.biases[layer], head.speeds[layers + layer], shift, lr, config)
    return log_p


def update(head: Head, layer: int, gradient: Tensor, lr: float, config: Stage2) -> None:
    weight, speed, mask = head.weights[layer], head.speeds[layer], head.masks[layer]
    frozen = config.restrict == "frozen" and (weight.clone(), speed.clone())
    descend(weight, speed, gradient, lr, config)
    if frozen:
        weight.copy_(torch.where(mask > 0, weight, frozen[0]))
        speed.copy_(torch.where(mask > 0, speed, frozen[1]))


def descend(parameter: Tensor, speed: Tensor, gradient: Tensor, lr: float, config: Stage2) -> None:
    """torch.optim.SGD's step: decay joins the gradient, momentum without dampening."""
    speed.mul_(config.momentum).add_(gradient).add_(parameter, alpha=config.weight_decay)
    parameter.sub_(speed, alpha=lr)


def confidence_and_accuracy(z: Tensor, y: Tensor, weights: list[Tensor], biases: list[Tensor]) -> tuple[float, float]:
    total = torch.zeros(2, dtype=torch.float64)
    for x, label in zip(torch.split(z, CHUNK), torch.split(y, CHUNK), strict=True):
        confidence, top = forward(x, weights, biases)[1].softmax(1).max(1)
        total += torch.stack([confidence.sum(dtype=torch.float64), (top == label).sum().double()])
    confidence_sum, right = (total / len(y)).tolist()
    return confidence_sum, right


def calibrate_head(
    z: Array,
    y: Array,
    *,
    val: tuple[Array, Array] | None = None,
    config: Stage2 = DEFAULT,
    seed: int = 1,
    progress: bool = False,
) -> nn.Sequential:
    """A calibrated classifier for features z (N x D) with labels y: plain linear layers in eval mode, with `.history`.

    With `val`, held-out features and labels, the feedback looks at those, with gamma 1. Same seed, same bits.
    """
    features, labels, classes = check_features(z, y, "z")
    held_out = None
    if val is not None:
        held_z, held_y, held_classes = check_features(*val, "val")
        classes, held_out = max(classes, held_classes), (held_z, held_y)
        if held_z.shape[1] != features.shape[1]:
            raise ValueError(f"z has {features.shape[1]} features and val {held_z.shape[1]}; both must come from the same network")
    centre, scale = standard(features) if config.standardise else (torch.zeros(features.shape[1]), 1.0)
    features = (features - centre) / scale
    held_out = held_out and ((held_out[0] - centre) / scale, held_out[1])

    generator = torch.Generator().manual_seed(seed)
    widths = [features.shape[1], *([config.hidden] if config.hidden else []), classes]
    head = Head(widths, generator)
    history, keep = train(head, features, labels, held_out, config, generator, progress)

    weights, biases = [w.clone() for w in head.used(config, keep)], [b.clone() for b in head.biases]
    weights[0] /= scale
    biases[0] -= weights[0] @ centre
    result = plain(weights, biases)
    result.history = history  # type: ignore[assignment]
    return result


def train(
    head: Head,
    z: Tensor,
    y: Tensor,
    held_out: tuple[Tensor, Tensor] | None,
    config: Stage2,
    generator: torch.Generator,
    progress: bool,
) -> tuple[list[dict[str, float]], float]:
    """The epochs of Algorithm 1; returns the history and the keep that the last epoch trained with."""
    history: list[dict[str, float]] = []
    following = config.q0
    for epoch in track(range(1, config.epochs + 1), "stage II", disable=not progress):
        keep = following
        conf, acc, loss = train_epoch(head, z, y, keep, epoch, config, generator)
        if config.statistics == "deployed" or held_out is not None:
            conf, acc = confidence_and_accuracy(*(held_out or (z, y)), head.used(config, keep), head.biases)
        history.append({"epoch": epoch, "keep": keep, "accuracy": acc, "confidence": conf, "loss": loss})
        following = config.next_keep(keep, conf, acc, config.gamma if held_out is None else 1.0, epoch)
    return history, keep


def train_epoch(
    head: Head, z: Tensor, y: Tensor, keep: float, epoch: int, config: Stage2, generator: torch.Generator
) -> tuple[float, float, float]:
    """Every row once, in random order; mean confidence, accuracy and loss of the masked passes."""
    head.draw(keep, generator)
    seen = torch.zeros(3, dtype=torch.float64)
    batches = torch.split(torch.randperm(len(y), generator=generator), config.batch_size)
    for place, rows in enumerate(batches):
        if config.refresh == "batch":
            head.draw(keep, generator)
        x, labels = z[rows], y[rows]
        lr = config.lr_at((epoch - 1) * len(batches) + place, config.epochs * len(batches))
        log_p = train_step(head, x, labels, lr, config)
        confidence, top = log_p.max(1)
        own = log_p.gather(1, labels[:, None])
        seen += torch.stack([confidence.exp().sum(), (top == labels).sum(), -own.sum()])
    confidence_mean, accuracy, loss = (seen / len(y)).tolist()
    return confidence_mean, accuracy, loss


def standard(z: Tensor) -> tuple[Tensor, float]:
    """The mean of the features, and one scale for all of them."""
    centre = z.mean(0, dtype=torch.float64)
    scale = float((z - centre).square().mean(dtype=torch.float64).sqrt())
    return centre.float(), scale if scale > 0 else 1.0


def check_features(z: Array, y: Array, name: str) -> tuple[Tensor, Tensor, int]:
    """Finite N x D float32 features, int64 labels, and how many classes the labels speak of."""
    features = as_tensor(z, name)
    if features.ndim != 2 or not features.is_floating_point() or 0 in features.shape:
        raise ValueError(
            f"{name} has shape {tuple(features.shape)} and dtype {features.dtype}; expected features, rows x dimensions"
        )
    features = features.float().cpu()
    if not bool(features.isfinite().all()):
        row = first(~features.isfinite().all(1))
        raise ValueError(f"{name} row {row} holds a value that is not finite; the features must be numbers")
    labels = as_tensor(y, "labels")
    classes = int(labels.max()) + 1 if labels.numel() and not labels.is_floating_point() else 2
    labels = check_labels(y, torch.empty(len(features), max(2, classes)))
    if bool((labels == labels[0]).all()):
        raise ValueError(f"all labels of {name} are {int(labels[0])}; a classifier needs at least two classes")
    return features, labels, classes
