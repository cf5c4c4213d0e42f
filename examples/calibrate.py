"""A network of your own, calibrated: the function that `maccal calibrate` asks for, and the same
from Python.

    maccal calibrate examples/calibrate.py:build --out build/mine
    python examples/calibrate.py

A small network learns 300 noisy handwritten digits by heart. 500 others are held out, the rest is
the test."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import maccal as mc


def build() -> tuple[nn.Module, DataLoader, DataLoader, DataLoader]:
    """The model, and loaders of its training images, of held-out ones and of test images."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = x.float() / 16 + 0.3 * torch.randn(x.shape, generator=generator)
    train = DataLoader(TensorDataset(x[:300], y[:300]), batch_size=100)
    val = DataLoader(TensorDataset(x[300:800], y[300:800]), batch_size=100)
    test = DataLoader(TensorDataset(x[800:], y[800:]), batch_size=997)  # all in one batch

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(100):
        for images, labels in train:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimiser.step()
    return model, train, val, test


if __name__ == "__main__":
    model, train, val, test = build()
    calibrated = mc.calibrate(model, train, val=val)
    images, labels = next(iter(test))
    for name, network in (("as trained", model), ("calibrated", calibrated)):
        with torch.no_grad():
            numbers = mc.summary(logits=network(images), labels=labels, interval=True)
        print(f"{name}: {numbers['verdict']}")
