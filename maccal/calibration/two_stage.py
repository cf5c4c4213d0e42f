"""Training of TST and V-TST: a new and deeper head on the features of a trained network.

    two_stage_head          on features as they are cached, the body in eval mode: our default
    two_stage_live          the body runs in every step, in train mode on augmented images, as in
                            the published code (live.py)
    two_stage_classifier    both as a calibrator, with any feedback

Which epoch is kept: with labels, the one with the lowest NLL on the rows looked at; with unlabelled
rows and a known accuracy, the one whose confidence is nearest to it; else the last.
Cost: N = 50,000, D = 64, K = 10, 40 epochs, one core: about half a minute for TST, three quarters
for V-TST.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial, reduce
from math import isfinite
from typing import TypeAlias

import torch
from torch import Tensor, nn

from maccal.calibration.feedback import Feedback, feedback_of
from maccal.calibration.live import Images, Rows, Table, is_live, kept_mode, live_tables
from maccal.calibration.mac_cal import count_classes, where
from maccal.calibration.task import Task, check_seed, device_of
from maccal.calibration.tst import DEFAULT, Head, TwoStage, build_head
from maccal.data.pixels import Pixels
from maccal.data.split import Split
from maccal.features.table import FeatureTable, Standard, exact_device
from maccal.methods.losses import cross_entropy
from maccal.metrics.inputs import Array
from maccal.models import Net
from maccal.progress import track
from maccal.training import Diverged, History

Batches: TypeAlias = Iterator[tuple[Tensor, Tensor]]  # of features and labels


@dataclass(frozen=True)
class Judge:
    """Looks at a head after an epoch, and says which of its numbers is lowest in the best one."""

    look: Callable[[Head], dict[str, float]]
    lowest: str


def two_stage_classifier(config: TwoStage, task: Task) -> nn.Module:
    """The calibrators "tst" and "vtst"."""
    if is_live(config):
        raise ValueError("TwoStage(batchnorm='train') needs the images of a run, not a loader")
    device = device_of(task.start)
    head = cached_head(
        task.train,
        task.feedback,
        task.classes,
        config,
        task.seed,
        device=exact_device(device),
        progress=task.progress,
    )
    return head.to(device)


def chooses_epoch(config: TwoStage) -> bool:
    """Whether the choice of the epoch listens to feedback."""
    return config.select == "val-nll"


def rebuild_two_stage(
    config: TwoStage, head: nn.Module, weights: Mapping[str, Tensor]
) -> nn.Module:
    """An untrained head of the same shape."""
    assert isinstance(head, nn.Linear)
    return build_head(config, head.in_features, head.out_features)


def two_stage_head(
    z: Array,
    y: Array,
    *,
    val: tuple[Array, Array] | None = None,
    classes: int | None = None,
    config: TwoStage = DEFAULT,
    seed: int = 1,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Head:
    """A new classifier for features z (N x D) with labels y: a TSTHead or VTSTHead in eval mode.

    With held-out rows it is that of the epoch with their lowest NLL, unless config says the last
    one. `classes` is how many outputs it has, if labels do not show them all. `device` is where the
    work is done, by default where z is. Features larger than memory are read in parts. `.history`
    has one dict per epoch. Same seed, same bits. ValueError says what is wrong with an array;
    Diverged, one too, that the training left the finite numbers.
    """
    seed = check_seed(seed)
    train = FeatureTable(z, y, "z")
    feedback = feedback_of(train, val=val)
    outputs = count_classes(train, feedback.rows, classes)
    place = where(z, device)
    working = exact_device(place)
    head = cached_head(train, feedback, outputs, config, seed, device=working, progress=progress)
    return head.to(place)


def cached_head(
    train: Table,
    feedback: Feedback,
    classes: int,
    config: TwoStage,
    seed: int,
    *,
    device: torch.device,
    progress: bool,
    buffers: Sequence[Tensor] = (),
) -> Head:
    """The head trained on features, which stay raw, as the authors take them.

    `buffers` are the body's, where it runs along.
    """
    raw = Standard(torch.zeros(train.width), 1.0)
    head = build_head(config, train.width, classes, seed).to(device)
    epoch = partial(drawn, train.standardised(raw, device), config.batch_size)
    judge = None
    if feedback.rows is not None:
        judge = judge_of(feedback, feedback.rows.standardised(raw, device))
    return fit(head, config, seed, epoch, judge, buffers, progress)


def judge_of(feedback: Feedback, rows: Rows) -> Judge:
    """Who chooses the epoch."""
    if feedback.labelled:
        return Judge(partial(by_labels, rows.chunks), "val_nll")
    return Judge(partial(by_confidence, feedback, rows), "gap")


def by_labels(batches: Callable[[], Batches], head: Head) -> dict[str, float]:
    """NLL and accuracy of the head as it would be used."""
    return means(looks(head, batches()), "val_nll", "val_accuracy")


def by_confidence(feedback: Feedback, rows: Rows, head: Head) -> dict[str, float]:
    """How far the mean confidence on unlabelled rows is from where it should be."""
    head.eval()
    total = 0.0
    for z, _ in rows.chunks():
        with torch.no_grad():
            total += float(head(z).double().softmax(1).amax(1).sum())
    confidence = total / rows.count
    target = feedback.target(0.0, gamma=1.0)
    return {"confidence": confidence, "target": target, "gap": abs(confidence - target)}


def drawn(rows: Rows, size: int, generator: torch.Generator) -> Batches:
    """An epoch of one head."""
    return ((x[0], y[0]) for x, y in rows.epoch([generator], size))


def live_head(config: TwoStage, images: Images) -> Head:
    """The same calibrators on the images of a run."""
    network = images.network
    device = device_of(network.head)
    train, val = live_tables(images)
    feedback = Feedback("training") if val is None else Feedback("held-out", val)
    with kept_mode(network, device):
        return cached_head(
            train,
            feedback,
            train.classes,
            config,
            images.seed,
            device=device,
            progress=images.progress,
            buffers=list(network.body.buffers()),
        )


def two_stage_live(
    network: Net,
    train: Split,
    val: Split | None = None,
    *,
    pixels: Pixels,
    config: TwoStage = DEFAULT,
    padding: int = 4,
    flip: bool = True,
    seed: int = 1,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> Head:
    """The head as the published code trains it: the body makes its features anew in every step.

    live.py says what that does to the images and to BatchNorm, whose buffers end as those of the
    epoch that is kept. The network keeps its own head.
    """
    network.to(device)
    return live_head(config, Images(network, train, val, pixels, padding, flip, seed, progress))


def fit(
    head: Head,
    config: TwoStage,
    seed: int,
    epoch: Callable[[torch.Generator], Batches],
    judge: Judge | None,
    buffers: Sequence[Tensor] = (),
    progress: bool = False,
) -> Head:
    """Train the head on whatever the epochs are made of.

    `buffers` are tensors that change along and go with the kept epoch.
    """
    generator = torch.Generator().manual_seed(seed)
    optimiser = optimiser_of(head, config)
    state = [*head.state_dict().values(), *buffers]
    kept: list[Tensor] = []
    for number in track(range(1, config.epochs + 1), "stage II", disable=not progress):
        tallies = steps(head, epoch(generator), optimiser, config.clip, generator)
        numbers = {"epoch": number, **means(tallies, "loss", "accuracy")}
        if judge is not None:
            numbers |= judge.look(head)
        check_finite(head, numbers)
        head.history.append(numbers)
        if judge is not None and chooses_epoch(config) and is_best(head.history, judge.lowest):
            kept = deepcopy(state)
    # without a kept epoch all stays as it is
    for tensor, value in zip(state, kept or state, strict=True):
        tensor.copy_(value)
    return head.eval().requires_grad_(False)


def optimiser_of(head: Head, config: TwoStage) -> torch.optim.Optimizer:
    if config.optimiser == "adam":
        return torch.optim.Adam(head.parameters(), config.lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        head.parameters(), config.lr, config.momentum, weight_decay=config.weight_decay
    )


def steps(
    head: Head,
    batches: Batches,
    optimiser: torch.optim.Optimizer,
    clip: float,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """One step per batch; how each went, from before the step."""
    head.train()
    for z, y in batches:
        loss, logits = head.loss(z, y, generator)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        if clip:
            nn.utils.clip_grad_norm_(head.parameters(), clip)
        optimiser.step()
        yield tally(loss.detach(), logits.detach(), y)


def looks(head: Head, batches: Batches) -> Iterator[Tensor]:
    """How the head does on batches as it would be used."""
    head.eval()
    for z, y in batches:
        with torch.no_grad():
            logits = head(z).double()
        yield tally(cross_entropy(logits, y), logits, y)


def tally(loss: Tensor, logits: Tensor, y: Tensor) -> Tensor:
    """Of a batch: the sum of its losses, of right answers, of rows; left on the device."""
    right = (logits.argmax(1) == y).sum()
    return torch.stack([loss.double() * len(y), right, y.new_tensor(len(y))])


def means(tallies: Iterator[Tensor], loss: str, accuracy: str) -> dict[str, float]:
    losses, right, rows = reduce(torch.add, tallies).tolist()
    return {loss: losses / rows, accuracy: right / rows}


def is_best(history: History, key: str) -> bool:
    """Whether the last epoch is the first one with the lowest number."""
    best = min(history, key=lambda numbers: numbers[key])
    return best is history[-1]


def check_finite(head: Head, numbers: dict[str, float]) -> None:
    weights = all(bool(weight.isfinite().all()) for weight in head.parameters())
    if not weights or not all(map(isfinite, numbers.values())):
        problem = f"the loss or a weight is no longer a finite number, in epoch {numbers['epoch']}"
        raise Diverged(f"{problem}; pass a lower lr or a smaller clip")
