"""Every public function with the cases for it and the range of its answers.

    CALLS    name -> a strategy of arguments, how to call it, the range of every number it answers
    QUIET    public names that are not called with odd input, and why

A test asserts that each public name of maccal and maccal.metrics stands in one of the two.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import nn

import maccal
from faults import cases
from faults.cases import Value
from maccal import metrics

ANY = (-math.inf, math.inf)
UNIT = (0.0, 1.0)
POSITIVE = (0.0, math.inf)
Range = tuple[float, float]


@dataclass(frozen=True)
class Call:
    """What is called; `arguments` gives a list of positional ones, `options` the others by name."""

    function: Callable[..., Any]
    arguments: st.SearchStrategy[tuple[Value, ...]]
    options: Mapping[str, st.SearchStrategy[Value]] = field(default_factory=dict)
    within: Range = ANY
    nan: bool = False  # whether the documentation says NaN
    share: float = 1.0
    # RuntimeError and long messages are the user's model's or scikit-learn's, and pass through
    foreign: bool = False


def numbers(answer: Any) -> Iterator[float]:
    """Every number of an answer, however nested."""
    if isinstance(answer, torch.Tensor):
        answer = answer.detach().double().numpy()
    if isinstance(answer, np.ndarray | np.generic):
        yield from np.asarray(answer, dtype=np.float64).ravel().tolist()
    elif isinstance(answer, Mapping):
        for value in documented(answer).values():
            yield from numbers(value)
    elif isinstance(answer, list | tuple):
        for value in answer:
            yield from numbers(value)
    elif isinstance(answer, bool | int | float):
        yield float(answer)


def documented(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Without the NaNs that a summary promises.

    No interval from one row, and nothing beside an infinite NLL.
    """
    endless = answer.get("nll") == math.inf
    found = {}
    for name, value in answer.items():
        promised = name.endswith(("_low", "_high")) or (
            endless and (name.startswith("nll") or name == "temperature")
        )
        if not (promised and isinstance(value, float) and math.isnan(value)):
            found[name] = value
    return found


def range_error(answer: Any, call: Call) -> str:
    """What is wrong with an answer, or nothing.

    Rounding may carry a number past its end by a little.
    """
    low, high = call.within
    for number in numbers(answer):
        if math.isnan(number):
            if not call.nan:
                return "NaN without a word"
        elif not low - 1e-6 <= number <= high + 1e-6:
            return f"{number:.6g} is outside {low:g} .. {high:g}"
    return ""


def one(strategy: st.SearchStrategy[tuple[Value, ...]]) -> st.SearchStrategy[tuple[Value, ...]]:
    """The first of a tuple alone."""
    return strategy.map(lambda values: values[:1])


def swapped(
    strategy: st.SearchStrategy[tuple[Value, Value]],
) -> st.SearchStrategy[tuple[Value, ...]]:
    """Two vectors of scores out of confidences: any numbers may be scores."""
    return st.tuples(strategy, strategy).map(lambda pairs: (loose(pairs[0][0]), loose(pairs[1][0])))


def loose(value: Value) -> Value:
    """What would be unsound elsewhere may be taken here."""
    return Value(value.value, True if value.sound else None, value.name)


