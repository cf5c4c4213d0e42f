"""The four blurs of CIFAR-C, of whole batches: defocus, glass, motion, zoom.

Each takes uint8 images N x 3 x H x W, a generator and its parameters, and gives grey levels as
floats, for the caller to clip and truncate. Lengths are pixels."""

import math

import numpy as np
from scipy.ndimage import correlate, gaussian_filter
from scipy.sparse import csr_array, kron

Generator = np.random.Generator
FAINT = 1e-6  # a tap of less weight moves no pixel by a grey level


def zoom_lines(size: int, factor: float) -> np.ndarray:
    """The size x size matrix that enlarges the middle of a line, as linear interpolation between
    the ends of a whole-pixel crop.
    """
    crop = math.ceil(size / factor)
    grown = round(crop * factor)
    place = (np.arange(size) + (grown - size) // 2) * (crop - 1) / (grown - 1) + (size - crop) // 2
    return np.maximum(0, 1 - abs(place[:, None] - np.arange(size)))


def defocus_blur(images: np.ndarray, _: Generator, radius: float, sigma: float) -> np.ndarray:
    """A disc of the radius, its edge softened by three taps of a Gaussian."""
    reach = int(radius) + 1
    across = np.arange(-reach, reach + 1)
    disc = (across**2 + across[:, None] ** 2 <= radius**2).astype(float)
    taps = np.exp(-(np.arange(-1, 2) ** 2) / (2 * sigma**2))
    kernel = correlate(
        disc / disc.sum(), np.outer(taps, taps) / taps.sum() ** 2, mode="constant"
    ).astype(np.float32)
    return correlate(images / 255, kernel[None, None], mode="mirror") * 255


def glass_blur(images: np.ndarray, rng: Generator, sigma: float, times: int) -> np.ndarray:
    """Each pixel but the first two lines and columns becomes itself or a neighbour above, left or
    both, between two soft filters.

    The publishers exchange pixels in place, last to first; what that amounts to is one copy from a
    pixel not yet reached."""
    images = (gaussian_filter(images / 255, (0, 0, sigma, sigma), mode="nearest") * 255).astype(
        np.uint8
    )
    rows, lines, columns = np.ix_(*(np.arange(size) for size in (len(images), *images.shape[2:])))
    for _ in range(times):
        up, left = rng.integers(2, size=(2, len(images), *images.shape[2:]))
        inside = (lines > 1) & (columns > 1)
        images = images.transpose(0, 2, 3, 1)[
            rows, lines - up * inside, columns - left * inside
        ].transpose(0, 3, 1, 2)
    return gaussian_filter(images / 255, (0, 0, sigma, sigma), mode="nearest") * 255


def motion_blur(images: np.ndarray, rng: Generator, radius: float, sigma: float) -> np.ndarray:
    """A streak within 45 degrees of the horizontal, each image its own."""
    return streaks(images, radius, sigma, rng.uniform(-45, 45, len(images)))


def streaks(images: np.ndarray, radius: float, sigma: float, degrees: np.ndarray) -> np.ndarray:
    """Images blurred one way, each along its own angle, by half a Gaussian, in whole grey levels.

    As ImageMagick does it: 2 radius + 1 taps, each the pixel nearest to its place on the ray, edge
    pixels repeated beyond the edge, and the sum truncated."""
    taps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    weights = weights[weights > FAINT * weights.sum()] / weights.sum()
    taps, reach = taps[: len(weights)], len(weights) - 1
    rays = np.stack([np.sin(np.deg2rad(degrees)), np.cos(np.deg2rad(degrees))])[..., None] * taps
    paths, path_of = np.unique(
        np.ceil(rays - 0.5).astype(int).transpose(1, 2, 0), axis=0, return_inverse=True
    )
    padded = np.pad(images, [(0, 0), (0, 0), (reach, reach), (reach, reach)], mode="edge").astype(
        np.float32
    )
    result = np.zeros(images.shape, np.float32)
    height, width = images.shape[2:]
    for path, steps in enumerate(paths):
        rows = np.flatnonzero(path_of.ravel() == path)
        block = padded[rows]
        for weight, (down, right) in zip(weights.astype(np.float32), steps + reach, strict=True):
            result[rows] += weight * block[:, :, down : down + height, right : right + width]
    return np.floor(result + 1e-3)  # a flat area keeps its level in spite of rounding


def zoom_blur(images: np.ndarray, _: Generator, steps: int) -> np.ndarray:
    """The mean of the image, counted twice, and its enlargements by 1%, 2% ... `steps` %."""
    height, width = images.shape[2:]
    # a hair above whole percents, as published: 26 pixels x 1.25 round up
    factors = 1 + np.arange(1, steps + 1) * (1.01 - 1)
    pairs = [(zoom_lines(height, factor), zoom_lines(width, factor)) for factor in factors]
    whole = sum(
        (kron(csr_array(a), csr_array(b)) for a, b in pairs), 2 * csr_array(np.eye(height * width))
    ) / (steps + 2)
    flat = images.reshape(-1, height * width).astype(np.float32)
    return np.ascontiguousarray((csr_array(whole.astype(np.float32)) @ flat.T).T).reshape(
        images.shape
    )
