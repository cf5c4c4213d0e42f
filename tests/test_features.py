"""Features: the head of any model is found, the model comes back as it was, the cache never gives anything but what was asked."""

import copy
import subprocess
import sys
from collections import UserDict
from pathlib import Path
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from maccal.features import Features, extract, find_head, replace_head

K = 5
Y = torch.arange(12) % K
X = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
TOKENS = torch.randint(3, 50, (4, 9), generator=torch.Generator().manual_seed(2))
MASK = (torch.arange(9) < torch.tensor([[9], [4], [6], [1]])).long()


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def net():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, K))


def batches(x=X, y=Y, size=5):
    return list(zip(x.split(size), y.split(size), strict=True))


def state(model):
    """Everything of a model that a pass could change."""
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    return [m.training for m in model.modules()], {k: v.clone() for k, v in model.state_dict().items()}, hooks


def same(a, b):
    return a[0] == b[0] and a[2] == b[2] and a[1].keys() == b[1].keys() and all(torch.equal(v, b[1][k]) for k, v in a[1].items())


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


# Real models. The torchvision wheel does not import without two operators that only its CUDA build declares.


@pytest.fixture(scope="session")
def vision():
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:  # declared already
        pass
    pytest.importorskip("torchvision")
    yield
    del library


def timm_model(name, **options):
    return pytest.importorskip("timm").create_model(name, num_classes=K, **options)


def torchvision_model(name, **options):
    return getattr(pytest.importorskip("torchvision.models"), name)(num_classes=K, **options)


def hf_model(name, config, **options):
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, name)(getattr(transformers, config)(num_labels=K, **options))


TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
TEXT = {"vocab_size": 50, "max_position_embeddings": 20, **TINY}
TOWER = {"patch_size": 8, "num_layers": 1, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24}

IMAGE_MODELS = {
    "timm resnet": (lambda: timm_model("resnet18"), "fc"),
    "timm vit": (lambda: timm_model("vit_tiny_patch16_224", img_size=32, depth=2), "head"),
    "timm mobilenet": (lambda: timm_model("mobilenetv3_small_050"), "classifier"),
    "timm convnext": (lambda: timm_model("convnext_atto"), "head.fc"),
    "torchvision resnet": (lambda: torchvision_model("resnet18"), "fc"),
    "torchvision mobilenet": (lambda: torchvision_model("mobilenet_v3_small"), "classifier.3"),
    "torchvision shufflenet": (lambda: torchvision_model("shufflenet_v2_x0_5"), "fc"),
    "torchvision vit": (lambda: torchvision_model("VisionTransformer", image_size=32, **TOWER), "heads.head"),
    "own": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, K)), "3"),
}
TEXT_MODELS = {
    "bert": (lambda: hf_model("BertForSequenceClassification", "BertConfig", **TEXT), "classifier"),
    "roberta": (lambda: hf_model("RobertaForSequenceClassification", "RobertaConfig", **TEXT), "classifier.out_proj"),
    "gpt2": (
        lambda: hf_model(
            "GPT2ForSequenceClassification",
            "GPT2Config",
            vocab_size=50,
            n_positions=20,
            n_embd=16,
            n_layer=2,
            n_head=2,
            pad_token_id=0,
        ),
        "score",
    ),
}


def logits_from(model, name, z):
    head = model.get_submodule(name)
    return F.linear(z.to(head.weight.dtype), head.weight, head.bias)


@pytest.mark.parametrize("kind", IMAGE_MODELS)
def test_features_of_image_models(kind, vision):
    build, name = IMAGE_MODELS[kind]
    model = build()
    loader = [(IMAGES[:3], Y[:3]), (IMAGES[3:], Y[3:4])]
    before = state(model)  # in train mode
    z, y = extract(model, loader)
    assert find_head(model, loader[0]) == name
    assert same(state(model), before)
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(x) for x, _ in loader])
    assert torch.allclose(logits_from(model, name, z), logits, atol=1e-5 * float(logits.abs().max()))
    assert torch.equal(y, Y[:4])


