"""A metric of Hugging Face evaluate, from this file or from the class. Nothing is downloaded.

    import evaluate, maccal.integrations.hf_evaluate as ours
    metric = evaluate.load(ours.__file__)
    metric.compute(predictions=probs, references=labels, kind="probs")

References may be class names, with `classes` in the order of the columns.
Needs evaluate: pip install 'maccal[evaluate]'
"""

from collections.abc import Sequence
from typing import Any, Literal

import datasets
import evaluate
import numpy as np

from maccal.metrics import summary

DESCRIPTION = "How far a classifier's confidence is from its accuracy: ECE and its relatives."
INPUTS = """
    predictions     one list of K logits or probabilities per row
    references      one class index per row; or class names, with classes=["cat", "dog"]
    kind            "logits" or "probs": what the predictions are
    classes         the names in the order of the columns, where the references are names
    bins            15 of equal width
    interval        adds an interval and a null band to every number, and the verdict in words
"""
CITATION = "Ni et al., Pattern Recognition 177, 113217, 2026"


class Calibration(evaluate.Metric):  # type: ignore[misc, unused-ignore]
    """The numbers of `maccal.summary`."""

    def _info(self) -> Any:
        scores = datasets.Sequence(datasets.Value("float64"))
        # as int64, a label of 0.5 would become 0 without a word
        features = [
            datasets.Features({"predictions": scores, "references": datasets.Value(kind)})
            for kind in ("float64", "string")
        ]
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS,
            features=features,
        )

    def compute(self, *, predictions: Any = None, references: Any = None, **more: Any) -> Any:
        """The numbers; of what was added before, where no predictions are passed."""
        if predictions is not None and len(predictions) == 0:
            raise ValueError("predictions is empty; pass one list of scores per row")
        return super().compute(predictions=predictions, references=references, **more)

    def _compute(
        self,
        *,
        predictions: Any,
        references: Any,
        kind: Literal["logits", "probs"],
        classes: Sequence[str] | None = None,
        bins: int = 15,
        interval: bool = False,
    ) -> dict[str, Any]:
        if kind not in ("logits", "probs"):
            raise ValueError(f"kind is {kind!r}; say what you pass: 'logits' or 'probs'")
        if len({len(row) for row in predictions}) > 1:
            raise ValueError("predictions have rows of different lengths; pass K scores per row")
        scores = np.asarray(predictions, np.float64)
        given = {kind: scores, "labels": indices(references), "classes": classes}
        return dict(summary(**given, bins=bins, interval=interval))


def indices(references: Any) -> Any:
    """Whole numbers as such; names, and what is no whole number, as they are."""
    labels = np.asarray(references)
    if labels.dtype.kind == "f" and np.array_equal(labels, np.trunc(labels)):
        return labels.astype(np.int64)
    return labels
