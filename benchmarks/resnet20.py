"""A real overconfident network, measured: a public ResNet-20 for CIFAR-10, before and after a temperature.

    python benchmarks/resnet20.py FOLDER         # FOLDER holds data/unpack and data/nets/resnet20-*.th; about 20 s

The network errs on 8.27 % of the 10,000 test images. The temperature is fitted on the even test images and both versions are
measured on the odd ones. Writes docs/reliability.png and results/resnet20.json.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from networks import cifar, normalised, public
from torch import Tensor

from maccal.files import write
from maccal.metrics import compare, softmax, summary
from maccal.plots import reliability
from maccal.posthoc import TemperatureScaling

PROJECT = Path(__file__).parent.parent


def predictions(shared: Path) -> tuple[Tensor, Tensor]:
    """Logits and labels of the 10,000 test images."""
    with tempfile.TemporaryDirectory() as unpacked:
        images, labels = cifar(shared, Path(unpacked), 10)[1]
    network = public(shared, 20)
    with torch.inference_mode():
        return torch.cat([network(normalised(part)) for part in images.split(500)]).clone(), labels


def main(folder: Path) -> None:
    logits, labels = predictions(folder)
    temperature = TemperatureScaling().fit(logits[::2], labels[::2]).temperature_
    models = {"ResNet-20 on CIFAR-10": logits[1::2], f"the same at temperature {temperature:.2f}": logits[1::2] / temperature}
    probs = {name: softmax(z.double()) for name, z in models.items()}
    figure = reliability(probs, labels[1::2])
    figure.savefig(PROJECT / "docs" / "reliability.png", dpi=160)
    rows = [{"name": name, **summary(logits=z, labels=labels[1::2], interval=True)} for name, z in models.items()]
    paired = {name: d._asdict() for name, d in compare(*probs.values(), labels[1::2]).items()}
    record = {"temperature": temperature, "rows": rows, "second_minus_first": paired, "seed": 0, "torch": torch.__version__}
    write(PROJECT / "results" / "resnet20.json", json.dumps(record, indent=1) + "\n")
    for z in models.values():
        print(summary(logits=z, labels=labels[1::2], interval=True), "\n")
    print({name: np.round([*d], 4).tolist() for name, d in compare(*probs.values(), labels[1::2]).items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