@pytest.mark.parametrize("kind", TEXT_MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_features_of_text_models(kind, dtype):
    """Mappings as tokenizers give them, with padding; the labels do not reach the model, which would compute a loss."""
    build, name = TEXT_MODELS[kind]
    model = build().to(dtype).eval()
    encoding = pytest.importorskip("transformers").BatchEncoding
    tokens = TOKENS * MASK
    batch = encoding({"input_ids": tokens, "attention_mask": MASK, "labels": Y[:4]})
    assert find_head(model, batch) == name
    z, y = extract(model, [batch, batch], dtype=dtype)
    with torch.no_grad():
        logits = model(input_ids=tokens, attention_mask=MASK).logits
    assert z.shape == (8, 16)
    assert z.dtype == dtype
    assert torch.allclose(logits_from(model, name, z[4:]), logits, atol=0.01 if dtype == torch.bfloat16 else 1e-6)
    assert torch.equal(y, Y[:4].repeat(2))


def test_hugging_face_image_model():
    model = hf_model("ViTForImageClassification", "ViTConfig", image_size=32, patch_size=16, **TINY).eval()
    z, _ = extract(model, [{"pixel_values": IMAGES, "label": Y[:4]}])
    with torch.no_grad():
        assert torch.allclose(logits_from(model, "classifier", z), model(IMAGES).logits, atol=1e-6)


def test_a_head_on_every_token_gives_the_token_the_model_took():
    """Also when rounding makes the logits of all tokens equal: the features still are the right token's."""
    last = torch.tensor([2, 0, 299, 150])
    model = Lambda(lambda self, x: self.score(x)[torch.arange(4), last], score=nn.Linear(6, 2, bias=False)).bfloat16()
    nn.init.zeros_(model.score.weight)
    x = torch.randn(4, 300, 6).bfloat16()
    z, _ = extract(model, [(x, torch.zeros(4, dtype=torch.int64))], dtype=torch.bfloat16)
    assert torch.equal(z, x[torch.arange(4), last])


# Finding and naming the head.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_finds_the_last_layer_of_a_plain_model(dtype):
    model = nn.Sequential(nn.Linear(6, K), nn.ReLU(), nn.Linear(K, K)).to(dtype)
    assert find_head(model, (X.to(dtype), Y)) == "2"
    assert find_head(model, (X.to(dtype), Y), head="2") == "2"
    assert extract(model, [(X.to(dtype), Y)]).z.dtype == torch.float32


def test_of_equal_layers_the_one_with_a_known_name():
    model = Lambda(lambda self, x: (self.fc(x), self.other(x))[0], fc=nn.Linear(6, K), other=nn.Linear(6, K))
    model.other.load_state_dict(model.fc.state_dict())
    assert find_head(model, (X, Y)) == "fc"


def test_wrappers_keep_their_names():
    inner = net()
    assert find_head(nn.DataParallel(inner), (X, Y)) == "module.4"
    z = extract(nn.DataParallel(inner), batches(), head="module.4").z
    assert torch.equal(z, extract(inner, batches()).z)


def test_a_compiled_model_is_read_without_its_compiler():
    """Hooks set after the compilation would not run."""
    model = torch.compile(inner := net(), backend=lambda graph, inputs: pytest.fail("compiled"))
    name = find_head(model, (X, Y))
    assert name == "_orig_mod.4"
    assert torch.equal(extract(model, batches(), head=name).z, extract(inner, batches()).z)
    replace_head(model, name, new := nn.Linear(8, 3))
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


TWO = {"head": nn.Linear(6, K), "head_dist": nn.Linear(6, K)}
HEADLESS = {
    "cosine": (lambda: nn.Sequential(nn.Linear(6, 8), Cosine(8, K)), X, "none .* 2 nn.Linear .*'1' gives them, but it normalises"),
    "two heads": (lambda: Lambda(lambda self, x: (self.head(x) + self.head_dist(x)) / 2, **TWO), X, "mean of .*head.*head_dist"),
    "softmax": (lambda: nn.Sequential(nn.Linear(6, K), nn.Softmax(1)), X, "softmax of '0'; make it return logits"),
    "follows": (lambda: nn.Sequential(nn.Linear(6, K), nn.Tanh()), X, "'0'.*something follows"),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, K, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()), IMAGES, "convolution '0'"),
    "no layer": (lambda: nn.Sequential(nn.ReLU()), X, "none that ran has 6 outputs.*head="),
}


