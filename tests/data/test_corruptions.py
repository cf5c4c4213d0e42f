"""Our corruptions against the published ones.

The first eight test images of CIFAR-10-C, every kind at every severity.
"""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import zoom

from maccal.data.corruptions import CORRUPTIONS, Corrupt
from maccal.data.corruptions.blurs import streaks, zoom_lines
from maccal.data.corruptions.digital import tilted
from maccal.data.corruptions.weather import LUMA, PANES, plasma

EXACT = ["defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"]
RANDOM = [kind for kind in CORRUPTIONS if kind not in EXACT]
DRAWS = 60

# Where the published elastic images of severity 1 have three points of the middle: displacements in
# pixels, found by least squares.
DISPLACED = [
    [2.40, -0.51, 1.42, 0.87, -1.10, -0.91],
    [-0.91, 1.88, 0.16, 0.44, -1.39, -2.07],
    [1.83, -2.30, 0.56, -2.18, -0.65, -1.27],
    [-0.84, -1.17, -2.04, -1.19, 0.70, 0.25],
    [1.96, -0.53, -0.17, -0.35, 1.81, 0.04],
    [-1.08, -0.64, 1.67, 0.48, -1.47, -2.44],
    [-0.08, 2.41, -0.06, -1.79, -0.38, 0.94],
    [-1.02, -0.19, -0.39, -1.07, 0.20, -1.27],
]


@pytest.fixture(scope="module")
def clean(shared):
    """The eight images uncorrupted, the first of a mosaic of lossless tiles."""
    with Image.open(shared / "data" / "cifar10-test_batch.webp") as mosaic:
        pixels = np.asarray(mosaic.convert("RGB"))[:32, : 8 * 32]
    return torch.from_numpy(pixels.reshape(32, 8, 32, 3).transpose(1, 3, 0, 2).copy())


@pytest.fixture(scope="module")
def published(shared):
    """Per kind, 5 x 8 x 3 x 32 x 32."""
    with np.load(shared / "data" / "cifar10c-sample.npz") as sample:
        return {kind: sample[kind].transpose(0, 1, 4, 2, 3) for kind in CORRUPTIONS}


@pytest.fixture(params=["ours", "published"])
def example(request, clean, published):
    """A function of kind and severity to eight images, ours or theirs.

    What holds for one must hold for the other.
    """
    if request.param == "ours":
        return lambda kind, severity: Corrupt(kind, severity)(clean).numpy()
    return lambda kind, severity: published[kind][severity - 1]


def noise_images(count, height=32, width=32):
    return torch.randint(
        0,
        256,
        (count, 3, height, width),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(3),
    )


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("kind", EXACT)
def test_within_a_grey_level(clean, published, kind, severity):
    difference = abs(
        Corrupt(kind, severity)(clean).numpy().astype(int) - published[kind][severity - 1]
    )
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.004


def correlation(a, b):
    axes = (-3, -2, -1)
    a, b = a - a.mean(axes, keepdims=True), b - b.mean(axes, keepdims=True)
    return (a * b).mean(axes) / np.sqrt((a * a).mean(axes) * (b * b).mean(axes) + 1e-9)


def slope(images):
    return abs(np.diff(images, axis=-1)).mean((-3, -2, -1)) + abs(np.diff(images, axis=-2)).mean(
        (-3, -2, -1)
    )


def statistics(images, clean):
    """Of ...

    X 8 images, the mean over the eight of ten statistics, most of them of what the corruption adds.
    """
    images, clean = images.astype(np.float32), clean.numpy().astype(np.float32)
    added, axes = images - clean, (-3, -2, -1)
    return np.stack(
        [
            *np.moveaxis(added.mean((-2, -1)), -1, 0),
            added.std(axes),
            correlation(added[..., 1:], added[..., :-1]),
            correlation(added[..., 1:, :], added[..., :-1, :]),
            correlation(added[..., :1, :, :], added[..., 2:, :, :]),
            (abs(added) <= 1).mean(axes),
            slope(images) / slope(clean),
            ((images == 0) | (images >= 254)).mean(axes),
        ],
        -1,
    ).mean(-2)


