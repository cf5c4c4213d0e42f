"""Augmentation of whole batches of tensors, on their device: no image by image, no workers.

crop_and_flip    random crop after padding with black, mirrored half of the time, per image
mixup            x mixed with a random partner, by one share per batch (Zhang et al. 2018)
beta             draws of such shares
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def crop_and_flip(
    images: Tensor, generator: torch.Generator, padding: int = 4, flip: bool = True
) -> Tensor:
    """Move each image by up to `padding` pixels either way, and perhaps mirror it.

    Images are N x C x H x W, before normalisation.
    """
    count, _, height, width = images.shape
    device = images.device
    source = generator.device
    moves = torch.randint(2 * padding + 1, (2, count, 1), generator=generator, device=source)
    down, right = moves.to(device)
    lot = torch.rand(count, 1, generator=generator, device=source)
    mirrored = (lot < flip / 2).to(device)
    across = torch.arange(width, device=device)
    columns = torch.where(mirrored, width - 1 - across, across) + right
    lines = torch.arange(height, device=device) + down
    padded = F.pad(images, [padding] * 4)
    rows = torch.arange(count, device=device)[:, None, None]
    return padded[rows, :, lines[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def mixup(x: Tensor, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Mixed rows, the partner of each, and the share of the row itself, from Beta(alpha, alpha).

    Alpha 0 mixes nothing. The share is a tensor on the device of x, so that nothing waits for the
    device.
    """
    partner = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
    share = beta(alpha, (), generator).to(x.device, x.dtype)
    return share * x + (1 - share) * x[partner], partner, share


def beta(alpha: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draws from Beta(alpha, alpha) in float64, on the generator's device; all 1 if alpha is 0.

    A draw is a / (a + b) for a and b from Gamma(alpha), and Gamma(alpha) is
    Gamma(alpha + 1) U^(1 / alpha). Both are taken in logarithms: at a small alpha they would
    underflow, and the share be 1/2.
    """
    device = generator.device
    if alpha == 0:
        return torch.ones(shape, dtype=torch.float64, device=device)
    shapes = torch.full((2, *shape), alpha + 1, dtype=torch.float64, device=device)
    uniform = torch.rand(shapes.shape, generator=generator, dtype=torch.float64, device=device)
    gamma = torch._standard_gamma(shapes, generator=generator)
    a, b = gamma.log() + torch.log1p(-uniform) / alpha
    return (a - b).sigmoid()