def both_loose(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Nothing is known of these: sound values may have no answer here, too."""
    return tuple(Value(value.value, None, value.name) for value in values)


PROBS = cases.scores()
LOGITS = cases.scores(cases.LOGITS, (float("nan"), float("inf"), -float("inf")))
OUTCOMES = cases.outcomes()
# no infinite NLL
TWO = cases.scores((cases.dirichlet, cases.nearly_uniform, cases.ties, cases.same_row))
PAIR = TWO.map(lambda both: (both[0], both[0], both[1]))


def stream(probs: Any, labels: Any, **options: Any) -> Any:
    bins = {"bins": options.pop("bins")} if "bins" in options else {}
    half = metrics.Stream.of(probs, labels, **bins)
    return (half + half + metrics.Stream.empty(**bins)).summary(**options)


def binned(confidence: Any, correct: Any, bins: Any = 15) -> Any:
    found = metrics.Bins.of(confidence, correct, bins)
    return found.ece(), found.count, found.confidence, found.correct


def covered(confidence: Any, correct: Any, coverage: Any = 0.5) -> Any:
    return metrics.accuracy_at_coverage(confidence, correct, coverage)


def bootstrapped(confidence: Any, correct: Any, **options: Any) -> Any:
    return metrics.bootstrap(metrics.ece, confidence, correct, **options)


def fitted(name: str) -> Callable[[Any, Any], Any]:
    """Fits the post-hoc calibrator of this name and applies it."""

    def probabilities(logits: Any, labels: Any) -> Any:
        return getattr(maccal, name)().fit(logits, labels).predict_proba(logits)

    return probabilities


def drawn(probs: Any, labels: Any, **options: Any) -> None:
    import matplotlib.pyplot as plt

    maccal.reliability(probs, labels, **options)
    plt.close("all")


def head(z: Any, y: Any, **options: Any) -> Any:
    quick = maccal.Stage2(epochs=1, batch_size=16)
    made = maccal.calibrate_head(z, y, config=quick, **options)
    return made(torch.as_tensor(np.asarray(z), dtype=torch.float32))


def heads(z: Any, y: Any, **options: Any) -> Any:
    quick = maccal.Stage2(epochs=1, batch_size=16)
    return maccal.calibrate_heads(z, y, configs=[quick, quick], seeds=[1, 2], **options)[0].history


def estimator(z: Any, y: Any, **options: Any) -> Any:
    return maccal.MaCCalClassifier(epochs=1, **options).fit(z, y).predict_proba(z)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 10))


def extracted(x: Any, y: Any) -> Any:
    return maccal.extract(model(), [(x, y)])


def calibrated(x: Any, y: Any, **options: Any) -> Any:
    made = maccal.calibrate(
        model(), [(x, y)], config=maccal.Stage2(epochs=1), accuracy=0.5, **options
    )
    return list(made.parameters())


def found_head(x: Any) -> Any:
    return len(maccal.find_head(model(), x))


def predicted(probs: Any, labels: Any, **options: Any) -> Any:
    return maccal.Predictions(probs, "probs", labels).summary(resamples=5, **options)


# Any finite numbers may be features and any class a label, but from one row or one class there is
# nothing to learn
FEATURES = cases.scores(cases.LOGITS, (float("nan"), float("inf"))).map(both_loose)
INPUTS = cases.scores(cases.LOGITS, (float("nan"), float("inf")), classes=(10,)).map(both_loose)


WORDS = st.sampled_from(
    [
        "resnet8",
        "vanilla",
        "digits",
        "",
        "no such",
        "../x",
        "maccal",
        "a+b",
        "mixup+maccal",
        "\0",
        "ä" * 300,
    ]
)
NAME = WORDS.map(lambda word: (Value(word, None, repr(word)),))
NUMBERS = st.sampled_from(
    [0, 1, -1, 2, 10, 0.5, float("nan"), float("inf"), "x", None, True, 10**30, (0.5,), ("a",)]
)
SETTINGS = NUMBERS.map(lambda value: Value(value, None, repr(value)))


def compared_calibrators(logits: Any, labels: Any, **more: Any) -> list[float]:
    """Two of them, with few draws."""
    names = ["temperature", "isotonic"]
    found = maccal.compare_calibrators(logits, labels, names=names, resamples=20, **more)
    return [one.numbers["ece"] for one in found.candidates]


def settings(of: Any) -> st.SearchStrategy[tuple[Value, ...]]:
    """One or two settings of a config, any values."""
    names = sorted(each.name for each in dataclasses.fields(of))
    pairs = st.dictionaries(st.sampled_from(names), NUMBERS, min_size=1, max_size=2)
    return pairs.map(lambda values: (Value(values, None, repr(values)),))


WITH_BINS = {"bins": cases.BINS}
DRAWS = {"resamples": cases.RESAMPLES, "seed": cases.SEEDS}
CALLS: dict[str, Call] = {
    "accuracy": Call(metrics.accuracy, PROBS, within=UNIT),
    "accuracy_at_coverage": Call(covered, OUTCOMES, {"coverage": cases.SHARE}, UNIT),
    "aece": Call(metrics.aece, OUTCOMES, WITH_BINS, UNIT),
    "aurc": Call(metrics.aurc, OUTCOMES, within=UNIT),
    "auroc": Call(metrics.auroc, swapped(OUTCOMES), within=UNIT),
    "brier": Call(metrics.brier, PROBS, within=(0, 2)),
    "brier_split": Call(metrics.brier_split, PROBS, within=(-1e-6, math.inf), share=0.3),
    "classwise_ece": Call(metrics.classwise_ece, PROBS, WITH_BINS, UNIT),
    "compare": Call(metrics.compare, PAIR, {**WITH_BINS, **DRAWS}, share=0.3),
    "compare_calibrators": Call(
        compared_calibrators, LOGITS.map(both_loose), {"folds": cases.COUNT}, share=0.05
    ),
    "debiased_squared_ce": Call(metrics.debiased_squared_ce, OUTCOMES, WITH_BINS, (-1, 1)),
    "e_aurc": Call(metrics.e_aurc, OUTCOMES, within=UNIT),
    "ece": Call(metrics.ece, OUTCOMES, WITH_BINS, UNIT),
    "energy": Call(metrics.energy, one(LOGITS)),
    "fpr95": Call(metrics.fpr95, swapped(OUTCOMES), {"tpr": cases.RATE}, UNIT),
    "ks": Call(metrics.ks, OUTCOMES, within=UNIT),
    "max_logit": Call(metrics.max_logit, one(LOGITS)),
    "max_softmax": Call(metrics.max_softmax, one(PROBS), within=UNIT),
    "mce": Call(metrics.mce, OUTCOMES, {**WITH_BINS, "min_count": cases.COUNT}, UNIT, nan=True),
    "negative_entropy": Call(metrics.negative_entropy, one(PROBS), within=(-math.inf, 0)),
    "nll": Call(metrics.nll, PROBS, within=POSITIVE),
    "nll_split": Call(metrics.nll_split, PROBS, nan=True, share=0.3),
    "resample": Call(metrics.resample, OUTCOMES, {**WITH_BINS, **DRAWS}, share=0.5),
    "risk_curve": Call(metrics.risk_curve, OUTCOMES, within=UNIT),
    "smece": Call(metrics.smece, OUTCOMES, within=UNIT),
    "softmax": Call(metrics.softmax, one(LOGITS), within=UNIT),
    "summary": Call(metrics.summary, PROBS, WITH_BINS, share=0.5),
    "summary of logits": Call(lambda z, y: metrics.summary(logits=z, labels=y), LOGITS, share=0.3),
    "summary with intervals": Call(
        lambda p, y, **more: metrics.summary(p, y, interval=True, **more), PROBS, DRAWS, share=0.2
    ),
    "top_label": Call(metrics.top_label, PROBS, within=UNIT),
    "binary_summary": Call(metrics.binary_summary, OUTCOMES, WITH_BINS, nan=True, share=0.2),
    "by_class": Call(metrics.by_class, PROBS, {**WITH_BINS, **DRAWS}, nan=True, share=0.1),
    "ConformalSets": Call(
        lambda probs, labels: maccal.ConformalSets().fit(probs, labels).predict(probs),
        PROBS,
        within=UNIT,
        share=0.2,
    ),
    "AbstainingClassifier": Call(
        lambda probs, labels: maccal.AbstainingClassifier().fit(probs, labels).threshold_,
        PROBS,
        nan=True,
        share=0.2,
    ),
    "bootstrap": Call(
        bootstrapped, OUTCOMES.map(both_loose), {**DRAWS, "level": cases.LEVEL}, share=0.3
    ),
    "Bins": Call(binned, OUTCOMES, WITH_BINS),
    "Stream": Call(stream, PROBS, WITH_BINS, share=0.5),
    "Predictions": Call(predicted, PROBS, WITH_BINS, share=0.3),
    "reliability": Call(drawn, PROBS, WITH_BINS, share=0.02),
    "calibrate_head": Call(
        head,
        FEATURES,
        {"accuracy": SETTINGS, "classes": SETTINGS, "ceiling": SETTINGS, "seed": cases.SEEDS},
        share=0.3,
    ),
    "calibrate_heads": Call(heads, FEATURES, share=0.2),
    "MaCCalClassifier": Call(
        estimator, FEATURES, {"C": SETTINGS, "cv": SETTINGS}, UNIT, share=0.1, foreign=True
    ),
    "extract": Call(extracted, INPUTS, share=0.5, foreign=True),
    "calibrate": Call(
        calibrated, INPUTS, {"head": NAME.map(lambda name: name[0])}, share=0.2, foreign=True
    ),
    "find_head": Call(found_head, one(INPUTS), share=0.3, foreign=True),
    "build": Call(lambda name: maccal.build(name, 3).num_features, NAME, share=0.02),
    "method": Call(lambda name: len(maccal.method(name).name), NAME, share=0.05),
    "load": Call(lambda name: len(maccal.load(name, "/nonexistent").test), NAME, share=0.05),
    "Recipe": Call(
        lambda values: maccal.Recipe(**values).lr_at(0),
        settings(maccal.Recipe),
        share=0.3,
        nan=True,
    ),
    "Stage2": Call(
        lambda values: bool(maccal.Stage2(**values)), settings(maccal.Stage2), share=0.3
    ),
}

# each fits once per call, some with cross-validation
FAMILY = {
    "TemperatureScaling": 0.3,
    "EnsembleTemperatureScaling": 0.1,
    "VectorScaling": 0.1,
    "StructuredVectorScaling": 0.1,
    "StructuredMatrixScaling": 0.1,
    "DirichletCalibration": 0.02,
    "BetaCalibration": 0.1,
    "IsotonicCalibration": 0.1,
    "HistogramCalibration": 0.1,
    "SplineCalibration": 0.1,
    "VennAbersCalibration": 0.1,
}
for name, share in FAMILY.items():
    CALLS[name] = Call(fitted(name), LOGITS.map(both_loose), within=UNIT, share=share)

# Public names that are called elsewhere or hold no logic
QUIET = {
    "DATASETS": "a table",
    "METHODS": "a table",
    "MODELS": "a table",
    "METRICS": "a table",
    "BinarySummary": "a record",
    "Difference": "a record",
    "Features": "a record",
    "Interval": "a record",
    "Listing": "a record",
    "Metric": "a record",
    "Monitor": "a state: damage.py; its doors are those of metrics",
    "MultilabelSummary": "a record",
    "Split": "a record",
    "Summary": "a record",
    "Worst": "a record",
    "by_group": "by_class has the same doors, and groups may be anything",
    "card": "a writer; its numbers are those of summary",
    "clopper_pearson": "of counts that are checked before",
    "export_onnx": "a writer: tests/deployment",
    "fit": "kills.py and damage.py train with it",
    "holm": "of p-values that were computed",
    "load_calibrated": "a reader: tests/deployment damages its files",
    "load_head": "a reader: damage.py",
    "read": "a reader: damage.py and files.py",
    "multilabel_summary": "binary_summary has the same doors",
    "rate_bound": "of counts that are checked before",
    "save_calibrated": "a writer: tests/deployment",
    "save_head": "a writer: damage.py",
    "set_summary": "of sets that ConformalSets made",
}
