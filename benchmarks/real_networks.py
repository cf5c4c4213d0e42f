"""Stage II on real networks: what each kind of feedback is worth, the paper's own reading, and its
ablation.

    python benchmarks/real_networks.py SHARED build/networks [NETWORK ...]
    python benchmarks/real_networks.py table

The first adds missing rows to results/real_networks.jsonl, the second makes
results/real_networks.md of them.

Four public ResNets for CIFAR-10 and small networks trained here (networks.py). One half of the
10,000 test images gives held-out labels where a row needs them, the other half is measured; then
the halves change places. Seeds 1, 2, 3 of stage II; rows that were only a trial have one. Stops and
resumes anywhere: a row that is there is not made again. About ten minutes a network on one core.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from networks import PUBLIC, TRAINED, cifar, normalised, public, trained, training_set
from torch import Tensor, nn

from maccal.calibration.looks import scores_of
from maccal.calibration.mac_cal import calibrate_heads
from maccal.calibration.posthoc.temperature import TemperatureScaling
from maccal.calibration.solving import mean_confidence
from maccal.calibration.stage2 import ABLATION, BOTTLENECK, Stage2
from maccal.features.extraction import Features, extract, find_head
from maccal.features.views import mixed
from maccal.io import write
from maccal.metrics import summary

RESULTS = Path(__file__).parent.parent / "results"
ROWS = RESULTS / "real_networks.jsonl"
SEEDS = (1, 2, 3)
WIDE = Stage2(hidden=BOTTLENECK)
SHARES = (0.65, 0.7, 0.75, 0.765)
NETWORKS = (*(f"resnet{depth}" for depth in PUBLIC), *TRAINED)
KEPT = (
    "accuracy",
    "confidence",
    "ece",
    "ece_low",
    "ece_high",
    "ece_null_low",
    "ece_null_high",
    "aece",
    "nll",
    "brier",
    "ks",
)


@dataclass(frozen=True)
class Network:
    """A trained network as stage II sees it."""

    name: str
    train: Features
    test: Features
    head: nn.Linear
    views: dict[str, Features]  # of 5,000 training images

    def half(self, which: int) -> Features:
        size = len(self.test.y) // 2
        return Features(*(t[which * size :][:size] for t in self.test))


Views = dict[str, Callable[[Tensor, torch.Generator], Tensor]]
VIEWS: Views = {
    "noise 0.025": lambda x, g: x + 255 * 0.025 * torch.randn(x.shape, generator=g),
    "rotated 20": lambda x, g: rotated(x, 20, g),
    "cut 8": lambda x, g: cut(x, 8, g),
}


def rotated(x: Tensor, degrees: float, g: torch.Generator) -> Tensor:
    a = (2 * torch.rand(len(x), generator=g) - 1) * degrees * torch.pi / 180
    zero = torch.zeros_like(a)
    turn = torch.stack(
        [torch.stack([a.cos(), -a.sin(), zero], 1), torch.stack([a.sin(), a.cos(), zero], 1)], 1
    )
    grid = nn.functional.affine_grid(turn, list(x.shape), align_corners=False)
    return nn.functional.grid_sample(
        x.float(), grid, align_corners=False, padding_mode="reflection"
    )


def cut(x: Tensor, size: int, g: torch.Generator) -> Tensor:
    """A square of each image in the images' mean colour."""
    top, left = torch.randint(33 - size, (2, len(x), 1, 1), generator=g)
    across = torch.arange(32)[None, None]
    down = torch.arange(32)[None, :, None]
    hole = (down >= top) & (down < top + size) & (across >= left) & (across < left + size)
    return torch.where(hole[:, None], x.float().mean((0, 2, 3), keepdim=True), x.float())


