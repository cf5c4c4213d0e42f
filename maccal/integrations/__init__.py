"""maccal inside other frameworks, each of which is imported only by the module of its name.

    lightning.CalibrationCallback        measures every validation, calibrates at the end of fit
    transformers.CalibrationCallback     calibrates at the end of Trainer.train
    transformers.compute_metrics         for Trainer(compute_metrics=...)
    torchmetrics.CalibrationMetric       the sums of a Stream as a torchmetrics.Metric
    hf_evaluate.Calibration              a metric of Hugging Face evaluate; the file can be loaded
    mlflow.log_report                    numbers, row and page of an evaluation in an MLflow run

Import them by their module, `from maccal.integrations.lightning import CalibrationCallback`; each
needs its own extra: pip install 'maccal[lightning]'. Outputs of lm-evaluation-harness are read by
`maccal.read` (evaluation/harness.py).
"""