@pytest.mark.parametrize("kind", HEADLESS)
def test_says_why_there_is_no_head(kind):
    build, x, message = HEADLESS[kind]
    model = build()
    with pytest.raises(ValueError, match=message):
        find_head(model, (x, Y[: len(x)]))
    assert state(model)[2] == 0


def test_distilled_deit(vision):
    model = timm_model("deit_tiny_distilled_patch16_224", img_size=32, depth=1)
    with pytest.raises(ValueError, match=r"mean of \['head', 'head_dist'\]"):
        find_head(model, (IMAGES, Y[:4]))


def test_a_wrong_name_says_what_is_there():
    model = Lambda(lambda self, x: self.classifier(self.body(x)), body=nn.Sequential(nn.Linear(6, 8)), classifier=nn.Linear(8, K))
    with pytest.raises(ValueError, match=r"no module 'clasifier'; did you mean one of \['classifier'\]"):
        find_head(model, (X, Y), head="clasifier")
    with pytest.raises(ValueError, match=r"'body' is a Sequential; expected an nn.Linear, such as one of \['body.0'\]"):
        find_head(model, (X, Y), head="body")
    with pytest.raises(ValueError, match=r"head='body.0' does not give the logits"):
        extract(model, batches(), head="body.0")


# Batches and outputs.


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
    for batch in ((a, b, Y), [a, b, Y.int()], {"a": a, "b": b, "target": Y}, UserDict(b=b, y=Y.numpy(), a=a)):
        z, y = extract(model, [batch])
        assert torch.equal(z, X)
        assert torch.equal(y, Y)
        assert y.dtype == torch.int64