def loader(images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    return [(normalised(x), y) for x, y in zip(images.split(500), labels.split(500), strict=True)]


def prepare(shared: Path, folder: Path, name: str) -> Network:
    """The features of a network, extracted once."""
    if name in TRAINED:
        network: nn.Module = trained(shared, folder, name)
        train = training_set(shared, folder, TRAINED[name], 1)
        _, test = cifar(shared, folder, TRAINED[name].classes)
    else:
        network = public(shared, int(name.removeprefix("resnet")))
        train, test = cifar(shared, folder, 10)
    chosen = torch.randperm(len(train[1]), generator=torch.Generator().manual_seed(0))[:5000]
    some, labels = train[0][chosen], train[1][chosen]
    g = torch.Generator().manual_seed(0)
    seen = {view: loader(change(some, g), labels) for view, change in VIEWS.items()}
    seen |= {f"mixed {share}": mixed(loader(some, labels), share) for share in SHARES}
    head = network.get_submodule(find_head(network, loader(some[:8], labels[:8])[0]))
    assert isinstance(head, nn.Linear)
    features = partial(extract, network, cache=folder / "cache")
    views = {view: features(batches) for view, batches in seen.items()}
    return Network(name, features(loader(*train)), features(loader(*test)), head, views)


def accuracy(z: Tensor, y: Tensor, head: nn.Module) -> float:
    with torch.inference_mode():
        return float((head(z).argmax(1) == y).double().mean())


def neighbours(z: Tensor, y: Tensor, k: int = 10) -> float:
    """Leave-one-out accuracy of the k nearest neighbours by cosine, on up to 10,000 rows."""
    z, y = nn.functional.normalize(z[:10_000]), y[:10_000]
    right = 0
    for part in torch.arange(len(y)).split(1000):
        near = (
            (z[part] @ z.T)
            .index_put_((torch.arange(len(part)), part), torch.tensor(-2.0))
            .topk(k)
            .indices
        )
        right += int((y[near].mode(1).values == y[part]).sum())
    return right / len(y)


# name, arguments of calibrate_heads, config, seeds
Row = tuple[str, dict[str, Any], Stage2, tuple[int, ...]]


def per_network(net: Network) -> Iterator[Row]:
    """Rows that use no held-out image."""
    yield "gamma 0.97", {}, replace(WIDE, gamma=0.97), SEEDS
    yield "mixed 0.7", {"val": net.views["mixed 0.7"]}, WIDE, SEEDS
    capped = {
        "val": net.views["mixed 0.7"],
        "ceiling": mean_confidence(scores_of(net.head, net.views["mixed 0.7"].z)),
    }
    yield "mixed 0.7, capped", capped, WIDE, SEEDS
    yield "mixed 0.7, linear", {"val": net.views["mixed 0.7"]}, Stage2(), SEEDS
    yield "accuracy known", {"accuracy": accuracy(*net.test, net.head)}, WIDE, SEEDS
    if net.name not in TRAINED:
        for row in list(ABLATION)[:-1]:
            yield f"ablation: {row}", {}, Stage2.ablation(row), SEEDS
        yield "paper", {}, Stage2.paper(), SEEDS
    if net.name in ("resnet32", "resnet44"):
        return  # the trials below were made on the others
    yield "paper, gamma 0.7", {}, Stage2.paper(gamma=0.7), (1,)
    yield "gamma 0.9", {}, replace(WIDE, gamma=0.9), (1,)
    for view in (v for v in net.views if v not in ("mixed 0.7", "mixed 0.765")):
        yield view, {"val": net.views[view]}, WIDE, (1,)
    yield (
        "accuracy of mixed 0.765",
        {"accuracy": accuracy(*net.views["mixed 0.765"], net.head)},
        WIDE,
        (1,),
    )
    yield "accuracy of neighbours", {"accuracy": neighbours(*net.train)}, WIDE, (1,)
    for name, features in in_feature_space(net.train).items():
        yield name, {"val": features}, WIDE, (1,)


def in_feature_space(train: Features) -> dict[str, Features]:
    """The same ideas without the images.

    5,000 rows of features mixed with others, or with entries dropped.
    """
    g = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(train.y), generator=g)[:5000]
    z, y = train.z[rows], train.y[rows]
    dropped = z * (torch.rand(z.shape, generator=g) > 0.4) / 0.6
    return {
        "features mixed 0.6": Features(0.6 * z + 0.4 * z.roll(1, 0), y),
        "features dropped 0.4": Features(dropped, y),
    }


