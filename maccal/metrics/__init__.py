"""Probabilities and labels in, numbers with intervals out."""

from maccal.metrics.binary import BinarySummary, binary_summary
from maccal.metrics.bins import Bins, Worst
from maccal.metrics.counts import clopper_pearson, holm, rate_bound
from maccal.metrics.groups import by_class, by_group
from maccal.metrics.inputs import softmax, top_label
from maccal.metrics.listing import Listing
from maccal.metrics.miscalibration import (
    aece,
    classwise_ece,
    debiased_squared_ce,
    ece,
    ks,
    mce,
    smece,
)
from maccal.metrics.multilabel import MultilabelSummary, multilabel_summary
from maccal.metrics.paired import Difference, compare
from maccal.metrics.ranking import (
    accuracy_at_coverage,
    aurc,
    auroc,
    e_aurc,
    energy,
    fpr95,
    max_logit,
    max_softmax,
    negative_entropy,
    risk_curve,
)
from maccal.metrics.resampling import Interval, bootstrap, resample
from maccal.metrics.scores import Split, accuracy, brier, brier_split, nll, nll_split
from maccal.metrics.streaming import Stream
from maccal.metrics.summaries import METRICS, Metric, Summary, summary

__all__ = [
    "METRICS",
    "BinarySummary",
    "Bins",
    "Difference",
    "Interval",
    "Listing",
    "Metric",
    "MultilabelSummary",
    "Split",
    "Stream",
    "Summary",
    "Worst",
    "accuracy",
    "accuracy_at_coverage",
    "aece",
    "aurc",
    "auroc",
    "binary_summary",
    "bootstrap",
    "brier",
    "brier_split",
    "by_class",
    "by_group",
    "classwise_ece",
    "clopper_pearson",
    "compare",
    "debiased_squared_ce",
    "e_aurc",
    "ece",
    "energy",
    "fpr95",
    "holm",
    "ks",
    "max_logit",
    "max_softmax",
    "mce",
    "multilabel_summary",
    "negative_entropy",
    "nll",
    "nll_split",
    "rate_bound",
    "resample",
    "risk_curve",
    "smece",
    "softmax",
    "summary",
    "top_label",
]
