"""Out of distribution and under shift.

Goldens, loops by hand, sets that leave each other alone, and runs end to end.
"""

import json
import shutil
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product

import numpy as np
import pytest
import torch
from goldens import model, outside
from scipy.io import savemat
from torch import nn

from maccal.data import DataSet, load
from maccal.data.corruptions import CORRUPTIONS, Corrupt
from maccal.data.pixels import CIFAR, PIXELS
from maccal.data.readers import read_cifar_c
from maccal.data.split import Split, stratified
from maccal.evaluation.ood import ood, rates
from maccal.evaluation.row import read_row
from maccal.evaluation.shift import published_shift, shift
from maccal.io import FileError
from maccal.metrics import (
    accuracy,
    auroc,
    bootstrap,
    ece,
    energy,
    fpr95,
    max_logit,
    max_softmax,
    nll,
    softmax,
    top_label,
)
from maccal.runs import Config, extend_row, load_run, make_run, ood_run, predictions_of, shift_run
from maccal.training import predict
from maccal.training.recipe import RECIPES

KINDS = ["fog", "contrast"]
# the room gives its function the name of the module, so the module is asked for by its path
SHIFT = import_module("maccal.evaluation.shift")
BEYOND = import_module("maccal.runs.beyond")


def logits_of(count, sure, seed, classes=10):
    """Logits that are the surer the larger `sure` is."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 1, (count, classes))
    return noise + sure * np.eye(classes)[rng.integers(classes, size=count)]


def test_golden():
    found = ood(model()[0], {"waves": outside()}, resamples=200)["waves"]
    assert found["auroc"] == pytest.approx(0.926333, abs=5e-7)
    assert found["fpr95"] == pytest.approx(0.286667, abs=5e-7)
    assert found["entropy_auroc"] == pytest.approx(0.967167, abs=5e-7)
    assert found["auroc_low"] < found["auroc"] < found["auroc_high"]
    assert found["fpr95_low"] < found["fpr95"] < found["fpr95_high"]


def test_every_score():
    inside, other = logits_of(300, 4, 0), logits_of(200, 1, 1)
    found = ood(inside, {"other": other}, resamples=10)["other"]
    assert found["max_logit_auroc"] == auroc(max_logit(inside), max_logit(other))
    assert found["energy_fpr95"] == fpr95(energy(inside), energy(other))
    assert found["auroc"] == auroc(max_softmax(softmax(inside)), max_softmax(softmax(other)))
    pairs = product(("", "entropy_", "max_logit_", "energy_"), ("auroc", "fpr95"))
    expected = [prefix + rate for prefix, rate in pairs]
    limits = ["auroc_low", "auroc_high", "fpr95_low", "fpr95_high"]
    assert sorted(found) == sorted(expected + limits)
    tensors = {"other": torch.from_numpy(other)}
    assert ood(torch.from_numpy(inside), tensors, resamples=10)["other"] == found


def test_sets_leave_each_other_alone():
    """Published code scores the second set against the in-distribution rows and the first set's."""
    inside = logits_of(300, 5, 0)
    easy = logits_of(200, 0, 1)
    hard = logits_of(250, 4, 2)
    both = ood(inside, {"easy": easy, "hard": hard}, resamples=50)
    assert both["easy"] == ood(inside, {"easy": easy}, resamples=50)["easy"]
    assert both["hard"] == ood(inside, {"hard": hard}, resamples=50)["hard"]
    assert ood(inside, {"hard": hard, "easy": easy}, resamples=50)["hard"] == both["hard"]
    mixed = np.concatenate([easy, hard])
    contaminated = auroc(max_softmax(softmax(inside)), max_softmax(softmax(mixed)))
    assert abs(both["hard"]["auroc"] - contaminated) > 0.1


def test_mean_of_the_sets():
    inside = logits_of(300, 5, 0)
    sets = {"easy": logits_of(200, 0, 1), "hard": logits_of(250, 4, 2)}
    found = ood(inside, sets, resamples=300)
    for name in ("auroc", "fpr95", "entropy_auroc", "energy_fpr95"):
        assert found["mean"][name] == pytest.approx((found["easy"][name] + found["hard"][name]) / 2)
    widths = {name: numbers["auroc_high"] - numbers["auroc_low"] for name, numbers in found.items()}
    assert 0 < widths["mean"] < widths["hard"]
    alone = ood(inside, {"hard": sets["hard"]}, resamples=50)
    assert alone["mean"] == alone["hard"]


