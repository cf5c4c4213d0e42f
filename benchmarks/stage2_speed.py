"""How long stage II takes from the trained classifier, against what one would do otherwise.

    python benchmarks/stage2_speed.py build/speed                       # all rows of all sizes
    python benchmarks/stage2_speed.py build/speed --large-rows 320000   # a quarter of the largest

Writes results/stage2_speed.json and results/stage2_speed.md.

    stage II       calibrate_head(z, y, start=(W, b), val=(z, y)): the default
    former         the former default: a fresh head, 40 epochs (of the largest size one is run)
    temperature    TemperatureScaling on the logits of the validation rows
    stage I        one epoch of a network that makes such features, on a few images, scaled up

The features are generated: a mean for each class, plus noise. W and b are the best classifier of
such features, twice as sure as it should be, so that there is something to calibrate. The largest
size is read from float16 in a .npy file, which is written in parts. One process per size, so that
the peak of its memory is its own; one thread; seconds are those of the processor, which other work
on the machine changes less than the clock on the wall. The wall is recorded beside them.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.calibration.mac_cal import calibrate_head
from maccal.calibration.posthoc import TemperatureScaling
from maccal.calibration.stage2 import Stage2
from maccal.io import write
from maccal.models import build
from maccal.models.resnet import wide_resnet

RESULTS = Path(__file__).parent.parent / "results"
VAL = 5000
PART = 8192  # rows that are generated at once
FORMER = 40  # epochs of a fresh head
ROUNDS = 3


@dataclass(frozen=True)
class Size:
    """Features, and how stage I is measured for them."""

    rows: int
    width: int
    classes: int
    aim: float  # seconds
    network: str
    pixels: int
    images: int  # that are timed

    @property
    def large(self) -> bool:
        return self.width == 2048


SIZES = {
    "small": Size(50_000, 64, 10, 1, "ResNet-20", 32, 1024),
    "middle": Size(50_000, 256, 100, 2, "WRN-16-4", 32, 512),
    "large": Size(1_280_000, 2048, 1000, 300, "ResNet-50", 64, 64),
}


def network_of(size: Size) -> nn.Module:
    """Images to logits, in training."""
    if size.network == "ResNet-20":
        return build("resnet20", size.classes)
    if size.network == "WRN-16-4":
        return wide_resnet(2, 4, size.classes)
    return build("resnet50_tiny", size.classes)


def seconds(work: Callable[[], Any]) -> dict[str, float]:
    """Of the processor, and on the wall."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return {"processor": time.process_time() - processor, "wall": time.perf_counter() - wall}


def stage1_images(size: Size) -> None:
    """A few images of an epoch of stage I."""
    torch.manual_seed(0)
    network = network_of(size)
    images = torch.randn(size.images, 3, size.pixels, size.pixels)
    y = torch.arange(size.images) % size.classes
    sgd = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    batch = min(128, size.images)
    for x, labels in zip(torch.split(images, batch), torch.split(y, batch), strict=True):
        out = network(x)
        loss = F.cross_entropy(getattr(out, "logits", out), labels)
        sgd.zero_grad()
        torch.autograd.backward(loss)
        sgd.step()


class Generated:
    """Class means plus noise, the classes in turn, and the classifier that fits them."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.generator = torch.Generator().manual_seed(0)
        # the means are apart by about four times the noise, whatever the width
        self.centres = torch.randn(size.classes, size.width, generator=self.generator)
        self.centres *= 3 / size.width**0.5
        self.weight = 2 * self.centres
        self.bias = -self.centres.square().sum(1)

    def rows(self, start: int, count: int) -> tuple[Tensor, Tensor]:
        y = torch.arange(start, start + count) * 7919 % self.size.classes
        noise = torch.randn(count, self.size.width, generator=self.generator)
        return self.centres[y] + noise, y

    def in_file(self, file: Path) -> tuple[np.ndarray, Tensor]:
        """Rows as float16, written in parts, then mapped."""
        shape = (self.size.rows, self.size.width)
        about = {"descr": "<f2", "fortran_order": False, "shape": shape}
        labels = []
        with file.open("wb") as out:
            np.lib.format.write_array_header_1_0(out, about)
            for start in range(0, self.size.rows, PART):
                z, y = self.rows(start, min(PART, self.size.rows - start))
                out.write(z.half().numpy().tobytes())
                labels.append(y)
        return np.load(file, mmap_mode="r"), torch.cat(labels)


def peak() -> float:
    """Gigabytes that the process has held at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measured(name: str, folder: Path, large_rows: int) -> dict[str, Any]:
    """One size: the contenders take turns; the medians of their seconds."""
    size = SIZES[name]
    if size.large:
        size = replace(size, rows=large_rows)
    made = Generated(size)
    file = folder / "features.npy"
    val = made.rows(0, VAL)
    train = made.in_file(file) if size.large else made.rows(0, size.rows)
    start = (made.weight, made.bias)
    before = peak()
    heads: list[Any] = []
    fresh = Stage2(start="fresh", epochs=1 if size.large else FORMER)
    works: dict[str, Callable[[], Any]] = {
        "stage II": lambda: heads.append(calibrate_head(*train, start=start, val=val)),
        "temperature": lambda: TemperatureScaling().fit(F.linear(val[0], *start), val[1]),
        "former": lambda: calibrate_head(*train, val=val, config=fresh),
        "stage I": lambda: stage1_images(size),
    }
    taken, peaks = in_turns(name, works, 1 if size.large else ROUNDS)
    if size.large:
        file.unlink()
    scale = {"stage I": size.rows / size.images, "former": FORMER if size.large else 1}
    found = {work: middle(times, scale.get(work, 1)) for work, times in taken.items()}
    full = SIZES[name].rows / size.rows
    # a temperature sees the validation rows alone, however many the others are
    whole = {work: one["processor"] * full for work, one in found.items()}
    whole["temperature"] = found["temperature"]["processor"]
    history = heads[0].history
    return {
        "size": {**asdict(size), "of": SIZES[name].rows},
        "epochs": len(history),
        "seconds": found,
        "all_rows": whole,
        "ratios": {work: taken / whole["stage II"] for work, taken in whole.items()},
        "peak_gb": peaks["stage II"],
        "before_gb": before,
        "as_trained": sureness(val, start),
        "calibrated": {key: history[-1][key] for key in ("confidence", "accuracy", "keep")},
    }


