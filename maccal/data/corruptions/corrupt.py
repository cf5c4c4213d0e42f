"""The fifteen corruptions of CIFAR-C at five severities (Hendrycks & Dietterich 2019), made here,
of whole batches.

    Corrupt("fog", severity=3, seed=1)(images)    uint8 N x 3 x H x W in and out; the same seed, the same bits

10,000 images of 32 x 32 take up to five seconds. Defocus, zoom, brightness, contrast, pixelate and
JPEG reproduce the published images within one grey level; the others draw from the same
distributions, except frost, whose ice is synthetic (see weather.py). The severities are those of
CIFAR-10-C for every size of image; Tiny-ImageNet-C, at 64 x 64, has others of its own.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import Tensor

from maccal.data.corruptions.blurs import (
    Generator,
    defocus_blur,
    glass_blur,
    motion_blur,
    zoom_blur,
)
from maccal.data.corruptions.weather import fog, frost, snow

CHUNK = 500  # images at a time: arrays of a few megabytes


def gaussian_noise(images: np.ndarray, rng: Generator, sigma: float) -> np.ndarray:
    return (images / 255 + rng.normal(0, sigma, images.shape)) * 255


def shot_noise(images: np.ndarray, rng: Generator, photons: float) -> np.ndarray:
    """Poisson counts, with so many photons in a white pixel."""
    return rng.poisson(images / 255 * photons) / photons * 255


def impulse_noise(images: np.ndarray, rng: Generator, share: float) -> np.ndarray:
    """That share of the values black or white, each channel by itself."""
    lot = rng.random(images.shape)
    return np.where(lot < share, np.where(lot < share / 2, 0, 255), images)


def brightness(images: np.ndarray, _: Generator, amount: float) -> np.ndarray:
    """The value of HSV raised; hue and saturation stay, so the channels scale together."""
    x = images / 255
    value = x.max(1, keepdims=True)
    raised = np.minimum(value + amount, 1)
    return np.where(value > 0, x / np.where(value > 0, value, 1) * raised, raised) * 255


def contrast(images: np.ndarray, _: Generator, share: float) -> np.ndarray:
    """That share of the distance from each channel's mean."""
    x = images / 255
    mean = x.mean((2, 3), keepdims=True)
    return ((x - mean) * share + mean) * 255


def elastic_transform(
    images: np.ndarray, rng: Generator, stretch: float, sigma: float, shift: float
) -> np.ndarray:
    """A random affine map, then smooth local displacements.

    All three lengths are shares of the side.
    """
    count, _, height, width = images.shape
    side = min(height, width)
    moved = tilted(images, rng.uniform(-shift * side, shift * side, (count, 3, 2)))
    noise = rng.uniform(-1, 1, (count, height, width, 2))
    field = (
        gaussian_filter(noise, (0, sigma * side, sigma * side, 0), mode="reflect", truncate=3)
        * stretch
        * side
    )
    return sampled(moved, places(height, width) + field, about_centres=False).numpy() * 255


def tilted(images: np.ndarray, shifts: np.ndarray) -> Tensor:
    """Images, from 0 to 1, under the affine maps that move three corners of their middle by shifts.

    N x 3 x 2, of x and y.
    """
    count, _, height, width = images.shape
    corners = np.array([width // 2, height // 2]) + min(height, width) // 3 * np.array(
        [[1, 1], [1, -1], [-1, -1]]
    )
    target = np.concatenate([corners + shifts, np.ones((count, 3, 1))], 2)
    back = np.linalg.solve(target, np.broadcast_to(corners.astype(float), (count, 3, 2)))
    source = places(height, width) @ back[:, None, :2] + back[:, None, 2:]
    # OpenCV's thirty-seconds
    return sampled(
        torch.from_numpy(images / 255), np.floor(source * 32 + 0.5) / 32, about_centres=True
    )


def places(height: int, width: int) -> np.ndarray:
    return np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)


def sampled(images: Tensor, at: np.ndarray, *, about_centres: bool) -> Tensor:
    """Images read between pixels at (x, y) and mirrored beyond.

    About the centres of the last pixels, or their outer edges.
    """
    size = np.array(images.shape[:1:-1])
    scaled = at * 2 / (size - 1) - 1 if about_centres else (at * 2 + 1) / size - 1
    return F.grid_sample(
        images, torch.from_numpy(scaled), padding_mode="reflection", align_corners=about_centres
    )


def pixelate(images: np.ndarray, _: Generator, share: float) -> np.ndarray:
    height, width = images.shape[2:]
    small = int(width * share), int(height * share)
    return one_by_one(
        images,
        lambda image: image.resize(small, Image.Resampling.BOX).resize(
            (width, height), Image.Resampling.BOX
        ),
    )


def jpeg_compression(images: np.ndarray, _: Generator, quality: int) -> np.ndarray:
    return one_by_one(images, lambda image: recompressed(image, quality))


def recompressed(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


def one_by_one(images: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    pictures = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    return np.stack(
        [np.asarray(change(Image.fromarray(picture))) for picture in pictures]
    ).transpose(0, 3, 1, 2)


@dataclass(frozen=True)
class Corruption:
    """A function of (uint8 images, generator, *parameters) to grey levels, and its parameters at
    the five severities.
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

    Kinds and severities of one seed draw independently of each other.
    """

    kind: str
    severity: int
    seed: int = 1

    def __post_init__(self) -> None:
        if self.kind not in CORRUPTIONS:
            raise ValueError(
                f"no corruption {self.kind!r}; the corruptions are {', '.join(CORRUPTIONS)}"
            )
        if not isinstance(self.severity, int) or not 1 <= self.severity <= 5:
            raise ValueError(f"severity {self.severity!r}; pass a whole number from 1 to 5")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed {self.seed!r}; pass a whole number, 0 or more")

    def __call__(self, images: Tensor) -> Tensor:
        """The images corrupted, on their device; every image its own draws."""
        check(images)
        row = CORRUPTIONS[self.kind]
        rng = np.random.default_rng([self.seed, self.severity, list(CORRUPTIONS).index(self.kind)])
        pixels = images.numpy(force=True)
        result = np.empty(pixels.shape, np.uint8)
        for start in range(0, len(pixels), CHUNK):
            levels = row.apply(
                pixels[start : start + CHUNK], rng, *row.severities[self.severity - 1]
            )
            # truncates, as the published images are
            result[start : start + CHUNK] = np.clip(levels, 0, 255)
        return torch.from_numpy(result).to(images.device)


def check(images: Tensor) -> None:
    if not isinstance(images, Tensor) or images.dtype != torch.uint8:
        found = images.dtype if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(
            f"images are {found}; pass a uint8 tensor of grey levels, before normalisation"
        )
    if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < 8:
        raise ValueError(
            f"images are {' x '.join(map(str, images.shape))}; pass N x 3 x H x W, at least 8 x 8 pixels"
        )
