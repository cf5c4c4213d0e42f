"""Stored features are what the model computes now: a probe sees what the weights do not say."""

import types

import pytest
import torch
import torch.nn.functional as F
from extraction import Counted, K, Lambda, files
from torch import nn

from maccal.features.extraction import extract
from maccal.features.lookup import alike

N = 1600
X = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(N) % K
ROWS = list(zip(X.split(20), Y.split(20), strict=True))


class Body(nn.Module):
    """A network whose forward pass can be changed without a change of its weights, layers or their
    settings.
    """

    def __init__(self):
        super().__init__()
        self.layer, self.fc, self.other = nn.Linear(6, 6), nn.Linear(6, K), nn.Linear(6, K)
        self.activation, self.times, self.last = F.relu, 1, "fc"

    def forward(self, x):
        for _ in range(self.times):
            x = self.activation(self.layer(x))
        return self.get_submodule(self.last)(helper(x))


def helper(x):
    return x


def activation(model, patch):
    model.activation = F.gelu


def nearly_the_same_activation(model, patch):
    model.activation = lambda x: F.relu(x) + 1e-4 * torch.tanh(x)


def applications(model, patch):
    model.times = 2


def hook(model, patch):
    model.layer.register_forward_hook(lambda layer, args, out: out * 1.5)


def hook_before(model, patch):
    model.layer.register_forward_pre_hook(lambda layer, args: (args[0] + 1,))


def forward(model, patch):
    model.layer.forward = types.MethodType(lambda self, x: F.linear(x, self.weight), model.layer)


def edited_class(model, patch):
    patch.setattr(Body, "forward", lambda self, x: self.fc(self.layer(x).sigmoid()))


def edited_function(model, patch):
    patch.setitem(globals(), "helper", torch.tanh)


def other_head(model, patch):
    model.last = "other"


def a_few_rows(model, patch):
    model.activation = lambda x: F.relu(x) * torch.where(x[:, :1] > 1, 1.1, 1.0)


CHANGES = [
    activation,
    nearly_the_same_activation,
    applications,
    hook,
    hook_before,
    forward,
    edited_class,
    edited_function,
    other_head,
    a_few_rows,
]


@pytest.mark.parametrize("change", CHANGES)
def test_another_forward_pass_is_a_miss(change, tmp_path, monkeypatch):
    """Of all that is listed here the old key saw nothing.

    Both entries stay, and each is found again.
    """
    model = Body()
    before = extract(model, ROWS, cache=tmp_path).z
    with monkeypatch.context() as patch:
        change(model, patch)
        expected = extract(model, ROWS).z
        for _ in range(2):
            made = extract(model, ROWS, cache=tmp_path)
            assert torch.equal(made.z, expected)
            assert torch.equal(made.y, Y)
        assert len(files(tmp_path)) == 2
    fresh = Body()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(extract(fresh, ROWS, cache=tmp_path).z, before)
    assert len(files(tmp_path)) == 2
    if change is not other_head:
        changed = ~(before == expected).all(1)
        share = float(changed.float().mean())
        assert (0.005 < share < 0.05) if change is a_few_rows else share > 0.5


def test_a_change_in_some_rows_is_seen_wherever_they_are(tmp_path):
    """The chosen rows are spread over the data.

    A block of a 25th of it does not hide between them, whatever the order.
    """
    model = nn.Sequential(Lambda(lambda self, x: x * self.scale(x)), nn.Linear(6, K))
    for turn in range(0, 10, 3):
        model[0].scale = lambda x: 1.0
        extract(model, ROWS, cache=tmp_path / str(turn))
        block = X[turn * 160 :][:64]
        model[0].scale = lambda x, block=block: torch.where(
            torch.isin(x[:, :1], block[:, :1]), 2.0, 1.0
        )
        order = torch.randperm(N, generator=torch.Generator().manual_seed(turn))
        shuffled = list(zip(X[order].split(20), Y[order].split(20), strict=True))
        assert torch.equal(
            extract(model, shuffled, cache=tmp_path / str(turn)).z, extract(model, shuffled).z
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rounding_is_not_a_change(dtype, tmp_path):
    """Batches of other sizes are added up in other orders; the model still finds its features."""
    torch.manual_seed(3)
    layers = [
        nn.Linear(6, 300),
        nn.GELU(),
        nn.Linear(300, 300),
        nn.GELU(),
        nn.Linear(300, 40),
        nn.Linear(40, K),
    ]
    model = Counted(nn.Sequential(*layers))
    extract(model, ROWS[:15], cache=tmp_path, dtype=dtype)
    for size in (1, 7, 300):
        loader = list(zip(X[:300].split(size), Y[:300].split(size), strict=True))
        extract(model, loader, cache=tmp_path, dtype=dtype)
    assert len(files(tmp_path)) == 1


def test_a_random_model_is_never_a_hit(tmp_path):
    model = nn.Sequential(Lambda(lambda self, x: F.dropout(x, 0.5)), nn.Linear(6, K))
    for _ in range(2):
        with pytest.warns(
            UserWarning, match="features are not kept: the model gives others each time"
        ):
            z, y = extract(model, ROWS, cache=tmp_path)
        assert z.shape == (N, 6)
        assert torch.equal(y, Y)
        assert files(tmp_path) == []


def test_alike():
    z = torch.rand(50, 4, dtype=torch.float64) + 1
    z[:, 3] *= 1e6  # a huge feature does not hide the others
    z[:, 2] *= 1e-9  # and one that is nearly zero need not be exact
    for column, change, same in (
        (0, 9e-6, True),
        (0, 3e-5, False),
        (3, 1.0, True),
        (2, 1e-9, True),
        (2, 1e-3, False),
    ):
        other = z.clone()
        other[7, column] += change
        assert alike(z, other, 1e-5) == same, (column, change)
    assert alike(torch.zeros(2, 3), torch.zeros(2, 3), 1e-5)
    assert not alike(torch.zeros(2, 3), torch.full((2, 3), 1e-30), 1e-5)
