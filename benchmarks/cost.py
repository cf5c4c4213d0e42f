"""What stage II costs: against the paper's way, and as N, D and K grow.

    python benchmarks/cost.py SHARED build/networks

About 20 minutes; writes results/cost.json and results/cost.md.

The paper runs the frozen network again in every epoch; maccal runs it once and trains on its
features. Both are timed in one run on the same public ResNet-56 and the 50,000 CIFAR-10 training
images; of the paper's 40 equal epochs one is timed. Then stage II on generated features, each size
in a process of its own so that the peak of its memory is its own, the largest from a file: 1.28 M
rows of 2048 float16 numbers, 1000 classes, like ImageNet with a ResNet-50.
"""

import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from networks import cifar, normalised, public
from torch import Tensor

from maccal.calibration.heads import Heads
from maccal.calibration.mac_cal import calibrate_head
from maccal.calibration.stage2 import BOTTLENECK, Stage2
from maccal.features.extraction import extract
from maccal.io import write
from maccal.models import Net

EPOCHS = 40  # of stage II, as printed
RESULTS = Path(__file__).parent.parent / "results"
SIZES = [  # rows, features, classes, epochs
    (50_000, 64, 10, 40),
    (25_000, 64, 10, 40),
    (100_000, 64, 10, 40),
    (50_000, 256, 10, 40),
    (50_000, 1024, 10, 8),
    (50_000, 64, 100, 40),
    (50_000, 64, 1000, 8),
    (1_280_000, 2048, 1000, 1),
]


def seconds(work: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def in_every_epoch(network: Net, images: Tensor, labels: Tensor, config: Stage2) -> None:
    """One epoch as the paper does it.

    Every batch goes through the frozen network, then trains the head.
    """
    generators = [torch.Generator().manual_seed(1)]
    heads = Heads([[64, config.hidden or 0, 10]], generators)
    for rows in torch.randperm(len(labels), generator=generators[0]).split(config.batch_size):
        heads.draw([0.5], generators, config)
        with torch.inference_mode():
            z = network.features(normalised(images[rows]))
        heads.step(z.clone()[None], labels[rows][None], 0.1, config)


def against_the_paper(shared: Path, folder: Path) -> dict[str, float]:
    config = Stage2(hidden=BOTTLENECK, statistics="deployed", epochs=EPOCHS)
    network = public(shared, 56)
    images, labels = cifar(shared, folder, 10)[0]
    batches = [
        (normalised(x), y) for x, y in zip(images.split(500), labels.split(500), strict=True)
    ]
    once, features = seconds(lambda: extract(network, batches))
    head, _ = seconds(lambda: calibrate_head(*features, config=config))
    epoch, _ = seconds(lambda: in_every_epoch(network, images, labels, config))
    theirs, ours = EPOCHS * epoch, once + head
    return {
        "epoch_through_the_network": epoch,
        "paper": theirs,
        "extract": once,
        "stage2": head,
        "maccal": ours,
        "ratio": theirs / ours,
    }


def generate(file: Path, rows: int, width: int, classes: int) -> None:
    """Features in float16 around a centre for each class, written piece by piece, sorted by class
    as image folders are.
    """
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, width, generator=g)
    part = file.with_suffix(".part")
    with part.open("wb") as out:
        for start in range(0, rows, 8192):
            y = torch.arange(start, min(start + 8192, rows)) * classes // rows
            z = (centres[y] + 4 * torch.randn(len(y), width, generator=g)).half()
            out.write(z.numpy().tobytes())
    part.replace(file)


def one_size(folder: Path, rows: int, width: int, classes: int, epochs: int) -> dict[str, float]:
    file = folder / f"generated-{rows}-{width}-{classes}.f16"
    if not file.exists():
        generate(file, rows, width, classes)
    z = np.memmap(file, np.float16, "r", shape=(rows, width))
    y = torch.arange(rows) * classes // rows
    before = peak()
    # read, not mapped: the pages of a map would count as memory
    starts = range(0, rows - 100, rows // 50)
    parts = [
        np.fromfile(file, np.float16, 100 * width, offset=2 * width * start).reshape(100, width)
        for start in starts
    ]
    val = (np.concatenate(parts), torch.cat([y[start : start + 100] for start in starts]))
    taken, head = seconds(
        lambda: calibrate_head(z, y, val=val, config=Stage2(hidden=BOTTLENECK, epochs=epochs))
    )
    record = {
        "rows": rows,
        "features": width,
        "classes": classes,
        "epochs": epochs,
        "seconds": taken,
        "per_epoch": taken / epochs,
    }
    return {
        **record,
        "peak_rss_gb": peak(),
        "rss_before_gb": before,
        "accuracy": head.history[-1]["accuracy"],
    }


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def table(record: dict[str, Any]) -> str:
    c = record["comparison"]
    lines = [
        "# What stage II costs",
        "",
        "`python benchmarks/cost.py SHARED build/networks`"
        f" on {record['cores']} cores, torch {record['torch']}.",
        "",
        "**Against the paper's way** (the frozen network runs in every epoch),"
        " ResNet-56, 50,000 images, 40 epochs, one run:",
        "",
        "| | seconds |",
        "|---|---:|",
        f"| paper: 40 epochs of {c['epoch_through_the_network']:.1f} (one of them timed)"
        f" | {c['paper']:.0f} |",
        f"| maccal: features once {c['extract']:.1f}, stage II {c['stage2']:.1f}"
        f" | {c['maccal']:.1f} |",
        f"| **ratio** | **{c['ratio']:.0f}x** |",
        "",
        "**As the features grow** (bottleneck 512, batches of 128, float16 on disk,"
        " feedback on 5,000 rows; a process each):",
        "",
        "| rows | features | classes | epochs | seconds an epoch | peak memory (GB) |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for r in record["sizes"]:
        cells = [f"{r[k]:,}" for k in ("rows", "features", "classes", "epochs")]
        lines.append(f"| {' | '.join(cells)} | {r['per_epoch']:.2f} | {r['peak_rss_gb']:.2f} |")
    lines += [
        "",
        "Memory is the peak resident set of the whole process, Python and torch included"
        " (about 0.4 GB before any features).",
    ]
    return "\n".join(lines) + "\n"


def main(shared: Path, folder: Path) -> None:
    sizes = []
    for size in SIZES:
        command = [sys.executable, __file__, "size", str(folder), *map(str, size)]
        sizes.append(
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        )
        print(sizes[-1], flush=True)
    comparison = against_the_paper(shared, folder)
    print(comparison, flush=True)
    about = {
        "torch": torch.__version__,
        "cores": torch.get_num_threads(),
        "machine": platform.machine(),
        "seed": 1,
    }
    record = {**about, "comparison": comparison, "sizes": sizes}
    write(RESULTS / "cost.json", json.dumps(record, indent=1) + "\n")
    write(RESULTS / "cost.md", table(record))


if __name__ == "__main__":
    if sys.argv[1] == "size":
        print(json.dumps(one_size(Path(sys.argv[2]), *map(int, sys.argv[3:]))))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
