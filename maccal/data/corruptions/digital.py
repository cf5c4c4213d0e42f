"""Noise and digital corruptions of CIFAR-C, of whole batches.

Noise: Gaussian, shot, impulse. Digital: brightness, contrast, elastic, pixelate, JPEG.

Each takes uint8 images N x 3 x H x W, a generator and its parameters, and gives grey levels, for
the caller to clip and truncate.
"""

import io
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import Tensor

from maccal.data.corruptions.blurs import Generator


def gaussian_noise(images: np.ndarray, rng: Generator, sigma: float) -> np.ndarray:
    return (images / 255 + rng.normal(0, sigma, images.shape)) * 255


def shot_noise(images: np.ndarray, rng: Generator, photons: float) -> np.ndarray:
    """Poisson counts; a white pixel has `photons` on average."""
    return rng.poisson(images / 255 * photons) / photons * 255


def impulse_noise(images: np.ndarray, rng: Generator, share: float) -> np.ndarray:
    """That share of the values becomes black or white, each channel by itself."""
    lot = rng.random(images.shape)
    extremes = np.where(lot < share / 2, 0, 255)
    return np.where(lot < share, extremes, images)


def brightness(images: np.ndarray, _: Generator, amount: float) -> np.ndarray:
    """Raise the value of HSV; hue and saturation stay, so the channels scale together."""
    x = images / 255
    value = x.max(1, keepdims=True)
    raised = np.minimum(value + amount, 1)
    scaled = x / np.where(value > 0, value, 1) * raised
    return np.where(value > 0, scaled, raised) * 255


def contrast(images: np.ndarray, _: Generator, share: float) -> np.ndarray:
    """Keep that share of the distance from each channel's mean."""
    x = images / 255
    mean = x.mean((2, 3), keepdims=True)
    return ((x - mean) * share + mean) * 255


def elastic_transform(
    images: np.ndarray, rng: Generator, stretch: float, sigma: float, shift: float
) -> np.ndarray:
    """A random affine map, then smooth local displacements.

    All three lengths are shares of the shorter side.
    """
    count, _, height, width = images.shape
    side = min(height, width)
    moved = tilted(images, rng.uniform(-shift * side, shift * side, (count, 3, 2)))
    noise = rng.uniform(-1, 1, (count, height, width, 2))
    widths = (0, sigma * side, sigma * side, 0)
    field = gaussian_filter(noise, widths, mode="reflect", truncate=3) * stretch * side
    return sampled(moved, coordinates(height, width) + field, about_centres=False).numpy() * 255


def tilted(images: np.ndarray, shifts: np.ndarray) -> Tensor:
    """Images, from 0 to 1, each under the affine map that moves three corners of its middle.

    `shifts` is N x 3 x 2: how far each of the corners moves in x and y.
    """
    count, _, height, width = images.shape
    middle = np.array([width // 2, height // 2])
    corners = middle + min(height, width) // 3 * np.array([[1, 1], [1, -1], [-1, -1]])
    target = np.concatenate([corners + shifts, np.ones((count, 3, 1))], 2)
    back = np.linalg.solve(target, np.broadcast_to(corners.astype(float), (count, 3, 2)))
    source = coordinates(height, width) @ back[:, None, :2] + back[:, None, 2:]
    rounded = np.floor(source * 32 + 0.5) / 32  # OpenCV interpolates in steps of 1/32 pixel
    return sampled(torch.from_numpy(images / 255), rounded, about_centres=True)


def coordinates(height: int, width: int) -> np.ndarray:
    """The (x, y) of every pixel, height x width x 2."""
    return np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)


def sampled(images: Tensor, at: np.ndarray, *, about_centres: bool) -> Tensor:
    """Images read between pixels at (x, y), and mirrored beyond their border.

    The mirror is at the centres of the last pixels, or else at their outer edges.
    """
    size = np.array(images.shape[:1:-1])
    scaled = at * 2 / (size - 1) - 1 if about_centres else (at * 2 + 1) / size - 1
    return F.grid_sample(
        images, torch.from_numpy(scaled), padding_mode="reflection", align_corners=about_centres
    )


def pixelate(images: np.ndarray, _: Generator, share: float) -> np.ndarray:
    """Shrink both sides to that share, and enlarge again."""
    height, width = images.shape[2:]
    small = int(width * share), int(height * share)

    def shrink_and_enlarge(image: Image.Image) -> Image.Image:
        shrunk = image.resize(small, Image.Resampling.BOX)
        return shrunk.resize((width, height), Image.Resampling.BOX)

    return one_by_one(images, shrink_and_enlarge)


def jpeg_compression(images: np.ndarray, _: Generator, quality: int) -> np.ndarray:
    return one_by_one(images, lambda image: recompressed(image, quality))


def recompressed(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


def one_by_one(images: np.ndarray, change: Callable[[Image.Image], Image.Image]) -> np.ndarray:
    """Every image changed by Pillow."""
    pictures = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    changed = [np.asarray(change(Image.fromarray(picture))) for picture in pictures]
    return np.stack(changed).transpose(0, 3, 1, 2)
