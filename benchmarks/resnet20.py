"""A real overconfident network, measured: a public ResNet-20 for CIFAR-10, before and after a temperature.

    python benchmarks/resnet20.py FOLDER         # FOLDER holds data/unpack and data/nets/resnet20-*.th; about 20 s

The network errs on 8.27 % of the 10,000 test images. The temperature is fitted on the even test images and both versions are
measured on the odd ones. Writes docs/reliability.png and results/resnet20.json.
"""

import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.files import write
from maccal.metrics import compare, softmax, summary
from maccal.plots import reliability
from maccal.posthoc import TemperatureScaling

PROJECT = Path(__file__).parent.parent


class Block(nn.Module):
    """Two 3x3 convolutions; where the shape changes the shortcut takes every second pixel and pads the channels."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.stride, self.pad = width // width_in, (width - width_in) // 2
        self.conv1 = nn.Conv2d(width_in, width, 3, self.stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad)))


class ResNet20(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = (
            nn.Sequential(Block(before, width), Block(width, width), Block(width, width))
            for before, width in ((16, 16), (16, 32), (32, 64))
        )
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.linear(x.mean((2, 3)))


def predictions(folder: Path) -> tuple[Tensor, Tensor]:
    """Logits and labels of the 10,000 test images."""
    with tempfile.TemporaryDirectory() as unpacked:
        subprocess.run([sys.executable, folder / "data" / "unpack", unpacked, "cifar10"], check=True, capture_output=True)
        batch = pickle.loads((Path(unpacked) / "cifar-10-batches-py" / "test_batch").read_bytes(), encoding="bytes")
    images = torch.from_numpy(batch[b"data"]).view(-1, 3, 32, 32) / 255
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    weights = torch.load(next((folder / "data" / "nets").glob("resnet20-*.th")), map_location="cpu", weights_only=True)[
        "state_dict"
    ]
    network = ResNet20().eval()
    network.load_state_dict({name.removeprefix("module."): value for name, value in weights.items()})
    with torch.inference_mode():
        logits = torch.cat([network((part - mean[:, None, None]) / std[:, None, None]) for part in images.split(500)])
    return logits.clone(), torch.tensor(batch[b"labels"])


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
