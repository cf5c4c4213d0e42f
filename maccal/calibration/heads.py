"""Classifier heads on frozen features: the masked layer of MaC-Cal, heads in training, and their
plain form for inference.

MaskedLinear    y = (M * W) x + b, M ~ Bernoulli(keep) drawn in every training pass (Eqs. 7 and 8); the bias is never masked.
                In eval mode y = keep W x + b, the expected weights: one deterministic pass.
Heads           B heads of one or two layers, trained side by side as one batched problem, each under its own masks
plain           trained weights as ordinary linear layers, for inference; save_head and load_head keep them in a file

A step of `Heads` is written out without autograd: the gradient is two matrix products a layer.
Masks compare 16 random bits a weight with keep, so keep counts in steps of 1 / 65,536. For D = 64,
hidden 512, K = 10, batches of 128: about 0.5 ms on one core.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.calibration.stage2 import Stage2
from maccal.io import FileError, read_tensors, write_tensors

HEAD = "head 1"
Made = TypeVar("Made", bound=nn.Module)


class MaskedLinear(nn.Linear):
    """A linear layer whose weights are dropped at random while it trains, each with probability 1 -
    keep.

    >>> layer = MaskedLinear(3, 2, keep=0.5).eval()
    >>> x = torch.ones(1, 3)
    >>> bool(torch.allclose(layer(x), F.linear(x, 0.5 * layer.weight, layer.bias)))
    True
    """

    def __init__(
        self,
        width_in: int,
        width_out: int,
        keep: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(width_in, width_out)
        self.keep = keep
        self.generator = generator

    def mask(self) -> Tensor:
        """A fresh binary mask of the weights."""
        uniform = torch.rand(self.weight.shape, generator=self.generator, device=self.weight.device)
        return (uniform < self.keep).to(self.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * (self.mask() if self.training else self.keep), self.bias)


class Heads:
    """The weights of B heads in training, their momenta and masks. Lists run over the layers, the
    first axis over the heads.

    A narrower head is padded with zeros, which no step ever changes: zero weights make a hidden
    unit that is never active."""

    def __init__(self, widths: list[list[int]], generators: list[torch.Generator]) -> None:
        """nn.Linear's own initialisation, drawn for each head from its generator."""
        # of each head's layers: out, in
        self.shapes = [[(b, a) for a, b in pairwise(w)] for w in widths]
        largest = [
            tuple(map(max, zip(*layer, strict=True))) for layer in zip(*self.shapes, strict=True)
        ]
        self.weights = [torch.zeros(len(widths), *shape) for shape in largest]
        self.biases = [torch.zeros(len(widths), 1, out) for out, _ in largest]
        self.masks = [torch.zeros_like(w) for w in self.weights]
        self.speeds = [torch.zeros_like(t) for t in (*self.weights, *self.biases)]
        for head, generator in enumerate(generators):
            for w, b, (out, fan_in) in zip(
                self.weights, self.biases, self.shapes[head], strict=True
            ):
                w[head, :out, :fan_in] = uniform((out, fan_in), fan_in, generator)
                b[head, 0, :out] = uniform((out,), fan_in, generator)

    def draw(self, keeps: list[float], generators: list[torch.Generator]) -> None:
        """Fresh masks of all layers, from one call a head."""
        for head, (keep, generator) in enumerate(zip(keeps, generators, strict=True)):
            sizes = [out * fan_in for out, fan_in in self.shapes[head]]
            bits = (
                torch.empty(-(-sum(sizes) // 4), dtype=torch.int64)
                .random_(-(1 << 63), None, generator=generator)
                .view(torch.int16)
            )
            below = round(keep * (1 << 16)) - (1 << 15) - 1
            for mask, part, (out, fan_in) in zip(
                self.masks,
                torch.split(bits, [*sizes, bits.numel() - sum(sizes)]),
                self.shapes[head],
                strict=False,
            ):
                torch.le(part.view(out, fan_in), below, out=mask[head, :out, :fan_in])

    def step(self, x: Tensor, y: Tensor, lr: float, config: Stage2) -> Tensor:
        """One step of SGD on the mean cross-entropy of a batch (B x n x D).

        Returns its log-probabilities, from before the step.
        """
        if config.masking == "reset":
            for w, m in zip(self.weights, self.masks, strict=True):
                w.mul_(m)
        weights = (
            self.weights
            if config.masking == "reset"
            else [w * m for w, m in zip(self.weights, self.masks, strict=True)]
        )
        inputs = [x]
        for w, b in zip(weights[:-1], self.biases[:-1], strict=True):
            inputs.append(torch.baddbmm(b, inputs[-1], w.mT).relu_())
        log_p = torch.baddbmm(self.biases[-1], inputs[-1], weights[-1].mT).log_softmax(2)
        delta = log_p.exp().div_(y.shape[1])
        delta.scatter_add_(2, y[:, :, None], delta.new_tensor(-1 / y.shape[1]).expand(*y.shape, 1))
        for layer in reversed(range(len(weights))):
            gradient, shift = torch.bmm(delta.mT, inputs[layer]), delta.sum(1, keepdim=True)
            if layer:
                # of ReLU
                delta = torch.ops.aten.threshold_backward(
                    torch.bmm(delta, weights[layer]), inputs[layer], 0
                )
            self._update(layer, gradient, lr, config)
            descend(self.biases[layer], self.speeds[len(weights) + layer], shift, lr, config)
        return log_p

    def _update(self, layer: int, gradient: Tensor, lr: float, config: Stage2) -> None:
        weight, speed, mask = self.weights[layer], self.speeds[layer], self.masks[layer]
        if config.masking == "forward" or (config.masking == "reset" and config.restrict != "none"):
            gradient.mul_(mask)
        frozen = config.restrict == "frozen" and (weight.clone(), speed.clone())
        descend(weight, speed, gradient, lr, config)
        if frozen:
            weight.copy_(torch.where(mask > 0, weight, frozen[0]))
            speed.copy_(torch.where(mask > 0, speed, frozen[1]))

    def deployed(self, head: int, keep: float, config: Stage2) -> tuple[list[Tensor], list[Tensor]]:
        """A head's weights (out x in) and biases as they are used at inference, on standardised
        features.
        """
        cut = [
            (w[head, :out, :fan_in], m[head, :out, :fan_in], b[head, 0, :out])
            for w, m, b, (out, fan_in) in zip(
                self.weights, self.masks, self.biases, self.shapes[head], strict=True
            )
        ]
        biases = [b for _, _, b in cut]
        if config.masking == "reset" or config.inference == "dense":
            return [w for w, _, _ in cut], biases
        return [w * (m if config.inference == "last" else keep) for w, m, _ in cut], biases


def uniform(shape: tuple[int, ...], fan_in: int, generator: torch.Generator) -> Tensor:
    return (2 * torch.rand(shape, generator=generator) - 1) / fan_in**0.5


def descend(parameter: Tensor, speed: Tensor, gradient: Tensor, lr: float, config: Stage2) -> None:
    """torch.optim.SGD's step: decay joins the gradient, momentum without dampening."""
    speed.mul_(config.momentum).add_(gradient).add_(parameter, alpha=config.weight_decay)
    parameter.sub_(speed, alpha=lr)


def logits(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    """Linear layers with ReLU between them."""
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        x = torch.addmm(b, x, w.T).relu_()
    return torch.addmm(biases[-1], x, weights[-1].T)


def plain(weights: list[Tensor], biases: list[Tensor]) -> nn.Sequential:
    """Linear layers with ReLU between them, from their weights (out x in) and biases, in eval mode
    and without gradients.
    """
    layers: list[nn.Module] = []
    for weight, bias in zip(weights, biases, strict=True):
        layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
        layer.weight, layer.bias = (
            nn.Parameter(weight.clone(), False),
            nn.Parameter(bias.clone(), False),
        )
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


def with_history(head: Made, history: list[dict[str, float]]) -> Made:
    """The head with how it came about, one dict per epoch, as its attribute `history`.

    An attribute, not a class of our own: the layers stay torch's, and load where maccal is absent.
    """
    head.history = history  # type: ignore[assignment]
    return head


def history_of(head: nn.Module) -> list[dict[str, float]]:
    """How the head came about, one dict per epoch."""
    found: list[dict[str, float]] = head.history  # type: ignore[assignment]
    return found


def save_head(head: nn.Sequential, path: Path | str, **notes: Any) -> Path:
    """The layers of a plain head as a safetensors file, with notes and a checksum in its header."""
    return write_tensors(Path(path), HEAD, head.state_dict(), **notes)


def load_head(path: Path | str) -> nn.Sequential:
    """The head that save_head wrote, features to logits, in eval mode.

    FileError for any other file, and for a damaged one.
    """
    try:
        tensors, _ = read_tensors(Path(path), HEAD)
        weights = [tensors.pop(f"{place}.weight") for place in range(0, len(tensors), 2)]
        biases = [tensors.pop(f"{2 * place}.bias") for place in range(len(weights))]
        check_layers(weights, biases)
    except FileError as error:
        raise FileError(path, f"not a head written by maccal ({error.problem})") from None
    except (KeyError, ValueError) as error:
        raise FileError(
            path, f"not a head written by maccal (its layers do not fit: {error})"
        ) from None
    return plain(weights, biases)


def check_layers(weights: list[Tensor], biases: list[Tensor]) -> None:
    """ValueError unless each layer takes what the one before it gives."""
    if not weights:
        raise ValueError("there are none")
    for weight, bias in zip(weights, biases, strict=True):
        if weight.dim() != 2 or bias.shape != weight.shape[:1] or not weight.is_floating_point():
            raise ValueError(f"weights of {tuple(weight.shape)} with biases of {tuple(bias.shape)}")
    for before, after in pairwise(weights):
        if before.shape[0] != after.shape[1]:
            raise ValueError(f"{before.shape[0]} outputs into {after.shape[1]} inputs")
