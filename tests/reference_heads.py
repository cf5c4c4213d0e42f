"""Slow, obvious twins of the heads in training: a masked layer, and one step by autograd."""

import torch
import torch.nn.functional as F
from torch import nn


class MaskedLinear(nn.Linear):
    """A linear layer that drops each weight with probability 1 - keep in every training pass.

    y = (M * W) x + b with M ~ Bernoulli(keep) (Eqs. 7 and 8); the bias is never masked. In eval
    mode y = keep W x + b, with the expected weights: one deterministic pass.

    >>> layer = MaskedLinear(3, 2, keep=0.5).eval()
    >>> x = torch.ones(1, 3)
    >>> bool(torch.allclose(layer(x), F.linear(x, 0.5 * layer.weight, layer.bias)))
    True
    """

    def __init__(self, width_in, width_out, keep=0.5, generator=None):
        super().__init__(width_in, width_out)
        self.keep = keep
        self.generator = generator

    def mask(self):
        """A fresh binary mask of the weights."""
        uniform = torch.rand(self.weight.shape, generator=self.generator)
        return (uniform < self.keep).to(self.weight.dtype)

    def forward(self, x):
        factor = self.mask() if self.training else self.keep
        return F.linear(x, self.weight * factor, self.bias)


class AutogradHead:
    """The twin of one head of `Heads`: nn.Parameters, autograd and torch.optim.SGD."""

    def __init__(self, weights, biases, config, lr):
        self.config = config
        self.weights = [nn.Parameter(w.clone()) for w in weights]
        self.biases = [nn.Parameter(b.clone()) for b in biases]
        self.optimiser = torch.optim.SGD(
            [*self.weights, *self.biases],
            lr=lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )

    def step(self, masks, x, y):
        used = self.used(masks)
        hidden = x
        for w, b in zip(used[:-1], self.biases[:-1], strict=True):
            hidden = F.linear(hidden, w, b).relu()
        self.optimiser.zero_grad()
        F.cross_entropy(F.linear(hidden, used[-1], self.biases[-1]), y).backward()
        self.restrict(masks)
        before = [(w.detach().clone(), self.momentum(w).clone()) for w in self.weights]
        self.optimiser.step()
        if self.config.restrict == "frozen":
            self.put_back(masks, before)

    def used(self, masks):
        """The weights as they take part in the pass."""
        pairs = list(zip(self.weights, masks, strict=True))
        if self.config.masking == "reset":
            for w, m in pairs:
                w.data.mul_(m)
            return self.weights
        if self.config.masking == "straight-through":
            return [w + (w * m - w).detach() for w, m in pairs]
        return [w * m for w, m in pairs]

    def restrict(self, masks):
        """Eq. 11, where autograd does not do it by itself."""
        if self.config.masking == "reset" and self.config.restrict != "none":
            for w, m in zip(self.weights, masks, strict=True):
                w.grad.mul_(m)

    def momentum(self, w):
        state = self.optimiser.state[w]
        return state["momentum_buffer"] if state else torch.zeros_like(w)

    def put_back(self, masks, before):
        """Dropped weights and their momenta are as they were before the step."""
        for w, m, (weight, momentum) in zip(self.weights, masks, before, strict=True):
            w.data.copy_(torch.where(m > 0, w.data, weight))
            self.momentum(w).copy_(torch.where(m > 0, self.momentum(w), momentum))
