"""Stage II of MaC-Cal on features: the public door, and the calibrator "maccal" of the registry.

    calibrate_head     one head
    calibrate_heads    several configs and seeds on the same features, as one batched problem

retraining.py has the algorithm, live.py features that are made anew in every step. Cost:
N = 50,000, D = 64, K = 10 on two cores: about half a second from the trained classifier, 10 s for a
fresh bottleneck of 512 and 40 epochs (results/cost.md).
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from maccal.calibration.feedback import GUESS, Feedback, feedback_of
from maccal.calibration.heads import Classifier, history_of, layers_of, plain, with_history
from maccal.calibration.live import Images, Table, is_live, kept_mode, live_tables
from maccal.calibration.retraining import Work, masked_heads
from maccal.calibration.stage2 import Stage2
from maccal.calibration.task import Task, check_seed, device_of
from maccal.caution import warn
from maccal.features.table import MOST_CLASSES, FeatureTable, exact_device
from maccal.metrics.arguments import check_count
from maccal.metrics.inputs import Array, as_tensor

DEFAULT = Stage2()


def calibrate_head(
    z: Array,
    y: Array,
    *,
    start: tuple[Array, Array | None] | None = None,
    val: tuple[Array, Array] | None = None,
    accuracy: float | None = None,
    unlabelled: Array | None = None,
    ceiling: float = 1.0,
    classes: int | None = None,
    config: Stage2 = DEFAULT,
    seed: int = 1,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> nn.Sequential:
    """A calibrated classifier for features z (N x D) with labels y: plain linear layers, eval mode.

    `start` is the classifier as trained: its weight (K x D), and its bias (K) or None. Pass it if
    you have it; without it a fresh head is trained, which costs accuracy.

    The feedback is the best that the arguments allow: see feedback.py. Without any it is a guess
    (config.gamma), which can do harm; a few hundred held-out rows, or the accuracy on unseen data,
    are worth a lot. It never asks for a confidence above `ceiling`. `classes` is how many outputs
    the head has, if labels do not show them all. `device` is where the work is done and the head
    will be, by default where z is. `.history` has one dict per epoch. Same seed, same bits.
    """
    return calibrate_heads(
        z,
        y,
        configs=[config],
        seeds=[seed],
        start=start,
        val=val,
        accuracy=accuracy,
        unlabelled=unlabelled,
        ceiling=ceiling,
        classes=classes,
        device=device,
        progress=progress,
    )[0]


def calibrate_heads(
    z: Array,
    y: Array,
    *,
    configs: Sequence[Stage2],
    seeds: Sequence[int],
    start: tuple[Array, Array | None] | None = None,
    val: tuple[Array, Array] | None = None,
    accuracy: float | None = None,
    unlabelled: Array | None = None,
    ceiling: float = 1.0,
    classes: int | None = None,
    device: torch.device | str | None = None,
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
    trained = None if start is None else check_start(start, train, classes)
    outputs = count_classes(train, feedback.rows, classes if trained is None else trained.classes)
    if feedback.source == "training" and any(is_open(config) for config in configs):
        intended = "or Stage2(statistics='deployed') if gamma is what you mean"
        warn(f"{GUESS}, {intended}")
    place = where(z, device)
    work = Work(train, feedback, outputs, trained, exact_device(place), progress)
    return [head.to(place) for head in masked_heads(work, configs, seeds)]


def where(z: Array, device: torch.device | str | None) -> torch.device:
    """The device that was asked for, else that of the features."""
    if device is not None:
        return torch.device(device)
    return z.device if isinstance(z, Tensor) else torch.device("cpu")


def check_start(start: tuple[Array, Array | None], train: Table, classes: int | None) -> Classifier:
    """The classifier as trained, as float32 on the processor; ValueError where it does not fit."""
    if not isinstance(start, tuple | list) or len(start) != 2:
        raise ValueError("start is the classifier as trained: pass start=(weight, bias or None)")
    weight = as_tensor(start[0], "start weight").detach().cpu().float()
    bias = None if start[1] is None else as_tensor(start[1], "start bias").detach().cpu().float()
    if weight.ndim != 2 or weight.shape[1] != train.width or len(weight) < 2:
        raise ValueError(
            f"the weight of start has shape {tuple(weight.shape)}; expected classes x features, "
            f"and z has {train.width} features"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(
            f"the bias of start has shape {tuple(bias.shape)}; "
            f"expected one number for each of the {len(weight)} rows of its weight"
        )
    if classes is not None and classes != len(weight):
        raise ValueError(f"classes is {classes}, but the weight of start has {len(weight)} rows")
    numbers = [weight] if bias is None else [weight, bias]
    if not all(bool(part.isfinite().all()) for part in numbers):
        raise ValueError("start holds a value that is not finite; has the training diverged?")
    return Classifier(weight, bias)


def is_open(config: Stage2) -> bool:
    """Whether the config leaves open where the truth about confidence comes from."""
    return config.statistics == "auto" and config.adapt != "none"


def masked_classifier(config: Stage2, task: Task) -> nn.Module:
    """The calibrator "maccal".

    A head of one layer is that layer alone, so that the model's weights keep their names.
    """
    if is_live(config):
        raise ValueError("Stage2(batchnorm='train') needs the images of a run, not a loader")
    where = device_of(task.start)
    start = None
    if task.start is not None and config.start != "fresh":
        start = check_start((task.start.weight, task.start.bias), task.train, None)
    device = exact_device(where)
    work = Work(task.train, task.feedback, task.classes, start, device, task.progress)
    return alone(masked_heads(work, [config], [task.seed])[0].to(where))


def alone(head: nn.Sequential) -> nn.Module:
    """A head of one layer as that layer."""
    if len(head) > 1:
        return head
    return with_history(head[0], history_of(head))


def live_classifier(config: Stage2, images: Images) -> nn.Module:
    """The same calibrator on the images of a run, with the body in train mode.

    The network's BatchNorm buffers are changed in place, and the head belongs to them.
    """
    network = images.network
    where = device_of(network.head)
    train, val = live_tables(images)
    feedback = Feedback("training") if val is None else Feedback("held-out", val)
    start = None
    if config.start != "fresh":
        parts = (network.head.weight, network.head.bias)
        start = check_start(parts, train, None)
    work = Work(train, feedback, train.classes, start, where, images.progress)
    with kept_mode(network, where):
        return alone(masked_heads(work, [config], [images.seed])[0].to(where))


def settled(config: Stage2) -> Stage2:
    """The choices of a run with nothing left open: the classifier of a run is known."""
    return config.settled(trained=True)


def rebuild_plain(config: Stage2, head: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """An untrained head of the shape of these weights."""
    if config.hidden is None:
        return head
    return plain(*layers_of(weights))


def count_classes(train: FeatureTable, judged: Table | None, classes: int | None) -> int:
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
