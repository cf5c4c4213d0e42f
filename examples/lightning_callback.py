"""A Lightning module that says how calibrated it is on the way, and is calibrated in the end.

    python examples/lightning_callback.py

A small network learns 300 noisy handwritten digits by heart: its accuracy stays, its ECE grows.
"""

import logging
import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import maccal as mc
from maccal.integrations.lightning import CalibrationCallback


class Digits(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> dict[str, Tensor]:
        return {"logits": self(batch[0])}  # the callback measures these

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 3e-3)


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(0)
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x = x.float() / 16 + 0.3 * torch.randn(x.shape)
    train = DataLoader(TensorDataset(x[:300], y[:300]), batch_size=100)
    val = DataLoader(TensorDataset(x[300:800], y[300:800]), batch_size=250)

    module = Digits()
    watch = CalibrationCallback()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=60,
        check_val_every_n_epoch=20,
        callbacks=[watch],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tempfile.mkdtemp(),
    )
    trainer.fit(module, train, val)
    for number, numbers in enumerate(watch.measured, 1):
        print(f"epoch {20 * number}: accuracy {numbers['accuracy']:.1%}, ECE {numbers['ece']:.1%}")
    with torch.no_grad():
        print(mc.summary(logits=module(x[800:]), labels=y[800:], interval=True)["verdict"])
