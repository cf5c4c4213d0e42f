"""maccal inside the real frameworks: the numbers are ours, and the models come out calibrated."""

import doctest
import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import maccal as mc

pytestmark = [
    pytest.mark.slow,  # frameworks take seconds to import
    pytest.mark.usefixtures("vision"),  # most of them import torchvision
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # of Lightning, about torch
]
MODULES = ("lightning", "transformers", "torchmetrics", "hf_evaluate", "mlflow")


def module(name):
    package = {"hf_evaluate": "evaluate"}.get(name, name)
    pytest.importorskip(package)
    return importlib.import_module(f"maccal.integrations.{name}")


def rows(n=600, classes=4, seed=0):
    """Logits that are twice too sharp, and labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, classes, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return 2 * logits, labels


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name):
    assert doctest.testmod(module(name)).failed == 0


def test_importing_maccal_imports_no_framework():
    frameworks = ("lightning", "transformers", "torchmetrics", "evaluate", "mlflow", "onnx")
    words = (
        "import sys, maccal as mc, maccal.integrations; mc.calibrate; mc.export_onnx; mc.card;"
        f"print([name for name in {frameworks} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# torchmetrics


@pytest.mark.parametrize("size", [1, 37, 600])
@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_metric_agrees_to_the_bit(size, kind):
    logits, labels = rows()
    given = logits if kind == "logits" else logits.softmax(1)
    metric = module("torchmetrics").CalibrationMetric(kind=kind)
    for part, truth in zip(given.split(size), labels.split(size), strict=True):
        metric.update(part, truth)
    found = metric.compute()
    whole = mc.Stream.of(**{kind: given}, labels=labels).summary()
    for name in ("accuracy", "confidence", "ece", "mce"):
        assert found[name].item() == whole[name]
    for name in ("nll", "brier"):
        assert found[name].item() == pytest.approx(whole[name], rel=1e-12)
    if kind == "probs":
        exact = mc.metrics.ece(*mc.top_label(given, labels))
        assert found["ece"].item() == exact


def test_metric_forward_reset_and_pickle():
    import pickle

    logits, labels = rows()
    metric = module("torchmetrics").CalibrationMetric(kind="logits")
    first = metric(logits[:100], labels[:100])  # of the batch alone
    assert (
        first["ece"].item()
        == mc.Stream.of(logits=logits[:100], labels=labels[:100]).summary()["ece"]
    )
    metric(logits[100:], labels[100:])
    whole = mc.Stream.of(logits=logits, labels=labels).summary(interval=True)
    assert metric.compute()["ece"].item() == whole["ece"]
    assert metric.summary()["verdict"] == whole["verdict"]
    again = pickle.loads(pickle.dumps(metric.half()))
    assert again.compute()["ece"].item() == whole["ece"]
    metric.reset()
    assert int(metric.rows) == 0


def test_metric_says_what_is_wrong():
    ours = module("torchmetrics")
    with pytest.raises(ValueError, match="'logits' or 'probs'"):
        ours.CalibrationMetric(kind="scores")
    metric = ours.CalibrationMetric(kind="probs")
    metric.update(torch.tensor([[0.5, 0.5]]), torch.tensor([0]))
    with pytest.raises(ValueError, match="2 classes and one of 3"):
        metric.update(torch.tensor([[0.2, 0.3, 0.5]]), torch.tensor([0]))
    metric.set_dtype(torch.float32)
    with pytest.raises(ValueError, match="exactly in float64 only"):
        metric.update(torch.tensor([[0.5, 0.5]]), torch.tensor([0]))


def two_ranks(rank, folder):
    """Every rank has its own half; rank 1's batches are smaller."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    library = torch.library.Library("torchvision", "FRAGMENT")
    for op in ("nms", "qnms"):
        library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from maccal.integrations.torchmetrics import CalibrationMetric

    logits, labels = rows()
    metric = CalibrationMetric(kind="logits")
    mine = slice(0, 250) if rank == 0 else slice(250, 600)
    size = 100 - 63 * rank
    for part, truth in zip(logits[mine].split(size), labels[mine].split(size), strict=True):
        metric.update(part, truth)
    numbers = {name: value.item() for name, value in metric.compute().items()}
    torch.save((numbers, metric.summary()["verdict"]), Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.distributed
def test_metric_of_two_processes(tmp_path):
    module("torchmetrics")
    torch.multiprocessing.spawn(two_ranks, (str(tmp_path),), nprocs=2)
    logits, labels = rows()
    whole = mc.Stream.of(logits=logits, labels=labels).summary(interval=True)
    for rank in range(2):
        numbers, verdict = torch.load(tmp_path / f"{rank}.pt")
        assert verdict == whole["verdict"]
        for name in ("accuracy", "confidence", "ece", "mce"):
            assert numbers[name] == whole[name]


# Lightning


def loaders():
    logits, labels = rows(3000)
    parts = map(TensorDataset, logits.split(1000), labels.split(1000))
    return [DataLoader(part, batch_size=100) for part in parts]


def lightning_module(gives_logits=True):
    from lightning.pytorch import LightningModule

    class Scaled(LightningModule):
        """A linear classifier that starts as the identity, twice too sharp."""

        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 4)
            nn.init.eye_(self.head.weight)
            nn.init.zeros_(self.head.bias)
            self.passes = 0

        def forward(self, x):
            self.passes += 1
            return self.head(nn.functional.relu(x + 10) - 10)

        def training_step(self, batch, _):
            return 0 * self(batch[0]).sum()

        def validation_step(self, batch, _, dataloader_idx=0):
            return {"logits": self(batch[0])} if gives_logits else None

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.0)

    return Scaled()


