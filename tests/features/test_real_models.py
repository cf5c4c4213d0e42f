"""Features of real models of timm, torchvision and transformers, built from their configs without
weights.
"""

import pytest
import torch
import torch.nn.functional as F
from extraction import IMAGES, MASK, TOKENS, K, Lambda, Y, same, state
from torch import nn

from maccal.features.extraction import extract, find_head


# The torchvision wheel does not import without two operators that only its CUDA build declares.
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


def test_distilled_deit(vision):
    model = timm_model("deit_tiny_distilled_patch16_224", img_size=32, depth=1)
    with pytest.raises(ValueError, match=r"mean of \['head', 'head_dist'\]"):
        find_head(model, (IMAGES, Y[:4]))
