"""One's own training loop, watched: how accuracy and calibration part ways, and what mends it.

    python examples/training_loop.py FOLDER     FOLDER/training_loop.png; about 10 seconds

`mc.Stream` adds up a validation pass batch by batch, in 100 kB of memory. Accuracy settles early;
the confidence goes on rising, and the loss on unseen images with it. The line on the right is what
`mc.calibrate` makes of the last epoch.
"""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import maccal as mc

EPOCHS = 40


def measured(model: nn.Module, loader: DataLoader) -> mc.Summary:
    """Accuracy, confidence, ECE, NLL and the rest, of one pass."""
    total = mc.Stream.empty()
    with torch.no_grad():
        for x, y in loader:
            total += mc.Stream.of(logits=model(x), labels=y)
    return total.summary()


def drawn(history: list[mc.Summary], after: mc.Summary) -> Figure:
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    epochs = range(1, len(history) + 1)
    for key, style in (("accuracy", "-"), ("confidence", "--")):
        left.plot(epochs, [100 * numbers[key] for numbers in history], style, label=key)
    left.set(xlabel="epoch", ylabel="%")
    left.legend()
    right.plot(epochs, [100 * numbers["ece"] for numbers in history], label="as trained")
    right.axhline(100 * after["ece"], color="tab:green", label="calibrated at the end")
    right.set(xlabel="epoch", ylabel="ECE, %", ylim=(0, None))
    right.legend()
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/gallery")
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = x.float() / 16 + 0.3 * torch.randn(x.shape, generator=generator)
    parts = (slice(0, 300), slice(300, 800), slice(800, None))
    train, val, test = (DataLoader(TensorDataset(x[p], y[p]), batch_size=100) for p in parts)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    history = []
    for _ in range(EPOCHS):
        for images, labels in train:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimiser.step()
        history.append(measured(model, test))
    after = measured(mc.calibrate(model, train, val=val), test)
    for name, numbers in (("last epoch", history[-1]), ("calibrated", after)):
        accuracy, ece = numbers["accuracy"], numbers["ece"]
        print(f"{name}: accuracy {accuracy:.1%}, ECE {ece:.1%}, NLL {numbers['nll']:.3f}")
    drawn(history, after).savefig(folder / "training_loop.png", dpi=110)