def lightning_trainer(callback, folder, **more):
    from lightning.pytorch import Trainer

    return Trainer(
        accelerator="cpu",
        max_epochs=1,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **more,
    )


QUIET = ["ignore:.*does not have many workers", "ignore:.*smaller than the logging interval"]


@pytest.mark.filterwarnings(*QUIET)
@pytest.mark.parametrize("gives_logits", [True, False])
def test_lightning_measures_and_calibrates(gives_logits, tmp_path):
    ours = module("lightning")
    train, val, test = loaders()
    network = lightning_module(gives_logits)
    callback = ours.CalibrationCallback(calibrator="temperature")
    trainer = lightning_trainer(callback, tmp_path)
    trainer.fit(network, train, val)
    logits, labels = val.dataset.tensors
    expected = mc.summary(logits=logits, labels=labels)
    assert callback.measured == [
        {name: pytest.approx(expected[name], abs=1e-6) for name in callback.measured[0]}
    ]
    assert trainer.callback_metrics["val_ece"].item() == pytest.approx(expected["ece"], abs=1e-6)
    assert network.head.feedback["source"] == "held-out"
    exact = mc.TemperatureScaling().fit(logits, labels).temperature_
    assert network.head.history[0]["temperature"] == pytest.approx(exact, abs=1e-4)
    x, y = test.dataset.tensors
    with torch.no_grad():
        after = mc.summary(logits=network(x), labels=y)["ece"]
    assert after < 0.5 * mc.summary(logits=x, labels=y)["ece"]


@pytest.mark.filterwarnings(*QUIET)
@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16-true", torch.bfloat16), ("64-true", torch.float64)]
)
def test_lightning_in_another_precision(precision, dtype, tmp_path):
    """The loaders give float32; the trainer hands its module what that computes in."""
    ours = module("lightning")
    train, val, _ = loaders()
    network = lightning_module()
    callback = ours.CalibrationCallback(calibrator="temperature")
    lightning_trainer(callback, tmp_path, precision=precision).fit(network, train, val)
    logits, labels = val.dataset.tensors
    exact = mc.TemperatureScaling().fit(logits, labels).temperature_
    assert network.head.history[0]["temperature"] == pytest.approx(exact, rel=0.01)
    assert network.head.weight.dtype == dtype


@pytest.mark.filterwarnings(*QUIET)
def test_lightning_only_measures(tmp_path):
    ours = module("lightning")
    train, val, _ = loaders()
    network = lightning_module()
    lightning_trainer(ours.CalibrationCallback(calibrate=False), tmp_path).fit(network, train, val)
    assert torch.equal(network.head.weight, torch.eye(4))
    with pytest.raises(ValueError, match="only measures; leave train, val and choices out"):
        ours.CalibrationCallback(calibrate=False, val=val)