def in_turns(
    name: str, works: dict[str, Callable[[], Any]], rounds: int
) -> tuple[dict[str, list[dict[str, float]]], dict[str, float]]:
    """The seconds of each, round by round, and the peak of memory after its first; the long ones
    run once.
    """
    taken: dict[str, list[dict[str, float]]] = {work: [] for work in works}
    peaks: dict[str, float] = {}
    for number in range(rounds):
        for work, run in works.items():
            if number and work in ("former", "stage I"):
                continue
            taken[work].append(seconds(run))
            peaks.setdefault(work, peak())
            print(name, work, taken[work][-1], file=sys.stderr, flush=True)
    return taken, peaks


def middle(times: list[dict[str, float]], scale: float) -> dict[str, float]:
    return {key: scale * median(one[key] for one in times) for key in ("processor", "wall")}


def sureness(val: tuple[Tensor, Tensor], start: tuple[Tensor, Tensor]) -> dict[str, float]:
    """Confidence and accuracy of the classifier on the validation rows."""
    p = F.linear(val[0], *start).softmax(1)
    confidence, best = p.max(1)
    right = (best == val[1]).double().mean()
    return {"confidence": float(confidence.mean()), "accuracy": float(right)}


def table(record: dict[str, Any]) -> str:
    lines = [
        "# How long stage II takes from the trained classifier",
        "",
        f"`{record['command']}`, torch {record['torch']}, one thread of a"
        f" machine with {record['cores']} cores that was shared with other work meanwhile: seconds"
        " of the processor, and in brackets how many times stage II.",
        "",
        "| features | aim | stage II (epochs) | temperature | former: fresh, 40 epochs"
        " | one epoch of stage I | peak memory |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [line(found) for found in record["sizes"]]
    lines += ["", "Stage I is scaled up from a few images: " + timed_images(record) + ".", *RULES]
    shares = [found["size"] for found in record["sizes"]]
    for size in shares:
        if size["rows"] < size["of"]:
            lines += [
                "",
                f"**{size['of']:,} rows are scaled up** from {size['rows']:,} rows, which were"
                " read from the file in the same way, in one epoch: every row costs the same.",
            ]
    return "\n".join(lines) + "\n"


RULES = [
    "The former default at the largest size is 40 times one epoch of it. A temperature is fitted on"
    " the logits of 5,000 rows, which stage II looks at too. The largest size is read from float16"
    " in a file; memory is the peak of the whole process, Python and torch included.",
]


def timed_images(record: dict[str, Any]) -> str:
    sizes = [found["size"] for found in record["sizes"]]
    return ", ".join(
        f"{size['network']} on {size['images']:,} of {size['pixels']} x {size['pixels']} pixels"
        for size in sizes
    )


def line(found: dict[str, Any]) -> str:
    """One row of the table."""
    size = found["size"]
    shape = f"{size['of']:,} x {size['width']:,} x {size['classes']:,}"
    times = {
        work: f"{shown(taken)} ({found['ratios'][work]:.2g})"
        for work, taken in found["all_rows"].items()
    }
    own = f"**{shown(found['all_rows']['stage II'])}** ({found['epochs']})"
    others = " | ".join(times[work] for work in ("temperature", "former", "stage I"))
    return f"| {shape} | {size['aim']} s | {own} | {others} | {found['peak_gb']:.2f} GB |"


def shown(taken: float) -> str:
    return f"{taken:.3f}" if taken < 1 else f"{taken:,.1f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--large-rows", type=int, default=SIZES["large"].rows)
    parser.add_argument("--only", choices=SIZES)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if args.only:
        print(json.dumps(measured(args.only, args.folder, args.large_rows)))
        return
    command = f"python benchmarks/stage2_speed.py build/speed --large-rows {args.large_rows}"
    sizes = []
    for name in SIZES:
        words = [str(args.folder), "--only", name, "--large-rows", str(args.large_rows)]
        done = subprocess.run(
            [sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True
        )
        sizes.append(json.loads(done.stdout))
        about = {"torch": torch.__version__, "threads": 1, "cores": os.cpu_count()}
        record = {
            **about,
            "machine": platform.machine(),
            "shared": True,
            "command": command,
            "sizes": sizes,
        }
        write(RESULTS / "stage2_speed.json", json.dumps(record, indent=1) + "\n")
        write(RESULTS / "stage2_speed.md", table(record))


if __name__ == "__main__":
    main()