def per_half(net: Network, held: Features) -> Iterator[Row]:
    """Rows that see one half of the test images."""
    yield "held out", {"val": held}, WIDE, SEEDS
    yield "held out, linear", {"val": held}, Stage2(), SEEDS
    yield "held out, 500 labels", {"val": Features(held.z[:500], held.y[:500])}, WIDE, SEEDS
    yield (
        "accuracy known, unlabelled",
        {"accuracy": accuracy(*held, net.head), "unlabelled": held.z},
        WIDE,
        SEEDS,
    )


def row(
    net: Network, kind: str, seed: int, which: int, logits: Tensor, **more: Any
) -> dict[str, Any]:
    numbers = summary(logits=logits, labels=net.half(which).y, interval=True)
    return {
        "network": net.name,
        "kind": kind,
        "seed": seed,
        "half": which,
        **{k: round(numbers[k], 6) for k in KEPT},
        **more,
    }


def stage_one(net: Network) -> list[dict[str, Any]]:
    """The network as trained, and with a temperature fitted on the other half."""
    rows = []
    with torch.inference_mode():
        for which in (0, 1):
            logits = net.head(net.half(which).z)
            other = net.half(1 - which)
            scaling = TemperatureScaling().fit(net.head(other.z), other.y)
            more = {"train_accuracy": accuracy(*net.train, net.head)}
            rows.append(row(net, "stage I", 0, which, logits, **more))
            rows.append(
                row(
                    net,
                    "temperature",
                    0,
                    which,
                    scaling.transform(logits),
                    temperature=scaling.temperature_,
                )
            )
    return rows


def run(
    net: Network,
    halves: tuple[int, ...],
    kind: str,
    arguments: dict[str, Any],
    config: Stage2,
    seeds: tuple[int, ...],
) -> list[dict[str, Any]]:
    start = time.perf_counter()
    heads = calibrate_heads(*net.train, configs=[config] * len(seeds), seeds=seeds, **arguments)
    more = {
        "seconds": round((time.perf_counter() - start) / len(seeds), 2),
        "threads": torch.get_num_threads(),
    }
    if "accuracy" in arguments:
        more = {"known_accuracy": arguments["accuracy"], **more}
    rows = []
    for seed, head in zip(seeds, heads, strict=True):
        history: Any = head.history
        keep = round(history[-1]["keep"], 4)
        for which in halves:
            logits = head(net.half(which).z)
            rows.append(row(net, kind, seed, which, logits, keep=keep, **more))
    return rows


def read() -> list[dict[str, Any]]:
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def add(rows: list[dict[str, Any]]) -> None:
    with ROWS.open("a") as file:  # one write: several processes may add
        file.write("".join(json.dumps(r) + "\n" for r in rows))
    for name in dict.fromkeys((r["network"], r["kind"]) for r in rows):
        these = [r for r in rows if (r["network"], r["kind"]) == name]
        words = [f"{key} {average(these, key):.4f}" for key in ("accuracy", "ece", "nll")]
        print(*name, *words, flush=True)


def average(rows: list[dict[str, Any]], key: str) -> float:
    return mean(r[key] for r in rows)


def main(shared: Path, folder: Path, names: list[str]) -> None:
    for name in names or NETWORKS:
        net = prepare(shared, folder, name)
        done = {(r["kind"], r["half"]) for r in read() if r["network"] == name}
        if ("stage I", 0) not in done:
            add(stage_one(net))
        for which in (0, 1):
            for made in per_half(net, net.half(1 - which)):
                if (made[0], which) not in done:
                    add(run(net, (which,), *made))
        for made in per_network(net):
            if (made[0], 0) not in done:
                add(run(net, (0, 1), *made))


