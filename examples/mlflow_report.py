"""A report of maccal in an MLflow run: metrics, verdict, row and page.

    python examples/mlflow_report.py build/mlruns

The run is kept in a folder, which needs no database. With a tracking server of your own, name that
instead, and leave the line about the folder out.
"""

import os
import sys
from pathlib import Path

import mlflow
import numpy as np

import maccal as mc
from maccal.integrations.mlflow import log_report

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "mlruns").resolve()
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # MLflow prefers databases
mlflow.set_tracking_uri(folder.as_uri())

rng = np.random.default_rng(0)
logits = 2 * rng.normal(size=(5000, 10))
labels = np.array([rng.choice(10, p=p) for p in mc.softmax(logits)])
predictions = mc.Predictions(1.5 * logits, "logits", labels, name="too-sharp")

with mlflow.start_run(run_name="evaluation") as run:
    log_report(predictions)
stored = mlflow.get_run(run.info.run_id)
print(f"logged ECE {stored.data.metrics['ece']:.4f} and {len(stored.data.metrics) - 1} others")
print(stored.data.tags["maccal_verdict"])
