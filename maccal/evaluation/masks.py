"""The paper's motivation in numbers: what random masks do to a trained classifier.

masked_inference     Fig. 1: weights dropped at random from a classifier as it is; confidence falls,
                     and accuracy with it
masked_retraining    Fig. 1: a classifier trained for five epochs under such masks on the same
                     features, and used without any
logit_map            Fig. 2 a, d: logits in the plane by t-SNE, with the entropy of each prediction
prototype_angles     Fig. 2 b, e: the angles between the classes
calibration_curve    Fig. 2 c, f: accuracy against confidence

Every function takes numpy arrays or tensors and returns numpy arrays; nothing is drawn here. Cost:
a matrix product per mask, a second for retraining on 10,000 rows, and 10 to 30 s for 2,000 rows of
t-SNE. Expect of a ResNet-20 on CIFAR-10, whose accuracy is 91.5 % and confidence 97.0 %: 79 % and
89 % with half of the weights dropped; 90.6 % and 91.2 % after retraining under such masks (10,000
training images, the first 5,000 test images; 10 draws, 2 seeds).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from maccal.calibration.mac_cal import calibrate_heads
from maccal.calibration.stage2 import FEWEST, Stage2
from maccal.data.split import stratified
from maccal.metrics import Bins, negative_entropy, top_label
from maccal.metrics.inputs import Array, as_tensor, check_labels, check_logits, matrix

Numbers = dict[str, np.ndarray]

# The paper's words for Fig. 1: a linear classifier, masks drawn "each epoch", "5 epochs". Masks
# multiply the weights (Eq. 8): the straight-through gradients of Stage2.ablation("masked") leave
# the confidence where it was, at every ratio
MOTIVATION = Stage2.ablation("restricted", epochs=5, refresh="epoch")
# The other reading: weights are zeroed when the mask is drawn, and grow again (Stage2.ablation)
REGROWTH = Stage2.ablation("restricted", "regrow")
DRAWN: Mapping[str, Callable[[Bins], float]] = {
    "accuracy": lambda sums: float(sums.correct.sum() / sums.n),
    "confidence": lambda sums: float(sums.confidence.sum() / sums.n),
    "ece": Bins.ece,
}


def masked_inference(
    weight: Array,
    bias: Array | None,
    z: Array,
    y: Array,
    ratios: Sequence[float],
    *,
    draws: int = 10,
    seed: int = 1,
    bins: int = 15,
) -> Numbers:
    """A linear classifier on features z, each weight dropped with probability `ratio`.

    The classifier is K x D, its bias (never dropped) K, and z N x D. Returns, over the ratios, the
    mean of accuracy, confidence and ece over the draws and their standard deviation,
    `<name>_spread`; and the share of rows in each bin of confidence, `histogram` (ratios x bins),
    between `edges`. Nothing is rescaled: the logits shrink as weights go. The masks of one draw are
    nested, so what is dropped at one ratio stays dropped at a higher one.
    """
    w, b, x, labels = check_classifier(weight, bias, z, y)
    levels = check_ratios(ratios, 1.0)
    if draws < 1:
        raise ValueError(f"draws is {draws}; at least one is needed")
    generator = torch.Generator().manual_seed(seed)
    table = []
    for _ in range(draws):
        chance = torch.rand(w.shape, generator=generator, dtype=torch.float64)
        masked = [w * (chance >= ratio) for ratio in levels]
        table.append([sums_of(torch.addmm(b, x, kept.T), labels, bins) for kept in masked])
    return gathered(levels, table)


def masked_retraining(
    train: tuple[Array, Array],
    test: tuple[Array, Array],
    ratios: Sequence[float],
    *,
    config: Stage2 = MOTIVATION,
    start: tuple[Array, Array | None] | None = None,
    seeds: Sequence[int] = (1, 2, 3),
    bins: int = 15,
    progress: bool = False,
) -> Numbers:
    """The same numbers for classifiers retrained under masks, one for each ratio and seed.

    The draws are the seeds; a ratio is at most 0.99. `train` and `test` are features and labels.
    The classifiers start from fresh weights, or with REGROWTH from `start`, the classifier as
    trained. They predict without masks, with the weights of `config`, whose q0 is replaced by each
    ratio's: expected ones, or those that grew.
    """
    levels = check_ratios(ratios, 1 - FEWEST)
    if not seeds:
        raise ValueError("no seeds; pass at least one")
    x = check_features(test[0], "test features")
    labels = as_tensor(test[1], "labels")
    width = matrix(train[0], "train features").shape[1]
    if width != x.shape[1]:
        problem = f"{width} features in train and {x.shape[1]} in test"
        raise ValueError(f"{problem}; both must come from the same network")
    classes = 1 + max(int(as_tensor(part[1], "labels").max()) for part in (train, test))
    each = [replace(config, adapt="none", q0=max(FEWEST, 1 - ratio)) for ratio in levels]
    pairs = list(product(seeds, each))
    # one call for all, so that the heads train side by side
    heads = calibrate_heads(
        *train,
        configs=[changed for _, changed in pairs],
        seeds=[seed for seed, _ in pairs],
        start=start,
        classes=None if start is not None else classes,
        progress=progress,
    )
    with torch.no_grad():
        sums = [sums_of(head(x), labels, bins) for head in heads]
    starts = range(0, len(sums), len(levels))
    return gathered(levels, [sums[start : start + len(levels)] for start in starts])


def gathered(ratios: Sequence[float], table: list[list[Bins]]) -> Numbers:
    """Means and spreads over the draws (rows) of sums at each ratio (columns)."""
    shares = over(table, lambda sums: sums.count / sums.n)
    result = {"ratio": np.array(ratios), "edges": table[0][0].edges, "histogram": shares.mean(0)}
    for name, measure in DRAWN.items():
        values = over(table, measure)
        result[name] = values.mean(0)
        # of one draw there is no spread: zero
        result[f"{name}_spread"] = values.std(0, ddof=min(1, len(values) - 1))
    return result


def over(table: list[list[Bins]], measure: Callable[[Bins], float | np.ndarray]) -> np.ndarray:
    """A measure of each entry of the table."""
    values = []
    for row in table:
        values.append([measure(sums) for sums in row])
    return np.array(values)


def sums_of(logits: Tensor, labels: Array, bins: int) -> Bins:
    return Bins.of(*top_label(check_logits(logits).double().softmax(1), labels), bins)


def check_ratios(ratios: Sequence[float], most: float) -> list[float]:
    levels = [float(ratio) for ratio in ratios]
    if not levels or not all(0 <= ratio <= most for ratio in levels):
        raise ValueError(
            f"masking ratios are {levels}; pass shares of the weights to drop, from 0 to {most:g}"
        )
    return levels


def check_features(z: Array, name: str) -> Tensor:
    """Finite N x D numbers on the CPU, in float32."""
    x = matrix(z, name).cpu().float()
    if not bool(x.isfinite().all()):
        raise ValueError(f"{name} hold a value that is not finite; features must be numbers")
    return x


def check_classifier(
    weight: Array, bias: Array | None, z: Array, y: Array
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weight, bias, features and labels that fit together."""
    w = check_features(weight, "weight")
    x = check_features(z, "z")
    b = torch.zeros(len(w)) if bias is None else as_tensor(bias, "bias").cpu().float()
    if w.shape[1] != x.shape[1] or b.shape != w.shape[:1]:
        shapes = f"weight is {tuple(w.shape)}, bias {tuple(b.shape)} and z {tuple(x.shape)}"
        raise ValueError(f"{shapes}; expected K x D, K and N x D, as in nn.Linear(D, K)")
    return w, b, x, check_labels(y, torch.empty(1, 1).expand(len(x), len(w)))