@pytest.mark.filterwarnings(*QUIET)
def test_lightning_with_two_validation_loaders(tmp_path):
    ours = module("lightning")
    train, val, test = loaders()
    trainer = lightning_trainer(ours.CalibrationCallback(), tmp_path)
    with pytest.raises(ValueError, match="several validation loaders; pass one as val="):
        trainer.fit(lightning_module(), train, [val, test])


@pytest.mark.filterwarnings(*QUIET)
def test_lightning_with_two_training_loaders(tmp_path):
    ours = module("lightning")
    train, val, test = loaders()
    trainer = lightning_trainer(ours.CalibrationCallback(), tmp_path)
    with pytest.raises(ValueError, match="several training loaders; pass one as train="):
        trainer.fit(lightning_module(), [train, test], val)


# transformers


def test_trainer_needs_something_to_calibrate_by():
    ours = module("transformers")
    callback = ours.CalibrationCallback()
    never = SimpleNamespace(eval_strategy="no")
    with pytest.raises(ValueError, match="set eval_strategy, or pass"):
        callback.on_train_begin(never, None, None)
    callback.on_train_begin(SimpleNamespace(eval_strategy="epoch"), None, None)
    with pytest.raises(ValueError, match="set eval_strategy, or pass"):
        callback.on_train_end(None, None, None, model=nn.Linear(4, 4), eval_dataloader=[])
    ours.CalibrationCallback(accuracy=0.5).on_train_begin(never, None, None)


def test_trainer_with_two_evaluation_sets():
    """The last one must not be taken without a word."""
    ours = module("transformers")
    callback = ours.CalibrationCallback()
    callback.on_evaluate(None, None, None, metrics={"eval_a_runtime": 1.0, "eval_a_ece": 0.1})
    with pytest.raises(ValueError, match=r"several sets were evaluated \(eval_a, eval_b\)"):
        callback.on_evaluate(None, None, None, metrics={"eval_b_runtime": 1.0})
    told = ours.CalibrationCallback(val=[])
    for name in ("eval_a_runtime", "eval_b_runtime"):
        told.on_evaluate(None, None, None, metrics={name: 1.0})


def test_compute_metrics_leaves_out_what_has_no_label():
    """Of rows, and of the tokens of rows."""
    ours = module("transformers")
    logits, labels = rows()
    holes = labels.clone()
    holes[::7] = -100
    seen = holes != -100
    expected = mc.summary(logits=logits[seen], labels=labels[seen])
    for shape in ((600,), (60, 10)):
        said = SimpleNamespace(
            predictions=logits.view(*shape, 4).numpy(), label_ids=holes.view(shape).numpy()
        )
        found = ours.compute_metrics(said)
        assert found == {name: float(expected[name]) for name in ours.MEASURED}
    said.label_ids[:] = -100
    with pytest.raises(ValueError, match="label -100"):
        ours.compute_metrics(said)


def test_compute_metrics_is_the_summary():
    ours = module("transformers")
    logits, labels = rows()
    from transformers import EvalPrediction

    said = EvalPrediction((logits.numpy(), np.zeros(3)), labels.numpy())
    expected = mc.summary(logits=logits, labels=labels)
    assert ours.compute_metrics(said) == {
        name: pytest.approx(expected[name], abs=1e-7) for name in ours.MEASURED
    }


# Hugging Face evaluate


