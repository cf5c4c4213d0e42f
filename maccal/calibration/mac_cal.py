"""Stage II of MaC-Cal on features: a classifier retrained under random masks (Algorithm 1).

    1. train one epoch, each weight kept with probability keep          Eqs. 7-11
    2. compare the head's confidence with what it should be             feedback.py
    3. move the sparsity, 1 - keep, by the gap, which is clipped        Eqs. 12 and 13
    4. after the last epoch, fold keep and the standardisation of the features into plain layers

    calibrate_head     one head
    calibrate_heads    several configs and seeds on the same features, as one batched problem

Cost: N = 50,000, D = 64, K = 10, 40 epochs: about 10 s on two cores with a bottleneck of 512
(results/cost.md), less without.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from maccal.calibration.feedback import GUESS, Feedback, feedback_of
from maccal.calibration.heads import Heads, history_of, logits, plain, with_history
from maccal.calibration.stage2 import Stage2
from maccal.calibration.task import Task, check_seed, device_of
from maccal.caution import warn
from maccal.features.table import MOST_CLASSES, FeatureTable, Standard, Standardised
from maccal.metrics.arguments import check_count
from maccal.metrics.inputs import Array

DEFAULT = Stage2()
# what heads that train together may differ in
OWN = ("adapt", "eta", "eta_init", "eta_final", "q0", "gamma")


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
    """A calibrated classifier for features z (N x D) with labels y: plain linear layers, eval mode.

    The feedback is the best that the arguments allow: see feedback.py. Without any it is a guess
    (config.gamma), which can do harm; a few hundred held-out rows, or the accuracy on unseen data,
    are worth a lot. It never asks for a confidence above `ceiling`. `classes` is how many outputs
    the head has, if labels do not show them all. `.history` has one dict per epoch. Same seed, same
    bits.
    """
    return calibrate_heads(
        z,
        y,
        configs=[config],
        seeds=[seed],
        val=val,
        accuracy=accuracy,
        unlabelled=unlabelled,
        ceiling=ceiling,
        classes=classes,
        progress=progress,
    )[0]


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
    """Several heads on the same features, one for each pair of config and seed.

    Each is what calibrate_head would give. Heads whose configs differ only in gamma, q0, eta,
    hidden width and adaptation train together as one batched problem.
    """
    if len(configs) != len(seeds):
        raise ValueError(f"{len(configs)} configs but {len(seeds)} seeds; they are paired")
    seeds = [check_seed(seed) for seed in seeds]
    train = FeatureTable(z, y, "z")
    feedback = feedback_of(
        train, val=val, accuracy=accuracy, unlabelled=unlabelled, ceiling=ceiling
    )
    outputs = count_classes(train, feedback.rows, classes)
    if feedback.source == "training" and any(is_open(config) for config in configs):
        intended = "or Stage2(statistics='deployed') if gamma is what you mean"
        warn(f"{GUESS}, {intended}")
    return masked_heads(train, feedback, outputs, configs, seeds, progress)


def is_open(config: Stage2) -> bool:
    """Whether the config leaves open where the truth about confidence comes from."""
    return config.statistics == "auto" and config.adapt != "none"


def masked_heads(
    train: FeatureTable,
    feedback: Feedback,
    classes: int,
    configs: Sequence[Stage2],
    seeds: Sequence[int],
    progress: bool,
) -> list[nn.Sequential]:
    """One head for each config and seed, in that order; those that can share their steps do."""
    heads: dict[int, nn.Sequential] = {}
    for group in alike(configs, train.fits):
        own = [configs[number] for number in group]
        standard = train.measured if own[0].standardise else Standard(torch.zeros(train.width), 1.0)
        rows = train.standardised(standard)
        beyond = None if feedback.rows is None else feedback.rows.standardised(standard)
        heard = [heard_by(config, feedback) for config in own]
        own_seeds = [seeds[number] for number in group]
        trained = fit(rows, beyond, classes, heard, own, own_seeds, progress)
        heads |= dict(zip(group, trained, strict=True))
    return [heads[number] for number in range(len(configs))]


def masked_classifier(config: Stage2, task: Task) -> nn.Module:
    """The calibrator "maccal".

    A head of one layer is that layer alone, so that the model's weights keep their names.
    """
    where = device_of(task.start)
    heads = masked_heads(
        task.train, task.feedback, task.classes, [config], [task.seed], task.progress
    )
    head = heads[0].to(where)
    if len(head) > 1:
        return head
    return with_history(head[0], history_of(head))


def rebuild_plain(config: Stage2, head: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """An untrained head of the shape of these weights."""
    if config.hidden is None:
        return head
    layers = sorted(name for name in weights if name.endswith("weight"))
    biases = [weights[name.replace("weight", "bias")] for name in layers]
    return plain([weights[name] for name in layers], biases)


def heard_by(config: Stage2, feedback: Feedback) -> Feedback:
    """The feedback that this reading of stage II listens to."""
    if config.statistics == "held-out" and feedback.rows is None:
        raise ValueError("Stage2(statistics='held-out') needs held-out rows: pass val=(z, y)")
    if config.statistics in ("deployed", "masked"):
        return feedback.on_training_rows()
    return feedback


def alike(configs: Sequence[Stage2], together: bool) -> list[list[int]]:
    """Groups of configs that can share their steps; one each if the rows do not fit in memory."""
    usual = {name: getattr(DEFAULT, name) for name in OWN}
    groups: dict[Any, list[int]] = {}
    for number, config in enumerate(configs):
        layers = None if config.hidden is None else 1
        shared = replace(config, **usual, hidden=layers)
        groups.setdefault(shared if together else number, []).append(number)
    return list(groups.values())


def count_classes(train: FeatureTable, judged: FeatureTable | None, classes: int | None) -> int:
    """How many outputs the head has: as many as asked for, else as the labels speak of."""
    if classes is not None:
        classes = check_count(classes, "classes", most=MOST_CLASSES)
    shown = max(rows.classes for rows in (train, judged) if rows is not None)
    if classes is not None and shown > classes:
        problem = f"label {shown - 1} is outside 0 .. {classes - 1}: classes is {classes}"
        raise ValueError(f"{problem}; do the labels count from 1?")
    counts = torch.bincount(train.y, minlength=shown)
    if classes is None and counts[0] == 0 and bool((counts[1:] > 0).all()):
        found = f"no row has label 0, and all of 1 .. {shown - 1} occur"
        warn(f"{found}: if they count from 1, pass y - 1")
    return classes or shown


def fit(
    train: Standardised,
    beyond: Standardised | None,
    classes: int,
    feedback: list[Feedback],
    configs: list[Stage2],
    seeds: list[int],
    progress: bool,
) -> list[nn.Sequential]:
    """The epochs of Algorithm 1 for heads that share their steps.

    `beyond` are the feedback's rows, where it has some.
    """
    shared = configs[0]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    heads = Heads([widths(train.width, config, classes) for config in configs], generators)
    histories: list[list[dict[str, float]]] = [[] for _ in configs]
    following = [config.q0 for config in configs]
    for epoch in track(range(1, shared.epochs + 1), "stage II", disable=not progress):
        keeps = following
        # 1. one epoch under masks
        seen = train_epoch(heads, train, keeps, epoch, shared, generators)
        following = []
        for head, (config, heard, keep) in enumerate(zip(configs, feedback, keeps, strict=True)):
            loss, confidence, accuracy = (seen[head] / train.count).tolist()
            # 2. the confidence, of the masked passes or of the head as it would be used
            if config.statistics != "masked":
                layers = heads.deployed(head, keep, config)
                looked_at = train if heard.rows is None or beyond is None else beyond
                confidence, accuracy = confidence_and_accuracy(looked_at, *layers)
            target = heard.target(accuracy, config.gamma)
            numbers = {"accuracy": accuracy, "confidence": confidence, "target": target}
            histories[head].append({"epoch": epoch, "keep": keep, **numbers, "loss": loss})
            # 3. Eq. 12
            following.append(config.next_keep(keep, confidence - target, epoch))
    # 4. plain layers
    folded = []
    for head, (config, keep) in enumerate(zip(configs, keeps, strict=True)):
        layers = heads.deployed(head, keep, config)
        folded.append(fold(layers, train.standard, histories[head]))
    return folded


def widths(features: int, config: Stage2, classes: int) -> list[int]:
    """Of the head's layers, from the features to the classes."""
    return [features, classes] if config.hidden is None else [features, config.hidden, classes]


