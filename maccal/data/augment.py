"""Augmentation of whole batches of tensors, on their device: no image by image, no workers.

crop_and_flip    random crop after padding with black, and mirror image half of the time, each image its own
mixup            x mixed with a random partner by one share a batch (Zhang et al. 2018)
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def crop_and_flip(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """The images (N x C x H x W, before normalisation), each moved by up to `padding` pixels either way and perhaps mirrored."""
    count, _, height, width = images.shape
    down, right = torch.randint(2 * padding + 1, (2, count, 1), generator=generator, device=generator.device).to(images.device)
    mirrored = (torch.rand(count, 1, generator=generator, device=generator.device) < 0.5).to(images.device)
    across = torch.arange(width, device=images.device)
    columns = torch.where(mirrored, width - 1 - across, across) + right
    lines = torch.arange(height, device=images.device) + down
    padded = F.pad(images, [padding] * 4)
    rows = torch.arange(count, device=images.device)[:, None, None]
    return padded[rows, :, lines[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def mixup(x: Tensor, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor, float]:
    """Mixed rows, the partner of each, and the share of the row itself, from Beta(alpha, alpha); alpha 0 mixes nothing."""
    partner = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
    if alpha <= 0:
        return x, partner, 1.0
    a, b = torch._standard_gamma(torch.full((2,), alpha, dtype=torch.float64), generator=generator).tolist()
    share = a / (a + b) if a + b > 0 else 0.5
    return share * x + (1 - share) * x[partner], partner, share
