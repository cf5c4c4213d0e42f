"""The classifier inside a model: which layers it is, and how its weights are read and written.

    fc                          logits = W x + b: one layer
    mean(head, head_dist)       logits = sum_i s_i (W_i x_i + b_i), with shares s_i = 1 / B; this is
    sum(0.3*a, 0.7*b)           one linear layer over the features [x_1 ... x_B], with the weights
                                [s_1 W_1 ... s_B W_B] and the bias sum_i s_i b_i
    scale(head, aux_head)       whatever else has the property that a factor of all these layers is
                                a factor of the logits: a maximum or a ReLU behind them, say. The
                                features are the logits themselves, and only a temperature fits

Such a name stands wherever one asks for a head. The weights are written into the parameters that
are there: the keys and shapes of the state dict, dtypes, devices, modes and requires_grad stay.
A weight that is not the layer's own is refused: one that is computed from others, as weight_norm
does, or that an embedding shares.

replace_head    puts another module in the place of one linear layer
put_head        writes a head into the classifier or, where it is more than linear, replaces it
"""

import difflib
import re
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from maccal.features.layers import (
    bias_of,
    is_linear,
    is_pointwise,
    layers_of,
    matrix_of,
    write_matrix,
)

RULE = re.compile(r"(mean|sum|scale)\((.+)\)")
ONLY_TEMPERATURE = (
    "the logits are more than its outputs, and only grow in step with them: only a temperature "
    "fits it; pass calibrator='temperature'"
)
ONLY_LINEAR = (
    "a head of several layers cannot take its place; choose a calibrator that gives one linear "
    "layer, such as 'temperature', or 'maccal' with hidden=None"
)
NO_BIAS = (
    "has no bias and the calibrated classifier has one, which would be lost when the model is "
    "saved and loaded; calibrator='temperature', or one that starts from the trained classifier "
    "and does not centre the features, needs none"
)
ROUNDING = 1e-5  # how far from a multiple of the identity a temperature's weights may be


@dataclass(frozen=True)
class Classifier:
    """The layers that make the logits, by name."""

    names: tuple[str, ...]
    # logits = sum of share x layer; None where only a common factor is known to pass through
    shares: tuple[float, ...] | None

    @classmethod
    def parse(cls, name: str) -> "Classifier":
        """The classifier of this name.

        >>> Classifier.parse("mean(head, head_dist)")
        Classifier(names=('head', 'head_dist'), shares=(0.5, 0.5))
        """
        match = RULE.fullmatch(name.strip())
        if match is None:
            return cls((name,), (1.0,))
        rule, inside = match.groups()
        terms = [term.strip() for term in inside.split(",")]
        if rule == "scale":
            return cls(tuple(terms), None)
        if rule == "mean":
            return cls(tuple(terms), (1 / len(terms),) * len(terms))
        factors, names = zip(*(factor_of(term, name) for term in terms), strict=True)
        return cls(names, factors)

    @property
    def name(self) -> str:
        """As the user reads it and may pass it to head=."""
        if self.shares is None:
            return f"scale({', '.join(self.names)})"
        if self.shares == (1.0,):
            return self.names[0]
        if set(self.shares) == {1 / len(self.names)}:
            return f"mean({', '.join(self.names)})"
        terms = zip(self.shares, self.names, strict=True)
        return f"sum({', '.join(f'{share:.9g}*{name}' for share, name in terms)})"

    @property
    def alone(self) -> bool:
        return self.shares == (1.0,)

    def outside(self, prefix: str) -> "Classifier":
        """The same layers by the names that they have outside of a wrapper."""
        return Classifier(tuple(prefix + name for name in self.names), self.shares)

    def inside(self, prefix: str) -> "Classifier":
        """The same layers by the names that they have inside of it."""
        return Classifier(tuple(name.removeprefix(prefix) for name in self.names), self.shares)

    def layers(self, model: nn.Module) -> dict[str, nn.Module]:
        """Its layers in the model; ValueError, with what is there, for a wrong name."""
        return {name: named(model, name) for name in self.names}

    def classes(self, model: nn.Module) -> int:
        return len(matrix_of(named(model, self.names[0])))

    def width(self, model: nn.Module) -> int:
        """The number of features."""
        if self.shares is None:
            return self.classes(model)
        return sum(matrix_of(layer).shape[1] for layer in self.layers(model).values())

    @torch.no_grad()
    def linear(self, model: nn.Module) -> nn.Linear:
        """A copy as one linear layer, features to logits, in float32 or more; no bias of none."""
        layers = list(self.layers(model).values())
        first = matrix_of(layers[0])
        dtype = torch.promote_types(first.dtype, torch.float32)
        if self.shares is None:
            return linear_layer(torch.eye(len(first), dtype=dtype, device=first.device), None)
        blocks = []
        biases = []
        for layer, share in zip(layers, self.shares, strict=True):
            blocks.append(share * matrix_of(layer).to(dtype))
            bias = bias_of(layer)
            if bias is not None:
                biases.append(share * bias.to(dtype))
        return linear_layer(torch.cat(blocks, 1), sum(biases[1:], biases[0]) if biases else None)

    def check_place(self, model: nn.Module) -> None:
        """ValueError unless every layer holds its weights itself, and alone."""
        for name, layer in self.layers(model).items():
            if "weight" not in layer._parameters:
                raise ValueError(
                    f"{name!r} computes its weight from other parameters (weight_norm, say); "
                    "remove that first: torch.nn.utils.parametrize.remove_parametrizations"
                )
            other = sharer(model, layer)
            if other is not None:
                raise ValueError(
                    f"{name!r} shares its weight with {other!r}, which would change with it; untie "
                    "them first: give it an nn.Parameter of its own (in transformers also "
                    "config.tie_word_embeddings = False)"
                )

    @torch.no_grad()
    def write(self, model: nn.Module, new: nn.Linear) -> None:
        """Put the weights of a linear layer, features to logits, into the model's own layers."""
        old = self.linear(model)
        old_bias = bias_of(old)
        if new.weight.shape != old.weight.shape:
            raise ValueError(
                f"the new weights have shape {tuple(new.weight.shape)}, "
                f"those of {self.name!r} {tuple(old.weight.shape)}"
            )
        weight = new.weight.to(old.weight)
        bias = torch.zeros_like(weight[:, 0]) if new.bias is None else new.bias.to(old.weight)
        layers = list(self.layers(model).values())
        if self.shares is None:
            multiply(layers, factor_in(weight, bias, self.name))
            return
        if old_bias is None and bool(bias.any()):
            raise ValueError(f"{self.name!r} {NO_BIAS}")
        widths = [matrix_of(layer).shape[1] for layer in layers]
        blocks = torch.split(weight, widths, 1)
        for layer, share, block in zip(layers, self.shares, blocks, strict=True):
            write_matrix(layer, block / share)
        if old_bias is not None:
            share_bias(layers, self.shares, old_bias, bias)


