"""What the tests of feature extraction share.

Small models, loaders of a few rows, and looks at a model's state.
"""

import torch
from torch import nn

K = 5
Y = torch.arange(12) % K
X = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
TOKENS = torch.randint(3, 50, (4, 9), generator=torch.Generator().manual_seed(2))
MASK = (torch.arange(9) < torch.tensor([[9], [4], [6], [1]])).long()


def net():
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, K)
    )


def batches(x=X, y=Y, size=5):
    return list(zip(x.split(size), y.split(size), strict=True))


@torch.no_grad()
def mostly_right(model, inputs):
    """One batch with labels of which the model, in eval mode, is wrong on the first fourth."""
    logits = model.eval()(inputs)
    labels = logits.argmax(1)
    wrong = max(1, len(labels) // 4)
    labels[:wrong] = (labels[:wrong] + 1) % logits.shape[1]
    return [(inputs, labels)]


def state(model):
    """Everything of a model that a pass could change."""
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return (
        [m.training for m in model.modules()],
        {k: v.clone() for k, v in model.state_dict().items()},
        hooks,
    )


def same(a, b):
    return (
        a[0] == b[0]
        and a[2] == b[2]
        and a[1].keys() == b[1].keys()
        and all(torch.equal(v, b[1][k]) for k, v in a[1].items())
    )


class Counted(nn.Module):
    """A model that counts its forward passes."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.count = inner, 0

    def forward(self, x):
        self.count += 1
        return self.inner(x)


class Lambda(nn.Module):
    """Layers and a function of them."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


class Stop(KeyboardInterrupt):
    """Not the tests' own Ctrl-C."""


def files(folder):
    return sorted(path.name for path in folder.iterdir())


class Stateful(nn.Module):
    """Changes its buffers in eval mode, in place and by putting new ones in their place, and keeps
    a tensor.
    """

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", None)
        self.register_buffer("sum", torch.full((2,), -0.0))

    def forward(self, x):
        self.calls += 1
        self.last = x
        self.sum = self.sum + 1
        self.kept = x * 2
        self.register_buffer("late", x)
        return x


def trap():
    model = nn.Sequential(net()[:4], Stateful(), nn.Linear(8, K)).train()
    model[0][1].eval()  # a frozen BatchNorm in a model that trains
    model[0][1].running_mean.fill_(torch.nan)[1:] = 0.5
    model[0][1].running_mean[0] = 0.25
    return model