def logit_map(logits: Array, labels: Array, *, rows: int = 2000, seed: int = 1) -> Numbers:
    """At most so many rows of logits in the plane, every class in its share.

    Returns `place` (n x 2), `entropy` (nats), `labels` and `rows`, the numbers of the rows shown:
    the same labels and seed show the same rows of another classifier's logits. The same input gives
    the same places, whatever the number of cores. ValueError below five rows, or where all are
    equal.
    """
    scores = check_logits(logits).cpu().double()
    y = check_labels(labels, scores).numpy()
    count = min(rows, len(scores))
    if count < 5 or bool((scores == scores[0]).all()):
        problem = f"{count} rows of logits{', all equal' if count >= 5 else ''}"
        raise ValueError(f"{problem}; a map needs at least five, and some that differ")
    chosen = np.sort(stratified(y, count, np.random.default_rng(seed)))
    picked = scores[torch.from_numpy(chosen)]
    return {
        "place": plane(picked.numpy(), seed),
        "entropy": -negative_entropy(picked.softmax(1)).numpy(),
        "labels": y[chosen],
        "rows": chosen,
    }


def plane(points: np.ndarray, seed: int) -> np.ndarray:
    """t-SNE, on one thread.

    With several, the order of its sums, and with it the picture, would depend on the machine.
    """
    from sklearn.manifold import TSNE  # here: it takes a second

    # comes with scikit-learn
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    perplexity = min(30.0, (len(points) - 1) / 3)
    with threadpool_limits(1):
        mapped = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(points)
    return np.asarray(mapped, np.float64)


