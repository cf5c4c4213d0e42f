"""ONNX files of a dozen architectures say what torch says; so do programs of torch.export."""

import logging

import numpy as np
import pytest
import torch
from extraction import IMAGES, MASK, TOKENS, K, Y, mostly_right, net, same, state
from torch import nn

import maccal as mc
from maccal.deployment import onnx as exporting

onnxruntime = pytest.importorskip("onnxruntime")
TEXT = {
    "vocab_size": 50,
    "max_position_embeddings": 20,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}


def of_timm(name, **options):
    return pytest.importorskip("timm").create_model(name, num_classes=K, **options)


def of_transformers(name, **options):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(num_labels=K, **options)
    return getattr(transformers, f"{name}ForSequenceClassification")(config)


IMAGE_MODELS = {
    "resnet8": lambda: mc.build("resnet8", K),
    "resnet10": lambda: mc.build("resnet10", K),
    "wrn16_2": lambda: mc.build("wrn16_2", K),
    "densenet40": lambda: mc.build("densenet40", K),
    "timm resnet": lambda: of_timm("resnet10t"),
    "timm vit": lambda: of_timm("vit_tiny_patch16_224", img_size=32, depth=2),
    "timm mobilenet": lambda: of_timm("mobilenetv3_small_050"),
    "timm convnext": lambda: of_timm("convnext_atto"),
    "timm regnet": lambda: of_timm("regnetx_002"),
}
TEXT_MODELS = {
    "bert": lambda: of_transformers("Bert", **TEXT),
    "roberta": lambda: of_transformers("Roberta", **TEXT),
    "distilbert": lambda: of_transformers(
        "DistilBert", vocab_size=50, dim=16, n_layers=1, n_heads=2, hidden_dim=24
    ),
}


class Branching(nn.Linear):
    """What it does depends on the values of its inputs, which no trace can follow."""

    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_there_are_a_dozen():
    assert len(IMAGE_MODELS) + len(TEXT_MODELS) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("kind", IMAGE_MODELS)
def test_image_models(kind, vision, tmp_path):
    """Calibrated, exported from three rows, run on five."""
    model = IMAGE_MODELS[kind]()
    loader = mostly_right(model, IMAGES)
    calibrated = mc.calibrate(model, loader, accuracy=0.5, calibrator="temperature")
    before = state(calibrated)
    path = mc.export_onnx(calibrated, (IMAGES[:3], Y[:3]), str(tmp_path / "model.onnx"))
    assert same(state(calibrated), before)
    five = IMAGES[[0, 1, 2, 3, 0]]
    with torch.no_grad():
        expected = calibrated.eval()(five).numpy()
    (found,) = session(path).run(["logits"], {"x": five.numpy()})
    scale = max(1.0, np.abs(expected).max())
    assert np.abs(found - expected).max() <= 1e-5 * scale


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEXT_MODELS)
def test_text_models(kind, vision, tmp_path):
    """Also of another length than the one exported."""
    model = TEXT_MODELS[kind]().eval()
    batch = {"input_ids": TOKENS[:2], "attention_mask": MASK[:2], "labels": Y[:2]}
    free = {1: "tokens"}
    axes = {"input_ids": free, "attention_mask": free}
    path = mc.export_onnx(model, batch, tmp_path / "model.onnx", axes=axes)
    words = {"input_ids": TOKENS[:, :7], "attention_mask": MASK[:, :7]}
    with torch.no_grad():
        expected = model(**words).logits.numpy()
    feed = {name: value.numpy() for name, value in words.items()}
    (found,) = session(path).run(["logits"], feed)
    assert np.abs(found - expected).max() <= 1e-5


@pytest.fixture(scope="module")
def digits():
    from examples.calibrate import build

    model, train, val, test = build()
    return mc.calibrate(model, train, val=val), next(iter(test))


@pytest.mark.slow
def test_the_file_says_what_was_calibrated(digits, tmp_path):
    model, (x, _) = digits
    path = mc.export_onnx(model, x[:1], tmp_path / "new" / "model.onnx")  # of one row: any number
    found = session(path)
    about = found.get_modelmeta().custom_metadata_map
    assert about["calibration"].startswith("feedback from held-out labels, 500 rows")
    assert len(about["weights_sha256"]) == 64
    (logits,) = found.run(["logits"], {"x": x.numpy()})
    assert np.abs(logits - model(x).detach().numpy()).max() < 1e-5 * np.abs(logits).max()


@pytest.mark.slow
def test_a_file_that_differs_is_not_written(digits, tmp_path, monkeypatch):
    model, (x, _) = digits
    monkeypatch.setattr(exporting, "TOLERANCE", -1.0)
    with pytest.raises(
        ValueError, match=r"onnxruntime differs from torch by .* nothing was written"
    ):
        mc.export_onnx(model, x[:2], tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_torch_cannot_export_is_said(tmp_path):
    model = Branching(6, K)
    level = logging.getLogger("torch.onnx").level
    with pytest.raises(ValueError, match="torch cannot export this model"):
        mc.export_onnx(model, torch.ones(2, 6), tmp_path / "model.onnx")
    assert logging.getLogger("torch.onnx").level == level


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (torch.empty(0, 6), "the batch has no rows"),
        ((torch.ones(2, 6), "a text", Y[:2]), "the input x1 is a str"),
        ([torch.ones(2, 6)], "a list of length 1"),
    ],
)
def test_wrong_batches(batch, problem, tmp_path):
    with pytest.raises(ValueError, match=problem):
        mc.export_onnx(net(), batch, tmp_path / "model.onnx")


def test_sixteen_bits_are_refused(tmp_path):
    for half in (torch.float16, torch.bfloat16):
        with pytest.raises(
            ValueError, match=r"too coarse to be checked to 1e-05; pass .*float\(\)"
        ):
            mc.export_onnx(net().to(half), torch.ones(2, 6, dtype=half), tmp_path / "m")


def test_wrong_axes(tmp_path):
    with pytest.raises(ValueError, match="pass numbers and names"):
        mc.export_onnx(net(), torch.ones(2, 6), tmp_path / "m", axes={"x": [1]})
    with pytest.raises(ValueError, match="there is no input 'input_ids'; the inputs are x"):
        mc.export_onnx(net(), torch.ones(2, 6), tmp_path / "m", axes={"input_ids": {1: "tokens"}})


@pytest.mark.slow
def test_torch_export(digits):
    """A calibrated model is plain torch: exported with a free number of rows, the same bits."""
    model, (x, _) = digits
    free = {0: torch.export.Dim("rows")}
    program = torch.export.export(model.eval(), (x[:4],), dynamic_shapes=(free,)).module()
    with torch.no_grad():
        torch.testing.assert_close(program(x), model(x), rtol=0, atol=0)


def test_an_axis_that_torch_has_fixed_is_refused(tmp_path):
    """The file would take texts of one length only, without a word."""

    class Sum(nn.Module):
        def forward(self, a, b):
            return (a + b)[:, :3]

    batch = {"a": torch.ones(2, 6), "b": torch.ones(2, 6)}
    with pytest.raises(ValueError, match=r"axis 1 of a \(length\) can only be 6"):
        mc.export_onnx(Sum(), batch, tmp_path / "m", axes={"a": {1: "length"}})
    assert list(tmp_path.iterdir()) == []
