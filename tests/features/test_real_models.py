"""Features of real models of timm, torchvision and transformers, built from their configs without
weights.
"""

import pytest
import torch
import torch.nn.functional as F
from extraction import IMAGES, MASK, TOKENS, K, Lambda, Y, same, state
from torch import nn

from maccal.calibration import calibrate
from maccal.calibration.stage2 import Stage2
from maccal.features.classifiers import Classifier, put_head
from maccal.features.extraction import extract, find_head


def timm_model(name, **options):
    return pytest.importorskip("timm").create_model(name, num_classes=K, **options)


def torchvision_model(name, **options):
    return getattr(pytest.importorskip("torchvision.models"), name)(num_classes=K, **options)


def hf_model(name, config, **options):
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, name)(getattr(transformers, config)(num_labels=K, **options))


TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
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
    "torchvision vit": (
        lambda: torchvision_model("VisionTransformer", image_size=32, **TOWER),
        "heads.head",
    ),
    "own": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, K)
        ),
        "3",
    ),
}
TEXT_MODELS = {
    "bert": (lambda: hf_model("BertForSequenceClassification", "BertConfig", **TEXT), "classifier"),
    "roberta": (
        lambda: hf_model("RobertaForSequenceClassification", "RobertaConfig", **TEXT),
        "classifier.out_proj",
    ),
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


@pytest.mark.slow
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
    assert torch.allclose(
        logits_from(model, name, z), logits, atol=1e-5 * float(logits.abs().max())
    )
    assert torch.equal(y, Y[:4])


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEXT_MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_features_of_text_models(kind, dtype):
    """Mappings as tokenizers give them, with padding.

    The labels do not reach the model, which would compute a loss.
    """
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
    assert torch.allclose(
        logits_from(model, name, z[4:]), logits, atol=0.01 if dtype == torch.bfloat16 else 1e-6
    )
    assert torch.equal(y, Y[:4].repeat(2))


@pytest.mark.usefixtures("vision")
def test_hugging_face_image_model():
    model = hf_model(
        "ViTForImageClassification", "ViTConfig", image_size=32, patch_size=16, **TINY
    ).eval()
    z, _ = extract(model, [{"pixel_values": IMAGES, "label": Y[:4]}])
    with torch.no_grad():
        assert torch.allclose(logits_from(model, "classifier", z), model(IMAGES).logits, atol=1e-6)


def test_a_head_on_every_token_gives_the_token_the_model_took():
    """Also when rounding makes the logits of all tokens equal.

    The features still are the right token's.
    """
    last = torch.tensor([2, 0, 299, 150])
    model = Lambda(
        lambda self, x: self.score(x)[torch.arange(4), last], score=nn.Linear(6, 2, bias=False)
    ).bfloat16()
    nn.init.zeros_(model.score.weight)
    x = torch.randn(4, 300, 6).bfloat16()
    z, _ = extract(model, [(x, torch.zeros(4, dtype=torch.int64))], dtype=torch.bfloat16)
    assert torch.equal(z, x[torch.arange(4), last])


def decoder(name, **options):
    return hf_model(f"{name}ForSequenceClassification", f"{name}Config", **options)


DECODER = {**TEXT, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0}
SMALL = {"vocab_size": 50, "pad_token_id": 0}
HEADS = {
    "mean of two": (
        lambda: timm_model("deit_tiny_distilled_patch16_224", img_size=64, depth=1),
        "mean(head, head_dist)",
    ),
    "mean over other features": (
        lambda: timm_model("crossvit_9_240"),
        "mean(head.0, head.1)",
    ),
    "mean behind BatchNorm": (
        lambda: timm_model("levit_128s"),
        "mean(head.linear, head_dist.linear)",
    ),
    "convolution behind pooling": (lambda: timm_model("dla46_c"), "fc"),
    "convolution of a DPN": (lambda: timm_model("dpn48b", k_sec=(1, 1, 1, 1)), "classifier"),
    "no bias behind layers": (
        lambda: torchvision_model(
            "MaxVit",
            input_size=(64, 64),
            stem_channels=8,
            partition_size=2,
            block_channels=[8, 8],
            block_layers=[1, 1],
            head_dim=8,
            stochastic_depth_prob=0.0,
        ),
        "classifier.5",
    ),
    "convolution in a head": (lambda: timm_model("resnetv2_50", layers=(1, 1, 1, 1)), "head.fc"),
    "convolution, ReLU, pooling": (
        lambda: torchvision_model("squeezenet1_1"),
        "scale(classifier.1)",
    ),
    "class and tokens": (
        lambda: timm_model("volo_d1_224", img_size=64),
        "scale(head, aux_head)",
    ),
    "teacher": (
        lambda: hf_model(
            "DeiTForImageClassificationWithTeacher",
            "DeiTConfig",
            image_size=64,
            patch_size=16,
            **TINY,
        ),
        "mean(cls_classifier, distillation_classifier)",
    ),
    "gpt2": (TEXT_MODELS["gpt2"][0], "score"),
    "llama": (lambda: decoder("Llama", **DECODER), "score"),
    "mistral": (lambda: decoder("Mistral", **DECODER), "score"),
    "qwen2": (lambda: decoder("Qwen2", **DECODER), "score"),
    "gemma": (lambda: decoder("Gemma", **DECODER), "score"),
    "opt": (
        lambda: decoder("OPT", ffn_dim=24, word_embed_proj_dim=16, **TEXT, pad_token_id=0),
        "score",
    ),
    "bloom": (lambda: decoder("Bloom", hidden_size=16, n_layer=1, n_head=2, **SMALL), "score"),
}


def rows_for(model):
    """Enough rows of the model's inputs that a temperature can be fitted, in one batch."""
    y = torch.arange(4) % K
    if hasattr(getattr(model, "config", None), "vocab_size"):
        return [{"input_ids": TOKENS * MASK, "attention_mask": MASK, "labels": y}]
    size = {"CrossVit": 240, "LevitDistilled": 224}.get(type(model).__name__, 64)
    return [(torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(1)), y)]