def prototype_angles(
    values: Array, labels: Array, classes: int | None = None, *, centred: bool = False
) -> np.ndarray:
    """Angles in degrees, K x K, between the means of the classes.

    The values are logits, which retraining moves, or features. For the rows of a linear classifier
    itself pass its weight and range(K). The paper speaks of prototypes and of no centring;
    `centred` first takes away the mean of the class means, so that equally spread classes stand at
    arccos(-1 / (K - 1)).

    >>> values = np.array([[2.0, 0.0], [4.0, 0.0], [0.0, 3.0]])
    >>> prototype_angles(values, np.array([0, 0, 1])).round(6).tolist()
    [[0.0, 90.0], [90.0, 0.0]]
    """
    x = matrix(values, "values").cpu().double()
    shown = int(as_tensor(labels, "labels").max()) + 1 if classes is None else classes
    y = check_labels(labels, torch.empty(1, 1).expand(len(x), shown))
    means = class_means(x, y, shown)
    if centred:
        means = means - means.mean(0)
    length = means.norm(dim=1, keepdim=True)
    if not bool((length > 0).all() and length.isfinite().all()):
        problem = f"the prototype of class {int(length.argmin())} is zero or not finite"
        raise ValueError(f"{problem}: it has no direction")
    directions = means / length
    cosines = (directions @ directions.T).clamp(-1, 1)
    return np.asarray(cosines.arccos().rad2deg().fill_diagonal_(0))


def class_means(x: Tensor, y: Tensor, classes: int) -> Tensor:
    """The mean row of each class, K x D; ValueError where a class has none."""
    counts = torch.bincount(y, minlength=classes)
    if bool((counts == 0).any()):
        problem = f"no row of class {int(counts.argmin())}"
        raise ValueError(f"{problem}; a prototype is the mean of its rows, so each class needs one")
    sums = torch.zeros(classes, x.shape[1], dtype=torch.float64).index_add_(0, y, x)
    return sums / counts[:, None]


def calibration_curve(logits: Array, labels: Array, *, bins: int = 15) -> Numbers:
    """Mean `confidence` and `accuracy` of each bin (NaN where it is empty), `count` and `edges`."""
    sums = sums_of(check_logits(logits), labels, bins)
    filled = np.where(sums.count > 0, sums.count, np.nan)
    return {
        "edges": sums.edges,
        "count": sums.count,
        "confidence": sums.confidence / filled,
        "accuracy": sums.correct / filled,
    }
