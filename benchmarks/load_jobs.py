"""The jobs of load.py, run by a process with one version of the package, which answers requests on
its standard input.
"""

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

PEERS = ["scikit-learn", "netcal", "probmetrics", "torch-uncertainty"]
PARTS = {  # functions of the package whose time is shown, of either version
    "read the file": ["predictions.py:read"],
    "probabilities, top label, classes": [
        "summaries.py:of_logits",
        "inputs.py:top_label",
        "bins.py:of_classes",
    ],
    "NLL and Brier of the rows": ["scores.py:row_scores", "softmaxes.py:score_rows"],
    "two temperatures": ["temperature.py:best", "scores.py:best_log_scale"],
    "top-label numbers": ["summaries.py:top_label_metrics"],
    "resampling": ["resampling.py:resample"],
    "null bands of NLL and Brier": ["scores.py:null_scores"],
    "interval of classwise ECE": ["summaries.py:classwise_interval"],
    "bins of the diagram": ["predictions.py:bins"],
    "page": ["evaluation.py:evaluation_page", "__init__.py:evaluation_page"],
}
Job = Callable[[], Any]


def data(rows: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of an overconfident classifier that is right about three times in four, and labels."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(classes, (rows,), generator=generator)
    logits = torch.randn(rows, classes, generator=generator)
    logits[torch.arange(rows), labels] += math.sqrt(2 * math.log(classes)) + 1
    return 2.5 * logits, labels


def load_jobs(rows: int, classes: int) -> dict[str, Job]:
    from maccal.metrics import ece, summary, top_label

    logits, labels = data(rows, classes)
    probs = logits.softmax(1)
    edges = torch.linspace(0, 1, 16)[1:-1]

    def plain() -> float:
        confidence, predicted = probs.max(1)
        index = torch.bucketize(confidence, edges, right=True)
        hits, total = (
            torch.bincount(index, x.double(), minlength=15)
            for x in (predicted == labels, confidence)
        )
        return float((hits - total).abs().sum() / len(probs))

    return {
        "read": lambda: float(probs.sum()),
        "plain": plain,
        "ece": lambda: ece(*top_label(probs, labels)),
        "summary of probs": lambda: summary(probs, labels)["brier_refinement"],
        "summary of logits": lambda: summary(logits=logits, labels=labels)["brier_refinement"],
    }


def stream_jobs(rows: int, classes: int) -> dict[str, Job]:
    from maccal.metrics import Stream

    logits, labels = data(rows, classes)
    probs = logits.softmax(1)
    return {
        "stream of probs": lambda: Stream.of(probs, labels).fine.n,
        "stream of logits": lambda: Stream.of(logits=logits, labels=labels).fine.n,
    }


def fit_jobs(rows: int, classes: int) -> dict[str, Job]:
    from maccal import TemperatureScaling

    logits, labels = data(rows, classes)
    z, y = logits.numpy(), labels.numpy()

    def scikit_learn() -> float:
        # what CalibratedClassifierCV(method="temperature") fits
        from sklearn.calibration import _TemperatureScaling

        return float(1 / _TemperatureScaling().fit(z, y).beta_)

    def netcal() -> float:
        from netcal.scaling import TemperatureScaling as Scaling

        return float(1 / Scaling().fit(probs, y).temperature[0])

    def probmetrics() -> float:
        from probmetrics.calibrators import get_calibrator
        from probmetrics.distributions import CategoricalLogits

        made = get_calibrator("temp-scaling")
        made.fit_torch(CategoricalLogits(logits), labels)
        return float(1 / made.invtemp_)

    def torch_uncertainty() -> float:
        from torch_uncertainty.post_processing import TemperatureScaler

        made = TemperatureScaler()
        made.fit([(logits, labels)], progress=False)
        return float(made.temperature[0])

    probs = logits.softmax(1).numpy()
    jobs = {
        "read": lambda: float(logits.sum()),
        "maccal": lambda: TemperatureScaling().fit(logits, labels).temperature_,
    }
    return jobs | dict(
        zip(PEERS, (scikit_learn, netcal, probmetrics, torch_uncertainty), strict=True)
    )


KINDS = {"load": load_jobs, "stream": stream_jobs, "fit": fit_jobs}


def evaluate(file: Path, out: Path) -> None:
    """Through the command line, whose words are the same in versions with other modules."""
    from maccal.__main__ import main

    before = sys.argv
    sys.argv = ["maccal", "evaluate", str(file), "--out", str(out)]
    try:
        main()
    finally:
        sys.argv = before


def profiled(file: str) -> dict[str, float]:
    """CPU seconds of `maccal evaluate`, and of its parts."""
    import cProfile
    import pstats

    profile = cProfile.Profile(time.process_time)
    with tempfile.TemporaryDirectory() as out:
        tiny = Path(out, "tiny.npz")
        np.savez(tiny, probs=np.full((10, 2), 0.5), labels=np.zeros(10, int))
        evaluate(tiny, Path(out))  # so that all is imported
        profile.runcall(evaluate, Path(file), Path(out))
    stats: Any = pstats.Stats(profile)
    spent = {}
    for (name, _, function), row in stats.stats.items():
        spent[f"{Path(name).name}:{function}"] = row[3]
    parts = {"whole": stats.total_tt}
    for part, names in PARTS.items():
        parts[part] = max(spent.get(name, 0.0) for name in names)
    return parts


def work() -> None:
    """Answer requests on standard input until it ends.

    A kind and a size make the jobs, a name runs one.
    """
    torch.set_num_threads(1)
    # a peer imports torchvision, whose wheel does not load without CUDA
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    answers, sys.stdout = sys.stdout, sys.stderr
    jobs: dict[str, Job] = {}
    for line in sys.stdin:
        kind, *rest = json.loads(line)
        reply: Any = None
        if kind == "run":
            start, cpu = time.perf_counter(), time.process_time()
            try:
                value = jobs[rest[0]]()
                spent = time.process_time() - cpu
                reply = {"seconds": time.perf_counter() - start, "cpu": spent, "value": value}
            except ImportError:
                reply = {"seconds": math.nan, "value": math.nan}
        elif kind == "profile":
            reply = profiled(rest[0])
        else:
            jobs = {}
            jobs = KINDS[kind](*rest)
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    work()