LINEAR = nn.Linear(6, K)
WRONG = {
    "output": (Lambda(lambda self, x: "cat"), [(X, Y)], "returned a str; expected logits"),
    "keys": (Lambda(lambda self, x: {"scores": x}), [(X, Y)], r"returned a dict with the keys \['scores'\]"),
    "dense": (nn.Linear(32, K), [(IMAGES, Y[:4])], r"logits have shape \(4, 3, 32, 5\)"),
    "one logit": (nn.Linear(6, 1), [(X, Y)], r"shape \(12, 1\); expected .* two classes"),
    "batch": (LINEAR, [X], "gave a Tensor; expected"),
    "alone": (LINEAR, [(X,)], "tuple of length 1"),
    "no labels": (LINEAR, [{"input": X}], r"keys \['input'\]; name the labels one of labels, label"),
    "one-hot": (LINEAR, [(X, F.one_hot(Y))], r"labels have shape \(12, 5\)"),
    "float": (LINEAR, [(X, Y.float())], "dtype torch.float32; expected integer"),
    "bool": (LINEAR, [(X, Y > 2)], "dtype torch.bool; expected integer"),
    "length": (LINEAR, [(X, Y[:7])], "batch of 12 rows has 7 labels"),
    "range": (LINEAR, [(X[:5], Y[:5]), (X, Y.where(Y > 0, -1))], r"label -1 in row 5 is outside 0 .. 4: the head has 5 outputs"),
    "from one": (LINEAR, [(X[:3], Y[:3] + 1), (X, Y + 1)], r"label 5 in row 7 is outside 0 .. 4; .* count from 1"),
    "not from one": (LINEAR, [(X[:3], Y[:3]), (X, Y + 1)], r"label 5 in row 7 is outside 0 .. 4: the head"),
    "empty": (LINEAR, [], "the loader is empty"),
    "nan": (LINEAR, [(X, Y), (X.masked_fill(torch.eye(12, 6) > 0, torch.nan)[4:], Y[4:])], "row 12 are not finite"),
    "first nan": (LINEAR, [(X.clone().index_fill_(0, torch.tensor([3]), torch.inf), Y)], "row 3 are not finite"),
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
    other = Lambda(lambda self, x: (self.fc if len(x) == 5 else self.b)(x), fc=nn.Linear(6, K), b=nn.Linear(6, K))
    token = Lambda(lambda self, x: self.fc(x[:, None])[:, 0] - (0 if len(x) == 5 else 1), fc=nn.Linear(6, K))
    for model in (scaled, other, token):
        with pytest.raises(ValueError, match="of the first batch, but not of a later one"):
            extract(model, batches())


def test_more_tokens_than_can_be_told_apart():
    model = Lambda(lambda self, x: self.fc(x)[:, -1], fc=nn.Linear(1, 2))
    x = torch.randn(1, 256**2 + 1, 1)
    assert extract(model, [(x[:, 1:], Y[:1])]).z == x[:, -1]
    with pytest.raises(ValueError, match="65537 tokens a row"):
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


# The model comes back as it was.


class Stateful(nn.Module):
    """Changes its buffers in eval mode, in place and by putting new ones in their place, and keeps a tensor."""

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


class Stop(KeyboardInterrupt):
    """Not the tests' own Ctrl-C."""


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
    """The trap of a model left in train mode: batch statistics and dropout would be in the features."""
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
def test_progress(size, capsys):
    class Endless(IterableDataset):
        def __iter__(self):
            return iter(zip(X, Y, strict=True))

    loader = DataLoader(TensorDataset(X, Y), batch_size=4) if size else DataLoader(Endless(), batch_size=4)
    assert torch.equal(extract(nn.Linear(6, K), loader, progress=True).z, X)
    assert "features" in capsys.readouterr().out


# Replacing the head.


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
    replace_head(model, find_head(model, (X, Y)), new := nn.Linear(8, 3))
    assert model.module[4] is new
    assert [type(m).__name__ for m in model.module] == ["Linear", "BatchNorm1d", "ReLU", "Dropout", "Linear"]
    with pytest.raises(ValueError, match="no module 'fc'"):
        replace_head(model, "fc", new)


# The cache.


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def counted():
    return Counted(net())


def mapped_from(tensor):
    """The file whose pages the tensor's memory is, as the kernel sees it."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no /proc/self/maps")
    for line in maps.read_text().splitlines():
        span, *_, name = line.split(maxsplit=5)
        start, stop = (int(end, 16) for end in span.split("-"))
        if start <= tensor.data_ptr() < stop:
            return name
    return None


def test_a_hit_does_not_run_the_model(tmp_path):
    model = counted()
    made = extract(model, batches(), cache=tmp_path)
    assert model.count == 4  # three batches, and one that finds the head
    again = extract(model, batches(size=12), cache=str(tmp_path))  # batches of any size are the same rows
    assert model.count == 4
    plain = extract(model, batches())
    for z, y in (made, again):
        assert torch.equal(z, plain.z)
        assert torch.equal(y, plain.y)
    assert isinstance(again, Features)
    assert len(files(tmp_path)) == 1


def test_the_file_is_plain_safetensors(tmp_path):
    for dtype in (torch.float32, torch.bfloat16):
        z, y = extract(nn.Sequential(nn.ReLU(), nn.Linear(3, K)), [(X[:5, :3], Y[:5])], cache=tmp_path / str(dtype), dtype=dtype)
        (path,) = (tmp_path / str(dtype)).iterdir()
        with safetensors.safe_open(path, "pt") as file:
            assert {"version": "1", "head": "1"}.items() <= file.metadata().items()
            assert torch.equal(file.get_tensor("z"), z)
            assert torch.equal(file.get_tensor("y"), y)
            assert file.get_tensor("rows").unique().shape == (5,)
        assert z.dtype == dtype
        assert torch.equal(z, X[:5, :3].relu().to(dtype))


def test_z_is_a_memory_map_that_does_not_write_back(tmp_path):
    model, loader = net(), batches()
    for _ in range(2):
        z = extract(model, loader, cache=tmp_path).z
        (path,) = tmp_path.iterdir()
        assert mapped_from(z) == str(path)
        data = path.read_bytes()
        z.add_(1)
        assert path.read_bytes() == data


def test_a_shuffling_loader_gets_its_own_order(tmp_path):
    """The label says which row it is; two rows are the same, and one of those comes with another label too."""
    x, y = torch.cat([X, X[:1], X[:1]]), torch.cat([Y, Y[:1], Y[:1] + 1])
    model = counted()
    plain = extract(model.inner, [(x, y)]).z
    extract(model, batches(x, y), cache=tmp_path)
    model.count = 0
    for turn in range(3):
        order = torch.randperm(14, generator=torch.Generator().manual_seed(turn))
        z, labels = extract(model, batches(x[order], y[order]), cache=tmp_path)
        assert torch.equal(z, plain[order])
        assert torch.equal(labels, y[order])
        assert mapped_from(z).startswith(str(tmp_path))  # also when in another order
        assert z.untyped_storage().filename is None  # a file without a name is not to be opened by it
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    z, labels = extract(model, loader, cache=tmp_path)
    assert torch.equal(z.sort(0).values, plain.sort(0).values)
    assert model.count == 0
    assert len(files(tmp_path)) == 1


def change_weight(model, data):
    model.inner[0].weight.data[0, 0] += 1


def change_buffer(model, data):
    model.inner[1].running_var[2] = 2


def change_layer(model, data):
    model.inner[2] = nn.GELU()


def change_option(model, data):
    model.inner[1].eps = 0.1


def change_input(model, data):
    data[0][0][1, 1] += 1


def change_label(model, data):
    data[2][1][0] = (data[2][1][0] + 1) % K


def drop_row(model, data):
    data[2] = (data[2][0][:-1], data[2][1][:-1])


def add_twin(model, data):
    data.append(data[0])


@pytest.mark.parametrize(
    "change", [change_weight, change_buffer, change_layer, change_option, change_input, change_label, drop_row, add_twin]
)
def test_any_change_is_a_miss(change, tmp_path):
    model, data = counted(), [(x.clone(), y.clone()) for x, y in batches()]
    extract(model, data, cache=tmp_path)
    change(model, data)
    model.count = 0
    made = extract(model, data, cache=tmp_path)
    assert model.count == len(data) + 1
    plain = extract(model, data)
    assert torch.equal(made.z, plain.z)
    assert torch.equal(made.y, plain.y)
    assert len(files(tmp_path)) == 2


def test_what_is_part_of_the_key(tmp_path):
    """Storage type and autocast make entries of their own; the head's own weights and a wrapper do not."""
    model = counted()
    extract(model, batches(), cache=tmp_path)
    extract(model, batches(), cache=tmp_path, dtype=torch.float16)
    extract(model, batches(), cache=tmp_path, autocast=torch.bfloat16)
    assert len(files(tmp_path)) == 3
    model.inner[4].weight.data.zero_()
    model.count = 0
    extract(nn.DataParallel(model), batches(), cache=tmp_path)
    extract(model, batches(), cache=tmp_path, head="inner.4")
    assert model.count == 0
    with pytest.raises(ValueError, match="no module 'fc'"):
        extract(model, batches(), cache=tmp_path, head="fc")
    replace_head(model, "inner.4", nn.Linear(8, 3))
    with pytest.raises(ValueError, match=r"label 3 in row 3 is outside 0 .. 2"):
        extract(model, batches(), cache=tmp_path)


def test_a_loader_that_augments_never_hits_and_costs_one_batch(tmp_path):
    class Noisy:
        read = 0

        def __iter__(self):
            for x, y in batches():
                self.read += 1
                yield x + torch.randn(x.shape), y

    model, loader = counted(), Noisy()
    for turn in range(3):
        extract(model, loader, cache=tmp_path)
        assert len(files(tmp_path)) == turn + 1
    assert model.count == 3 * 4
    assert loader.read == 3 * 3 + 2


def damage_truncate(data):
    return data[:-40]


def damage_grow(data):
    return data + b"\0"


def damage_features(data):
    return data[:4200] + bytes([data[4200] ^ 1]) + data[4201:]


def damage_rows(data):
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def damage_head(data):
    return data.replace(b'"inner.4"', b'"inner.0"')


def damage_padding(data):
    return data[:4000] + b"x" + data[4001:]


def damage_length(data):
    return b"\1" + data[1:]


def damage_all(data):
    return b""


@pytest.mark.parametrize(
    "damage",
    [damage_truncate, damage_grow, damage_features, damage_rows, damage_head, damage_padding, damage_length, damage_all],
)
def test_a_damaged_file_is_extracted_again(damage, tmp_path):
    model = counted()
    plain = extract(model, batches(), cache=tmp_path).z.clone()
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    assert damage(data) != data
    path.write_bytes(damage(data))
    model.count = 0
    with pytest.warns(UserWarning, match="is damaged .* extracted again"):
        z = extract(model, batches(), cache=tmp_path).z
    assert model.count == 4
    assert torch.equal(z, plain)
    assert path.read_bytes() == data
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("error", [RuntimeError, Stop])
def test_an_interrupted_extraction_leaves_nothing(error, tmp_path):
    class Fails:
        def __iter__(self):
            yield from batches()
            assert len(files(tmp_path)) == 1  # on its way
            raise error

    model = trap()
    before = state(model)
    with pytest.raises(error):
        extract(model, Fails(), cache=tmp_path)
    assert files(tmp_path) == []
    assert same(state(model), before)


def test_what_a_killed_process_leaves_does_no_harm(tmp_path):
    script = f"""
import os, sys, torch
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_features import batches, net
from maccal.features import extract
class Killed:
    def __iter__(self):
        yield from batches()
        os.kill(os.getpid(), 9)
torch.manual_seed(0)
extract(net(), Killed(), cache={str(tmp_path)!r})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    (litter,) = files(tmp_path)
    assert litter.endswith(".part")
    model = counted()
    extract(model, batches(), cache=tmp_path)
    assert len(files(tmp_path)) == 2
    extract(model, batches(), cache=tmp_path)
    assert model.count == 4


def test_a_cache_needs_rows_that_can_be_read_again(tmp_path):
    with pytest.raises(ValueError, match="an iterator, which can be read once"):
        extract(net(), iter(batches()), cache=tmp_path)
    model = Lambda(lambda self, x, extra: self.fc(x), fc=nn.Linear(6, K))
    with pytest.raises(ValueError, match="inputs of type object have no fingerprint"):
        extract(model, [(X, object(), Y)], cache=tmp_path)
    for extra in (None, 1.5, "text", torch.ones(3), {"a": [X, "b"]}):
        extract(model, [(X, extra, Y)], cache=tmp_path)
        extract(model, [(X, extra, Y)], cache=tmp_path)
    assert len(files(tmp_path)) == 5


# Several processes.

RANKS = """
import sys, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
sys.path.insert(0, {tests!r})
from test_features import K, X, Y, Counted, net
from maccal.features import extract
torch.set_num_threads(1)
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://{folder}/meet", rank=rank, world_size=2)
torch.manual_seed(0)
model = Counted(net())
data = TensorDataset(X[:11], Y[:11])
made = dict()
plain = DataLoader(data, batch_size=2)
made["plain"] = extract(model, plain)
made["counts"] = model.count
dealt = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))
made["dealt"] = extract(torch.nn.parallel.DistributedDataParallel(model), dealt)
made["one batch"] = extract(model, DataLoader(data, batch_size=11))
model.count = 0
made["written"] = extract(model, plain, cache="{folder}/cache")
before = model.count
made["read"] = extract(model, plain, cache="{folder}/cache")
made["read dealt"] = extract(model, dealt, cache="{folder}/cache")
made["reruns"] = model.count - before
for loader in (DataLoader(data, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(rank)), list(plain)[rank:]):
    try:
        extract(model, loader)
    except ValueError as error:
        made.setdefault("errors", []).append(str(error))