TEXT = """# Stage II on real networks

`python benchmarks/real_networks.py SHARED build/networks`; rows in
[real_networks.jsonl](real_networks.jsonl). Accuracy / ECE in %, mean over both halves of the test
images and the seeds of stage II ({seeds}; trials have one). Behind ± the standard deviation of
ECE over the seeds, halves averaged. 15 bins, 5,000 images measured.

## The public ResNets for CIFAR-10

{public}

The last column is the mean over the networks. A calibrated model with the confidences of "held
out" would score {null}.

- *held out*: the feedback looks at 5,000 (or 500) held-out labels, the same on which the
  temperature was fitted.
- *mixed*: no held-out image; the feedback looks at training images mixed with others, 0.7 x + 0.3
  x'. *capped*: but never asks for more confidence there than the network had as trained.
  `calibrate(model, train)` does this.
- *linear*: the default, `Stage2()`. All other rows have the paper's bottleneck,
  `Stage2(hidden=512)`.
- *accuracy known*: the accuracy on unseen images is given, nothing else; *unlabelled*: and 5,000
  such images without labels.
- *gamma*: neither; on the training images confidence is to be gamma x accuracy.
- *paper*: the equations as printed, `Stage2.paper()`. *ablation*: `Stage2.ablation(row)`, the
  other choices as by default, with gamma 0.97. The row "decaying" is "gamma 0.97"; "static" gives
  the very same heads, because the gap never reaches the bound of Eq. 13 on these networks.

## What else was tried, and other networks

Trained here: {trained}.

{others}

- *accuracy of mixed 0.765*: the accuracy on mixed images taken for the accuracy on unseen ones.
- *accuracy of neighbours*: the same with the leave-one-out accuracy of ten nearest neighbours
  among the training features.
- *features ...*: the views made of features, not of images.
"""
PUBLIC_ROWS = [
    *(
        "stage I",
        "temperature",
        "held out",
        "held out, linear",
        "held out, 500 labels",
        "mixed 0.7",
        "mixed 0.7, capped",
    ),
    *("mixed 0.7, linear", "accuracy known, unlabelled", "accuracy known", "gamma 0.97", "paper"),
    *(f"ablation: {row}" for row in list(ABLATION)[:-1]),
]


def cell(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    by_seed = []
    for seed in sorted({r["seed"] for r in rows}):
        by_seed.append(average([r for r in rows if r["seed"] == seed], "ece"))
    spread = f" ± {100 * stdev(by_seed):.2f}" if len(by_seed) > 1 else ""
    return f"{100 * average(rows, 'accuracy'):.2f} / {100 * mean(by_seed):.2f}{spread}"


def of(rows: list[dict[str, Any]], network: str, kind: str) -> list[dict[str, Any]]:
    return [r for r in rows if (r["network"], r["kind"]) == (network, kind)]


def grid(rows: list[dict[str, Any]], networks: list[str], kinds: list[str], with_mean: bool) -> str:
    lines = [
        f"| | {' | '.join(networks)} |{' mean ECE |' if with_mean else ''}",
        "|---" * (1 + len(networks) + with_mean) + "|",
    ]
    for kind in kinds:
        groups = [of(rows, name, kind) for name in networks]
        line = f"| {kind} | {' | '.join(cell(group) for group in groups)} |"
        if with_mean:
            line += f" {100 * mean(average(group, 'ece') for group in groups):.2f} |"
        lines.append(line)
    return "\n".join(lines)


def described(name: str, stage_one: list[dict[str, Any]]) -> str:
    """A network trained here, with how well it knows its images."""
    data = TRAINED[name]
    plain = "" if data.augment else ", no augmentation"
    right = 100 * stage_one[0]["train_accuracy"]
    images = f"CIFAR-{data.classes}, {data.images:,} images{plain}"
    return f"{name}: {images}, training accuracy {right:.1f} %"


def table() -> None:
    rows = read()
    measured = {r["network"] for r in rows}
    here = [name for name in NETWORKS if name in measured]
    public_names = [n for n in here if n not in TRAINED]
    small_names = [n for n in here if n in TRAINED]
    tried = list(dict.fromkeys(r["kind"] for r in rows if r["network"] in small_names))
    held = [r for r in rows if r["kind"] == "held out" and r["network"] in public_names]
    low, high = (100 * average(held, f"ece_null_{end}") for end in ("low", "high"))
    null = f"{low:.2f} to {high:.2f}"
    about = "; ".join(described(name, of(rows, name, "stage I")) for name in small_names)
    text = TEXT.format(
        seeds=", ".join(map(str, SEEDS)),
        public=grid(rows, public_names, PUBLIC_ROWS, True),
        null=f"{null} %",
        trained=about,
        others=grid(rows, [*small_names, "resnet20", "resnet56"], tried, False),
    )
    write(RESULTS / "real_networks.md", text)


if __name__ == "__main__":
    if sys.argv[1] == "table":
        table()
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
        table()