def deviations(kind, severity, clean, theirs):
    """How many of our standard deviations, over draws, their statistics are from our mean."""
    images = (
        Corrupt(kind, severity, seed=7)(clean.repeat(DRAWS, 1, 1, 1))
        .numpy()
        .reshape(DRAWS, *clean.shape)
    )
    ours = statistics(images, clean)
    return (statistics(theirs, clean) - ours.mean(0)) / np.maximum(ours.std(0), 1e-3)


@pytest.mark.parametrize("kind", RANDOM)
def test_the_published_images_could_be_ours(clean, published, kind):
    """Fifty statistics a kind, within 4.5 of our standard deviations, the mean square about 1.

    Another severity's are far off.
    """
    found = np.array(
        [
            deviations(kind, severity, clean, published[kind][severity - 1])
            for severity in range(1, 6)
        ]
    )
    assert abs(found).max() < 4.5
    assert (found**2).mean() < 2
    assert (deviations(kind, 2, clean, published[kind][4]) ** 2).mean() > 5


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_motion_blur_is_a_streak_at_some_angle(clean, example, severity):
    """Each image is, within a grey level, the clean one along an angle within 45 degrees."""
    angles = np.linspace(-45, 45, 361)
    for image, blurred in zip(clean.numpy(), example("motion_blur", severity), strict=True):
        tried = streaks(
            np.repeat(image[None], len(angles), 0),
            *CORRUPTIONS["motion_blur"].severities[severity - 1],
            angles,
        )
        difference = abs(tried - blurred)
        assert difference[difference.mean((1, 2, 3)).argmin()].max() <= 1


def test_elastic_is_the_affine_map(clean, published):
    """At severity 1 nothing else.

    A hundredth of a pixel in the displacements is worth some of the difference.
    """
    ours = np.floor(tilted(clean.numpy(), np.reshape(DISPLACED, (8, 3, 2))).numpy() * 255)
    difference = abs(ours - published["elastic_transform"][0])
    assert difference.mean() < 0.4
    assert (difference > 2).mean() < 0.01
    assert np.abs(DISPLACED).max() < 0.08 * 32


def test_glass_blur_copies_a_neighbour(clean, example):
    """At severity 1, where there is no filter, each pixel is one of four.

    The first two lines and columns stay.
    """
    before, after = clean.numpy(), example("glass_blur", 1)
    near = np.stack([np.roll(before, step, (2, 3)) for step in [(0, 0), (0, 1), (1, 0), (1, 1)]])
    assert (near == after).all(2).any(0)[:, 2:, 2:].all()
    assert (before == after)[:, :, :2].all()
    assert (before == after)[:, :, :, :2].all()
    assert 0.2 < (near == after).all(2)[3].mean() < 0.5


@pytest.mark.parametrize("severity", range(1, 6))
def test_values_noise_can_take(clean, example, severity):
    """Impulses are black or white; shot noise has the levels of so many photons."""
    before, after = clean.numpy(), example("impulse_noise", severity)
    assert set(np.unique(after[before != after])) <= {0, 255}
    (photons,) = CORRUPTIONS["shot_noise"].severities[severity - 1]
    levels = np.floor(np.arange(photons + 1) / photons * 255)
    assert np.isin(example("shot_noise", severity), levels).all()


@pytest.mark.parametrize("severity", range(1, 6))
def test_snow_falls_twice(clean, example, severity):
    """What is added to the pale image is grey, never below zero, and the same upside down."""
    x, keep = clean.numpy() / 255, CORRUPTIONS["snow"].severities[severity - 1][-1]
    pale = keep * x + (1 - keep) * np.maximum(x, (x * LUMA).sum(1, keepdims=True) * 1.5 + 0.5)
    after = example("snow", severity)
    added = np.where(after < 255, after - pale * 255, np.nan)
    assert np.nanmin(added) > -1.01
    assert np.nanmax(abs(added - added[:, :1])) < 1.01
    assert np.nanmax(abs(added - added[:, :, ::-1, ::-1])) < 1.01


