"""Augmentation of whole batches of tensors, on their device: no image by image, no workers.

crop_and_flip    random crop after padding with black, and mirror image half of the time, each image its own
mixup            x mixed with a random partner by one share a batch (Zhang et al. 2018)
beta             the shares
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def crop_and_flip(
    images: Tensor, generator: torch.Generator, padding: int = 4, flip: bool = True
) -> Tensor:
    """The images (N x C x H x W, before normalisation), each moved by up to `padding` pixels either
    way and perhaps mirrored.
    """
    count, _, height, width = images.shape
    down, right = torch.randint(
        2 * padding + 1, (2, count, 1), generator=generator, device=generator.device
    ).to(images.device)
    mirrored = (torch.rand(count, 1, generator=generator, device=generator.device) < flip / 2).to(
        images.device
    )
    across = torch.arange(width, device=images.device)
    columns = torch.where(mirrored, width - 1 - across, across) + right
    lines = torch.arange(height, device=images.device) + down
    padded = F.pad(images, [padding] * 4)
    rows = torch.arange(count, device=images.device)[:, None, None]
    return padded[rows, :, lines[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def mixup(x: Tensor, alpha: float, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Mixed rows, the partner of each, and the share of the row itself, from Beta(alpha, alpha);
    alpha 0 mixes nothing.

    The share is a tensor on the device of x, so that nothing waits for the device.
    """
    partner = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
    share = beta(alpha, (), generator).to(x.device, x.dtype)
    return share * x + (1 - share) * x[partner], partner, share


def beta(alpha: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draws from Beta(alpha, alpha) in float64, on the generator's device; alpha 0 is 1 throughout."""
    if alpha == 0:
        return torch.ones(shape, dtype=torch.float64, device=generator.device)
    twice = torch.full((2, *shape), alpha + 1, dtype=torch.float64, device=generator.device)
    uniform = torch.rand(
        twice.shape, generator=generator, dtype=torch.float64, device=generator.device
    )
    # Gamma(alpha) = Gamma(alpha + 1) U^(1 / alpha), taken in logarithms: at a small alpha both
    # would underflow, to a share of 1/2
    a, b = torch._standard_gamma(twice, generator=generator).log() + torch.log1p(-uniform) / alpha
    return (a - b).sigmoid()
