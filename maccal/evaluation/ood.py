"""Out-of-distribution detection: can the confidence tell other data apart?

    ood(inside, {"svhn": outside})    AUROC and FPR95 of every set, and their mean, from logits

In-distribution is the positive class. Each set is scored against the in-distribution rows and
nothing else: in the code that the paper builds on, the first set's rows are still among them when
the second is scored."""

from collections.abc import Callable, Mapping
from zlib import crc32

import numpy as np
from torch import Tensor

from maccal.metrics import auroc, energy, fpr95, max_logit, max_softmax, negative_entropy
from maccal.metrics.inputs import Array, check_logits
from maccal.metrics.resampling import centred

# A score is high inside. The first is the paper's, and has no prefix
SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "": lambda logits: max_softmax(logits.softmax(1)),
    "entropy_": lambda logits: negative_entropy(logits.softmax(1)),
    "max_logit_": max_logit,
    "energy_": energy,
}


def ood(
    inside: Array, outside: Mapping[str, Array], *, resamples: int = 1000, seed: int = 0
) -> dict[str, dict[str, float]]:
    """How well the confidence tells each set of `outside` from `inside`, all logits of the same
    network; and the sets' "mean".

    By the largest probability `auroc` and `fpr95`, with bootstrap intervals `_low` and `_high`; by
    other scores `entropy_auroc`, `max_logit_auroc`, `energy_auroc` and the like. The rows of a set
    have no influence on the numbers of another."""
    if not outside or "mean" in outside or resamples < 1:
        raise ValueError(
            "pass at least one set of logits, none of them named 'mean', and at least one resample"
        )
    own, others = scores_of(inside), {name: scores_of(logits) for name, logits in outside.items()}
    if len(widths := {len(inside[0]), *(len(logits[0]) for logits in outside.values())}) > 1:
        raise ValueError(
            f"logits of {' and '.join(map(str, sorted(widths)))} classes; all sets must go through the same network"
        )
    result = {name: separations(own, scores) for name, scores in others.items()}
    result["mean"] = {
        key: float(np.mean([numbers[key] for numbers in result.values()]))
        for key in next(iter(result.values()))
    }
    draws = {
        name: redrawn(own[""], scores[""], name, resamples, seed) for name, scores in others.items()
    }
    draws["mean"] = np.mean(list(draws.values()), 0)
    for name, numbers in result.items():
        for key, column in zip(("auroc", "fpr95"), draws[name].T, strict=True):
            numbers[f"{key}_low"], numbers[f"{key}_high"] = centred(numbers[key], column)
    return result


def scores_of(logits: Array) -> dict[str, np.ndarray]:
    """Every score of every row, in float64: in float32 the surest rows would all tie at 1."""
    exact = check_logits(logits).double().cpu()
    return {name: score(exact).numpy() for name, score in SCORES.items()}


def separations(own: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {
        f"{name}{rate.__name__}": rate(own[name], other[name])
        for name in SCORES
        for rate in (auroc, fpr95)
    }


def redrawn(
    inside: np.ndarray, outside: np.ndarray, name: str, resamples: int, seed: int
) -> np.ndarray:
    """AUROC and FPR95 (columns) of resamples (rows), each sample drawn by itself.

    All sets see the same draws of `inside`, so that the mean over sets has an interval too; a set's
    own come from its name."""
    levels, place = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    samples = np.split(place, [len(inside)])
    lots = np.random.default_rng(seed), np.random.default_rng([seed, crc32(name.encode())])

    def counts(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.bincount(rows[rng.integers(len(rows), size=len(rows))], minlength=len(levels))

    return np.array(
        [rates(counts(samples[0], lots[0]), counts(samples[1], lots[1])) for _ in range(resamples)]
    )


def rates(inside: np.ndarray, outside: np.ndarray, tpr: float = 0.95) -> tuple[float, float]:
    """What metrics.auroc and metrics.fpr95 say, from the counts at each score, ascending.

    Ten times faster in a bootstrap.
    """
    passed, fooled = (
        np.concatenate([[0.0], counts[::-1].cumsum() / counts.sum()])
        for counts in (inside, outside)
    )
    place = max(1, int(np.searchsorted(passed, tpr)))
    fpr = np.interp(tpr, passed[place - 1 : place + 1], fooled[place - 1 : place + 1])
    return float(inside @ (outside.cumsum() - outside / 2) / (inside.sum() * outside.sum())), float(
        fpr
    )
