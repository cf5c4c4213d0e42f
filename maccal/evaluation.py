"""Beyond the test images: can the confidence tell other data apart, and does it stay right when images get worse.

    ood(inside, {"svhn": outside})       out-of-distribution detection: AUROC and FPR95 of every set, and their mean
    shift(network, test, pixels)         accuracy, ECE and NLL under 15 corruptions at 5 severities, made here
    published_shift(network, 10, ...)    the same of the published CIFAR-10-C and CIFAR-100-C
    ood_run, shift_run                   of the folder of a run; extend_row puts what they return into its row.json

In-distribution is the positive class. Each set is scored against the in-distribution rows and nothing else: in the code that the
paper builds on, the first set's rows are still among them when the second is scored. ECE has 15 bins throughout, and each mean
over corruptions is divided by their number.

Cost: 75 times the prediction of the test images, and up to five seconds for each 10,000 to corrupt.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn

from maccal.data import Split, load
from maccal.data.cifar_c import FOLDERS, SEVERITIES, opened, part
from maccal.data.corruptions import CORRUPTIONS, Corrupt
from maccal.data.downloads import data_root
from maccal.data.pixels import PIXELS, Pixels
from maccal.data.split import stratified
from maccal.io import FileError
from maccal.metrics import Bins, auroc, energy, fpr95, max_logit, max_softmax, negative_entropy, nll, top_label
from maccal.metrics.inputs import Array, check_logits
from maccal.metrics.resampling import centred
from maccal.parallel import held, my_rank
from maccal.results import write_row
from maccal.runs import PARTS, load_run, predictions_of, read_config, run_of
from maccal.training import predict

Cells = Iterator[tuple[str, int, Split]]

# A score is high inside. The first is the paper's, and has no prefix
SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "": lambda logits: max_softmax(logits.softmax(1)),
    "entropy_": lambda logits: negative_entropy(logits.softmax(1)),
    "max_logit_": max_logit,
    "energy_": energy,
}


def ood(inside: Array, outside: Mapping[str, Array], *, resamples: int = 1000, seed: int = 0) -> dict[str, dict[str, float]]:
    """How well the confidence tells each set of `outside` from `inside`, all logits of the same network; and the sets' "mean".

    By the largest probability `auroc` and `fpr95`, with bootstrap intervals `_low` and `_high`; by other scores `entropy_auroc`,
    `max_logit_auroc`, `energy_auroc` and the like. The rows of a set have no influence on the numbers of another.
    """
    if not outside or "mean" in outside or resamples < 1:
        raise ValueError("pass at least one set of logits, none of them named 'mean', and at least one resample")
    own, others = scores_of(inside), {name: scores_of(logits) for name, logits in outside.items()}
    if len(widths := {len(inside[0]), *(len(logits[0]) for logits in outside.values())}) > 1:
        raise ValueError(f"logits of {' and '.join(map(str, sorted(widths)))} classes; all sets must go through the same network")
    result = {name: separations(own, scores) for name, scores in others.items()}
    result["mean"] = {key: float(np.mean([numbers[key] for numbers in result.values()])) for key in next(iter(result.values()))}
    draws = {name: redrawn(own[""], scores[""], name, resamples, seed) for name, scores in others.items()}
    draws["mean"] = np.mean(list(draws.values()), 0)
    for name, numbers in result.items():
        for key, column in zip(("auroc", "fpr95"), draws[name].T, strict=True):
            numbers[f"{key}_low"], numbers[f"{key}_high"] = centred(numbers[key], column)
    return result


def scores_of(logits: Array) -> dict[str, np.ndarray]:
    """Every score of every row, in float64: in float32 the surest rows would all tie at 1."""
    exact = check_logits(logits).double().cpu()
    return {name: score(exact).numpy() for name, score in SCORES.items()}


def separations(own: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {f"{name}{rate.__name__}": rate(own[name], other[name]) for name in SCORES for rate in (auroc, fpr95)}


def redrawn(inside: np.ndarray, outside: np.ndarray, name: str, resamples: int, seed: int) -> np.ndarray:
    """AUROC and FPR95 (columns) of resamples (rows), each sample drawn by itself.

    All sets see the same draws of `inside`, so that the mean over sets has an interval too; a set's own come from its name.
    """
    levels, place = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    samples = np.split(place, [len(inside)])
    lots = np.random.default_rng(seed), np.random.default_rng([seed, crc32(name.encode())])

    def counts(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.bincount(rows[rng.integers(len(rows), size=len(rows))], minlength=len(levels))

    return np.array([rates(counts(samples[0], lots[0]), counts(samples[1], lots[1])) for _ in range(resamples)])


def rates(inside: np.ndarray, outside: np.ndarray, tpr: float = 0.95) -> tuple[float, float]:
    """What metrics.auroc and metrics.fpr95 say, from the counts at each score, ascending: ten times faster in a bootstrap."""
    passed, fooled = (np.concatenate([[0.0], counts[::-1].cumsum() / counts.sum()]) for counts in (inside, outside))
    place = max(1, int(np.searchsorted(passed, tpr)))
    fpr = np.interp(tpr, passed[place - 1 : place + 1], fooled[place - 1 : place + 1])
    return float(inside @ (outside.cumsum() - outside / 2) / (inside.sum() * outside.sum())), float(fpr)


def ood_run(
    folder: Path, sets: Sequence[str], root: Path | str | None = None, *, limit: int | None = None, resamples: int = 1000,
    seed: int = 0, device: torch.device | str = "cpu",
) -> dict[str, dict[str, float]]:  # fmt: skip
    """What `ood` says of a run: its test images against those of other data sets, normalised as its own are.

    `limit` keeps so many test images of every set. The sets' images must have the size of the run's, and other classes.
    """
    config = read_config(folder)
    if wrong := [name for name in sets if name not in PIXELS or name == config.data]:
        choice = ", ".join(name for name in PIXELS if name != config.data)
        raise ValueError(f"{wrong[0]} is not out of distribution for a run on {config.data}; choose among {choice}")
    own, said = load(config.data, root).test, predictions_of(folder)
    inside = said.scores[rows_of(said.labels, limit)]
    network = load_run(folder, said.scores.shape[1]).to(device)
    outside = {name: other(name, root, own.images, limit) for name in sets}
    logits = {name: predict(network, images, PIXELS[config.data]) for name, images in outside.items()}
    return ood(inside, logits, resamples=resamples, seed=seed)


def other(name: str, root: Path | str | None, own: Tensor, limit: int | None) -> Tensor:
    """The test images of a set, if a network for images like `own` can see them."""
    test = load(name, root).test
    if test.images.shape[1:] != own.shape[1:]:
        sizes = (" x ".join(map(str, images.shape[1:])) for images in (test.images, own))
        raise ValueError("images of {} are {}, those of the run {}; choose a set of the same size".format(name, *sizes))
    return test.rows(rows_of(test.labels.numpy(), limit)).images


def rows_of(labels: np.ndarray, limit: int | None) -> np.ndarray:
    """All rows, or `limit` of them, every class in its share: the same ones every time."""
    if limit is None:
        return np.arange(len(labels))
    return np.sort(stratified(labels, min(limit, len(labels)), np.random.default_rng(1)))


def shift(
    network: nn.Module, split: Split, pixels: Pixels, *, kinds: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES, seed: int = 1, limit: int | None = None, progress: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Accuracy, ECE and NLL of a network under corruptions of these images, made here, one corruption and severity at a time.

    `accuracy`, `ece` and `nll` are kinds x severities. Over severities: `ece_mean`, the mean over corruptions (as the paper's
    figure), and `ece_pooled`, that of all their rows together. `overall` has the means of the cells and, `ece_pooled`, the ECE of
    all rows; `ece_pooled_mean` is the mean of ece_pooled over severities. `limit` keeps so many images, every class in its share.
    """
    names, levels = checked(kinds, severities)
    chosen = split.rows(rows_of(split.labels.numpy(), limit))
    images = chosen.images.expand(-1, 3, -1, -1)  # one channel is shown three times, as Pixels does
    cells = ((kind, level, Split(Corrupt(kind, level, seed)(images), chosen.labels)) for kind in names for level in levels)
    return {"source": "made", "seed": seed} | measured(network, cells, pixels, names, levels, progress)


