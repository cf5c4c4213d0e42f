"""The paper's motivation in numbers: what random masks do to a trained classifier (Fig. 1), and to
its logits (Fig. 2).

masked_inference     Fig. 1: weights dropped at random from a classifier as it is; confidence falls, and accuracy with it
masked_retraining    Fig. 1: a classifier trained for five epochs under such masks on the same features, and used without any
logit_map            Fig. 2 a, d: logits in the plane by t-SNE, with the entropy of each prediction
prototype_angles     Fig. 2 b, e: the angles between the classes
calibration_curve    Fig. 2 c, f: accuracy against confidence

Every function takes numpy arrays or tensors and returns numpy arrays; nothing is drawn here. Cost:
a matrix product a mask, a second for retraining on 10,000 rows, and 10 to 30 s for 2,000 rows of
t-SNE. Expect of a ResNet-20 on CIFAR-10, whose accuracy is 91.5 % and confidence 97.0 %: 79 % and
89 % with half of the weights dropped; 90.6 % and 91.2 % after retraining under such masks (10,000
training images, the first 5,000 test images; 10 draws, 2 seeds).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

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
DRAWN: Mapping[str, Callable[[Bins], float]] = {
    "accuracy": lambda sums: float(sums.correct.sum() / sums.n),
    "confidence": lambda sums: float(sums.confidence.sum() / sums.n),
    "ece": Bins.ece,
}


def masked_inference(
    weight: Array, bias: Array | None, z: Array, y: Array, ratios: Sequence[float], *, draws: int = 10, seed: int = 1,
    bins: int = 15,
) -> Numbers:  # fmt: skip
    """A linear classifier (K x D, and K) on features z (N x D), each weight dropped with
    probability `ratio`, the bias never.

    Returns, over the ratios, the mean of accuracy, confidence and ece over the draws and their
    standard deviation, `<name>_spread`; and the share of rows in each bin of confidence,
    `histogram` (ratios x bins), between `edges`. Nothing is rescaled: the logits shrink as weights
    go. A draw's masks are nested, so what is dropped at one ratio stays dropped at a higher one.
    """
    w, b, x, labels = check_classifier(weight, bias, z, y)
    levels = check_ratios(ratios, 1.0)
    if draws < 1:
        raise ValueError(f"draws is {draws}; at least one is needed")
    generator = torch.Generator().manual_seed(seed)
    cells = []
    for _ in range(draws):
        lot = torch.rand(w.shape, generator=generator, dtype=torch.float64)
        cells.append(
            [sums_of(torch.addmm(b, x, (w * (lot >= ratio)).T), labels, bins) for ratio in levels]
        )
    return gathered(levels, cells)


def masked_retraining(
    train: tuple[Array, Array], test: tuple[Array, Array], ratios: Sequence[float], *, config: Stage2 = MOTIVATION,
    seeds: Sequence[int] = (1, 2, 3), bins: int = 15, progress: bool = False,
) -> Numbers:  # fmt: skip
    """The same numbers for classifiers retrained under masks, one for each ratio (at most 0.99) and
    seed; draws are the seeds.

    `train` and `test` are features and labels. The classifiers start from fresh weights, and
    predict without masks, with the expected weights of `config`, whose q0 is replaced by each
    ratio's."""
    levels = check_ratios(ratios, 1 - FEWEST)
    if not seeds:
        raise ValueError("no seeds; pass at least one")
    x, labels = check_features(test[0], "test features"), as_tensor(test[1], "labels")
    if (width := matrix(train[0], "train features").shape[1]) != x.shape[1]:
        raise ValueError(
            f"{width} features in train and {x.shape[1]} in test; both must come from the same network"
        )
    classes = 1 + max(int(as_tensor(part[1], "labels").max()) for part in (train, test))
    configs = [
        replace(config, adapt="none", q0=max(FEWEST, 1 - ratio)) for _ in seeds for ratio in levels
    ]
    each = [seed for seed in seeds for _ in levels]
    heads = calibrate_heads(*train, configs=configs, seeds=each, classes=classes, progress=progress)
    with torch.no_grad():
        cells = [sums_of(head(x), labels, bins) for head in heads]
    return gathered(
        levels, [cells[start : start + len(levels)] for start in range(0, len(cells), len(levels))]
    )


