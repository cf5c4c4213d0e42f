"""The end of a run: its network, its predictions and, last of all, its row."""

from pathlib import Path

import torch
from torch import Tensor, nn

from maccal.data import DataSet
from maccal.data.pixels import PIXELS
from maccal.distributed import everywhere, my_rank
from maccal.io import npz, write, write_tensors
from maccal.runs.config import Config
from maccal.runs.folder import MODEL, read_network
from maccal.runs.state import measured, tell
from maccal.training import predict


def predict_again(folder: Path, config: Config, data: DataSet, device: torch.device) -> None:
    """Where only test.npz is damaged."""
    problem = f"{folder / 'test.npz'} is missing, damaged or of another run"
    tell(f"{problem}; the images are predicted again")
    network = read_network(folder, config, len(data.classes)).to(device)
    logits = predict(network, data.test.images, PIXELS[config.data])
    conclude(folder, config, logits, data)


def finish(
    folder: Path, config: Config, network: nn.Module, logits: Tensor, data: DataSet, **notes: str
) -> None:
    """Write the network, with these notes, and then all that is said of it."""
    if my_rank()[0] == 0:
        # it is always of the network beside it, also after a kill
        (folder / "test.npz").unlink(missing_ok=True)
        write_tensors(
            folder / "model.safetensors", MODEL, network.state_dict(), run=config.about, **notes
        )
    conclude(folder, config, logits, data)


def conclude(folder: Path, config: Config, logits: Tensor, data: DataSet) -> None:
    """Write the predictions and, last of all, the row; then the checkpoint is no longer needed."""
    if my_rank()[0] == 0:
        write(folder / "test.npz", npz(logits=logits.numpy(), labels=data.test.labels.numpy()))
        measured(folder, config)
        (folder / "checkpoint.pt").unlink(missing_ok=True)
    everywhere(None)