@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_evaluate_from_the_file(kind, tmp_path, monkeypatch):
    ours = module("hf_evaluate")
    import evaluate

    monkeypatch.setattr(evaluate.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    metric = evaluate.load(ours.__file__, cache_dir=str(tmp_path))
    logits, labels = rows()
    given = logits.double() if kind == "logits" else logits.double().softmax(1)
    for part, truth in zip(given.split(250), labels.split(250), strict=True):
        metric.add_batch(predictions=part.numpy(), references=truth.numpy())
    found = metric.compute(kind=kind)
    expected = mc.summary(**{kind: given}, labels=labels)
    assert found == dict(expected)


def test_evaluate_says_what_is_wrong(tmp_path):
    metric = module("hf_evaluate").Calibration(cache_dir=str(tmp_path))
    with pytest.raises(ValueError, match="'logits' or 'probs'"):
        metric.compute(predictions=[[0.5, 0.5]], references=[0], kind="scores")
    for predictions, references, problem in (
        ([[0.5, 0.5]], [0.5], "label of row 0 is 0.5"),
        ([[0.5, 0.5]], ["cat"], r"labels are names, such as 'cat'; pass classes"),
        ([[0.5, 0.5], [0.2, 0.3, 0.5]], [0, 1], "rows of different lengths"),
        ([], [], "predictions is empty"),
    ):
        with pytest.raises(ValueError, match=problem):
            metric.compute(predictions=predictions, references=references, kind="probs")


def test_evaluate_takes_names(tmp_path):
    metric = module("hf_evaluate").Calibration(cache_dir=str(tmp_path))
    logits, labels = rows()
    given = logits.double().numpy()
    names = ["cat", "dog", "eel", "fox"]
    words = [names[label] for label in labels]
    found = metric.compute(predictions=given, references=words, kind="logits", classes=names)
    assert found == dict(mc.summary(logits=given, labels=labels))
    again = metric.compute(predictions=given, references=labels, kind="logits", classes=names)
    assert again == found


# MLflow


def test_mlflow_keeps_numbers_verdict_row_and_page(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    ours = module("mlflow")
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        logits, labels = rows()
        said = mc.Predictions(logits.numpy(), "logits", labels.numpy(), name="sharp")
        with mlflow.start_run() as run:
            measured = ours.log_report(said, prefix="test_", resamples=100)
            for step in (1, 2):
                ours.log_report(said, prefix="late/", resamples=10, step=step)
        stored = mlflow.get_run(run.info.run_id)
    finally:
        mlflow.set_tracking_uri(before)
    assert stored.data.metrics["test_ece"] == measured.numbers["ece"]
    assert stored.data.metrics["test_ece_null_high"] == measured.numbers["ece_null_high"]
    assert stored.data.tags["test_maccal_verdict"] == measured.numbers["verdict"]
    pages = {page.name for page in tmp_path.rglob("*.report.html")}
    later = {f"late-sharp-step{step}.report.html" for step in (1, 2)}
    assert pages == {"test_sharp.report.html"} | later
    (page,) = tmp_path.rglob("test_sharp.report.html")
    assert measured.numbers["verdict"][:40] in page.read_text()
    (row,) = tmp_path.rglob("test_sharp.row.json")
    assert mc.evaluation.read_row(str(row)) == measured.row


def test_mlflow_needs_predictions():
    with pytest.raises(TypeError, match=r"predictions is a ndarray; pass mc\.Pred"):
        module("mlflow").log_report(np.eye(3))


def test_a_trained_model_is_kept_where_it_cannot_be_calibrated():
    """After hours of training a warning says why; nothing of the model has changed."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loader = [(torch.randn(8, 4), torch.arange(8) % 3)]
    ours = module("transformers")
    hook = ours.CalibrationCallback(train=loader, val=loader, head="nowhere")
    with pytest.warns(UserWarning, match="as trained, not calibrated: .*nowhere"):
        hook.on_train_end(None, None, None, model=model)
    wider = [(torch.randn(8, 5), torch.arange(8) % 3)]
    with pytest.warns(UserWarning, match="as trained, not calibrated: .*shapes"):
        ours.CalibrationCallback(train=wider, val=wider).on_train_end(None, None, None, model=model)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_a_model_in_the_autocast_of_accelerate():
    """As Trainer(bf16=True) leaves it: its own pass is calibrated, and autocast stays."""
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 4))
    nn.init.eye_(model[1].weight)
    nn.init.zeros_(model[1].bias)
    model._original_forward = model.forward

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return model._original_forward(x).float()

    model.forward = forward
    train, val, _ = loaders()
    ours = module("transformers")
    hook = ours.CalibrationCallback(train=train, val=val, calibrator="temperature")
    hook.on_train_end(None, None, None, model=model)
    exact = mc.TemperatureScaling().fit(*val.dataset.tensors).temperature_
    assert model[1].history[0]["temperature"] == pytest.approx(exact, abs=1e-4)
    assert model.forward is forward
