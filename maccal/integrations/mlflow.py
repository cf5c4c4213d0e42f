"""An evaluation in an MLflow run: every number, the verdict, the row and the page.

    with mlflow.start_run():
        log_report(mc.read("predictions.npz"))

Needs mlflow or mlflow-skinny: pip install 'maccal[mlflow]'
"""

import math

import mlflow

from maccal.evaluation.evaluated import Evaluated, measure
from maccal.evaluation.predictions import Predictions
from maccal.evaluation.row import row_text
from maccal.report.evaluation import evaluation_page

TAG = "maccal_verdict"


def log_report(
    predictions: Predictions,
    *,
    prefix: str = "",
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
    step: int | None = None,
) -> Evaluated:
    """Log predictions to the active run, or to a new one as mlflow does by itself.

    Metrics are `<prefix>ece`, `<prefix>ece_low` and so on; what is infinite is left out. The page
    is the artifact `<prefix><name>.report.html`, the row `<prefix><name>.row.json`, with `-step<n>`
    behind the name where a step is given. Returns what was measured.
    """
    given: object = predictions
    if not isinstance(given, Predictions):
        kind = type(given).__name__
        raise TypeError(
            f"predictions is a {kind}; pass mc.Predictions(scores, 'logits' or 'probs', labels), "
            "or mc.read(file)"
        )
    model = measure(predictions, predictions.name, bins=bins, resamples=resamples, seed=seed)
    numbers = {}
    for name, value in model.numbers.items():
        if isinstance(value, int | float) and math.isfinite(value):
            numbers[f"{prefix}{name}"] = float(value)
    name = artifact_name(prefix + model.name, step)
    mlflow.log_metrics(numbers, step=step)
    mlflow.set_tag(f"{prefix}{TAG}", model.numbers["verdict"])
    mlflow.log_text(row_text(model.row), f"{name}.row.json")
    mlflow.log_text(evaluation_page([model]), f"{name}.report.html")
    return model


def artifact_name(name: str, step: int | None) -> str:
    """One of its own for every prefix and step, or a later page would replace an earlier one.

    >>> artifact_name("val/resnet", 3)
    'val-resnet-step3'
    """
    flat = name.replace("/", "-")
    return flat if step is None else f"{flat}-step{step}"
