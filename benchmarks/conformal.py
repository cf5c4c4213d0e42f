"""Conformal sets here, in MAPIE and in TorchCP: the same sets, and how long they take.

    python benchmarks/conformal.py          needs MAPIE and torchcp, which are in no extra

Agreement: a linear classifier of the pixels of CIFAR-10 and CIFAR-100, its probabilities of the
10,000 test images in float64; fitted on the even rows, measured on the odd ones, at 90 %. The share
of rows whose set is the same as ours where the definition is; else coverage and size.
Speed: 50,000 made-up rows in float32 to fit on and the same to predict, all in one run, in seconds
of one core (the processor's time, as other work on the machine would stretch the clock's), the
median of three where it takes less than two.
Writes results/conformal.json and results/conformal.md.

TorchCP cannot be imported without torchsort, which does not build without CUDA, and which only its
loss for training uses. Where torchsort is missing an empty module stands in for it.
"""

import json
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

import maccal as mc
from maccal.io import write

PROJECT = Path(__file__).parent.parent
COVERAGE = 0.9
ROWS = 50_000
CLASSES = (10, 100, 1000)
SLOW = 2.0  # seconds; what takes longer is timed once
Predict = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, np.ndarray], Predict]
Row = dict[str, Any]


def ours(method: str, **choices: Any) -> Fit:
    def fit(probs: np.ndarray, labels: np.ndarray) -> Predict:
        made = mc.ConformalSets(method, COVERAGE, **choices)  # type: ignore[arg-type]
        return made.fit(probs, labels).predict

    return fit


def mapie(score: str, last: bool | str | None = None) -> Fit:
    """MAPIE wants an estimator; this one gives back the probabilities that it is given."""

    def fit(probs: np.ndarray, labels: np.ndarray) -> Predict:
        from mapie.classification import SplitConformalClassifier

        params = None if last is None else {"include_last_label": last}
        made = SplitConformalClassifier(
            passing(probs.shape[1]), COVERAGE, score, prefit=True, random_state=0
        )
        made.conformalize(probs, labels)
        return lambda new: made.predict_set(new, params)[1][:, :, 0]

    return fit


