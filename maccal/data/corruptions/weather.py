"""Snow, frost and fog of CIFAR-C, of whole batches.

Each takes uint8 images N x 3 x H x W, a generator and its parameters, and gives grey levels as
floats, for the caller to clip and truncate. Snow and fog follow the published recipe. The published
frost is a crop of one of five photographs of ice, which are not ours to ship. Here each image has a
pane of fractal noise of its own, with the colours, contrast, skewness and grain of those
photographs.
"""

from dataclasses import dataclass

import numpy as np
from scipy import fft

from maccal.data.corruptions.blurs import Generator, streaks, zoom_lines

LUMA = np.array([0.299, 0.587, 0.114])[:, None, None]


@dataclass(frozen=True)
class Pane:
    """A kind of ice on a window."""

    colour: tuple[float, float, float]  # mean grey levels of red, green, blue
    contrast: tuple[float, float, float]  # their standard deviations
    skewness: float  # above 0: bright crystals on a dark ground
    slope: float  # the amplitude is frequency ** -slope: a larger slope is smoother


PANES = (
    Pane((194, 198, 207), (20, 20, 21), -1.0, 0.65),  # white rime
    Pane((202, 206, 216), (19, 19, 20), -1.0, 0.75),  # white rime, thicker
    Pane((82, 147, 162), (24, 15, 13), 0.5, 0.85),  # teal, lit from behind
    Pane((91, 103, 115), (31, 31, 31), 0.6, 0.55),  # needles on a dark window
    Pane((142, 156, 168), (26, 26, 27), -0.2, 0.55),  # grey-blue flakes
)


def snow(
    images: np.ndarray,
    rng: Generator,
    mean: float,
    spread: float,
    zoom: float,
    least: float,
    radius: float,
    sigma: float,
    keep: float,
) -> np.ndarray:
    """Flakes blurred along their fall, on an image that keeps the share `keep` of its colour.

    The flakes are added twice, the second time upside down.
    """
    count, _, height, width = images.shape
    noise = rng.normal(mean, spread, (count, height, width))
    flakes = zoom_lines(height, zoom) @ noise @ zoom_lines(width, zoom).T
    flakes = np.floor(np.clip(np.where(flakes < least, 0, flakes), 0, 1) * 255)
    fall = streaks(flakes[:, None], radius, sigma, rng.uniform(-135, -45, (count,))) / 255
    x = images / 255
    pale = np.maximum(x, (x * LUMA).sum(1, keepdims=True) * 1.5 + 0.5)
    return (keep * x + (1 - keep) * pale + fall + fall[:, :, ::-1, ::-1]) * 255


def fog(images: np.ndarray, rng: Generator, amount: float, decay: float) -> np.ndarray:
    """Add plasma, and scale the sum so that the image's brightest level remains the limit."""
    x = images / 255
    brightest = x.max((1, 2, 3), keepdims=True)
    height, width = images.shape[2:]
    size = 1 << (max(height, width) - 1).bit_length()
    haze = plasma(len(images), size, decay, rng)[:, None, :height, :width]
    return (x + amount * haze) * brightest / (brightest + amount) * 255


def plasma(count: int, size: int, decay: float, rng: Generator) -> np.ndarray:
    """Diamond-square height maps, count x size x size, each from 0 to 1.

    The size is a power of two, and the maps wrap around. A new point is the mean of its four
    neighbours plus an offset, whose range falls by decay squared at every halving of the step.
    """
    grid = np.zeros((count, size, size))
    step = size
    reach = 100.0**2
    while step >= 2:
        half = step // 2
        corners = grid[:, ::step, ::step]
        centres = grid[:, half::step, half::step]
        pairs = corners + np.roll(corners, -1, 1)
        centres[:] = offset(pairs + np.roll(pairs, -1, 2), reach, rng)
        above = corners + np.roll(corners, -1, 2) + centres + np.roll(centres, 1, 1)
        beside = corners + np.roll(corners, -1, 1) + centres + np.roll(centres, 1, 2)
        grid[:, ::step, half::step] = offset(above, reach, rng)
        grid[:, half::step, ::step] = offset(beside, reach, rng)
        step = half
        reach /= decay**2
    grid -= grid.min((1, 2), keepdims=True)
    return grid / grid.max((1, 2), keepdims=True)


def offset(sums: np.ndarray, reach: float, rng: Generator) -> np.ndarray:
    return sums / 4 + rng.uniform(-reach, reach, sums.shape)


def frost(images: np.ndarray, rng: Generator, keep: float, amount: float) -> np.ndarray:
    """The share `keep` of the image plus `amount` of a pane of ice, one of five kinds by chance."""
    which = rng.integers(len(PANES), size=len(images))
    ice = np.empty(images.shape)
    for kind, pane in enumerate(PANES):
        rows = np.flatnonzero(which == kind)
        grain = crystals(len(rows), images.shape[2], images.shape[3], pane, rng)
        colour = np.reshape(pane.colour, (3, 1, 1))
        contrast = np.reshape(pane.contrast, (3, 1, 1))
        ice[rows] = colour + contrast * grain
    return keep * images + amount * np.clip(ice, 0, 255)


def crystals(count: int, height: int, width: int, pane: Pane, rng: Generator) -> np.ndarray:
    """Fractal noise, count x 1 x height x width, of mean 0, variance 1 and the pane's skewness."""
    shape = (2 * height, 2 * width)  # cropped afterwards, so that the noise does not wrap around
    frequency = np.hypot(fft.fftfreq(shape[0])[:, None], fft.rfftfreq(shape[1]))
    gain = np.maximum(frequency, 1 / max(shape)) ** -pane.slope
    gain /= np.sqrt(fft.irfft2(gain**2, s=shape)[0, 0])  # white noise keeps its variance of 1
    noise = rng.standard_normal((count, *shape), np.float32)
    whole = fft.irfft2(fft.rfft2(noise) * gain.astype(np.float32), s=shape)
    field = whole[:, None, :height, :width]
    # exp(bend * field) is lognormal, with a skewness of nearly 3 bend
    bend = pane.skewness / 3
    deviation = np.sqrt(np.expm1(bend**2) * np.exp(bend**2))
    return np.sign(bend) * (np.exp(bend * field) - np.exp(bend**2 / 2)) / deviation
