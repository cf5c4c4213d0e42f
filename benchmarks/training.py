"""Stage I against the plain recipe, on the same network, images and cores, in one run.

    python benchmarks/training.py SHARED build/networks

About four minutes on two cores; writes results/training.json and .md.

plain    torch's DataLoader over a data set that transforms image by image (torchvision: crop, flip,
         to tensor, normalise), float32 in NCHW, SGD on the mean cross-entropy; with no worker and
         with one worker per core, the faster of the two
ours     maccal.training.loop: whole batches, channels_last, bf16 where the processor has it; with
         and without bf16 and torch.compile

Rounds alternate between the two, so that a noisy machine disturbs both; the ratio is the median
over rounds, with its range.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from networks import cifar
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from maccal.data.pixels import CIFAR
from maccal.data.split import Split
from maccal.io import write
from maccal.models import build
from maccal.training import Objective, Training
from maccal.training.recipe import Recipe

RESULTS = Path(__file__).parents[1] / "results"
STEPS, ROUNDS, BATCH = 12, 7, 128


def transforms() -> Callable[[Image.Image], Tensor]:
    # the operators a build without CUDA lacks: torchvision imports all the same
    lib = torch.library.Library("torchvision", "DEF")
    for op in ("nms", "qnms"):
        lib.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from torchvision import transforms as T

    normalise = T.Normalize(CIFAR.mean, CIFAR.std)
    return T.Compose(
        [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToTensor(), normalise]
    )


class Images(Dataset):
    """As torchvision's CIFAR10 gives them: a picture at a time, transformed."""

    def __init__(self, train: Split, transform: Callable[[Image.Image], Tensor]) -> None:
        self.pictures = train.images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels, self.transform = train.labels.tolist(), transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.pictures[row])), self.labels[row]


def plain_steps(train: Split, model: str, workers: int) -> Iterator[None]:
    torch.manual_seed(1)
    network = build(model, 10)
    optimiser = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    loader = DataLoader(
        Images(train, transforms()), BATCH, shuffle=True, num_workers=workers, drop_last=True
    )
    while True:
        for x, y in loader:
            optimiser.zero_grad()
            F.cross_entropy(network(x), y).backward()
            optimiser.step()
            yield


def our_steps(train: Split, model: str, recipe: Recipe) -> Iterator[Training]:
    torch.manual_seed(1)
    training = Training(build(model, 10), train, recipe, CIFAR, Objective(), 1, torch.device("cpu"))
    while True:
        training.begin()
        while training.batch < len(training.batches) - 1:
            training.step()
            yield training
        training.batch, training.epoch = 0, training.epoch + 1


def rate(steps: Iterator[object]) -> float:
    """Images a second over a round."""
    start = time.perf_counter()
    for _ in range(STEPS):
        next(steps)
    return STEPS * BATCH / (time.perf_counter() - start)


@contextmanager
def timed(owner: object, name: str, total: list[float]) -> Iterator[None]:
    """Adds up the time spent in a function."""
    function = getattr(owner, name)

    def wrapped(*args: object, **kwargs: object) -> object:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            total[0] += time.perf_counter() - start

    setattr(owner, name, wrapped)
    try:
        yield
    finally:
        setattr(owner, name, function)


def outside(steps: Iterator[Training]) -> float:
    """Share of a step's time that is neither the network's forward nor its backward pass."""
    inside, training = [0.0], next(steps)
    with timed(training.problem, "forward", inside), timed(torch.autograd, "backward", inside):
        start = time.perf_counter()
        for _ in range(STEPS):
            next(steps)
        return 1 - inside[0] / (time.perf_counter() - start)


def measure(train: Split, model: str) -> dict[str, object]:
    base = Recipe(precision="auto")
    plain = {
        f"plain, {n} workers": plain_steps(train, model, n) for n in (0, torch.get_num_threads())
    }
    recipes = {
        "ours": base,
        "ours, float32": replace(base, precision="fp32"),
        "ours, compiled": replace(base, compile=True),
    }
    ours = {name: our_steps(train, model, recipe) for name, recipe in recipes.items()}
    contestants: dict[str, Iterator[object]] = {**plain, **ours}
    for steps in contestants.values():
        rate(steps)  # warm-up
    rounds = []
    for _ in range(ROUNDS):
        rounds.append({name: rate(steps) for name, steps in contestants.items()})
    speed = {}
    for name in contestants:
        speed[name] = statistics.median(rates[name] for rates in rounds)
    best = max(plain, key=lambda name: speed[name])
    share = statistics.median(outside(ours["ours"]) for _ in range(3))
    return {
        "model": model,
        "images per second": {name: round(images) for name, images in speed.items()},
        "against": best,
        "ratio": {name: middle_and_range(rounds, name, best) for name in recipes},
        "outside forward and backward": round(share, 4),
    }


def middle_and_range(rounds: list[dict[str, float]], name: str, other: str) -> list[float]:
    """The median, least and greatest ratio within a round."""
    ratios = [rates[name] / rates[other] for rates in rounds]
    return [round(found, 2) for found in (statistics.median(ratios), min(ratios), max(ratios))]


def table(rows: list[dict]) -> str:
    lines = [
        __doc__.split("\n\n")[0],
        "",
        "| network | | images/s | ratio to plain | least to most |",
        "|---|---|---:|---:|---:|",
    ]
    for row in rows:
        for name, images in row["images per second"].items():
            middle, low, high = row["ratio"].get(name, ["", "", ""])
            span = "1" if name == row["against"] else ""
            if low:
                span = f"{low} to {high}"
            lines.append(f"| {row['model']} | {name} | {images} | {middle} | {span} |")
        outside = f"{row['outside forward and backward']:.1%}"
        what = "ours, time outside forward and backward"
        lines.append(f"| {row['model']} | {what} | | {outside} | |")
    return "\n".join(lines) + "\n"


def main() -> None:
    (images, labels), _ = cifar(Path(sys.argv[1]), Path(sys.argv[2]), 10)
    train = Split(images[:10_000], labels[:10_000])
    rows = [measure(train, model) for model in ("resnet20", "resnet8", "resnet10")]
    about = {
        "steps a round": STEPS,
        "rounds": ROUNDS,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    write(RESULTS / "training.json", json.dumps({**about, "rows": rows}, indent=1) + "\n")
    write(RESULTS / "training.md", table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