def test_perfect_separation():
    """Also where float32 would give all rows a confidence of 1."""
    inside = np.array([[25, 0, -1]], np.float32).repeat(40, 0)
    other = np.array([[20, 0, -1]], np.float32).repeat(40, 0)
    found = ood(inside, {"other": other}, resamples=20)["other"]
    assert (found["auroc"], found["auroc_low"], found["auroc_high"]) == (1, 1, 1)
    assert (found["fpr95"], found["fpr95_low"], found["fpr95_high"]) == (0, 0, 0)


def test_no_separation():
    found = ood(logits_of(4000, 3, 0), {"same": logits_of(4000, 3, 1)}, resamples=200)["same"]
    assert found["auroc"] == pytest.approx(0.5, abs=0.02)
    assert found["fpr95"] == pytest.approx(0.95, abs=0.02)
    assert found["auroc_low"] < 0.5 < found["auroc_high"]


@pytest.mark.parametrize("levels", [3, 1000])
def test_rates_from_counts(levels):
    """With many ties and with few, they are the public metrics."""
    rng = np.random.default_rng(levels)
    for _ in range(20):
        inside = rng.integers(levels, size=30) + 0.0
        other = rng.integers(levels, size=50) * 0.8 // 1
        counts = [np.bincount(scores.astype(int), minlength=levels) for scores in (inside, other)]
        assert rates(*counts) == pytest.approx((auroc(inside, other), fpr95(inside, other)))


def test_intervals_are_those_of_the_bootstrap():
    """As metrics.bootstrap, which draws rows of both samples together."""
    inside, other = logits_of(600, 3, 0), logits_of(500, 1, 1)
    found = ood(inside, {"other": other}, resamples=600)["other"]
    scores = np.concatenate([max_softmax(softmax(x)) for x in (inside, other)])
    low, high = bootstrap(
        lambda s, own: auroc(s[own], s[~own]), scores, np.arange(1100) < 600, resamples=600
    )
    assert found["auroc_low"] == pytest.approx(low, abs=0.006)
    assert found["auroc_high"] == pytest.approx(high, abs=0.006)


def test_wrong_logits():
    inside = logits_of(20, 3, 0)
    with pytest.raises(ValueError, match="at least one set"):
        ood(inside, {})
    with pytest.raises(ValueError, match="none of them named 'mean'"):
        ood(inside, {"mean": inside})
    with pytest.raises(
        ValueError, match="logits of 10 and 100 classes; all sets must go through the same network"
    ):
        ood(inside, {"other": logits_of(20, 3, 0, classes=100)})
    with pytest.raises(ValueError, match="row 3 holds nan"):
        ood(inside, {"other": np.where(np.arange(20)[:, None] == 3, np.nan, inside)})


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    net = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 10))
    net[2].weight.data *= 4
    return net


