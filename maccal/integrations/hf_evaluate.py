"""A metric of Hugging Face evaluate, from this file or from the class. Nothing is downloaded.

    import evaluate, maccal.integrations.hf_evaluate as ours
    metric = evaluate.load(ours.__file__)
    metric.compute(predictions=probs, references=labels, kind="probs")

Needs evaluate: pip install 'maccal[evaluate]'
"""

from typing import Any, Literal

import datasets
import evaluate
import numpy as np

from maccal.metrics import summary

DESCRIPTION = "How far a classifier's confidence is from its accuracy: ECE and its relatives."
INPUTS = """
    predictions     one list of K logits or probabilities per row
    references      one class index per row
    kind            "logits" or "probs": what the predictions are
    bins            15 of equal width
    interval        adds an interval and a null band to every number, and the verdict in words
"""
CITATION = "Ni et al., Pattern Recognition 177, 113217, 2026"


class Calibration(evaluate.Metric):  # type: ignore[misc, unused-ignore]
    """The numbers of `maccal.summary`."""

    def _info(self) -> Any:
        features = datasets.Features(
            {
                "predictions": datasets.Sequence(datasets.Value("float64")),
                "references": datasets.Value("int64"),
            }
        )
        return evaluate.MetricInfo(
            description=DESCRIPTION,
            citation=CITATION,
            inputs_description=INPUTS,
            features=features,
        )

    def _compute(
        self,
        *,
        predictions: Any,
        references: Any,
        kind: Literal["logits", "probs"],
        bins: int = 15,
        interval: bool = False,
    ) -> dict[str, Any]:
        if kind not in ("logits", "probs"):
            raise ValueError(f"kind is {kind!r}; say what you pass: 'logits' or 'probs'")
        scores = np.asarray(predictions, np.float64)
        labels = np.asarray(references, np.int64)
        if kind == "logits":
            return dict(summary(logits=scores, labels=labels, bins=bins, interval=interval))
        return dict(summary(scores, labels, bins=bins, interval=interval))
