"""The reliability diagram: what is prepared, and what is drawn from it."""

import numpy as np
import pytest
from pictures import saved
from scipy.stats import binom, binomtest

from maccal import reliability
from maccal.metrics import Bins, ece, resampling, softmax, top_label
from maccal.report.diagrams import (
    LEVEL,
    Z,
    plot_reliability,
    prepare_model,
    prepare_reliability,
    quantile,
)
from maccal.report.keep import plot_keep, prepare_keep
from maccal.report.look import Theme

rng = np.random.default_rng(0)
LOGITS = rng.normal(size=(2000, 4)) * 2
LABELS = (softmax(LOGITS).cumsum(1) > rng.random((2000, 1))).argmax(1)
SHARP = softmax(3 * LOGITS)


def prepared(bins=15):
    return prepare_model(SHARP, LABELS, bins, "sharp", 0)


def test_empty_bins_are_left_out():
    diagram = prepared()
    assert diagram.low.min() >= 0.2  # four classes: no confidence below 1/4
    sums = Bins.of(*top_label(SHARP, LABELS))
    assert len(diagram.share) == (sums.count > 0).sum()
    assert diagram.share.sum() == pytest.approx(1)


def test_the_bars_add_up_to_the_ece():
    diagram = prepared()
    assert (diagram.share * np.abs(diagram.accuracy - diagram.confidence)).sum() == pytest.approx(
        ece(*top_label(SHARP, LABELS))
    )
    assert diagram.numbers["ece_low"] < diagram.numbers["ece"] < diagram.numbers["ece_high"]


def test_bin_intervals_are_wilson_s():
    diagram = prepared()
    sums = Bins.of(*top_label(SHARP, LABELS))
    filled = sums.count > 0
    for place, (right, count) in enumerate(
        zip(sums.correct[filled], sums.count[filled], strict=True)
    ):
        expected = binomtest(int(right), int(count)).proportion_ci(method="wilson")
        assert diagram.accuracy_low[place] == pytest.approx(expected.low, abs=1e-12)
        assert diagram.accuracy_high[place] == pytest.approx(expected.high, abs=1e-12)


def test_null_steps_hold_calibrated_bins():
    """Of a calibrated model's bins about 95 of 100 lie on the grey.

    Of the sharp one's rows, few are in such bins.
    """
    inside = total = 0
    for seed in range(60):
        draw = np.random.default_rng(seed)
        confidence = draw.uniform(0.3, 1, 1500)
        diagram = prepare_reliability(Bins.of(confidence, draw.random(1500) < confidence), {})
        inside += (
            (diagram.null_low <= diagram.accuracy) & (diagram.accuracy <= diagram.null_high)
        ).sum()
        total += len(diagram.accuracy)
    assert 0.93 < inside / total < 0.99
    sharp = prepared()
    assert (
        sharp.share[(sharp.null_low <= sharp.accuracy) & (sharp.accuracy <= sharp.null_high)].sum()
        < 0.2
    )


def texts(figure):
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


@pytest.mark.slow
def test_one_model():
    figure = reliability(SHARP, LABELS)
    assert len(figure.axes) == 2
    numbers = prepared().numbers
    assert f"ECE {100 * numbers['ece']:.2f} %" in texts(figure)
    assert any(
        f"95 % interval {100 * numbers['ece_low']:.2f} to {100 * numbers['ece_high']:.2f} %" in t
        for t in texts(figure)
    )
    upper, lower = figure.axes
    # a grey step and a gap a bin, none for empty bins
    assert len(upper.patches) == 2 * len(prepared().share)
    assert sum(bar.get_height() for bar in lower.patches) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize(("models", "panels"), [(2, 4), (3, 6), (4, 8), (5, 12)])
def test_several_models_share_a_figure(models, panels):
    figure = reliability({f"model {i}": SHARP for i in range(models)}, LABELS, bins=10)
    assert len(figure.axes) == panels
    assert sum(axes.axison for axes in figure.axes) == 2 * models
    assert {f"model {i}" for i in range(models)} <= set(texts(figure))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_saves_everywhere(suffix, tmp_path):
    """In its own size, and with what is drawn in it: the number, and the colour of the bars."""
    figure = reliability(SHARP, LABELS)
    file = tmp_path / f"reliability.{suffix}"
    figure.savefig(file, dpi=100)
    picture = saved(file)
    assert picture.inches == pytest.approx(figure.get_size_inches(), abs=0.02)
    assert picture.words is None or f"ECE {100 * prepared().numbers['ece']:.2f} %" in picture.words
    assert Theme().over in picture.colours