@pytest.mark.parametrize("severity", range(1, 6))
def test_fog_is_plasma_from_0_to_1(clean, example, severity):
    x, (amount, _) = clean.numpy() / 255, CORRUPTIONS["fog"].severities[severity - 1]
    brightest = x.max((1, 2, 3), keepdims=True)
    haze = ((example("fog", severity) + 0.5) / 255 * (brightest + amount) / brightest - x) / amount
    error = 0.51 / 255 * (1 + amount) / amount / brightest.min()
    assert np.ptp(haze, 1).max() < 2 * error
    np.testing.assert_allclose(haze.min((1, 2, 3)), 0, atol=error)
    np.testing.assert_allclose(haze.max((1, 2, 3)), 1, atol=error)


def test_the_registry():
    assert list(CORRUPTIONS)[::7] == ["gaussian_noise", "snow", "jpeg_compression"]
    assert len(CORRUPTIONS) == 15
    for row in CORRUPTIONS.values():
        assert len(set(row.severities)) == 5
        assert len({len(parameters) for parameters in row.severities}) == 1
    with pytest.raises(FrozenInstanceError):
        row.severities = ()


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_the_same_seed_the_same_bits(kind):
    """Another seed or image, other bits, where there is chance at all.

    The input and the global generators stay as they are.
    """
    image = noise_images(1, 64, 64) // 2 + 60
    images, states = (
        image.repeat(3, 1, 1, 1),
        (np.random.get_state()[1].copy(), torch.get_rng_state()),  # noqa: NPY002
    )
    kept = images.clone()
    first, again, other = (Corrupt(kind, 3, seed)(images) for seed in (5, 5, 6))
    assert first.dtype == torch.uint8
    assert first.shape == images.shape
    assert torch.equal(first, again)
    assert (
        torch.equal(first, other)
        == torch.equal(first[0], first[1])
        == torch.equal(first[1], first[2])
        == (kind in EXACT)
    )
    assert not torch.equal(first, images)
    assert torch.equal(images, kept)
    assert (np.random.get_state()[1] == states[0]).all()  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[1])


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_any_size_and_count(kind):
    assert Corrupt(kind, 5)(noise_images(2, 40, 24)).shape == (2, 3, 40, 24)
    assert Corrupt(kind, 5)(noise_images(1, 8, 8)).shape == (1, 3, 8, 8)
    assert Corrupt(kind, 5)(noise_images(0)).shape == (0, 3, 32, 32)
    turned = noise_images(2).permute(0, 1, 3, 2)
    assert torch.equal(Corrupt(kind, 5)(turned), Corrupt(kind, 5)(turned.contiguous()))


def test_more_images_change_nothing_before_them():
    """From one block of 500 to the next the generator goes on."""
    images = noise_images(1, 8, 8).repeat(1100, 1, 1, 1)
    whole = Corrupt("gaussian_noise", 3)(images)
    assert torch.equal(whole[:1000], Corrupt("gaussian_noise", 3)(images[:1000]))
    assert not torch.equal(whole[:500], whole[500:1000])


def test_severities_draw_independently():
    """The noise of one severity says nothing about that of the next."""
    images = torch.full((20, 3, 32, 32), 128, dtype=torch.uint8)
    first, second = (
        Corrupt("gaussian_noise", severity)(images).numpy().ravel() for severity in (1, 2)
    )
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(first.size)


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in CORRUPTIONS
        if "blur" in kind or kind in ("elastic_transform", "pixelate", "contrast")
    ],
)
def test_a_flat_image_stays(kind):
    images = torch.tensor([0, 77, 255], dtype=torch.uint8)[:, None, None, None].expand(3, 3, 32, 32)
    for severity in range(1, 6):
        assert (Corrupt(kind, severity)(images).int() - images.int()).abs().max() <= 1


def test_by_hand():
    """Brightness keeps the ratio of the channels; contrast halves distances from the mean."""
    colours = torch.tensor([[200, 100, 50], [0, 0, 0], [250, 125, 0]], dtype=torch.uint8)[
        :, :, None, None
    ].expand(3, 3, 8, 8)
    raised = Corrupt("brightness", 2)(colours)[:, :, 0, 0]
    # 225.5 / 200 and 255 / 250, truncated
    assert raised.tolist() == [[225, 112, 56], [25, 25, 25], [255, 127, 0]]
    halves = torch.tensor([100, 200], dtype=torch.uint8).repeat_interleave(4).expand(1, 3, 8, 8)
    assert Corrupt("contrast", 2)(halves)[0, 0, 0].tolist() == [125] * 4 + [175] * 4