def factor_of(term: str, name: str) -> tuple[float, str]:
    """The share and the name in a term of a sum."""
    factor, star, layer = term.partition("*")
    try:
        return float(factor if star else "1"), layer.strip() if star else term
    except ValueError:
        raise ValueError(f"head={name!r}: {factor!r} is not a number") from None


def linear_layer(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """With these tensors as its parameters, in eval mode and without gradients."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer.eval()


def sharer(model: nn.Module, layer: nn.Module) -> str | None:
    """The name of another module's parameter that is one of the layer's."""
    own = [parameter for parameter in layer._parameters.values() if parameter is not None]
    for name, module in model.named_modules():
        if module is layer:
            continue
        for key, parameter in module._parameters.items():
            if any(parameter is mine for mine in own):
                return f"{name}.{key}".removeprefix(".")
    return None


def factor_in(weight: Tensor, bias: Tensor, name: str) -> float:
    """The factor of a head that multiplies every logit by it; ValueError for any other head."""
    factor = float(weight.diagonal().mean())
    rest = weight - factor * torch.eye(len(weight)).to(weight)
    if bool(bias.any()) or factor <= 0 or float(rest.abs().max()) > ROUNDING * factor:
        raise ValueError(f"{name!r}: {ONLY_TEMPERATURE}")
    return factor


def multiply(layers: list[nn.Module], factor: float) -> None:
    for parameter in chain.from_iterable(layer.parameters() for layer in layers):
        parameter.mul_(factor)


def share_bias(
    layers: list[nn.Module], shares: tuple[float, ...], old: Tensor, new: Tensor
) -> None:
    """The new bias in the biases of the layers, of which it is the sum with these shares.

    As far as it is a multiple of the old one, each layer's is multiplied: then a temperature is one
    for every layer too. What is left they share alike.
    """
    length = float(old @ old)
    factor = float(new @ old) / length if length > 0 else 0.0
    have = [(bias_of(layer), share) for layer, share in zip(layers, shares, strict=True)]
    own = [(bias, share) for bias, share in have if bias is not None]
    rest = (new - factor * old) / sum(share for _, share in own)
    for bias, _ in own:
        bias.copy_(factor * bias.to(new) + rest)


def named(model: nn.Module, name: str) -> nn.Module:
    """The layer of this name; ValueError, with what is there, where there is none."""
    try:
        layer = model.get_submodule(name)
    except AttributeError:
        names = [other for other, _ in model.named_modules()]
        likely = difflib.get_close_matches(name, names) or list(layers_of(model))[-5:]
        raise ValueError(
            f"the model has no module {name!r}; did you mean one of {likely}?"
        ) from None
    if is_linear(layer) or is_pointwise(layer):
        return layer
    possible = list(layers_of(model))
    below = [other for other in possible if other.startswith(f"{name}.")]
    raise ValueError(
        f"head={name!r} is a {type(layer).__name__}; "
        f"expected an nn.Linear, such as one of {below or possible[-5:]}"
    )


def replace_head(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of the model's head, wherever the model refers to it.

    It gets the dtype, the device, the mode and the requires_grad of the head, which must be one
    nn.Linear.
    """
    if name == "":
        raise ValueError(
            "the model is a linear layer itself; use calibrate_head on its inputs instead"
        )
    found = Classifier.parse(name)
    old = named(model, found.names[0])
    if not found.alone or not isinstance(old, nn.Linear):
        raise ValueError(f"{name!r} is not one nn.Linear: {ONLY_LINEAR}")
    module.to(old.weight.device, old.weight.dtype).train(old.training)
    module.requires_grad_(old.weight.requires_grad)
    for parent in list(model.modules()):
        for key, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, key, module)


def put_head(model: nn.Module, name: str, head: nn.Module) -> None:
    """The head in the place of the model's classifier.

    One linear layer is written into the parameters that are there; any other module replaces the
    layer, and with it the keys of its parameters.
    """
    if isinstance(head, nn.Linear):
        Classifier.parse(name).write(model, head)
    else:
        replace_head(model, name, head)
