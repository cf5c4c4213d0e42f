"""The sums of a Stream as a torchmetrics.Metric: any batches, any number of processes, same bits.

    metric = CalibrationMetric(kind="logits")
    metric.update(logits, labels)
    metric.compute()["ece"]

Accuracy, mean confidence, ECE and MCE are exactly those of all rows at once, NLL and Brier score up
to rounding. The state has 100 kB whatever N and K are, in float64, which no `.half()` changes.
Needs torchmetrics: pip install 'maccal[torchmetrics]'
"""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from maccal.metrics import Bins, Stream, Summary
from maccal.metrics.binning import settled

NUMBERS = ("accuracy", "confidence", "ece", "mce", "nll", "brier")


class CalibrationMetric(Metric):
    """Accuracy, confidence, ECE, MCE, NLL and Brier score of logits or probabilities.

    `kind` says which of both `update` is given. `compute` gives a dict of float64 tensors;
    `summary` the same with intervals and the verdict.

    >>> metric = CalibrationMetric(kind="probs")
    >>> metric.update(torch.tensor([[0.9, 0.1]]), torch.tensor([0]))
    >>> metric.update(torch.tensor([[0.8, 0.2], [0.3, 0.7]]), torch.tensor([1, 1]))
    >>> round(metric.compute()["ece"].item(), 3)
    0.4
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    sums: Tensor
    scores: Tensor
    rows: Tensor
    classes: Tensor

    def __init__(self, *, kind: Literal["logits", "probs"], bins: int = 15, **more: Any) -> None:
        """`more` is what torchmetrics.Metric takes."""
        super().__init__(**more)
        if kind not in ("logits", "probs"):
            raise ValueError(f"kind is {kind!r}; say what you pass: 'logits' or 'probs'")
        self.kind = kind
        empty = Stream.empty(bins)
        self.bins = empty.bins
        self.edges = empty.fine.edges
        self.add_state("sums", torch.from_numpy(empty.fine.sums), dist_reduce_fx="sum")
        self.add_state("scores", torch.from_numpy(empty.scores), dist_reduce_fx="sum")
        self.add_state("rows", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("classes", torch.tensor(0), dist_reduce_fx="max")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch: N x K scores and N class indices."""
        scores = preds.detach()
        if self.kind == "logits":
            batch = Stream.of(logits=scores, labels=target, bins=self.bins)
        else:
            batch = Stream.of(scores, target, bins=self.bins)
        total = self.stream() + batch
        device = self.sums.device
        self.sums = torch.from_numpy(total.fine.sums).to(device)
        self.scores = torch.from_numpy(total.scores).to(device)
        self.rows = torch.tensor(total.fine.n, device=device)
        self.classes = torch.tensor(total.classes, device=device)

    def stream(self) -> Stream:
        """The rows seen so far, as a Stream; those of all processes within `compute`."""
        if self.sums.dtype != torch.float64:
            raise ValueError(f"the sums are {self.sums.dtype}; they add up exactly in float64 only")
        sums = settled(self.sums.cpu().numpy())
        fine = Bins(self.edges, sums, int(self.rows))
        scores = np.array(self.scores.cpu().numpy())
        return Stream(fine, scores, int(self.classes), self.bins)

    def compute(self) -> dict[str, Tensor]:
        """The numbers of all rows, on all processes."""
        found = self.stream().summary()
        device = self.sums.device
        return {
            name: torch.tensor(found[name], dtype=torch.float64, device=device) for name in NUMBERS
        }

    def summary(self, *, interval: bool = True, resamples: int = 1000, seed: int = 0) -> Summary:
        """What the Stream of all processes says, with intervals, null bands and the verdict."""
        with self.sync_context(should_sync=self._to_sync, should_unsync=True):
            total = self.stream()
        return total.summary(interval=interval, resamples=resamples, seed=seed)