@torch.no_grad()
def said(model, batch):
    if isinstance(batch, dict):
        inputs = {name: value for name, value in batch.items() if name != "labels"}
        return model(**inputs).logits
    out = model(batch[0])
    return getattr(out, "logits", out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEADS)
def test_a_temperature_for_every_head(kind, vision, tmp_path):
    """Found, features x weight + bias = logits; calibrated, logits / T under the same keys.

    Strictly loaded into a fresh model, and saved and loaded as transformers do, it says the same.
    """
    build, name = HEADS[kind]
    torch.manual_seed(0)
    model = build().eval()
    model.requires_grad_(False)
    loader = rows_for(model)
    logits = said(model, loader[0])
    labels = loader[0]["labels"] if isinstance(loader[0], dict) else loader[0][1]
    labels.copy_(logits.argmax(1))
    labels[0] = (labels[0] + 1) % K  # right on three rows of four
    size = 1e-5 * float(logits.abs().max())
    assert find_head(model, loader[0]) == name
    z, _ = extract(model, loader)
    with torch.no_grad():
        assert torch.allclose(Classifier.parse(name).linear(model)(z), logits, atol=size)
    new = calibrate(model, loader, accuracy=0.5, calibrator="temperature")
    first = new.get_submodule(Classifier.parse(name).names[0])
    expected = logits / first.history[0]["temperature"]
    size = 1e-5 * float(expected.abs().max())
    assert torch.allclose(said(new, loader[0]), expected, atol=size)
    assert torch.equal(said(model, loader[0]), logits)
    assert list(new.state_dict()) == list(model.state_dict())
    assert not any(p.requires_grad for p in new.parameters())
    fresh = build().eval()
    fresh.load_state_dict(new.state_dict(), strict=True)
    assert torch.allclose(said(fresh, loader[0]), expected, atol=size)
    if hasattr(new, "save_pretrained"):
        new.save_pretrained(tmp_path)
        again = type(new).from_pretrained(tmp_path).eval()
        assert torch.allclose(said(again, loader[0]), expected, atol=size)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_masks_for_a_language_model_without_bias(kind, tmp_path):
    """MaC-Cal from the trained classifier: more than a temperature, no bias, the same from a file.

    It stays near the temperature that meets the same target: a small rate is a trust region.
    """
    model = HEADS[kind][0]().eval()
    loader = rows_for(model)
    logits = said(model, loader[0])
    loader[0]["labels"] = (logits.argmax(1) + (torch.arange(4) == 0)) % K
    new = calibrate(model, loader, accuracy=0.5, config=Stage2(epochs=2))
    assert new.score.bias is None
    assert list(new.state_dict()) == list(model.state_dict())
    ratio = new.score.weight.detach() / model.score.weight.detach()
    assert float(ratio.std()) > 1e-6
    confidence = said(new, loader[0]).softmax(1).amax(1).mean()
    assert float(confidence) == pytest.approx(new.score.history[-1]["target"], abs=1e-4)
    new.save_pretrained(tmp_path)
    again = type(new).from_pretrained(tmp_path).eval()
    assert torch.equal(said(again, loader[0]), said(new, loader[0]))
    assert not torch.equal(said(again, loader[0]), logits)


def test_more_than_a_temperature_for_a_mean_and_for_no_bias(vision):
    """MaC-Cal for a mean of heads is written into both; a bias has no place where there is none."""
    model = timm_model("deit_tiny_distilled_patch16_224", img_size=32, depth=1).eval()
    loader = [(IMAGES, said(model, [IMAGES]).argmax(1))]
    new = calibrate(model, loader, accuracy=0.9, config=Stage2(epochs=1))
    z, _ = extract(model, loader)
    head = Classifier.parse("mean(head, head_dist)").linear(new)
    assert torch.allclose(head(z), said(new, loader[0]), atol=1e-5)
    assert list(new.state_dict()) == list(model.state_dict())
    with pytest.raises(ValueError, match=r"not one nn\.Linear"):
        calibrate(model, loader, accuracy=0.9, config=Stage2(epochs=1, hidden=8))
    bare = Lambda(lambda self, x: self.fc(x), fc=nn.Linear(6, K, bias=False))
    with pytest.raises(ValueError, match="'fc' has no bias"):
        put_head(bare, "fc", nn.Linear(6, K))
    tied = Lambda(lambda self, x: self.fc(self.table(x)[:, 0]), table=nn.Embedding(K, 6))
    tied.fc = nn.Linear(6, K)
    tied.fc.weight = tied.table.weight
    with pytest.raises(ValueError, match=r"'fc' shares its weight with 'table\.weight'"):
        calibrate(tied, [(Y[:10, None], Y[:10])], accuracy=0.5, calibrator="temperature")
