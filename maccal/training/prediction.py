"""The logits of a network for whole tensors of images; several processes share the work."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.data.pixels import Pixels
from maccal.distributed import everywhere, my_rank


@torch.no_grad()
def predict(network: nn.Module, images: Tensor, pixels: Pixels, size: int = 500) -> Tensor:
    """Logits of all images in eval mode, float32 on the CPU; the network keeps its own mode.

    Every process works on its share of the rows, and every process gets them all.
    """
    rank, world = my_rank()
    device = next(network.parameters()).device
    mode = network.training
    network.eval()
    parts = []
    for part in torch.split(images[rank::world], size):
        parts.append(network(pixels(part.to(device))).float().cpu())
    network.train(mode)
    logits = everywhere(torch.cat(parts))
    whole = logits[0].new_empty(len(images), logits[0].shape[1])
    for first, rows in enumerate(logits):
        whole[first::world] = rows
    return whole


def val_numbers(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """What the history says of the held-out images."""
    return {
        "val_accuracy": float((logits.argmax(1) == labels).double().mean()),
        "val_nll": float(F.cross_entropy(logits.double(), labels)),
    }