def gathered(ratios: Sequence[float], cells: list[list[Bins]]) -> Numbers:
    """Means and spreads over the draws (rows) of sums at each ratio (columns)."""
    shares = np.array([[sums.count / sums.n for sums in row] for row in cells])
    result = {"ratio": np.array(ratios), "edges": cells[0][0].edges, "histogram": shares.mean(0)}
    for name, measure in DRAWN.items():
        table = np.array([[measure(sums) for sums in row] for row in cells])
        result |= {name: table.mean(0), f"{name}_spread": table.std(0, ddof=min(1, len(table) - 1))}
    return result


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
    w, x = check_features(weight, "weight"), check_features(z, "z")
    b = torch.zeros(len(w)) if bias is None else as_tensor(bias, "bias").cpu().float()
    if w.shape[1] != x.shape[1] or b.shape != w.shape[:1]:
        shapes = f"weight is {tuple(w.shape)}, bias {tuple(b.shape)} and z {tuple(x.shape)}"
        raise ValueError(f"{shapes}; expected K x D, K and N x D, as in nn.Linear(D, K)")
    return w, b, x, check_labels(y, torch.empty(1, 1).expand(len(x), len(w)))


def logit_map(logits: Array, labels: Array, *, rows: int = 2000, seed: int = 1) -> Numbers:
    """At most so many rows of logits, every class in its share, in the plane: `place` (n x 2),
    `entropy` (nats), `labels`, `rows`.

    `rows` returned are the numbers of the rows shown: the same labels and seed show the same rows
    of another classifier's logits. The same input gives the same places, whatever the number of
    cores. ValueError below five rows, or where all are equal."""
    scores = check_logits(logits).cpu().double()
    y = check_labels(labels, scores).numpy()
    count = min(rows, len(scores))
    if count < 5 or bool((scores == scores[0]).all()):
        raise ValueError(
            f"{count} rows of logits{', all equal' if count >= 5 else ''}; a map needs at least five, and some that differ"
        )
    chosen = np.sort(stratified(y, count, np.random.default_rng(seed)))
    picked = scores[torch.from_numpy(chosen)]
    entropy = -negative_entropy(picked.softmax(1)).numpy()
    return {
        "place": plane(picked.numpy(), seed),
        "entropy": entropy,
        "labels": y[chosen],
        "rows": chosen,
    }


def plane(points: np.ndarray, seed: int) -> np.ndarray:
    """t-SNE, on one thread.

    The order of its sums, and with it the picture, would else depend on the machine.
    """
    from sklearn.manifold import TSNE  # here: it takes a second
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

    with threadpool_limits(1):
        perplexity = min(30.0, (len(points) - 1) / 3)
        return np.asarray(
            TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(points),
            np.float64,
        )


def prototype_angles(
    values: Array, labels: Array, classes: int | None = None, *, centred: bool = False
) -> np.ndarray:
    """Angles in degrees, K x K, between the means of the classes: of logits, which retraining
    moves, or of features.

    For the rows of a linear classifier itself pass its weight and range(K). The paper speaks of
    prototypes and of no centring; `centred` takes the mean of the class means away first, so that
    equally spread classes stand at arccos(-1 / (K - 1)).

    >>> prototype_angles(np.array([[2.0, 0.0], [4.0, 0.0], [0.0, 3.0]]), np.array([0, 0, 1])).round(6).tolist()
    [[0.0, 90.0], [90.0, 0.0]]
    """
    x = matrix(values, "values").cpu().double()
    shown = int(as_tensor(labels, "labels").max()) + 1 if classes is None else classes
    y = check_labels(labels, torch.empty(1, 1).expand(len(x), shown))
    counts = torch.bincount(y, minlength=shown)
    if bool((counts == 0).any()):
        raise ValueError(
            f"no row of class {int(counts.argmin())}; a prototype is the mean of its rows, so each class needs one"
        )
    means = (
        torch.zeros(shown, x.shape[1], dtype=torch.float64).index_add_(0, y, x) / counts[:, None]
    )
    means = means - means.mean(0) if centred else means
    length = means.norm(dim=1, keepdim=True)
    if not bool((length > 0).all() and length.isfinite().all()):
        raise ValueError(
            f"the prototype of class {int(length.argmin())} is zero or not finite: it has no direction"
        )
    angles: Tensor = (
        ((means / length) @ (means / length).T).clamp(-1, 1).arccos().rad2deg().fill_diagonal_(0)
    )
    return np.asarray(angles)


def calibration_curve(logits: Array, labels: Array, *, bins: int = 15) -> Numbers:
    """Mean `confidence` and `accuracy` of each bin (NaN where it is empty), `count`, and the
    `edges`.
    """
    sums = sums_of(check_logits(logits), labels, bins)
    filled = np.where(sums.count > 0, sums.count, np.nan)
    return {
        "edges": sums.edges,
        "count": sums.count,
        "confidence": sums.confidence / filled,
        "accuracy": sums.correct / filled,
    }
