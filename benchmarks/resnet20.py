"""A real overconfident network, calibrated: a public ResNet-20 for CIFAR-10 as trained, with a
temperature, and with MaC-Cal.

    python benchmarks/resnet20.py SHARED build/networks

SHARED holds data/unpack and data/nets; about two minutes. The network errs on 8.27 % of the 10,000
test images. The temperature is fitted on the even test images; MaC-Cal sees the training images
only. All three are measured on the odd test images. Writes docs/reliability.png and
results/resnet20.json.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from networks import cifar, normalised, public
from torch import Tensor

from maccal.calibration.model import calibrate
from maccal.calibration.posthoc.temperature import TemperatureScaling
from maccal.io import write
from maccal.metrics import compare, softmax, summary
from maccal.report.diagrams import reliability

PROJECT = Path(__file__).parent.parent


def predictions(shared: Path) -> tuple[Tensor, Tensor]:
    """Logits and labels of the 10,000 test images."""
    with tempfile.TemporaryDirectory() as unpacked:
        images, labels = cifar(shared, Path(unpacked), 10)[1]
    network = public(shared, 20)
    with torch.inference_mode():
        return torch.cat([network(normalised(part)) for part in images.split(500)]).clone(), labels


def main(shared: Path, folder: Path) -> None:
    logits, labels = predictions(shared)
    (images, known), (test, _) = cifar(shared, folder, 10)
    batches = [(normalised(x), y) for x, y in zip(images.split(500), known.split(500), strict=True)]
    calibrated = calibrate(public(shared, 20), batches, cache=folder / "cache")
    scaling = TemperatureScaling().fit(logits[::2], labels[::2])
    with torch.inference_mode():
        after = torch.cat([calibrated(normalised(part)) for part in test[1::2].split(500)]).clone()
    models = {
        "as trained": logits[1::2],
        "temperature (5,000 labels)": scaling.transform(logits[1::2]),
        "MaC-Cal (no held-out labels)": after,
    }
    labels = labels[1::2]
    probs = {name: softmax(z.double()) for name, z in models.items()}
    reliability(probs, labels).savefig(PROJECT / "docs" / "reliability.png", dpi=130)
    rows = [
        {"name": name, **summary(logits=z, labels=labels, interval=True)}
        for name, z in models.items()
    ]
    first, *others = probs
    paired = {}
    for name in others:
        found = compare(probs[first], probs[name], labels)
        paired[name] = {metric: difference._asdict() for metric, difference in found.items()}
    record = {
        "temperature": scaling.temperature_,
        "rows": rows,
        "minus_as_trained": paired,
        "seed": 1,
        "torch": torch.__version__,
    }
    write(PROJECT / "results" / "resnet20.json", json.dumps(record, indent=1) + "\n")
    for row in rows:
        print(
            row["name"],
            *(f"{k} {row[k]:.4f}" for k in ("accuracy", "ece", "ece_low", "ece_high", "nll")),
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
