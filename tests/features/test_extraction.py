"""Extraction: what loaders may give, and that the model comes back as it was."""

from collections import UserDict
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from extraction import IMAGES, K, Lambda, Stop, X, Y, batches, net, same, state, trap
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from maccal.features.extraction import extract


@pytest.mark.parametrize(
    "wrap",
    [
        lambda out: out,
        lambda out: (out, "more"),
        lambda out: {"logits": out},
        lambda out: SimpleNamespace(logits=out),
        lambda out: UserDict(logits=out),
    ],
)
def test_outputs(wrap):
    model = Lambda(lambda self, x: wrap(self.fc(x)), fc=nn.Linear(6, K))
    assert torch.equal(extract(model, batches()).z, X)


def test_several_inputs_and_mappings():
    model = Lambda(lambda self, a, b: self.fc(torch.cat([a, b], 1)), fc=nn.Linear(6, K))
    a, b = X.split(3, 1)
    for batch in (
        (a, b, Y),
        [a, b, Y.int()],
        {"a": a, "b": b, "target": Y},
        UserDict(b=b, y=Y.numpy(), a=a),
    ):
        z, y = extract(model, [batch])
        assert torch.equal(z, X)
        assert torch.equal(y, Y)
        assert y.dtype == torch.int64


LINEAR = nn.Linear(6, K)
WRONG = {
    "output": (Lambda(lambda self, x: "cat"), [(X, Y)], "returned a str; expected logits"),
    "keys": (
        Lambda(lambda self, x: {"scores": x}),
        [(X, Y)],
        r"returned a dict with the keys \['scores'\]",
    ),
    "dense": (nn.Linear(32, K), [(IMAGES, Y[:4])], r"logits have shape \(4, 3, 32, 5\)"),
    "one logit": (nn.Linear(6, 1), [(X, Y)], r"shape \(12, 1\); expected .* two classes"),
    "batch": (LINEAR, [X], "gave a Tensor; expected"),
    "alone": (LINEAR, [(X,)], "tuple of length 1"),
    "no labels": (
        LINEAR,
        [{"input": X}],
        r"keys \['input'\]; name the labels one of labels, label",
    ),
    "one-hot": (LINEAR, [(X, F.one_hot(Y))], r"labels have shape \(12, 5\)"),
    "float": (LINEAR, [(X, Y.float())], "dtype torch.float32; expected integer"),
    "bool": (LINEAR, [(X, Y > 2)], "dtype torch.bool; expected integer"),
    "length": (LINEAR, [(X, Y[:7])], "batch of 12 rows has 7 labels"),
    "range": (
        LINEAR,
        [(X[:5], Y[:5]), (X, Y.where(Y > 0, -1))],
        r"label -1 in row 5 is outside 0 .. 4: the head has 5 outputs",
    ),
    "from one": (
        LINEAR,
        [(X[:3], Y[:3] + 1), (X, Y + 1)],
        r"label 5 in row 7 is outside 0 .. 4; .* count from 1",
    ),
    "not from one": (
        LINEAR,
        [(X[:3], Y[:3]), (X, Y + 1)],
        r"label 5 in row 7 is outside 0 .. 4: the head",
    ),
    "empty": (LINEAR, [], "the loader is empty"),
    "nan": (
        LINEAR,
        [(X, Y), (X.masked_fill(torch.eye(12, 6) > 0, torch.nan)[4:], Y[4:])],
        "row 12 are not finite",
    ),
    "first nan": (
        LINEAR,
        [(X.clone().index_fill_(0, torch.tensor([3]), torch.inf), Y)],
        "row 3 are not finite",
    ),
    "lone nan": (LINEAR, [(X, Y), (X[:1] * torch.nan, Y[:1])], "row 12 are not finite"),
    "all nan": (LINEAR, [(X * torch.nan, Y)], "no row of the first batch has finite logits"),
}


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", WRONG)
def test_says_what_is_wrong(kind, cached, tmp_path):
    model, loader, message = WRONG[kind]
    with pytest.raises(ValueError, match=message):
        extract(model, loader, cache=tmp_path if cached else None)
    assert state(model)[2] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_head_that_is_not_always_taken():
    scaled = Lambda(lambda self, x: self.fc(x) * (1 if len(x) == 5 else 2), fc=nn.Linear(6, K))
    other = Lambda(
        lambda self, x: (self.fc if len(x) == 5 else self.b)(x),
        fc=nn.Linear(6, K),
        b=nn.Linear(6, K),
    )
    token = Lambda(
        lambda self, x: self.fc(x[:, None])[:, 0] - (0 if len(x) == 5 else 1), fc=nn.Linear(6, K)
    )
    for model in (scaled, other, token):
        with pytest.raises(ValueError, match="of the first batch, but not of a later one"):
            extract(model, batches())


