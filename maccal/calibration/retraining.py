"""Stage II of MaC-Cal: the paper's Algorithm 1 on features, for several heads as one problem.

    1. train one epoch, each weight kept with probability keep          Eqs. 7-11
    2. compare the head's confidence with what it should be             feedback.py
    3. move the sparsity, 1 - keep, by the gap, which is clipped        Eqs. 12 and 13
    4. after the last epoch, fold keep and the standardisation of the features into plain layers

From a trained classifier, W / q0 and b / q0, steps 2 and 3 are one: keep is where the confidence
meets its target (solving.py), before the first epoch and after each. So with a rate of zero the
head is the classifier at a temperature, and a small rate is a trust region around that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from maccal.calibration.feedback import Feedback
from maccal.calibration.heads import Classifier, Heads, logits, plain, with_history
from maccal.calibration.live import Rows, Table
from maccal.calibration.solving import scale_to
from maccal.calibration.stage2 import Stage2
from maccal.features.table import Standard
from maccal.progress import track

# what heads that train together may differ in
OWN = ("adapt", "eta", "eta_init", "eta_final", "q0", "gamma")
MOST_SCORES = 1 << 26  # that keep is solved for on: of more rows, every so many are looked at
Numbers = dict[str, float]


@dataclass(frozen=True)
class Work:
    """What the heads of one call share."""

    train: Table
    feedback: Feedback
    classes: int
    start: Classifier | None
    device: torch.device
    progress: bool


def masked_heads(
    work: Work, configs: Sequence[Stage2], seeds: Sequence[int]
) -> list[nn.Sequential]:
    """One head for each config and seed, in that order; those that can share their steps do."""
    heads: dict[int, nn.Sequential] = {}
    known = work.start is not None
    settled = [config.settled(known, work.train.count) for config in configs]
    for group in alike(settled, work.train.fits):
        own = [settled[number] for number in group]
        own_seeds = [seeds[number] for number in group]
        trained = fit(work, standard_of(work, own[0]), own, own_seeds)
        heads |= dict(zip(group, trained, strict=True))
    return [heads[number] for number in range(len(configs))]


def standard_of(work: Work, config: Stage2) -> Standard:
    """How the features are standardised; ValueError for choices that this classifier rules out."""
    if config.start == "trained" and work.start is None:
        raise ValueError(
            "Stage2(start='trained') needs the classifier as trained: pass start=(weight, bias)"
        )
    without_bias = work.start is not None and work.start.bias is None
    if config.centre and config.start == "trained" and without_bias:
        raise ValueError(
            "the trained classifier has no bias, and centred features would give it one; "
            "pass Stage2(centre=False)"
        )
    measured = work.train.measured
    centre = measured.centre if config.centre else torch.zeros(work.train.width)
    return Standard(centre, measured.scale if config.standardise else 1.0)


def heard_by(config: Stage2, feedback: Feedback) -> Feedback:
    """The feedback that this reading of stage II listens to."""
    if config.statistics == "held-out" and feedback.rows is None:
        raise ValueError("Stage2(statistics='held-out') needs held-out rows: pass val=(z, y)")
    if config.statistics in ("deployed", "masked"):
        return feedback.on_training_rows()
    return feedback


def alike(configs: Sequence[Stage2], together: bool) -> list[list[int]]:
    """Groups of configs that can share their steps; one each if the rows do not fit in memory."""
    usual = {name: getattr(Stage2(), name) for name in OWN}
    groups: dict[Any, list[int]] = {}
    for number, config in enumerate(configs):
        layers = None if config.hidden is None else 1
        shared = replace(config, **usual, hidden=layers)
        groups.setdefault(shared if together else number, []).append(number)
    return list(groups.values())


class Judge:
    """Compares a head's confidence with what it should be, on the rows that the feedback names."""

    def __init__(
        self, feedback: Feedback, train: Rows, beyond: Rows | None, config: Stage2
    ) -> None:
        """`beyond` are the rows of the feedback, where it has some."""
        self.config = config
        self.heard = heard_by(config, feedback)
        self.rows = train if self.heard.rows is None or beyond is None else beyond

    def first_keep(self, heads: Heads, head: int) -> float:
        """Before the first epoch."""
        if self.config.adapt == "solved":
            return self.solve(heads, head)["keep"]
        return self.config.q0

    def look(self, heads: Heads, head: int, keep: float, masked: Numbers) -> Numbers:
        """Keep, confidence, accuracy and target after an epoch that was trained with this keep.

        `masked` are the means of the masked passes of the epoch.
        """
        if self.config.adapt == "solved":
            return self.solve(heads, head)
        confidence, accuracy = masked["confidence"], masked["accuracy"]
        if self.config.statistics != "masked":
            layers = heads.deployed(head, keep, self.config)
            confidence, accuracy = confidence_and_accuracy(self.rows, *layers)
        target = self.heard.target(accuracy, self.config.gamma)
        return {"keep": keep, "accuracy": accuracy, "confidence": confidence, "target": target}

    def solve(self, heads: Heads, head: int) -> Numbers:
        """The keep that meets the target: it scales the logits that the head has at keep one."""
        layers = heads.deployed(head, 1.0, self.config)
        parts = []
        right = 0
        for x, y in self.sampled(layers[0][-1].shape[0]):
            parts.append(logits(x, *layers))
            right += int((parts[-1].argmax(1) == y).sum())
        scores = torch.cat(parts)
        accuracy = right / len(scores)
        # without a mistake among n rows all that is known is that one in n + 1 would be no surprise
        most = 1 - 0.5 / (len(scores) + 1)
        target = min(self.heard.target(accuracy, self.config.gamma), most)
        keep = scale_to(scores, target)
        return {"keep": keep, "accuracy": accuracy, "confidence": target, "target": target}

    def sampled(self, classes: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All rows, or of very many evenly spread ones."""
        every = max(1, -(-self.rows.count * classes // MOST_SCORES))
        for number, chunk in enumerate(self.rows.chunks()):
            if number % every == 0:
                yield chunk


def heads_of(
    work: Work, standard: Standard, configs: list[Stage2], generators: list[torch.Generator]
) -> Heads:
    """Where the training starts."""
    if configs[0].start == "fresh":
        shapes = [widths(work.train.width, config, work.classes) for config in configs]
        return Heads(shapes, generators, work.device)
    assert work.start is not None
    return Heads.trained(work.start.standardised(standard), configs, generators, work.device)


def fit(
    work: Work, standard: Standard, configs: list[Stage2], seeds: list[int]
) -> list[nn.Sequential]:
    """The epochs of Algorithm 1 for heads that share their steps."""
    shared = configs[0]
    assert shared.epochs is not None
    train = work.train.standardised(standard, work.device)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    heads = heads_of(work, standard, configs, generators)
    rows = work.feedback.rows
    beyond = None if rows is None else rows.standardised(standard, work.device)
    judges = [Judge(work.feedback, train, beyond, config) for config in configs]
    histories: list[list[Numbers]] = [[] for _ in configs]
    keeps = [judge.first_keep(heads, head) for head, judge in enumerate(judges)]
    for epoch in track(range(1, shared.epochs + 1), "stage II", disable=not work.progress):
        # 1. one epoch under masks
        seen = train_epoch(heads, train, keeps, epoch, shared, generators)
        for head, (config, judge) in enumerate(zip(configs, judges, strict=True)):
            # 2. the confidence, and what it should be
            numbers = judge.look(heads, head, keeps[head], seen[head])
            history = {"epoch": epoch, **numbers, "loss": seen[head]["loss"]}
            histories[head].append(history)
            # 3. Eq. 12, unless keep was solved for
            keeps[head] = numbers["keep"]
            if config.adapt != "solved":
                gap = numbers["confidence"] - numbers["target"]
                keeps[head] = config.next_keep(numbers["keep"], gap, epoch)
    # 4. plain layers
    folded = []
    for head, config in enumerate(configs):
        layers = heads.deployed(head, histories[head][-1]["keep"], config)
        folded.append(fold(layers, heads.biased, standard, histories[head]))
    return folded


def widths(features: int, config: Stage2, classes: int) -> list[int]:
    """Of the head's layers, from the features to the classes."""
    return [features, classes] if config.hidden is None else [features, config.hidden, classes]


def train_epoch(
    heads: Heads,
    train: Rows,
    keeps: list[float],
    epoch: int,
    config: Stage2,
    generators: list[torch.Generator],
) -> list[Numbers]:
    """Every row once, in random order.

    Returns the means of loss, confidence and right answers of the masked passes, for each head.
    """
    assert config.epochs is not None
    heads.draw(keeps, generators, config)
    seen = torch.zeros(len(keeps), 3, dtype=torch.float64, device=train.device)
    loss = seen[:, 0]
    steps = train.steps(config.batch_size)
    for step, (x, y) in enumerate(train.epoch(generators, config.batch_size)):
        if config.refresh == "batch" and step:
            heads.draw(keeps, generators, config)
        lr = config.lr_at((epoch - 1) * steps + step, config.epochs * steps)
        log_p = heads.step(x, y, lr, config)
        own = log_p.gather(2, y[:, :, None]).squeeze(2)
        loss -= own.sum(1)
        if config.statistics == "masked":
            top, best = log_p.max(2)
            seen[:, 1] += top.exp().sum(1)
            seen[:, 2] += (best == y).sum(1)
    names = ("loss", "confidence", "accuracy")
    return [dict(zip(names, means, strict=True)) for means in (seen / train.count).tolist()]


def confidence_and_accuracy(
    rows: Rows, weights: list[Tensor], biases: list[Tensor]
) -> tuple[float, float]:
    """The means over all rows."""
    total = torch.zeros(2, dtype=torch.float64, device=rows.device)
    for x, y in rows.chunks():
        scores = logits(x, weights, biases)
        confidence = (scores.amax(1) - scores.logsumexp(1)).exp_()
        right = (scores.argmax(1) == y).sum().double()
        total += torch.stack([confidence.sum(dtype=torch.float64), right])
    confidence_mean, accuracy = (total / rows.count).tolist()
    return confidence_mean, accuracy


def fold(
    layers: tuple[list[Tensor], list[Tensor]],
    biased: bool,
    standard: Standard,
    history: list[Numbers],
) -> nn.Sequential:
    """Plain layers for raw features: the standardisation goes into the first."""
    weights = [weight.clone() for weight in layers[0]]
    weights[0] /= standard.scale
    if not biased:
        return with_history(plain(weights, [None]), history)
    biases = [bias.clone() for bias in layers[1]]
    biases[0] -= weights[0] @ standard.centre.to(weights[0].device)
    return with_history(plain(weights, biases), history)
