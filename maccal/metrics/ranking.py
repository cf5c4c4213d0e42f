"""What depends only on the order of the scores: selective prediction, and OOD detection.

Ties are shared out evenly (the expectation over all orders of the tied rows), so the order of the
input never matters. In-distribution is the positive class throughout: a good score is high for ID
rows and low for OOD rows.
"""

from functools import cache

import numpy as np
import torch

from maccal.metrics.arguments import check_share
from maccal.metrics.inputs import (
    Array,
    Same,
    check_confidence,
    check_logits,
    check_probs,
    check_scores,
    like,
)
from maccal.metrics.miscalibration import Ordered, by_confidence

TABLE = 1 << 16  # harmonic numbers that are kept in memory


def aurc(confidence: Array, correct: Array) -> float:
    """Area under the risk-coverage curve: the mean over k of the error rate of the k surest rows.

    >>> round(aurc(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 1, 0, 1])), 6)
    0.145833
    """
    return float(risk_curve(confidence, correct).mean())


def e_aurc(confidence: Array, correct: Array) -> float:
    """Excess AURC: AURC less that of an oracle, which puts every wrong row last.

    0 is a perfect order.

    >>> round(e_aurc(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 1, 0, 1])), 6)
    0.083333
    """
    return areas_of(by_confidence(*check_confidence(confidence, correct)))[1]


def areas_of(rows: Ordered) -> tuple[float, float]:
    """AURC and E-AURC."""
    area = float(risk_of(rows).mean())
    wrong = np.count_nonzero(~rows.correct)
    return area, area - float(best_aurc(np.array(wrong), len(rows.correct)))


def best_aurc(wrong: np.ndarray, n: int) -> np.ndarray:
    """AURC if all wrong rows come last.

    That is the sum of (1 - (n - wrong) / k) / n over the last `wrong` of the ranks k = 1 .. n.
    """
    later = harmonic(np.asarray(n)) - harmonic(n - np.asarray(wrong))
    return np.asarray((wrong - (n - wrong) * later) / n)


def harmonic(k: np.ndarray) -> np.ndarray:
    """H_k = 1 + 1/2 + ... + 1/k for whole numbers k >= 0.

    Beyond TABLE it comes from its series, whose next term is below 1e-20.
    """
    if k.max() < TABLE:
        return harmonics()[k]
    high = np.maximum(k, TABLE)
    series = np.log(high) + np.euler_gamma + 1 / (2 * high) - 1 / (12.0 * high * high)
    return np.where(k < TABLE, harmonics()[np.minimum(k, TABLE)], series)


@cache
def harmonics() -> np.ndarray:
    """H_0 .. H_TABLE."""
    return np.concatenate([[0.0], (1 / np.arange(1, TABLE + 1)).cumsum()])


def accuracy_at_coverage(confidence: Array, correct: Array, coverage: float) -> float:
    """The accuracy of the surest rows, a share `coverage` of all, rounded up to whole rows.

    The share is above 0 and at most 1.

    >>> accuracy_at_coverage(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 1, 0, 1]), 0.5)
    1.0
    """
    share = check_share(coverage, "coverage")
    risk = risk_curve(confidence, correct)
    kept = max(1, int(np.ceil(share * len(risk) - 1e-9)))
    return float(1 - risk[kept - 1])


def risk_curve(confidence: Array, correct: Array) -> np.ndarray:
    """Error rate of the k surest rows, k = 1 .. N."""
    return risk_of(by_confidence(*check_confidence(confidence, correct)))


def risk_of(rows: Ordered) -> np.ndarray:
    n = len(rows.confidence)
    size = np.diff(rows.start, append=n)
    share_wrong = np.add.reduceat(~rows.correct, rows.start, dtype=np.float64) / size
    return np.cumsum(np.repeat(share_wrong[::-1], size[::-1])) / np.arange(1, n + 1)


def auroc(id_scores: Array, ood_scores: Array) -> float:
    """The chance that an ID row scores above an OOD row, ties counting one half.

    >>> auroc(np.array([0.9, 0.8, 0.7]), np.array([0.7, 0.2]))
    0.9166666666666666
    """
    inside = check_scores(id_scores, "id_scores")
    outside = check_scores(ood_scores, "ood_scores")
    ordered = outside.to(inside.device).sort().values
    below = torch.searchsorted(ordered, inside) + torch.searchsorted(ordered, inside, right=True)
    return float(below.double().mean() / (2 * len(ordered)))


def fpr95(id_scores: Array, ood_scores: Array, tpr: float = 0.95) -> float:
    """The share of OOD rows let through by the threshold that lets through 95 % of the ID rows.

    Between two thresholds the ROC curve is a straight line. If several thresholds let through
    exactly `tpr`, the strictest counts.

    >>> fpr95(np.array([0.9, 0.8, 0.7, 0.6]), np.array([0.65, 0.2]), tpr=0.75)
    0.0
    """
    tpr = check_share(tpr, "tpr")
    inside = check_scores(id_scores, "id_scores").cpu().numpy()
    outside = check_scores(ood_scores, "ood_scores").cpu().numpy()
    thresholds = np.unique(np.concatenate([inside, outside]))[::-1]
    passed = share_passed(inside, thresholds)
    fooled = share_passed(outside, thresholds)
    # The two points of the curve about the first that passes enough
    enough = max(1, int(np.searchsorted(passed, tpr)))
    points = slice(enough - 1, enough + 1)
    return float(np.interp(tpr, passed[points], fooled[points]))


def share_passed(scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The share of the scores at or above no threshold at all, and each of these."""
    below = np.searchsorted(np.sort(scores), thresholds)
    return np.r_[0.0, (len(scores) - below) / len(scores)]


def max_softmax(probs: Array) -> Same:
    """OOD score: the largest probability."""
    return like(check_probs(probs).amax(1), probs)


def negative_entropy(probs: Array) -> Same:
    """OOD score: minus the entropy of the probabilities, in nats."""
    p = check_probs(probs)
    return like(torch.xlogy(p, p).sum(1), probs)


def max_logit(logits: Array) -> Same:
    """OOD score: the largest logit."""
    return like(check_logits(logits).amax(1), logits)


def energy(logits: Array) -> Same:
    """OOD score: log sum exp of the logits (minus the free energy of Liu et al. 2020)."""
    return like(torch.logsumexp(check_logits(logits), 1), logits)