def test_a_streak_by_hand():
    """At 0 degrees a white pixel goes to the left, by half a Gaussian; at 90, up."""
    image = np.zeros((2, 1, 9, 9), np.uint8)
    image[:, :, 6, 6] = 250
    right, down = streaks(image, 2, 1, np.array([0.0, 90.0]))[:, 0]
    weights = np.exp(-(np.arange(5) ** 2) / 2)
    expected = np.floor(250 * weights / weights.sum())
    assert right[6, 6:1:-1].tolist() == down[6:1:-1, 6].tolist() == expected.tolist()
    assert right.sum() == down.sum() == expected.sum()


@pytest.mark.parametrize("factor", [1, 1.01, 1.13, 1.25, 1.75, 2.25])
@pytest.mark.parametrize("size", [32, 64, 25])
def test_zoom_is_scipys(size, factor):
    line = np.random.default_rng(0).random(size)
    crop = int(np.ceil(size / factor))
    start = (size - crop) // 2
    grown = zoom(line[start : start + crop], factor, order=1)
    trim = (len(grown) - size) // 2
    np.testing.assert_allclose(
        zoom_lines(size, factor) @ line, grown[trim : trim + size], atol=1e-12
    )


def test_plasma():
    """From 0 to 1 each.

    The slower the offsets fall, the larger the last of them, between neighbours.
    """
    rng = np.random.default_rng(0)
    smooth, rough = plasma(200, 32, 3, rng), plasma(200, 32, 1.75, rng)
    for maps in (smooth, rough):
        assert (maps.min((1, 2)) == 0).all()
        assert (maps.max((1, 2)) == 1).all()
    between = [
        maps[:, 1::2, 2::2] - (maps[:, 1::2, 1:-1:2] + maps[:, 1::2, 3::2]) / 2
        for maps in (smooth, rough)
    ]
    assert 2 * between[0].std() < between[1].std()


def test_frost_has_the_colours_of_its_panes():
    """On black, the mean over many images is the mean colour of the panes.

    Red varies most, among them teal.
    """
    ice = (
        Corrupt("frost", 5)(torch.zeros(2000, 3, 32, 32, dtype=torch.uint8)).double().mean((2, 3))
        / 0.45
    )
    expected = torch.tensor([pane.colour for pane in PANES]).double().mean(0)
    assert (ice.mean(0) - expected).abs().max() < 5
    assert ice[:, 0].std() > ice[:, 1].std() > 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("haze", 1), "no corruption 'haze'; the corruptions are gaussian_noise, shot_noise"),
        (("fog", 0), "severity 0; pass a whole number from 1 to 5"),
        (("fog", 6), "severity 6"),
        (("fog", 2.0), "severity 2.0"),
        (("fog", 1, -1), "seed -1; pass a whole number, 0 or more"),
        (("fog", 1, 0.5), "seed 0.5"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Corrupt(*arguments)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            torch.zeros(2, 3, 32, 32),
            "images are torch.float32; pass a uint8 tensor of grey levels, before normalisation",
        ),
        (np.zeros((2, 3, 32, 32), np.uint8), "images are ndarray; pass a uint8 tensor"),
        (torch.zeros(3, 32, 32, dtype=torch.uint8), "images are 3 x 32 x 32; pass N x 3 x H x W"),
        (torch.zeros(2, 32, 32, 3, dtype=torch.uint8), "images are 2 x 32 x 32 x 3"),
        (torch.zeros(2, 1, 32, 32, dtype=torch.uint8), "images are 2 x 1 x 32 x 32"),
        (torch.zeros(2, 3, 4, 32, dtype=torch.uint8), "at least 8 x 8 pixels"),
    ],
)
def test_wrong_images(images, message):
    with pytest.raises(ValueError, match=message):
        Corrupt("fog", 1)(images)