def passing(classes: int) -> Any:
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Passing(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        def fit(self, x: np.ndarray, y: np.ndarray) -> Any:
            self.classes_ = np.arange(classes)
            self.n_features_in_ = classes
            return self

        def predict_proba(self, x: np.ndarray) -> np.ndarray:
            return x

        def predict(self, x: np.ndarray) -> np.ndarray:
            return np.asarray(x.argmax(1))

    return Passing().fit(np.empty(0), np.empty(0))


def torchcp(score: str, **choices: Any) -> Fit:
    def fit(probs: np.ndarray, labels: np.ndarray) -> Predict:
        from torchcp.classification import score as scores
        from torchcp.classification.predictor import SplitPredictor

        function = getattr(scores, score)(score_type="identity", **choices)
        made = SplitPredictor(function, alpha=1 - COVERAGE, device=torch.device("cpu"))
        made.calculate_threshold(torch.from_numpy(probs), torch.from_numpy(labels))
        return lambda new: made.predict_with_logits(torch.from_numpy(new)).bool().numpy()

    return fit


RAPS = {"penalty": 0.01, "kreg": 5}
# By method: who has our definition, so that sets can be the same; and who makes them, ours first
RACES: dict[str, tuple[tuple[str, ...], dict[str, Fit]]] = {
    "THR": (
        ("MAPIE", "TorchCP"),
        {"maccal": ours("thr"), "MAPIE": mapie("lac"), "TorchCP": torchcp("LAC")},
    ),
    "APS, deterministic": (
        ("TorchCP",),
        {
            "maccal": ours("aps", randomised=False),
            "MAPIE": mapie("aps", False),
            "TorchCP": torchcp("APS", randomized=False),
        },
    ),
    "APS, randomised": (
        (),
        {
            "maccal": ours("aps"),
            "MAPIE": mapie("aps", "randomized"),
            "TorchCP": torchcp("APS", randomized=True),
        },
    ),
    "RAPS, deterministic": (
        ("TorchCP",),
        {
            "maccal": ours("raps", randomised=False),
            "TorchCP": torchcp("RAPS", randomized=False, **RAPS),
        },
    ),
    "RAPS, randomised": (
        (),
        {"maccal": ours("raps"), "TorchCP": torchcp("RAPS", randomized=True, **RAPS)},
    ),
}


def pixels(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the test images, and their labels, by a linear classifier of pixels."""
    data = mc.load(name)
    assert data.train is not None
    torch.manual_seed(0)
    layer = torch.nn.Linear(3072, len(data.classes))
    optimiser = torch.optim.Adam(layer.parameters(), 1e-3)
    for _ in range(3):
        for rows in torch.randperm(len(data.train)).split(500):
            x = data.train.images[rows].flatten(1).float() / 255 - 0.5
            loss = torch.nn.functional.cross_entropy(layer(x), data.train.labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        logits = layer(data.test.images.flatten(1).float() / 255 - 0.5)
    return logits.double().softmax(1).numpy(), data.test.labels.numpy()


def agreement(name: str) -> list[Row]:
    probs, labels = pixels(name)
    rows = []
    for method, (alike, packages) in RACES.items():
        found = {}
        for package, fit in packages.items():
            found[package] = fit(probs[::2], labels[::2])(probs[1::2])
        for package, sets in found.items():
            numbers = mc.set_summary(sets, labels[1::2])
            same = float((sets == found["maccal"]).all(1).mean())
            kept = {key: numbers[key] for key in ("coverage", "size", "empty")}
            shared = same if package in alike else None
            rows.append({"data": name, "method": method, "package": package, "same": shared} | kept)
    return rows


def seconds(fit: Fit, probs: np.ndarray, labels: np.ndarray) -> float:
    """Of fitting and predicting, on one core."""
    times: list[float] = []
    while len(times) < 3:
        start = time.process_time()
        fit(probs, labels)(probs)
        times.append(time.process_time() - start)
        if times[-1] > SLOW:
            break
    return statistics.median(times)


def speed(classes: int) -> list[Row]:
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=ROWS)
    logits = rng.normal(size=(ROWS, classes)).astype(np.float32)
    logits[np.arange(ROWS), labels] += 4
    probs = mc.softmax(2 * logits)
    rows = []
    for method, (_, packages) in RACES.items():
        for package, fit in packages.items():
            try:
                taken: float | None = seconds(fit, probs, labels)
            except MemoryError:
                taken = None
            row = {"classes": classes, "method": method, "package": package, "seconds": taken}
            rows.append(row)
            print(row, flush=True)
    return rows


def page(agreed: list[Row], timed: list[Row], packages: str) -> str:
    lines = [
        "# Conformal sets, here and elsewhere",
        "",
        f"`python benchmarks/conformal.py`, {packages}; one thread. Linear classifiers of pixels, "
        "fitted on 5,000 test images and measured on 5,000 others, asked for 90 %. "
        "Chance moves a coverage by up to 1.2 points, nineteen times in twenty.",
        "",
        "| data | method | package | same sets as ours | coverage | mean size | empty |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for row in agreed:
        same = "" if row["same"] is None else f"{100 * row['same']:.2f} %"
        numbers = f"{100 * row['coverage']:.2f} % | {row['size']:.3f} | {100 * row['empty']:.2f} %"
        head = f"{row['data']} | {row['method']} | {row['package']}"
        lines.append(f"| {head} | {same} | {numbers} |")
    lines += [
        "",
        "A share stands where the definition is ours, so that only rounding could differ. "
        "Randomised sets draw other random numbers. MAPIE fits APS on randomised scores also where "
        "the prediction has no random numbers (`include_last_label=False`, above): threshold and "
        "sets are then of two definitions, and may cover less than was asked for. MAPIE's "
        "RAPS sets a part of the rows aside to tune itself, and is not compared.",
        "",
        f"Seconds of one core to fit on {ROWS:,} rows and predict as many:",
        "",
        f"| method | package | {' | '.join(f'{c:,} classes' for c in CLASSES)} |",
        f"|---|---|{'---:|' * len(CLASSES)}",
    ]
    for method, (_, makers) in RACES.items():
        for package in makers:
            own = [r for r in timed if (r["method"], r["package"]) == (method, package)]
            cells = [f"{r['seconds']:.3f}" if r["seconds"] else "memory" for r in own]
            lines.append(f"| {method} | {package} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    if find_spec("torchsort") is None:
        stand_in: Any = types.ModuleType("torchsort")
        stand_in.soft_rank = stand_in.soft_sort = None
        sys.modules["torchsort"] = stand_in
    agreed = [*agreement("cifar10"), *agreement("cifar100")]
    for row in agreed:
        print(row, flush=True)
    timed = []
    for classes in CLASSES:
        timed += speed(classes)
    versions = {name: version(name) for name in ("MAPIE", "torchcp", "torch", "numpy")}
    words = ", ".join(f"{name} {number}" for name, number in versions.items())
    record = {"versions": versions, "agreement": agreed, "speed": timed}
    write(PROJECT / "results" / "conformal.json", json.dumps(record, indent=1) + "\n")
    write(PROJECT / "results" / "conformal.md", page(agreed, timed, words))


if __name__ == "__main__":
    main()
