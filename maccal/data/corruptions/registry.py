"""The fifteen corruptions of CIFAR-C at five severities, of whole batches.

    Corrupt("fog", severity=3, seed=1)(images)    uint8 N x 3 x H x W in and out

The same seed gives the same bits. 10,000 images of 32 x 32 take up to five seconds.

Defocus, zoom, brightness, contrast, pixelate and JPEG reproduce the published images within one
grey level. The others draw from the same distributions, except frost, whose ice is synthetic (see
weather.py). The severities are those of CIFAR-10-C for every size of image; Tiny-ImageNet-C, at
64 x 64, has others of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from maccal.data.corruptions.blurs import defocus_blur, glass_blur, motion_blur, zoom_blur
from maccal.data.corruptions.digital import (
    brightness,
    contrast,
    elastic_transform,
    gaussian_noise,
    impulse_noise,
    jpeg_compression,
    pixelate,
    shot_noise,
)
from maccal.data.corruptions.weather import fog, frost, snow

CHUNK = 500  # images at a time: arrays of a few megabytes


@dataclass(frozen=True)
class Corruption:
    """A function of (uint8 images, generator, *parameters), and its parameters by severity.

    The function gives grey levels, which are then clipped and truncated.
    """

    apply: Callable[..., np.ndarray]
    severities: tuple[tuple[float, ...], ...]


CORRUPTIONS: Mapping[str, Corruption] = {
    "gaussian_noise": Corruption(gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
    "shot_noise": Corruption(shot_noise, ((500,), (250,), (100,), (75,), (50,))),
    "impulse_noise": Corruption(impulse_noise, ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,))),
    "defocus_blur": Corruption(
        defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))
    ),
    "glass_blur": Corruption(glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion_blur": Corruption(motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": Corruption(zoom_blur, ((6,), (11,), (15,), (20,), (25,))),
    "snow": Corruption(
        snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": Corruption(frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": Corruption(fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": Corruption(brightness, ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,))),
    "contrast": Corruption(contrast, ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))),
    "elastic_transform": Corruption(
        elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": Corruption(pixelate, ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))),
    "jpeg_compression": Corruption(jpeg_compression, ((80,), (65,), (58,), (50,), (40,))),
}


@dataclass(frozen=True)
class Corrupt:
    """One corruption at one severity, 1 to 5.

    With one seed, different kinds and severities still draw independently of each other.
    """

    kind: str
    severity: int
    seed: int = 1

    def __post_init__(self) -> None:
        if self.kind not in CORRUPTIONS:
            known = ", ".join(CORRUPTIONS)
            raise ValueError(f"no corruption {self.kind!r}; the corruptions are {known}")
        if not isinstance(self.severity, int) or not 1 <= self.severity <= 5:
            raise ValueError(f"severity {self.severity!r}; pass a whole number from 1 to 5")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed {self.seed!r}; pass a whole number, 0 or more")

    def __call__(self, images: Tensor) -> Tensor:
        """The images corrupted, on their device; every image has its own draws."""
        check(images)
        corruption = CORRUPTIONS[self.kind]
        parameters = corruption.severities[self.severity - 1]
        rng = np.random.default_rng([self.seed, self.severity, list(CORRUPTIONS).index(self.kind)])
        pixels = images.numpy(force=True)
        result = np.empty(pixels.shape, np.uint8)
        for start in range(0, len(pixels), CHUNK):
            levels = corruption.apply(pixels[start : start + CHUNK], rng, *parameters)
            # This assignment truncates, as the published images are truncated
            result[start : start + CHUNK] = np.clip(levels, 0, 255)
        return torch.from_numpy(result).to(images.device)


def check(images: Tensor) -> None:
    if not isinstance(images, Tensor) or images.dtype != torch.uint8:
        found = images.dtype if isinstance(images, Tensor) else type(images).__name__
        wanted = "pass a uint8 tensor of grey levels, before normalisation"
        raise ValueError(f"images are {found}; {wanted}")
    if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < 8:
        shape = " x ".join(map(str, images.shape))
        raise ValueError(f"images are {shape}; pass N x 3 x H x W, at least 8 x 8 pixels")