def train_epoch(
    heads: Heads,
    train: Standardised,
    keeps: list[float],
    epoch: int,
    config: Stage2,
    generators: list[torch.Generator],
) -> Tensor:
    """Every row once, in random order.

    Returns one line per head: the sums of loss, confidence and right answers of the masked passes.
    """
    heads.draw(keeps, generators)
    seen = torch.zeros(len(keeps), 3, dtype=torch.float64)
    steps = train.steps(config.batch_size)
    for step, (x, y) in enumerate(train.epoch(generators, config.batch_size)):
        if config.refresh == "batch" and step:
            heads.draw(keeps, generators)
        lr = config.lr_at((epoch - 1) * steps + step, config.epochs * steps)
        log_p = heads.step(x, y, lr, config)
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
    """The means over all rows."""
    total = torch.zeros(2, dtype=torch.float64)
    for x, y in rows.chunks():
        scores = logits(x, weights, biases)
        confidence = (scores.amax(1) - scores.logsumexp(1)).exp_()
        right = (scores.argmax(1) == y).sum().double()
        total += torch.stack([confidence.sum(dtype=torch.float64), right])
    confidence_mean, accuracy = (total / rows.count).tolist()
    return confidence_mean, accuracy


def fold(
    layers: tuple[list[Tensor], list[Tensor]], standard: Standard, history: list[dict[str, float]]
) -> nn.Sequential:
    """Plain layers for raw features: the standardisation goes into the first."""
    weights = [weight.clone() for weight in layers[0]]
    biases = [bias.clone() for bias in layers[1]]
    weights[0] /= standard.scale
    biases[0] -= weights[0] @ standard.centre
    return with_history(plain(weights, biases), history)