def test_more_tokens_than_can_be_told_apart():
    model = Lambda(lambda self, x: self.fc(x)[:, -1], fc=nn.Linear(1, 2))
    x = torch.randn(1, 256**2 + 1, 1)
    assert extract(model, [(x[:, 1:], Y[:1])]).z == x[:, -1]
    with pytest.raises(ValueError, match="65537 tokens per row"):
        extract(model, [(x, Y[:1])])


def test_storage_types():
    model = net()
    exact = extract(model, batches()).z
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        assert torch.equal(extract(model, batches(), dtype=dtype).z, exact.to(dtype))
    with pytest.raises(ValueError, match=r"row 1 are too large for torch.float16"):
        extract(LINEAR, [(torch.tensor([[1.0] * 6, [1e6] * 6]), Y[:2])], dtype=torch.float16)
    with pytest.raises(ValueError, match=r"dtype is torch.int8; features are stored as"):
        extract(model, batches(), dtype=torch.int8)


def test_autocast():
    model = net().eval()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        expected = model[:4](X)
    assert expected.dtype == torch.bfloat16
    z = extract(model, [(X, Y)], autocast=torch.bfloat16).z
    assert torch.equal(z, expected.float())
    with torch.autocast("cpu", torch.bfloat16):  # only what was asked for
        assert torch.equal(extract(model, [(X, Y)]).z, extract(model, [(X, Y)]).z)
        assert not torch.equal(extract(model, [(X, Y)]).z, z)


@pytest.mark.parametrize("error", [None, RuntimeError, Stop])
def test_the_model_comes_back_bit_for_bit(error, tmp_path):
    def loader():
        yield from batches()
        if error:
            raise error("midway")

    model = trap()
    sums, before = model[1].sum, state(model)
    if error:
        with pytest.raises(error, match="midway"):
            extract(model, loader())
    else:
        z, y = extract(model, loader())
        assert not any(t.is_inference() or t.requires_grad for t in (z, y))
        nn.Linear(8, K)(z).sum().backward()  # usable in training
    assert same(state(model), before)
    assert model[1].last is None
    assert not hasattr(model[1], "late")
    assert model[1].sum is sums
    assert bool(torch.signbit(model[1].sum).all())
    assert torch.is_grad_enabled()
    assert not model[1].kept.is_inference()


def test_train_mode_does_not_matter():
    """The trap of a model left in train mode.

    Batch statistics and dropout would be in the features.
    """
    model = net()
    z = extract(model.train(), batches()).z
    assert torch.equal(z, extract(model.eval(), batches()).z)
    assert torch.equal(z, extract(model.train(), batches(size=5)).z)
    assert model.training


def test_interrupted_model():
    def forward(self, x):
        if len(x) == 2:
            raise Stop
        return self.fc(self.norm(x))

    model = Lambda(forward, norm=nn.BatchNorm1d(6), fc=nn.Linear(6, K))
    before = state(model)
    with pytest.raises(Stop):
        extract(model, batches())
    assert same(state(model), before)


@pytest.mark.parametrize("size", [4, None])
def test_progress(size, capsys, monkeypatch):
    """A bar on a terminal, on stderr; nothing elsewhere."""

    class Endless(IterableDataset):
        def __iter__(self):
            return iter(zip(X, Y, strict=True))

    loader = (
        DataLoader(TensorDataset(X, Y), batch_size=4)
        if size
        else DataLoader(Endless(), batch_size=4)
    )
    assert torch.equal(extract(nn.Linear(6, K), loader, progress=True).z, X)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert torch.equal(extract(nn.Linear(6, K), loader, progress=True).z, X)
    out, err = capsys.readouterr()
    assert (out, "features" in err) == ("", True)
