"""Classifier heads on frozen features: the masked layer of MaC-Cal, and its plain form for inference.

MaskedLinear    y = (M * W) x + b, M ~ Bernoulli(keep) drawn in every training pass (Eqs. 7 and 8); the bias is never masked.
                In eval mode y = keep W x + b, the expected weights: one deterministic pass.
plain           trained weights as ordinary linear layers, for inference
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MaskedLinear(nn.Linear):
    """A linear layer whose weights are dropped at random while it trains, each with probability 1 - keep.

    >>> layer = MaskedLinear(3, 2, keep=0.5).eval()
    >>> x = torch.ones(1, 3)
    >>> bool(torch.allclose(layer(x), F.linear(x, 0.5 * layer.weight, layer.bias)))
    True
    """

    def __init__(self, width_in: int, width_out: int, keep: float = 0.5, generator: torch.Generator | None = None) -> None:
        super().__init__(width_in, width_out)
        self.keep = keep
        self.generator = generator

    def mask(self) -> Tensor:
        """A fresh binary mask of the weights."""
        uniform = torch.rand(self.weight.shape, generator=self.generator, device=self.weight.device)
        return (uniform < self.keep).to(self.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * (self.mask() if self.training else self.keep), self.bias)


def plain(weights: list[Tensor], biases: list[Tensor]) -> nn.Sequential:
    """Linear layers with ReLU between them, from their weights (out x in) and biases, in eval mode and without gradients."""
    layers: list[nn.Module] = []
    for weight, bias in zip(weights, biases, strict=True):
        layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
        layer.weight, layer.bias = nn.Parameter(weight.clone(), False), nn.Parameter(bias.clone(), False)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()
