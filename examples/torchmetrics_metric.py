"""Calibration in a MetricCollection of torchmetrics, beside the metrics that are there already.

    python examples/torchmetrics_metric.py

The logits are 1.5 times too sharp. The sums of any batches, and of any number of processes, are
exact: the ECE is that of all rows at once, to the last bit.
"""

import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassF1Score

import maccal as mc
from maccal.integrations.torchmetrics import CalibrationMetric

generator = torch.Generator().manual_seed(0)
logits = 2 * torch.randn(20_000, 10, generator=generator)
labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
logits *= 1.5

metrics = MetricCollection([MulticlassF1Score(10), CalibrationMetric(kind="logits")])
for batch, truth in zip(logits.split(512), labels.split(512), strict=True):
    metrics.update(batch, truth)
found = metrics.compute()
print(f"F1 {found['MulticlassF1Score']:.3f}, ECE {found['ece']:.4f}")
whole = mc.Stream.of(logits=logits, labels=labels).summary()
print(f"the same to the bit: {found['ece'].item() == whole['ece']}")