def test_names_are_text_not_formulas(tmp_path):
    """A name with dollar signs is not typeset as mathematics, which could fail."""
    figure = reliability({r"$\frac{" + "<b>": SHARP}, LABELS)
    figure.savefig(tmp_path / "r.svg")
    assert r"$\frac{<b>" in texts(figure)


def luminance(colour):
    return (
        np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255 @ [0.2126, 0.7152, 0.0722]
    )


def test_colours_are_told_apart_in_print():
    """The grey band, the two marks and the paper differ in lightness as well as in hue."""
    theme = Theme()
    shades = sorted(luminance(c) for c in (theme.ink, theme.over, theme.band, theme.paper))
    assert min(np.diff(shades)) > 0.1
    assert luminance(theme.band) - luminance(theme.under) > 0.3


def test_a_single_row():
    figure = plot_reliability([prepare_model(np.array([[0.7, 0.3]]), np.array([0]), 15, "", 0)])
    assert "ECE 30.00 %" in texts(figure)


HISTORY = [
    {"epoch": 1, "keep": 0.5, "confidence": 0.9, "target": 0.7, "loss": 1.0},
    {"epoch": 2, "keep": 0.41, "confidence": 0.6, "target": 0.72, "loss": 0.8},
    {"epoch": 3, "keep": 0.45, "confidence": 0.73, "target": 0.73, "loss": 0.7},
]


def test_the_path_of_keep():
    path = prepare_keep(HISTORY, "run")
    assert path.name == "run"
    for key in ("epoch", "keep", "confidence", "target"):
        assert getattr(path, key).tolist() == [entry[key] for entry in HISTORY]


def test_the_path_as_drawn():
    """The lines are the arrays, the last keep is written out, and the gap is filled on either side
    of the crossing.
    """
    figure = plot_keep([prepare_keep(HISTORY, "run")], Theme())
    upper, lower = figure.axes
    target, confidence = (line.get_xydata().tolist() for line in upper.lines)
    assert target == [[1, 0.7], [2, 0.72], [3, 0.73]]
    assert confidence == [[1, 0.9], [2, 0.6], [3, 0.73]]
    assert lower.lines[0].get_xydata().tolist() == [[1, 0.5], [2, 0.41], [3, 0.45]]
    assert {"run", "45 %", "epoch", "weights kept"} <= set(texts(figure))
    above, below = (area.get_paths()[0].vertices[:, 0] for area in upper.collections)
    crossing = 1 + 0.2 / 0.32  # where the gap goes from 0.2 to -0.12
    assert (above.min(), above.max()) == pytest.approx((1, crossing))
    assert (below.min(), below.max()) == pytest.approx((crossing, 3))


def test_paths_side_by_side(tmp_path):
    path = prepare_keep(HISTORY, r"$\frac{")
    figure = plot_keep([path, path])
    assert len(figure.axes) == 4
    figure.savefig(tmp_path / "keep.svg")
    assert (tmp_path / "keep.svg").stat().st_size > 5000
    with pytest.raises(ValueError, match="4 paths of keep; a figure shows one to three"):
        plot_keep([path] * 4)


def test_the_quantile_is_that_of_scipy():
    """At every edge: few rows and many, sure and unsure."""
    count = np.repeat([1.0, 2, 3, 10, 66, 1000, 123_457, 5_000_000], 13)
    p = np.tile([0, 1e-300, 1e-9, 0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999, 1 - 1e-9, 1 - 1e-16, 1], 8)
    for q in (0.025, 0.975):
        assert np.array_equal(quantile(q, count, p), binom.ppf(q, count, p))


def test_the_level_is_that_of_the_intervals():
    assert (LEVEL, Z) == (resampling.LEVEL, resampling.Z)


@pytest.mark.parametrize("title", ["", "above"])
@pytest.mark.parametrize("models", [1, 2, 4])
def test_a_panel_is_as_wide_as_its_histogram(models, title):
    """So that a bin stands above its rows."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 400)
    probs, labels = np.stack([p, 1 - p], 1), (rng.random(400) > p).astype(int)
    figure = reliability({f"model {k}": probs for k in range(models)}, labels, title=title)
    figure.draw_without_rendering()
    edges = {}
    for axes in figure.axes:
        box = axes.get_window_extent()
        edges.setdefault(round(axes.get_subplotspec().colspan.start), []).append((box.x0, box.x1))
    for column in edges.values():
        assert np.ptp(np.array(column), axis=0) == pytest.approx(0, abs=0.5)
