"""Out-of-distribution detection: can the confidence tell other data apart?

    ood(inside, {"svhn": outside})    AUROC and FPR95 of every set, and their mean, from logits

In-distribution is the positive class. Each set is scored against the in-distribution rows and
nothing else: in the code that the paper builds on, the first set's rows are still among them when
the second is scored.
"""

from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

import numpy as np
from torch import Tensor

from maccal.metrics import auroc, energy, fpr95, max_logit, max_softmax, negative_entropy
from maccal.metrics.inputs import Array, as_tensor, check_logits
from maccal.metrics.resampling import centred

RATES = {"auroc": auroc, "fpr95": fpr95}
# Each score is high for in-distribution rows. The first is the paper's, and has no prefix
SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "": lambda logits: max_softmax(logits.softmax(1)),
    "entropy_": lambda logits: negative_entropy(logits.softmax(1)),
    "max_logit_": max_logit,
    "energy_": energy,
}


def ood(
    inside: Array, outside: Mapping[str, Array], *, resamples: int = 1000, seed: int = 0
) -> dict[str, dict[str, float]]:
    """How well the confidence tells each set of `outside` from `inside`, and the sets' "mean".

    All are logits of the same network. By the largest probability: `auroc` and `fpr95`, with
    bootstrap intervals `_low` and `_high`. By other scores: `entropy_auroc`, `max_logit_auroc`,
    `energy_auroc` and so on. The rows of one set have no influence on the numbers of another.
    """
    if not outside or "mean" in outside or resamples < 1:
        raise ValueError(
            "pass at least one set of logits, none of them named 'mean', and at least one resample"
        )
    own = scores_of(inside)
    others = {name: scores_of(logits) for name, logits in outside.items()}
    check_one_network([inside, *outside.values()])
    result = {}
    draws = {}
    for name, scores in others.items():
        result[name] = separations(own, scores)
        draws[name] = redrawn(own[""], scores[""], name, resamples, seed)
    result["mean"] = mean_of(list(result.values()))
    draws["mean"] = np.mean(list(draws.values()), 0)
    for name, numbers in result.items():
        for key, column in zip(RATES, draws[name].T, strict=True):
            numbers[f"{key}_low"], numbers[f"{key}_high"] = centred(numbers[key], column)
    return result


def check_one_network(sets: Sequence[Array]) -> None:
    """ValueError unless all logits have the same number of classes."""
    widths = sorted({as_tensor(logits, "logits").shape[1] for logits in sets})
    if len(widths) > 1:
        found = " and ".join(map(str, widths))
        raise ValueError(f"logits of {found} classes; all sets must go through the same network")


def mean_of(sets: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Each number's mean over the sets."""
    means = {}
    for key in sets[0]:
        values = [numbers[key] for numbers in sets]
        means[key] = float(np.mean(values))
    return means


def scores_of(logits: Array) -> dict[str, np.ndarray]:
    """Every score of every row, in float64: in float32 the surest rows would all tie at 1."""
    exact = check_logits(logits).double().cpu()
    return {name: score(exact).numpy() for name, score in SCORES.items()}


def separations(own: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> dict[str, float]:
    """AUROC and FPR95 by each score, under the score's prefix."""
    result = {}
    for prefix in SCORES:
        for key, rate in RATES.items():
            result[f"{prefix}{key}"] = rate(own[prefix], other[prefix])
    return result


def redrawn(
    inside: np.ndarray, outside: np.ndarray, name: str, resamples: int, seed: int
) -> np.ndarray:
    """AUROC and FPR95 (columns) of resamples (rows), each of the two samples drawn by itself.

    All sets see the same draws of `inside`, so that the mean over sets has an interval too; the
    draws of a set itself are seeded with its name.
    """
    levels, codes = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    inside_codes, outside_codes = np.split(codes, [len(inside)])
    inside_rng = np.random.default_rng(seed)
    outside_rng = np.random.default_rng([seed, crc32(name.encode())])
    result = np.empty((resamples, 2))
    for number in range(resamples):
        own = drawn_counts(inside_codes, len(levels), inside_rng)
        other = drawn_counts(outside_codes, len(levels), outside_rng)
        result[number] = rates(own, other)
    return result


def drawn_counts(codes: np.ndarray, levels: int, rng: np.random.Generator) -> np.ndarray:
    """How often each level occurs in a sample of as many rows, with replacement."""
    rows = rng.integers(len(codes), size=len(codes))
    return np.bincount(codes[rows], minlength=levels)


def rates(inside: np.ndarray, outside: np.ndarray, tpr: float = 0.95) -> tuple[float, float]:
    """What metrics.auroc and metrics.fpr95 say, from the counts at each score, ascending.

    Ten times faster in a bootstrap.
    """
    # AUROC: the share of pairs in which the inside score is higher; a tie counts half
    below = outside.cumsum() - outside / 2
    area = inside @ below / (inside.sum() * outside.sum())
    # FPR95: along the ROC curve, from the highest threshold down, to where the TPR is reached
    true_rates = shares_above(inside)
    false_rates = shares_above(outside)
    end = max(1, int(np.searchsorted(true_rates, tpr)))
    segment = slice(end - 1, end + 1)
    return float(area), float(np.interp(tpr, true_rates[segment], false_rates[segment]))


def shares_above(counts: np.ndarray) -> np.ndarray:
    """The share of rows at or above each score, from the highest score down; first 0."""
    return np.concatenate([[0.0], counts[::-1].cumsum() / counts.sum()])