def published_shift(
    network: nn.Module, classes: int, root: Path | str | None, pixels: Pixels, *, kinds: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES, limit: int | None = None, progress: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The same numbers from the published files of CIFAR-10-C or CIFAR-100-C below root, all checked before the first is read.

    `limit` keeps so many images of each corruption and severity. FileError where the file of a corruption is missing.
    """
    names, levels = checked(kinds, severities)
    if classes not in FOLDERS:
        raise ValueError(f"no published corruptions of a data set of {classes} classes; only of cifar10 and cifar100")
    files, labels = opened(classes, data_root(root), None)
    if missing := [kind for kind in names if kind not in files]:
        raise FileError(data_root(root) / FOLDERS[classes], f"no {missing[0]}.npy; download the set again, or choose other kinds")
    whole = ((kind, level, part(files[kind], labels, level)) for kind in names for level in levels)
    cells = ((kind, level, split.rows(rows_of(split.labels.numpy(), limit))) for kind, level, split in whole)
    return {"source": "published"} | measured(network, cells, pixels, names, levels, progress)


def checked(kinds: Sequence[str] | None, severities: Sequence[int]) -> tuple[list[str], list[int]]:
    """Each once, in the order given; ValueError for what is not known, before any image is touched."""
    names, levels = list(dict.fromkeys(CORRUPTIONS if kinds is None else kinds)), list(dict.fromkeys(severities))
    if not names or not levels:
        raise ValueError("no corruption or no severity; leave kinds and severities out for all of them")
    for kind, level in [(kind, levels[0]) for kind in names] + [(names[0], level) for level in levels]:
        Corrupt(kind, level)
    return names, levels


def measured(
    network: nn.Module, cells: Cells, pixels: Pixels, kinds: list[str], severities: list[int], progress: bool
) -> dict[str, Any]:
    """The numbers of every cell; what is kept of its rows are their sums."""
    sums: dict[tuple[str, int], Bins] = {}
    losses: dict[tuple[str, int], float] = {}
    quiet = not progress or my_rank()[0] > 0
    for kind, level, split in track(cells, "corruptions", total=len(kinds) * len(severities), disable=quiet, transient=True):
        logits = predict(network, split.images, pixels)
        sums[kind, level] = Bins.of(*top_label(logits.double().softmax(1), split.labels))
        losses[kind, level] = nll(logits=logits, labels=split.labels)
    return pooled(sums, losses, kinds, severities)


def pooled(
    sums: Mapping[tuple[str, int], Bins], losses: Mapping[tuple[str, int], float], kinds: list[str], severities: list[int]
) -> dict[str, Any]:
    def table(value: Callable[[tuple[str, int]], float]) -> np.ndarray:
        return np.array([[value((kind, level)) for level in severities] for kind in kinds])

    cells = {
        "accuracy": table(lambda cell: float(sums[cell].correct.sum() / sums[cell].n)),
        "ece": table(lambda cell: sums[cell].ece()),
        "nll": table(lambda cell: losses[cell]),
    }
    by_severity = [sum((sums[kind, level] for kind in kinds), Bins.empty()) for level in severities]
    together = np.array([bins.ece() for bins in by_severity])
    overall = {name: float(values.mean()) for name, values in cells.items()}
    overall |= {"ece_pooled": sum(by_severity, Bins.empty()).ece(), "ece_pooled_mean": float(together.mean())}
    about = {"n": by_severity[0].n // len(kinds), "kinds": kinds, "severities": severities}
    return about | cells | {"ece_mean": cells["ece"].mean(0), "ece_pooled": together, "overall": overall}


def shift_run(
    folder: Path, root: Path | str | None = None, *, published: bool = False, device: torch.device | str = "cpu", **choices: Any
) -> dict[str, Any]:
    """What `shift` says of a run's test images or, if `published`, `published_shift` of the -C files; `choices` are theirs."""
    config = read_config(folder)
    data, pixels = load(config.data, root), PIXELS[config.data]
    network = load_run(folder, len(data.classes)).to(device)
    if not published:
        return shift(network, data.test, pixels, **choices)
    if config.data not in ("cifar10", "cifar100"):
        raise ValueError(f"no published corruptions of {config.data}; leave published out to make them")
    return published_shift(network, len(data.classes), root, pixels, **choices)


def extend_row(folder: Path, **parts: Mapping[str, Any]) -> Path:
    """Put "ood" and "shift" numbers into the run's row.json, which keeps all else; a part that is there is replaced whole."""
    if unknown := set(parts) - set(PARTS):
        raise ValueError(f"no part {min(unknown)!r} of a row; the parts are {', '.join(PARTS)}")
    with held(folder):
        return write_row(folder / "row.json", run_of(folder)[1] | plain_parts(parts))


def plain_parts(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of a row as JSON has them, arrays as lists."""
    plain: dict[str, Any] = json.loads(json.dumps(parts, allow_nan=False, default=np.ndarray.tolist))
    return plain
