"""The classifier inside a model: found, named, replaced, and the reason where there is none."""

import copy

import pytest
import torch
import torch.nn.functional as F
from extraction import IMAGES, K, Lambda, X, Y, batches, net, state
from torch import nn

from maccal.features.classifiers import Classifier
from maccal.features.extraction import extract, find_head, replace_head


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_finds_the_last_layer_of_a_plain_model(dtype):
    model = nn.Sequential(nn.Linear(6, K), nn.ReLU(), nn.Linear(K, K)).to(dtype)
    assert find_head(model, (X.to(dtype), Y)) == "2"
    assert find_head(model, (X.to(dtype), Y), head="2") == "2"
    assert extract(model, [(X.to(dtype), Y)]).z.dtype == torch.float32


def test_of_equal_layers_the_one_with_a_known_name():
    model = Lambda(
        lambda self, x: (self.fc(x), self.other(x))[0], fc=nn.Linear(6, K), other=nn.Linear(6, K)
    )
    model.other.load_state_dict(model.fc.state_dict())
    assert find_head(model, (X, Y)) == "fc"


def test_wrappers_keep_their_names():
    inner = net()
    assert find_head(nn.DataParallel(inner), (X, Y)) == "module.4"
    z = extract(nn.DataParallel(inner), batches(), head="module.4").z
    assert torch.equal(z, extract(inner, batches()).z)


@pytest.mark.slow
def test_a_compiled_model_is_read_without_its_compiler():
    """Hooks set after the compilation would not run."""
    inner = net()
    model = torch.compile(inner, backend=lambda graph, inputs: pytest.fail("compiled"))
    name = find_head(model, (X, Y))
    assert name == "_orig_mod.4"
    assert torch.equal(extract(model, batches(), head=name).z, extract(inner, batches()).z)
    new = nn.Linear(8, 3)
    replace_head(model, name, new)
    assert inner[4] is new


def test_a_model_that_is_its_own_head():
    layer = nn.Linear(6, K)
    assert find_head(layer, (X, Y)) == ""
    z = extract(layer, batches()).z
    assert torch.equal(z, X)
    with pytest.raises(ValueError, match="calibrate_head"):
        replace_head(layer, "", nn.Linear(6, K))


def test_a_loader_that_fills_the_same_tensors_again():
    def loader():
        x, y = torch.empty(4, 6), torch.empty(4, dtype=torch.int64)
        for xs, ys in batches(size=4):
            yield x.copy_(xs), y.copy_(ys)

    z, y = extract(nn.Linear(6, K), loader())
    assert torch.equal(z, X)
    assert torch.equal(y, Y)


class Cosine(nn.Linear):
    def forward(self, x):
        return 16 * F.linear(F.normalize(x, dim=1), F.normalize(self.weight, dim=1))


HEADLESS = {
    "cosine": (
        lambda: nn.Sequential(nn.Linear(6, 8), Cosine(8, K)),
        X,
        "^none of the model's 2 linear layers gives the logits as W x .* '1' gives them, but it",
    ),
    "softmax": (
        lambda: nn.Sequential(nn.Linear(6, K), nn.Softmax(1)),
        X,
        "softmax of '0'; make it return logits",
    ),
    "follows": (lambda: nn.Sequential(nn.Linear(6, K), nn.Tanh()), X, "'0'.*something follows"),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, K, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        IMAGES,
        "convolution '0', whose kernel is larger than 1",
    ),
    "no layer": (lambda: nn.Sequential(nn.ReLU()), X, "none that ran has 6 outputs.*head="),
}


@pytest.mark.parametrize("kind", HEADLESS)
def test_says_why_there_is_no_head(kind):
    build, x, message = HEADLESS[kind]
    model = build()
    with pytest.raises(ValueError, match=message):
        find_head(model, (x, Y[: len(x)]))
    assert state(model)[2] == 0


def test_a_wrong_name_says_what_is_there():
    model = Lambda(
        lambda self, x: self.classifier(self.body(x)),
        body=nn.Sequential(nn.Linear(6, 8)),
        classifier=nn.Linear(8, K),
    )
    with pytest.raises(
        ValueError, match=r"no module 'clasifier'; did you mean one of \['classifier'\]"
    ):
        find_head(model, (X, Y), head="clasifier")
    with pytest.raises(
        ValueError,
        match=r"'body' is a Sequential; expected an nn.Linear, such as one of \['body.0'\]",
    ):
        find_head(model, (X, Y), head="body")
    with pytest.raises(ValueError, match=r"head='body.0' does not give the logits"):
        extract(model, batches(), head="body.0")


def test_replace_head_wherever_it_is_and_as_it_was():
    model = Lambda(lambda self, x: self.classifier(x), fc=nn.Linear(6, K).double().eval())
    model.classifier = model.fc
    new = nn.Sequential(nn.Linear(6, K), nn.Dropout(0.9))
    expected = copy.deepcopy(new[0]).double()(X.double())
    assert replace_head(model, "fc", new) is None
    assert model.fc is new
    assert model.classifier is new
    assert torch.equal(model(X.double()), expected)


def test_replace_head_inside_a_sequence():
    model = nn.DataParallel(net())
    new = nn.Linear(8, 3)
    replace_head(model, find_head(model, (X, Y)), new)
    assert model.module[4] is new
    assert [type(m).__name__ for m in model.module] == [
        "Linear",
        "BatchNorm1d",
        "ReLU",
        "Dropout",
        "Linear",
    ]
    with pytest.raises(ValueError, match="no module 'fc'"):
        replace_head(model, "fc", new)


class Rows(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return X[index], int(Y[index])


@pytest.mark.parametrize(
    ("model", "loader", "message"),
    [
        (lambda: nn.Linear(6, K, device="meta"), batches(), "'weight' is on the meta device"),
        (lambda: torch.jit.trace(net().eval(), X), batches(), "compiled by torch.jit"),
        (net, [(X, Y, torch.arange(12))], r"is this one \(inputs, labels, index\)"),
        (net, Rows(), r"is a data set \(Rows\); pass a loader"),
        (net, [(X[0], 1)], "single rows, not batches"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_no_model_or_loader(model, loader, message):
    with pytest.raises(ValueError, match=message):
        extract(model(), loader)


def test_the_cache_knows_several_layers_by_their_name(tmp_path):
    """A mean is found again when its own weights change; logits as features are not."""
    two = {"head": nn.Linear(6, K), "aux": nn.Linear(6, K)}
    mean = Lambda(lambda self, x: (self.head(x) + self.aux(x)) / 2, **two)
    biggest = Lambda(lambda self, x: torch.maximum(self.head(x), self.aux(x)), **two)
    for model, name, files in [(mean, "mean(head, aux)", 1), (biggest, "scale(head, aux)", 2)]:
        assert find_head(model, (X, Y)) == name
        folder = tmp_path / name
        folder.mkdir()
        first = extract(model, batches(), cache=folder).z
        assert torch.equal(extract(model, batches(), cache=folder).z, first)
        assert len(list(folder.iterdir())) == 1
        model.head.weight.data *= 1.5
        extract(model, batches(), cache=folder)
        assert len(list(folder.iterdir())) == files
    assert Classifier.parse("sum(0.25*a, 0.75*b)").name == "sum(0.25*a, 0.75*b)"
