"""Stage II of MaC-Cal: a new classifier on frozen features, retrained under random masks (Eqs.
7-13, Algorithm 1).

In every epoch the head trains with each weight kept with probability keep. Then its confidence is
compared with what it should be, and the sparsity, 1 - keep, moves by the gap (stage2.py). At the
end keep and the standardisation of the features are folded into plain linear layers.

What the confidence should be, best first:

    val=(z, y)             held-out rows: the head's accuracy on them
    accuracy=, unlabelled= a known accuracy on unseen data, for the confidence on unseen rows
    without labels
    accuracy=              the same without such rows: on the training rows, sqrt(accuracy x accuracy there)
    neither, calibrate()   training rows mixed with others (views.py): the accuracy on them, but never surer than as trained
    neither                on the training rows, gamma x accuracy there

Cost: N = 50,000, D = 64, K = 10, 40 epochs: about 10 s on two cores with a bottleneck of 512
(results/cost.md), less without.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from rich.progress import track
from torch import Tensor, nn

from maccal.calibration.heads import Heads, logits, plain
from maccal.calibration.stage2 import Stage2
from maccal.distributed import from_first, my_rank
from maccal.features.classifiers import named
from maccal.features.extraction import extract, find_head, replace_head
from maccal.features.table import CHUNK, FeatureTable, Standard, Standardised, check_pair
from maccal.features.views import CannotMix, mixed
from maccal.metrics.inputs import Array

DEFAULT = Stage2()
GUESS = "without held-out rows or a known accuracy, gamma x training accuracy is a guess; pass val= or accuracy="
OWN = {
    name: getattr(DEFAULT, name)
    for name in ("adapt", "eta", "eta_init", "eta_final", "q0", "gamma")
}


@dataclass(frozen=True)
class Feedback:
    """The rows a head is judged on after an epoch (None.

    Its own masked passes), and its right confidence given its accuracy.
    """

    rows: Standardised | None
    target: Callable[[float], float]


def calibrate_head(
    z: Array,
    y: Array,
    *,
    val: tuple[Array, Array] | None = None,
    accuracy: float | None = None,
    unlabelled: Array | None = None,
    ceiling: float = 1.0,
    classes: int | None = None,
    config: Stage2 = DEFAULT,
    seed: int = 1,
    progress: bool = False,
) -> nn.Sequential:
    """A calibrated classifier for features z (N x D) with labels y: plain linear layers in eval
    mode, with `.history`.

    The feedback is the best that the arguments allow: see the top of this file. Without any it is a
    guess (config.gamma), which can do harm; a few hundred held-out rows, or the accuracy on unseen
    data, are worth a lot. It never asks for a confidence above `ceiling`. `classes` is how many
    outputs the head has, if labels do not show them all. Same seed, same bits."""
    known: dict[str, Any] = {
        "val": val,
        "accuracy": accuracy,
        "unlabelled": unlabelled,
        "ceiling": ceiling,
        "classes": classes,
    }
    return calibrate_heads(z, y, configs=[config], seeds=[seed], progress=progress, **known)[0]


def calibrate_heads(
    z: Array,
    y: Array,
    *,
    configs: Sequence[Stage2],
    seeds: Sequence[int],
    val: tuple[Array, Array] | None = None,
    accuracy: float | None = None,
    unlabelled: Array | None = None,
    ceiling: float = 1.0,
    classes: int | None = None,
    progress: bool = False,
) -> list[nn.Sequential]:
    """Several heads on the same features, one for each pair of config and seed; each is what
    calibrate_head would give.

    Heads whose configs differ only in gamma, q0, eta, hidden width and adaptation train together as
    one batched problem."""
    if len(configs) != len(seeds):
        raise ValueError(
            f"{len(configs)} configs but {len(seeds)} seeds; they are paired one to one"
        )
    train = FeatureTable(z, y, "z")
    judged = judges(train, val, accuracy, unlabelled)
    classes = check_classes(train, judged, classes)
    if (
        judged is None
        and accuracy is None
        and any(c.statistics == "auto" and c.adapt != "none" for c in configs)
    ):
        warnings.warn(
            f"{GUESS}, or Stage2(statistics='deployed') if gamma is what you mean", stacklevel=3
        )
    heads: dict[int, nn.Sequential] = {}
    for group in alike(configs, train.fits):
        own = [configs[i] for i in group]
        standard = train.measured if own[0].standardise else Standard(torch.zeros(train.width), 1.0)
        rows = train.standardised(standard)
        held_out = judged.standardised(standard) if judged is not None else None
        feedback = [
            choose_feedback(config, rows, held_out, val is not None, accuracy) for config in own
        ]
        trained = fit(rows, classes, feedback, own, [seeds[i] for i in group], ceiling, progress)
        heads |= dict(zip(group, trained, strict=True))
    return [heads[i] for i in range(len(configs))]


def judges(
    train: FeatureTable,
    val: tuple[Array, Array] | None,
    accuracy: float | None,
    unlabelled: Array | None,
) -> FeatureTable | None:
    """The held-out rows, with or without labels."""
    if accuracy is not None and not 0 < accuracy <= 1:
        raise ValueError(
            f"accuracy is {accuracy}; pass the share of right answers on unseen data, such as 0.937"
        )
    if unlabelled is not None and accuracy is None:
        raise ValueError(
            "unlabelled rows say nothing without a known accuracy: pass accuracy= too, or val=(z, y) with labels"
        )
    if val is not None and accuracy is not None:
        raise ValueError(
            "val holds labels, which tell the accuracy: pass val or accuracy, not both"
        )
    if val is None and unlabelled is None:
        return None
    name = "val" if val is not None else "unlabelled"
    rows, labels = check_pair(val) if val is not None else (unlabelled, None)
    judged = FeatureTable(rows, labels, name, labelled=val is not None)
    if judged.width != train.width:
        raise ValueError(
            f"z has {train.width} features and {name} {judged.width}; both must come from the same network"
        )
    return judged


def choose_feedback(
    config: Stage2,
    train: Standardised,
    judged: Standardised | None,
    labelled: bool,
    accuracy: float | None,
) -> Feedback:
    held_out = config.statistics == "held-out" or (
        config.statistics == "auto" and judged is not None
    )
    if held_out and judged is None:
        raise ValueError("Stage2(statistics='held-out') needs held-out rows: pass val=(z, y)")
    if held_out:
        return Feedback(judged, (lambda a: a) if labelled else (lambda _: accuracy or 0.0))
    rows = None if config.statistics == "masked" else train
    if accuracy is not None:
        return Feedback(rows, lambda a: math.sqrt(accuracy * a))
    return Feedback(rows, lambda a: config.gamma * a)


def alike(configs: Sequence[Stage2], together: bool) -> list[list[int]]:
    """Groups of configs that can share their steps.

    One a group where the rows do not fit in memory.
    """
    groups: dict[Any, list[int]] = {}
    for place, config in enumerate(configs):
        shared = replace(config, **OWN, hidden=config.hidden and 1)
        groups.setdefault(shared if together else place, []).append(place)
    return list(groups.values())


def check_classes(train: FeatureTable, judged: FeatureTable | None, classes: int | None) -> int:
    """How many outputs the head has: as many as asked for, else as the labels speak of."""
    shown = max(rows.classes for rows in (train, judged) if rows is not None)
    if classes is not None and shown > classes:
        raise ValueError(
            f"label {shown - 1} is outside 0 .. {classes - 1}: classes is {classes}; do the labels count from 1?"
        )
    counts = torch.bincount(train.y, minlength=shown)
    if classes is None and counts[0] == 0 and bool((counts[1:] > 0).all()):
        warnings.warn(
            f"no row has label 0, and all of 1 .. {shown - 1} occur: if they count from 1, pass y - 1",
            stacklevel=4,
        )
    return classes or shown


def fit(
    train: Standardised,
    classes: int,
    feedback: list[Feedback],
    configs: list[Stage2],
    seeds: list[int],
    ceiling: float,
    progress: bool,
) -> list[nn.Sequential]:
    """The epochs of Algorithm 1 for heads that share their steps."""
    shared = configs[0]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    heads = Heads(
        [[train.width, *([c.hidden] if c.hidden else []), classes] for c in configs], generators
    )
    histories: list[list[dict[str, float]]] = [[] for _ in configs]
    following = [config.q0 for config in configs]
    for epoch in track(range(1, shared.epochs + 1), "stage II", disable=not progress):
        keeps = following
        seen = train_epoch(heads, train, keeps, epoch, shared, generators)
        following = []
        for head, (config, judge, keep) in enumerate(zip(configs, feedback, keeps, strict=True)):
            loss, confidence, accuracy = (seen[head] / train.count).tolist()
            if judge.rows is not None:
                confidence, accuracy = confidence_and_accuracy(
                    judge.rows, *heads.deployed(head, keep, config)
                )
            target = min(judge.target(accuracy), ceiling)
            histories[head].append(
                {
                    "epoch": epoch,
                    "keep": keep,
                    "accuracy": accuracy,
                    "confidence": confidence,
                    "target": target,
                    "loss": loss,
                }
            )
            following.append(config.next_keep(keep, confidence - target, epoch))
    return [
        fold(heads.deployed(head, keep, config), train.standard, histories[head])
        for head, (config, keep) in enumerate(zip(configs, keeps, strict=True))
    ]


def train_epoch(
    heads: Heads,
    train: Standardised,
    keeps: list[float],
    epoch: int,
    config: Stage2,
    generators: list[torch.Generator],
) -> Tensor:
    """Every row once, in random order.

    The sums of loss, confidence and right answers of the masked passes, a row a head.
    """
    heads.draw(keeps, generators)
    seen = torch.zeros(len(keeps), 3, dtype=torch.float64)
    steps = train.steps(config.batch_size)
    for place, (x, y) in enumerate(train.epoch(generators, config.batch_size)):
        if config.refresh == "batch" and place:
            heads.draw(keeps, generators)
        log_p = heads.step(
            x, y, config.lr_at((epoch - 1) * steps + place, config.epochs * steps), config
        )
        own = log_p.gather(2, y[:, :, None]).squeeze(2)
        seen[:, 0] -= own.sum(1)
        if config.statistics == "masked":
            top, best = log_p.max(2)
            seen[:, 1] += top.exp().sum(1)
            seen[:, 2] += (best == y).sum(1)
    return seen


def confidence_and_accuracy(
    rows: Standardised, weights: list[Tensor], biases: list[Tensor]
) -> tuple[float, float]:
    total = torch.zeros(2, dtype=torch.float64)
    for x, y in rows.chunks():
        scores = logits(x, weights, biases)
        confidence = (scores.amax(1) - scores.logsumexp(1)).exp_()
        total += torch.stack(
            [confidence.sum(dtype=torch.float64), (scores.argmax(1) == y).sum().double()]
        )
    confidence_mean, accuracy = (total / rows.count).tolist()
    return confidence_mean, accuracy


def fold(
    layers: tuple[list[Tensor], list[Tensor]], standard: Standard, history: list[dict[str, float]]
) -> nn.Sequential:
    """Plain layers for raw features."""
    weights, biases = [w.clone() for w in layers[0]], [b.clone() for b in layers[1]]
    weights[0] /= standard.scale
    biases[0] -= weights[0] @ standard.centre
    result = plain(weights, biases)
    result.history = history  # type: ignore[assignment]
    return result


def calibrate(
    model: nn.Module,
    train: Iterable[Any],
    *,
    val: Iterable[Any] | None = None,
    accuracy: float | None = None,
    head: str | None = None,
    config: Stage2 = DEFAULT,
    seed: int = 1,
    inplace: bool = False,
    cache: str | Path | None = None,
    device: str | torch.device | None = None,
    autocast: torch.dtype | None = None,
    progress: bool = False,
) -> nn.Module:
    """The model with its classifier replaced by a calibrated one; all else is as it was, to the
    bit, train/eval mode included.

    `train` and `val` are loaders (batches.py says of what); `head` names the classifier where it
    cannot be found. The new one is at the old one's place, with its `.history`. cache, device and
    autocast are those of features.extract."""
    if val is not None and accuracy is not None:
        raise ValueError(
            "val holds labels, which tell the accuracy: pass val or accuracy, not both"
        )
    if isinstance(train, Iterator):
        raise ValueError(
            "train is an iterator, which can be read once; pass a DataLoader or a list of batches"
        )
    name = find_head(model, first_batch(train), head)
    how: dict[str, Any] = {
        "head": name,
        "cache": cache,
        "device": device,
        "autocast": autocast,
        "progress": progress,
    }
    views = (
        harder(train) if val is None and accuracy is None and config.statistics == "auto" else None
    )
    judged = views if val is None else val
    features, held_out = (
        extract(model, train, **how),
        None if judged is None else extract(model, judged, **how),
    )
    old = named(model, name, [])
    known: dict[str, Any] = {"val": held_out, "accuracy": accuracy, "classes": old.out_features}
    if views is not None and held_out is not None:
        known["ceiling"] = mean_confidence(old, held_out.z)
    new = calibrate_head(*features, **known, config=config, seed=seed, progress=progress)
    result = model if inplace else deepcopy(model)
    replace_head(result, name, new if len(new) > 1 else single(new))
    return result


@torch.no_grad()
def mean_confidence(head: nn.Linear, z: Tensor) -> float:
    """Of the classifier as trained. Views only stand in for unseen rows.

    They may make a network less sure, never surer.
    """
    weight, bias = (
        head.weight.cpu().float(),
        torch.zeros(1) if head.bias is None else head.bias.cpu().float(),
    )
    return float(
        torch.cat(
            [(x.float() @ weight.T + bias).softmax(1).amax(1) for x in torch.split(z, CHUNK)]
        ).mean()
    )


def single(head: nn.Sequential) -> nn.Module:
    """A head of one layer as that layer, so that the model's weights keep their names."""
    head[0].history = head.history
    return head[0]


def first_batch(loader: Iterable[Any]) -> Any:
    for batch in loader:
        return batch
    raise ValueError("the loader is empty: there is no batch to find the classifier with")


def harder(train: Iterable[Any]) -> list[Any] | None:
    """Training rows made as hard as unseen ones, if their inputs are of a kind that can be (if not,
    calibrate_head warns).
    """
    views = None
    if my_rank()[0] == 0:  # the ranks may have different rows, but must look at the same
        with suppress(CannotMix):
            views = mixed(train)
    return cast(list[Any] | None, from_first(views))
