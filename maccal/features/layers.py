"""Layers that compute W x + b at every position of a row: what they are, and their weights.

    nn.Linear              W is K x D; x ends in D channels
    nn.Conv1d, 2d, 3d      with a kernel of 1: W is K x D x 1 ...; the channels come first
    transformers' Conv1D   W is D x K; x ends in D channels

A position is a token of a text or a place of a map. `positions_of` brings all inputs and outputs to
rows x positions x channels, `matrix_of` all weights to K x D: the rest of the room knows one kind.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.features.batches import Batch
from maccal.features.running import Runner

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Call(NamedTuple):
    """A layer that ran, what went in and what came out."""

    layer: nn.Module
    x: Tensor
    out: Tensor


def is_transposed(layer: nn.Module) -> bool:
    """Whether it is the Conv1D of transformers: told by its name, as that need not be installed."""
    kind = type(layer)
    return kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.")


def is_pointwise(layer: nn.Module) -> bool:
    """Whether it is a convolution that looks at one position at a time, and at all channels."""
    if not isinstance(layer, CONVOLUTIONS) or layer.groups > 1:
        return False
    unpadded = layer.padding in ("same", "valid") or set(layer.padding) == {0}
    return set(layer.kernel_size) == {1} and set(layer.stride) == {1} and unpadded


def is_linear(layer: nn.Module) -> bool:
    """Whether it has its channels last."""
    return isinstance(layer, nn.Linear) or is_transposed(layer)


def linear_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The layers with channels last, by name."""
    return {name: module for name, module in model.named_modules() if is_linear(module)}


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """All layers that compute W x + b, by name."""
    found = {}
    for name, module in model.named_modules():
        if is_linear(module) or is_pointwise(module):
            found[name] = module
    return found


def matrix_of(layer: nn.Module) -> Tensor:
    """The weights as they are now, K x D."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    return weight.T if is_transposed(layer) else weight.flatten(1)


def bias_of(layer: nn.Module) -> Tensor | None:
    bias: Tensor | None = layer.bias  # type: ignore[assignment]
    return bias


@torch.no_grad()
def write_matrix(layer: nn.Module, matrix: Tensor) -> None:
    """Other weights, K x D, in the same parameter."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    weight.copy_(matrix.T if is_transposed(layer) else matrix.reshape(weight.shape))


def positions_of(layer: nn.Module, x: Tensor) -> Tensor:
    """Inputs or outputs of a layer as rows x positions x channels."""
    if isinstance(layer, CONVOLUTIONS):
        return x.flatten(2).mT
    return x[:, None] if x.ndim == 2 else x.flatten(1, -2)


def pooled(positions: Tensor) -> Tensor:
    """The mean over the positions, rows x channels."""
    return positions[:, 0] if positions.shape[1] == 1 else positions.mean(1)


def shaped_like(layer: nn.Module, positions: Tensor, output: Tensor) -> Tensor:
    """Rows x positions x channels in the shape of the layer's output."""
    if isinstance(layer, CONVOLUTIONS):
        return positions.mT.reshape(output.shape)
    return positions.reshape(output.shape)


def computed(run: Runner, call: Call) -> Tensor:
    """W x + b at every position, in the model's precision: what a plain layer gives."""
    x = positions_of(call.layer, call.x)
    with run.settings():
        return F.linear(x, matrix_of(call.layer), bias_of(call.layer))


Hook = Callable[..., Tensor | None]


@contextmanager
def hooked(layers: dict[str, nn.Module], hook: Callable[[str], Hook]) -> Iterator[None]:
    """Each layer with a forward hook for a while; `hook` makes it from the layer's name."""
    handles = []
    try:
        for name, layer in layers.items():
            handles.append(layer.register_forward_hook(hook(name), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else next(iter(kwargs.values()), None)


def watched(
    run: Runner, batch: Batch, layers: dict[str, nn.Module], copies: bool = True
) -> tuple[Tensor, dict[str, Call]]:
    """The logits of a batch, and the last call of each layer, in the order of the calls.

    The outputs are copies, as a ReLU in place would change them; not where only inputs are needed.
    """
    calls: dict[str, Call] = {}

    def spy(name: str) -> Hook:
        def hook(layer: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            x = input_of(args, kwargs)
            calls.pop(name, None)
            tensors = isinstance(x, Tensor) and isinstance(output, Tensor)
            if tensors and min(x.ndim, output.ndim) > 1:
                calls[name] = Call(layer, x, output.clone() if copies else output)

        return hook

    with hooked(layers, spy):
        logits = run(batch)
    return logits, calls


def scaled(run: Runner, batch: Batch, layers: dict[str, nn.Module], factor: float) -> Tensor:
    """The logits if all these layers gave `factor` times what they give."""

    def scale(name: str) -> Hook:
        return lambda layer, args, kwargs, output: output * factor

    with hooked(layers, scale):
        return run(batch)
