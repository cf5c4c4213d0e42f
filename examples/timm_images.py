"""An image model of timm: fine-tuned on too few images, then calibrated.

    pip install timm
    python examples/timm_images.py FOLDER       FOLDER/timm_images.png; about 20 seconds on one core

A small ResNet learns 300 noisy handwritten digits. `mc.calibrate` finds its classifier by itself
and puts a calibrated one in its place: what comes back is a timm model with the same keys. Put your
own model and loaders here; `timm.create_model(name, pretrained=True)` will do.
"""

import sys
from pathlib import Path

import timm
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import maccal as mc


def digits() -> tuple[DataLoader, DataLoader, DataLoader]:
    """Batches of 300 images to learn, of 500 held out, and all 997 others as one."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = x.float().reshape(-1, 1, 8, 8) / 16
    x = nn.functional.interpolate(x + 0.35 * torch.randn(x.shape, generator=generator), size=32)
    parts = ((0, 300, 50), (300, 800, 100), (800, 1797, 997))
    return tuple(  # type: ignore[return-value]
        DataLoader(TensorDataset(x[start:end], y[start:end]), batch_size=size)
        for start, end, size in parts
    )


def fine_tune(model: nn.Module, train: DataLoader, epochs: int = 25) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3)
    for _ in range(epochs):
        for images, labels in train:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimiser.step()
    model.eval()


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/gallery")
    folder.mkdir(parents=True, exist_ok=True)
    train, val, test = digits()
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", in_chans=1, num_classes=10)
    fine_tune(model, train)
    calibrated = mc.calibrate(model, train, val=val)

    images, labels = next(iter(test))
    found = {}
    for name, network in (("as trained", model), ("calibrated", calibrated)):
        with torch.no_grad():
            found[name] = network(images).softmax(1)
        print(f"{name}: {mc.summary(found[name], labels, interval=True)['verdict']}")
    mc.reliability(found, labels).savefig(folder / "timm_images.png", dpi=110)