torch.save(dict((k, tuple(v) if isinstance(v, tuple) else v) for k, v in made.items()), "{folder}/" + str(rank))
dist.barrier()
dist.destroy_process_group()
"""


def test_two_processes_equal_one_bit_for_bit(tmp_path):
    script = RANKS.format(tests=str(Path(__file__).parent), folder=tmp_path)
    ranks = [subprocess.Popen([sys.executable, "-c", script, str(rank)]) for rank in range(2)]
    try:
        assert [rank.wait(timeout=100) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    torch.manual_seed(0)
    model, x, y = net(), X[:11], Y[:11]
    one, whole = extract(model, batches(x, y, 2)), extract(model, [(x, y)])
    turns = torch.arange(12) % 11  # what the sampler deals out: every second row, one of them twice
    shards = [extract(model, batches(x[turns[rank::2]], y[turns[rank::2]], 2)).z for rank in range(2)]
    dealt = torch.stack(shards, 1).flatten(0, 1)[:11]
    expected = {"plain": one.z, "dealt": dealt, "one batch": whole.z, "written": one.z, "read": one.z, "read dealt": one.z}
    for rank in range(2):
        made = torch.load(tmp_path / str(rank))
        for way, z in expected.items():
            assert torch.equal(made[way][0], z), way
            assert torch.equal(made[way][1], y), way
        assert made["counts"] == 1 + 3  # half of six batches, and one that finds the head
        assert made["reruns"] == 0
        assert ["different orders" in error for error in made["errors"]] == [True, True]
    assert len(files(tmp_path / "cache")) == 1
