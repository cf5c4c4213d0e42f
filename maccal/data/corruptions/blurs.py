"""The four blurs of CIFAR-C, of whole batches: defocus, glass, motion, zoom.

Each takes uint8 images N x 3 x H x W, a generator and its parameters, and gives grey levels as
floats, for the caller to clip and truncate. Lengths are in pixels.
"""

import math

import numpy as np
from scipy.ndimage import correlate, gaussian_filter
from scipy.sparse import csr_array, kron

Generator = np.random.Generator
FAINT = 1e-6  # a tap of less weight moves no pixel by a grey level


def defocus_blur(images: np.ndarray, _: Generator, radius: float, sigma: float) -> np.ndarray:
    """Blur with a disc of that radius, its edge softened by three taps of a Gaussian."""
    reach = int(radius) + 1
    across = np.arange(-reach, reach + 1)
    disc = (across**2 + across[:, None] ** 2 <= radius**2).astype(float)
    taps = np.exp(-(np.arange(-1, 2) ** 2) / (2 * sigma**2))
    edge = np.outer(taps, taps) / taps.sum() ** 2
    kernel = correlate(disc / disc.sum(), edge, mode="constant").astype(np.float32)
    return correlate(images / 255, kernel[None, None], mode="mirror") * 255


def glass_blur(images: np.ndarray, rng: Generator, sigma: float, times: int) -> np.ndarray:
    """Move pixels about by chance, between two soft filters.

    Each pixel becomes itself or its neighbour above, to the left, or both; the first two lines and
    columns stay. The publishers exchange pixels in place, last to first. That amounts to copying
    each from a pixel that is not yet reached, which is done here for all pixels at once.
    """
    images = softened(images, sigma).astype(np.uint8)
    count, _, height, width = images.shape
    rows, lines, columns = np.ix_(np.arange(count), np.arange(height), np.arange(width))
    inside = (lines > 1) & (columns > 1)
    for _ in range(times):
        up, left = rng.integers(2, size=(2, count, height, width))
        source = (rows, lines - up * inside, columns - left * inside)
        images = images.transpose(0, 2, 3, 1)[source].transpose(0, 3, 1, 2)
    return softened(images, sigma)


def softened(images: np.ndarray, sigma: float) -> np.ndarray:
    return gaussian_filter(images / 255, (0, 0, sigma, sigma), mode="nearest") * 255


def motion_blur(images: np.ndarray, rng: Generator, radius: float, sigma: float) -> np.ndarray:
    """A streak within 45 degrees of the horizontal; each image has its own angle."""
    return streaks(images, radius, sigma, rng.uniform(-45, 45, len(images)))


def streaks(images: np.ndarray, radius: float, sigma: float, degrees: np.ndarray) -> np.ndarray:
    """Images blurred one way, each along its own angle, by half a Gaussian, in whole grey levels.

    As ImageMagick does it: each of 2 radius + 1 taps is the pixel nearest to its point on the ray,
    edge pixels are repeated beyond the edge, and the sum is truncated.
    """
    weights = tap_weights(radius, sigma)
    reach = len(weights) - 1
    paths, path_of = pixel_paths(degrees, len(weights))
    border = [(0, 0), (0, 0), (reach, reach), (reach, reach)]
    padded = np.pad(images, border, mode="edge").astype(np.float32)
    result = np.zeros(images.shape, np.float32)
    height, width = images.shape[2:]
    for path, steps in enumerate(paths):
        rows = np.flatnonzero(path_of == path)
        block = padded[rows]
        for weight, (down, right) in zip(weights, steps + reach, strict=True):
            result[rows] += weight * block[:, :, down : down + height, right : right + width]
    return np.floor(result + 1e-3)  # a flat area keeps its level in spite of rounding


def tap_weights(radius: float, sigma: float) -> np.ndarray:
    """Half a Gaussian, without the taps too faint to be seen."""
    taps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    total = weights.sum()
    return (weights[weights > FAINT * total] / total).astype(np.float32)


def pixel_paths(degrees: np.ndarray, taps: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct paths of pixels along these angles, (down, right) per tap; and which is whose.

    Angles that lead over the same pixels share a path, and are blurred together.
    """
    angle = np.deg2rad(degrees)
    rays = np.stack([np.sin(angle), np.cos(angle)])[..., None] * np.arange(taps)
    pixels = np.ceil(rays - 0.5).astype(int).transpose(1, 2, 0)
    paths, path_of = np.unique(pixels, axis=0, return_inverse=True)
    return paths, path_of.ravel()


def zoom_blur(images: np.ndarray, _: Generator, steps: int) -> np.ndarray:
    """The mean of the image, counted twice, and its enlargements by 1%, 2% ... `steps` %."""
    height, width = images.shape[2:]
    # A hair above whole percents, as published: 26 pixels x 1.25 round up
    factors = 1 + np.arange(1, steps + 1) * (1.01 - 1)
    total = 2 * csr_array(np.eye(height * width))
    for factor in factors:
        down = csr_array(zoom_lines(height, factor))
        across = csr_array(zoom_lines(width, factor))
        total = total + kron(down, across)
    mean = csr_array((total / (steps + 2)).astype(np.float32))
    flat = images.reshape(-1, height * width).astype(np.float32)
    return np.ascontiguousarray((mean @ flat.T).T).reshape(images.shape)


def zoom_lines(size: int, factor: float) -> np.ndarray:
    """The size x size matrix that enlarges the middle of a line of pixels by linear interpolation.

    It interpolates between the ends of a crop of whole pixels.
    """
    crop = math.ceil(size / factor)
    grown = round(crop * factor)
    first = (size - crop) // 2
    source = (np.arange(size) + (grown - size) // 2) * (crop - 1) / (grown - 1) + first
    return np.maximum(0, 1 - abs(source[:, None] - np.arange(size)))
