"""Classifier heads on frozen features: heads in training under masks, and their plain form.

Heads                   B heads of one or two layers, trained side by side as one batched problem
plain                   trained weights as ordinary linear layers, for inference
save_head, load_head    plain heads in a file

One step of `Heads` is the inner loop of the paper's Algorithm 1:

    M ~ Bernoulli(keep)                        Eq. 7     draw; the bias is never masked
    y = (M * W) x + b                          Eq. 8     step
    minimise the mean cross-entropy of y       Eq. 9     step
    W -= lr (M * dL/dW), kept weights only     Eqs. 10 and 11

`deployed` then gives the weights for inference, by default keep W: the expectation over the masks.

A head may start from a trained classifier instead of random weights: from W / q0 and b / q0. Then
keep multiplies the bias too, in the pass and at inference, so that it scales the logits as a whole:
before the first step the head is the classifier at the temperature q0 / keep.

The step is written out without autograd: the gradient is two matrix products per layer. A mask
compares 16 random bits per weight with keep, so keep counts in steps of 1 / 65,536.
Cost: about 0.5 ms per step on one core, for D = 64, hidden 512, K = 10, batches of 128.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from maccal.calibration.stage2 import Stage2
from maccal.features.table import Standard
from maccal.io import FileError, read_tensors, write_tensors

HEAD = "head 1"  # the kind of file, and the version of its format
Made = TypeVar("Made", bound=nn.Module)


class Heads:
    """The weights of B heads in training, with their momenta and masks.

    Lists run over the layers, the first axis of each tensor over the heads. A narrower head is
    padded with zeros, which no step ever changes: a hidden unit with zero weights is never active.
    Random numbers are drawn on the processor, so that they are the same on every device.
    """

    def __init__(
        self,
        widths: list[list[int]],
        generators: list[torch.Generator],
        device: torch.device | str = "cpu",
    ) -> None:
        """Weights as nn.Linear initialises them, drawn for each head from its own generator."""
        self.shapes = [layer_shapes(of_head) for of_head in widths]
        largest = [largest_shape(of_layer) for of_layer in zip(*self.shapes, strict=True)]
        heads = len(widths)
        self.device = torch.device(device)
        self.weights = [torch.zeros(heads, *shape, device=device) for shape in largest]
        self.biases = [torch.zeros(heads, 1, out, device=device) for out, _ in largest]
        self.masks = [torch.zeros_like(w) for w in self.weights]
        self.weight_momenta = [torch.zeros_like(w) for w in self.weights]
        self.bias_momenta = [torch.zeros_like(b) for b in self.biases]
        self.bias_scale: Tensor | None = None  # B x 1 x 1, where keep multiplies the bias
        self.drawn_for: list[float] = []  # the keeps that are in bias_scale
        self.biased = True
        for head, generator in enumerate(generators):
            self._initialise(head, generator)

    @classmethod
    def trained(
        cls,
        classifier: "Classifier",
        configs: list[Stage2],
        generators: list[torch.Generator],
        device: torch.device | str = "cpu",
    ) -> "Heads":
        """Heads that start from a trained classifier, one for each config."""
        outputs, features = classifier.weight.shape
        heads = cls([[features, outputs] for _ in configs], generators, device)
        # what the head is before the first step, at keep = q0, is the classifier
        parts = [config.q0 if config.scales else 1.0 for config in configs]
        shares = torch.tensor(parts, device=device)[:, None, None]
        heads.weights[0].copy_(classifier.weight.to(device) / shares)
        heads.biased = classifier.bias is not None
        bias = torch.zeros(outputs) if classifier.bias is None else classifier.bias
        heads.biases[0].copy_(bias.to(device) / shares)
        if configs[0].scales:
            heads.bias_scale = torch.ones(len(configs), 1, 1, device=device)
        return heads

    def _initialise(self, head: int, generator: torch.Generator) -> None:
        layers = zip(self.weights, self.biases, self.shapes[head], strict=True)
        for w, b, (out, fan_in) in layers:
            w[head, :out, :fan_in] = uniform((out, fan_in), fan_in, generator)
            b[head, 0, :out] = uniform((out,), fan_in, generator)

    def draw(self, keeps: list[float], generators: list[torch.Generator], config: Stage2) -> None:
        """Fresh masks of all layers (Eq. 7), each head's from one call of its generator.

        A keep above one, of a classifier that is to be surer than as trained, keeps all weights.
        With "regrow" what is dropped is zeroed here, and here alone.
        """
        keeps = [min(keep, 1.0) for keep in keeps]
        if self.bias_scale is not None and keeps != self.drawn_for:  # they last an epoch
            self.bias_scale.copy_(torch.tensor(keeps)[:, None, None])
            self.drawn_for = keeps
        if config.masking == "none":
            for mask in self.masks:
                mask.copy_(torch.tensor(keeps)[:, None, None].expand_as(mask))
            return
        for head, (keep, generator) in enumerate(zip(keeps, generators, strict=True)):
            sizes = [out * fan_in for out, fan_in in self.shapes[head]]
            bits = random_int16(sum(sizes), generator).to(self.device)
            # of the 2^16 values from -2^15 on, the lowest `keep` of them are kept
            highest_kept = round(keep * (1 << 16)) - (1 << 15) - 1
            layers = zip(self.masks, torch.split(bits, sizes), self.shapes[head], strict=True)
            for mask, part, (out, fan_in) in layers:
                torch.le(part.view(out, fan_in), highest_kept, out=mask[head, :out, :fan_in])
        if config.masking == "regrow":
            for w, m in zip(self.weights, self.masks, strict=True):
                w.mul_(m)

    def step(self, x: Tensor, y: Tensor, lr: float, config: Stage2) -> Tensor:
        """One step of SGD on the mean cross-entropy of a batch (x is B x n x D, y is B x n).

        Returns the log-probabilities of the batch, from before the step.
        """
        weights = self._masked(config)
        biases = self.biases
        if self.bias_scale is not None:
            biases = [b * self.bias_scale for b in biases]
        # forward (Eq. 8): inputs[i] is what layer i sees
        inputs = [x]
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            inputs.append(torch.baddbmm(b, inputs[-1], w.mT).relu_())
        log_p = torch.baddbmm(biases[-1], inputs[-1], weights[-1].mT).log_softmax(2)
        # backward (Eqs. 9-11): delta is the gradient at the outputs of the layer
        delta = cross_entropy_gradient(log_p, y)
        for layer in reversed(range(len(weights))):
            gradient = torch.bmm(delta.mT, inputs[layer])
            bias_gradient = delta.sum(1, keepdim=True)
            if layer > 0:
                # before the update, which may change weights[layer] in place
                at_inputs = torch.bmm(delta, weights[layer])
                delta = torch.ops.aten.threshold_backward(at_inputs, inputs[layer], 0)  # of ReLU
            self._update(layer, gradient, lr, config)
            self._update_bias(layer, bias_gradient, lr, config)
        return log_p

    def _masked(self, config: Stage2) -> list[Tensor]:
        """The weights that take part in this step: M * W.

        With "reset" W itself after W *= M; with "regrow" W as it is.
        """
        layers = zip(self.weights, self.masks, strict=True)
        if config.masking == "reset":
            return [w.mul_(m) for w, m in layers]
        if config.masking == "regrow":
            return list(self.weights)
        return [w * m for w, m in layers]

    def _update(self, layer: int, gradient: Tensor, lr: float, config: Stage2) -> None:
        """The new weights of a layer; the gradient reaches only those that the mask kept (Eq. 11).

        With "straight-through" it reaches all of them. With "frozen" the dropped weights are
        spared momentum and decay too.
        """
        weight = self.weights[layer]
        momentum = self.weight_momenta[layer]
        mask = self.masks[layer]
        masked = config.masking in ("forward", "none")
        if masked or (config.zeroes and config.restrict != "none"):
            gradient.mul_(mask)
        if config.restrict != "frozen":
            descend(weight, momentum, gradient, lr, config)
            return
        old_weight = weight.clone()
        old_momentum = momentum.clone()
        descend(weight, momentum, gradient, lr, config)
        weight.copy_(torch.where(mask > 0, weight, old_weight))
        momentum.copy_(torch.where(mask > 0, momentum, old_momentum))

    def _update_bias(self, layer: int, gradient: Tensor, lr: float, config: Stage2) -> None:
        """The new bias of a layer; a head without one stays without."""
        if not self.biased:
            return
        if self.bias_scale is not None:
            gradient.mul_(self.bias_scale)
        descend(self.biases[layer], self.bias_momenta[layer], gradient, lr, config)

    def deployed(self, head: int, keep: float, config: Stage2) -> tuple[list[Tensor], list[Tensor]]:
        """The weights (out x in) and biases of a head as used at inference.

        They expect features standardised as in training.
        """
        weights = []
        biases = []
        layers = zip(self.weights, self.masks, self.biases, self.shapes[head], strict=True)
        for w, m, b, (out, fan_in) in layers:
            weight = w[head, :out, :fan_in]
            if config.zeroes or config.inference == "dense":
                weights.append(weight)
            elif config.inference == "last":
                weights.append(weight * m[head, :out, :fan_in])
            else:
                weights.append(weight * keep)
            bias = b[head, 0, :out]
            biases.append(bias if self.bias_scale is None else bias * keep)
        return weights, biases


@dataclass(frozen=True)
class Classifier:
    """The weights (classes x features) of a linear classifier, and its bias where it has one."""

    weight: Tensor
    bias: Tensor | None

    @property
    def classes(self) -> int:
        return len(self.weight)

    def standardised(self, standard: Standard) -> "Classifier":
        """The same classifier for standardised features; they are centred only if it has a bias."""
        weight = self.weight * standard.scale
        bias = None if self.bias is None else self.bias + self.weight @ standard.centre
        return Classifier(weight, bias)


def layer_shapes(widths: list[int]) -> list[tuple[int, int]]:
    """The shape (out, in) of each layer between these widths.

    >>> layer_shapes([64, 512, 10])
    [(512, 64), (10, 512)]
    """
    return [(out, fan_in) for fan_in, out in pairwise(widths)]


def largest_shape(shapes: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """The smallest shape that has room for all of these."""
    return max(out for out, _ in shapes), max(fan_in for _, fan_in in shapes)


def uniform(shape: tuple[int, ...], fan_in: int, generator: torch.Generator) -> Tensor:
    """Numbers between -1 and 1 over sqrt(fan_in), as nn.Linear draws its weights and biases."""
    return (2 * torch.rand(shape, generator=generator) - 1) / fan_in**0.5


def random_int16(count: int, generator: torch.Generator) -> Tensor:
    """So many uniform 16-bit integers, cut from 64-bit ones: a quarter of the draws."""
    draws = torch.empty(-(-count // 4), dtype=torch.int64)
    draws.random_(-(1 << 63), None, generator=generator)
    return draws.view(torch.int16)[:count]


def cross_entropy_gradient(log_p: Tensor, y: Tensor) -> Tensor:
    """Of the mean cross-entropy by the logits: (p - one-hot(y)) / n, B x n x K."""
    n = y.shape[1]
    gradient = log_p.exp().div_(n)
    share = gradient.new_full((1,), -1 / n).expand(*y.shape, 1)
    return gradient.scatter_add_(2, y[:, :, None], share)


def descend(
    parameter: Tensor, momentum: Tensor, gradient: Tensor, lr: float, config: Stage2
) -> None:
    """The step of torch.optim.SGD: decay joins the gradient, momentum without dampening."""
    momentum.mul_(config.momentum).add_(gradient).add_(parameter, alpha=config.weight_decay)
    parameter.sub_(momentum, alpha=lr)


def logits(x: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    """Linear layers with ReLU between them."""
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        x = torch.addmm(b, x, w.T).relu_()
    return torch.addmm(biases[-1], x, weights[-1].T)


def plain(weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> nn.Sequential:
    """Linear layers with ReLU between them, from weights (out x in) and biases, or None for none.

    In eval mode and without gradients.
    """
    layers: list[nn.Module] = []
    for weight, bias in zip(weights, biases, strict=True):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        layer.weight = nn.Parameter(weight.clone(), requires_grad=False)
        if bias is not None:
            layer.bias = nn.Parameter(bias.clone(), requires_grad=False)
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
        weights, biases = layers_of(tensors)
    except FileError as error:
        raise FileError(path, f"not a head written by maccal ({error.problem})") from None
    except (KeyError, ValueError) as error:
        problem = f"its layers do not fit: {error}"
        raise FileError(path, f"not a head written by maccal ({problem})") from None
    return plain(weights, biases)


def layers_of(tensors: Mapping[str, Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
    """The weights and biases in a plain head's state dict; ValueError where they are no head's.

    A ReLU stands between two layers, so they have the even numbers of nn.Sequential.
    """
    weights: list[Tensor] = []
    biases: list[Tensor | None] = []
    left = dict(tensors)
    while left:
        number = 2 * len(weights)
        weights.append(left.pop(f"{number}.weight"))
        biases.append(left.pop(f"{number}.bias", None))
    check_layers(weights, biases)
    return weights, biases


def check_layers(weights: list[Tensor], biases: list[Tensor | None]) -> None:
    """ValueError unless each layer takes what the one before it gives."""
    if not weights:
        raise ValueError("there are none")
    for weight, bias in zip(weights, biases, strict=True):
        if weight.dim() != 2 or not weight.is_floating_point():
            raise ValueError(f"weights of {tuple(weight.shape)}, of {weight.dtype}")
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ValueError(f"weights of {tuple(weight.shape)} with biases of {tuple(bias.shape)}")
    for before, after in pairwise(weights):
        if before.shape[0] != after.shape[1]:
            raise ValueError(f"{before.shape[0]} outputs into {after.shape[1]} inputs")