@pytest.fixture(scope="module")
def images(network):
    """Random blocks of colour; two in three of the labels are what the network says."""
    blocks = torch.randint(
        256, (90, 3, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )
    whole = blocks.repeat_interleave(8, 2).repeat_interleave(8, 3)
    said = predict(network, whole, CIFAR).argmax(1)
    return Split(whole, torch.where(torch.arange(90) % 3 == 0, torch.arange(90) % 10, said))


def by_hand(network, cells):
    """Loops over the cells, with every row kept."""
    rows = {}
    for kind, severity, split in cells:
        with torch.no_grad():
            logits = network.eval()(CIFAR(split.images))
        rows[kind, severity] = logits.double(), split.labels
    return rows


def check_shift(found, rows, kinds, severities):
    """Every number of a result against the rows themselves."""

    def error(pairs):
        return ece(
            *top_label(
                torch.cat([logits for logits, _ in pairs]).softmax(1),
                torch.cat([y for _, y in pairs]),
            )
        )

    for i, kind in enumerate(kinds):
        for j, severity in enumerate(severities):
            logits, y = rows[kind, severity]
            assert found["ece"][i, j] == pytest.approx(error([(logits, y)]), abs=1e-9)
            assert found["accuracy"][i, j] == accuracy(logits.softmax(1), y)
            assert found["nll"][i, j] == pytest.approx(nll(logits=logits, labels=y), rel=1e-5)
    for j, severity in enumerate(severities):
        assert found["ece_mean"][j] == pytest.approx(
            np.mean([found["ece"][i, j] for i in range(len(kinds))])
        )
        assert found["ece_pooled"][j] == pytest.approx(
            error([rows[kind, severity] for kind in kinds]), abs=1e-9
        )
    assert found["overall"]["ece_pooled"] == pytest.approx(error(list(rows.values())), abs=1e-9)
    assert found["overall"]["ece_pooled_mean"] == pytest.approx(found["ece_pooled"].mean())
    for name in ("accuracy", "ece", "nll"):
        assert found["overall"][name] == pytest.approx(found[name].mean())


def test_shift_by_hand(network, images):
    found = shift(network, images, CIFAR, kinds=KINDS, severities=(1, 3, 5), seed=4)
    cells = []
    for kind, severity in product(KINDS, (1, 3, 5)):
        worse = Corrupt(kind, severity, 4)(images.images)
        cells.append((kind, severity, Split(worse, images.labels)))
    check_shift(found, by_hand(network, cells), KINDS, (1, 3, 5))
    assert (found["kinds"], found["severities"]) == (KINDS, [1, 3, 5])
    assert (found["n"], found["source"]) == (90, "made")
    # else pooling is not tested
    assert found["overall"]["ece_pooled"] != pytest.approx(found["overall"]["ece"], abs=1e-3)


def test_all_corruptions(network, images):
    found = shift(network, images, CIFAR, limit=20, progress=True)
    assert found["kinds"] == list(CORRUPTIONS)
    assert found["ece"].shape == (15, 5)
    assert found["n"] == 20
    rows = np.sort(stratified(images.labels.numpy(), 20, np.random.default_rng(1)))
    assert np.bincount(images.labels[rows], minlength=10) == pytest.approx(
        np.bincount(images.labels) * 20 / 90, abs=1
    )
    again = shift(network, images.rows(rows), CIFAR, kinds=["snow"])
    assert again["nll"][0].tolist() == found["nll"][list(CORRUPTIONS).index("snow")].tolist()


def test_one_cell_at_a_time(network, images, monkeypatch):
    """Each corruption is made when the one before it has been measured."""
    events = []
    corrupt = Corrupt.__call__

    def made(self, x):
        events.append("made")
        return corrupt(self, x)

    def seen(*arguments):
        events.append("seen")
        return predict(*arguments)

    monkeypatch.setattr(Corrupt, "__call__", made)
    monkeypatch.setattr(SHIFT, "predict", seen)
    shift(network, images, CIFAR, kinds=KINDS, severities=[1, 2])
    assert events == ["made", "seen"] * 4


def test_a_cache_changes_nothing_and_saves_the_making(network, images, tmp_path, monkeypatch):
    """The second network is shown the files of the first; images are told apart by their bytes."""
    choices = {"kinds": KINDS, "severities": [1, 5], "limit": 30}
    alone = shift(network, images, CIFAR, **choices)
    first = shift(network, images, CIFAR, cache=tmp_path, **choices)
    made = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/*.images")}
    assert len(made) == 2 * len(KINDS)
    monkeypatch.setattr(Corrupt, "__call__", None)  # nothing may be made now
    second = shift(network, images, CIFAR, cache=tmp_path, **choices)
    for name, value in alone.items():
        np.testing.assert_equal(first[name], value)
        np.testing.assert_equal(second[name], value)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("*/*.images")} == made
    monkeypatch.undo()
    shift(network, images, CIFAR, cache=tmp_path, **{**choices, "limit": 31})
    assert len(list(tmp_path.glob("*/*.images"))) == 4 * len(KINDS)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture
def cifar_c(tmp_path, images):
    """The published layout, filled with corruptions of our own making."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    for kind in KINDS:
        made = torch.cat([Corrupt(kind, severity)(images.images) for severity in range(1, 6)])
        np.save(folder / f"{kind}.npy", made.permute(0, 2, 3, 1).numpy())
    np.save(folder / "labels.npy", images.labels.repeat(5).numpy().astype(np.uint8))
    return tmp_path


def test_published_files(network, images, cifar_c):
    found = published_shift(network, 10, cifar_c, CIFAR, kinds=KINDS)
    made = shift(network, images, CIFAR, kinds=KINDS)
    assert found.pop("source") == "published"
    for name, value in found.items():
        np.testing.assert_equal(value, made[name])
    cells = []
    for kind, severity in product(KINDS, range(1, 6)):
        cells.append((kind, severity, read_cifar_c(10, cifar_c, kind, severity).test))
    check_shift(found, by_hand(network, cells), KINDS, range(1, 6))
    # contrast draws nothing at random
    few = {"kinds": ["contrast"], "severities": [2], "limit": 20}
    found = published_shift(network, 10, cifar_c, CIFAR, **few)
    made = shift(network, images, CIFAR, **few)
    for name in ("n", "accuracy", "ece", "nll"):
        assert found[name] == made[name]


def test_published_files_that_are_not_there(network, cifar_c):
    with pytest.raises(
        FileError,
        match=r"CIFAR-10-C: no gaussian_noise.npy; download the set again, or choose other kinds",
    ):
        published_shift(network, 10, cifar_c, CIFAR)
    with pytest.raises(FileError, match="no folder CIFAR-100-C"):
        published_shift(network, 100, cifar_c, CIFAR)
    with pytest.raises(ValueError, match="no published corruptions of a data set of 200 classes"):
        published_shift(network, 200, cifar_c, CIFAR)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"kinds": ["saturate"]}, "no corruption 'saturate'; the corruptions are gaussian_noise"),
        ({"kinds": ["fog", "rain"]}, "no corruption 'rain'"),
        ({"severities": [1, 6]}, "severity 6; pass a whole number from 1 to 5"),
        ({"kinds": []}, "no corruption or no severity"),
        ({"severities": []}, "no corruption or no severity"),
        ({"limit": 0}, "0 of 90 images asked for"),
    ],
)
def test_wrong_choices(network, images, monkeypatch, choices, message):
    """Before any image is looked at."""
    monkeypatch.setattr(SHIFT, "predict", None)
    with pytest.raises(ValueError, match=message):
        shift(network, images, CIFAR, **choices)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    config = Config("digits", "resnet8", "vanilla", 1, None, replace(RECIPES["digits"], epochs=1))
    return make_run(config, runs=tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(digits, tmp_path):
    return shutil.copytree(digits, tmp_path / "runs" / digits.name)


@pytest.mark.slow
def test_shift_of_a_run(digits):
    """Grey images are corrupted as if they had three channels: so the network sees them."""
    found = shift_run(digits, kinds=KINDS, severities=[2, 4], limit=100)
    test, net = load("digits").test, load_run(digits, 10)
    rows = np.sort(stratified(test.labels.numpy(), 100, np.random.default_rng(1)))
    worse = Corrupt("contrast", 4)(test.rows(rows).images.expand(-1, 3, -1, -1))
    logits = predict(net, worse, PIXELS["digits"])
    assert found["nll"][1, 1] == pytest.approx(
        nll(logits=logits, labels=test.rows(rows).labels), rel=1e-5
    )
    assert found["accuracy"].shape == (2, 2)
    with pytest.raises(
        ValueError, match="no published corruptions of digits; leave published out to make them"
    ):
        shift_run(digits, published=True)


@pytest.mark.parametrize("published", [None, True, False])
def test_published_files_are_taken_where_they_are(digits, tmp_path, monkeypatch, published):
    """By default the folder of CIFAR-10-C decides; asked for and missing, it is an error."""
    calls = []
    config = Config("cifar10", "resnet8", "vanilla", 1, None, RECIPES["cifar10"])
    monkeypatch.setattr(BEYOND, "read_config", lambda folder: config)
    data = DataSet(None, None, None, tuple("0123456789"))
    monkeypatch.setattr(BEYOND, "load", lambda *words: data)
    monkeypatch.setattr(BEYOND, "load_run", lambda folder, classes: nn.Linear(1, 1))
    for name in ("shift", "published_shift"):
        note = partial(lambda name, *words, **choices: calls.append(name), name)
        monkeypatch.setattr(BEYOND, name, note)
    shift_run(digits, tmp_path, published=published)
    (tmp_path / "CIFAR-10-C").mkdir()
    shift_run(digits, tmp_path, published=published)
    asked = {True: "published_shift", False: "shift"}
    assert calls == [asked.get(published, "shift"), asked.get(published, "published_shift")]


def test_sets_of_another_size_are_refused(digits, tmp_path):
    pictures = np.zeros((32, 32, 3, 4), np.uint8)
    savemat(
        tmp_path / "test_32x32.mat", {"X": pictures, "y": np.array([[1], [2], [3], [10]], np.uint8)}
    )
    found = "images of svhn are 3 x 32 x 32, those of the run 1 x 8 x 8"
    with pytest.raises(ValueError, match=f"{found}; choose a set of the same size"):
        ood_run(digits, ["svhn"], tmp_path)


@pytest.mark.parametrize("name", ["digits", "mnist", "cifar10-c"])
def test_sets_that_are_not_out_of_distribution(digits, name):
    problem = f"{name} is not out of distribution for a run on digits"
    with pytest.raises(ValueError, match=f"{problem}; choose among cifar10, cifar100, svhn"):
        ood_run(digits, ["svhn", name])


def test_rows_are_extended(run):
    before = read_row(run / "row.json")
    found = shift_run(run, kinds=["fog"], severities=[1, 2], limit=50)
    extend_row(run, shift=found)
    extend_row(run, ood={"svhn": {"auroc": 0.9}})
    row = read_row(run / "row.json")
    assert replace(row, ood=None, shift=None) == before
    assert row.shift["ece"] == found["ece"].tolist()
    assert row.shift["overall"] == found["overall"]
    extend_row(run, ood={"cifar10": {"auroc": 0.8}})
    assert json.loads((run / "row.json").read_text())["ood"] == {"cifar10": {"auroc": 0.8}}
    assert not list(run.glob(".*.part"))


def test_rows_that_cannot_be_extended(run):
    before = (run / "row.json").read_bytes()
    with pytest.raises(ValueError, match="no part 'ece' of a row; the parts are ood, shift"):
        extend_row(run, ece={})
    with pytest.raises(ValueError, match="JSON compliant"):
        extend_row(run, ood={"svhn": {"auroc": float("nan")}})
    assert (run / "row.json").read_bytes() == before
    (run / "row.json").write_text("half a ro")
    with pytest.raises(FileError, match=r"row\.json: not JSON .* it is damaged"):
        extend_row(run, ood={})
    (run / "row.json").unlink()
    with pytest.raises(FileError, match=r"no row\.json: the training has not ended"):
        extend_row(run, ood={})


def fewer(data, count):
    """A data set with so many images in each part."""
    parts = (part and part.rows(np.arange(count)) for part in (data.train, data.val, data.test))
    return DataSet(*parts, data.classes)


def test_a_real_run(real, tmp_path, monkeypatch):
    """CIFAR-10 against SVHN and CIFAR-100, all of them normalised as CIFAR-10 is."""
    whole = load("cifar10", real)
    monkeypatch.setattr("maccal.runs.making.load", lambda *words, **choices: fewer(whole, 300))
    config = Config("cifar10", "resnet8", "vanilla", 1, None, replace(RECIPES["cifar10"], epochs=1))
    folder = make_run(config, runs=tmp_path, root=real)
    found = ood_run(folder, ["svhn", "cifar100"], real, limit=200, resamples=50)
    own = predictions_of(folder)
    net = load_run(folder, 10)
    inside = own.scores[np.sort(stratified(own.labels, 200, np.random.default_rng(1)))]
    others = {}
    for name in ("svhn", "cifar100"):
        test = load(name, real).test
        rows = np.sort(stratified(test.labels.numpy(), 200, np.random.default_rng(1)))
        others[name] = predict(net, test.rows(rows).images, CIFAR)
    assert found == ood(inside, others, resamples=50)
    extend_row(folder, ood=found)
    assert json.loads((folder / "row.json").read_text())["ood"]["mean"] == found["mean"]
    with pytest.raises(
        ValueError, match="images of tiny-imagenet are 3 x 64 x 64, those of the run 3 x 32 x 32"
    ):
        ood_run(folder, ["tiny-imagenet"], real)
    with pytest.raises(FileError, match="no folder CIFAR-10-C"):
        shift_run(folder, real, published=True)
