"""The post-hoc calibrators of other packages, each as fit(probs, labels) -> (probs -> probs).

They are given float64 probabilities: netcal's temperature stays at 1 in float32. Needs the extra
`bench`, betacal and venn-abers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Predict = Callable[[np.ndarray], np.ndarray]
Fit = Callable[[np.ndarray, np.ndarray], Predict]


def normal(p: np.ndarray) -> np.ndarray:
    total = p.sum(1, keepdims=True)
    return np.where(total > 0, p / np.maximum(total, 1e-300), 1 / p.shape[1])


def from_probmetrics(name: str) -> Fit:
    def fit(probs: np.ndarray, labels: np.ndarray) -> Predict:
        from probmetrics.calibrators import get_calibrator
        from probmetrics.calibrators.logistic import VectorScalingCalibrator
        from probmetrics.calibrators.temperature_scaling import ETSCalibrator

        own = {"vector": VectorScalingCalibrator, "ets": lambda: ETSCalibrator(loss="ce")}
        made = own[name]() if name in own else get_calibrator(name)
        made.fit(probs, labels)
        return lambda new: np.asarray(made.predict_proba(new), np.float64)

    return fit


def from_netcal(room: str, name: str, **choices: Any) -> Fit:
    def fit(probs: np.ndarray, labels: np.ndarray) -> Predict:
        from importlib import import_module

        made = getattr(import_module(f"netcal.{room}"), name)(**choices).fit(probs, labels)
        return lambda new: normal(made.transform(new))

    return fit


def scikit_temperature(probs: np.ndarray, labels: np.ndarray) -> Predict:
    from sklearn.calibration import _TemperatureScaling

    logs = np.log(np.maximum(probs, 1e-300))
    made = _TemperatureScaling().fit(logs, labels)
    return lambda new: made.predict(np.log(np.maximum(new, 1e-300)))


def scikit_isotonic(probs: np.ndarray, labels: np.ndarray) -> Predict:
    from sklearn.isotonic import IsotonicRegression

    made = [
        IsotonicRegression(out_of_bounds="clip").fit(p, labels == c) for c, p in enumerate(probs.T)
    ]
    return lambda new: normal(np.stack([f.predict(p) for f, p in zip(made, new.T, strict=True)], 1))


def scikit_matrix(share: float | None = None) -> Fit:
    """A logistic regression on log-probabilities: Dirichlet calibration with another penalty.

    Every squared number, those of the diagonal too, costs `share` beside the mean NLL; without it,
    scikit-learn's default.
    """

    def fit(probs: np.ndarray, labels: np.ndarray) -> Predict:
        from sklearn.linear_model import LogisticRegression

        weakness = 1.0 if share is None else 1 / (2 * len(probs) * share)
        made = LogisticRegression(C=weakness, max_iter=1000)
        made.fit(np.log(np.maximum(probs, 1e-38)), labels)
        return lambda new: made.predict_proba(np.log(np.maximum(new, 1e-38)))

    return fit


def betacal(probs: np.ndarray, labels: np.ndarray) -> Predict:
    from betacal import BetaCalibration

    made = [BetaCalibration("abm").fit(p, labels == c) for c, p in enumerate(probs.T)]
    return lambda new: normal(np.stack([f.predict(p) for f, p in zip(made, new.T, strict=True)], 1))


def venn_abers(probs: np.ndarray, labels: np.ndarray) -> Predict:
    from venn_abers.venn_abers import predict_proba_prefitted_va

    return lambda new: predict_proba_prefitted_va(probs, labels, new, va_tpe="one_vs_rest")[0]


def spline(probs: np.ndarray, labels: np.ndarray) -> Predict:
    """Of the most probable class; the others share what is left in proportion."""
    from probmetrics.calibrators.splines import CDFSplineCalibrator

    def pair(p: np.ndarray) -> np.ndarray:
        return np.stack([1 - p.max(1), p.max(1)], 1)

    made = CDFSplineCalibrator()
    made.fit(pair(probs), (probs.argmax(1) == labels).astype(int))

    def predict(new: np.ndarray) -> np.ndarray:
        wanted = np.clip(made.predict_proba(pair(new))[:, 1:], 0, 1)
        rows = np.arange(len(new)), new.argmax(1)
        rest = new.copy()
        rest[rows] = 0
        rest = normal(rest) * (1 - wanted)
        rest[rows] += wanted[:, 0]
        return normal(rest)

    return predict


PEERS: dict[str, dict[str, Fit]] = {
    "temperature": {
        "scikit-learn": scikit_temperature,
        "netcal": from_netcal("scaling", "TemperatureScaling"),
        "probmetrics": from_probmetrics("temp-scaling"),
    },
    "ensemble temperature": {"probmetrics": from_probmetrics("ets")},
    "spline": {"probmetrics": spline},
    "vector": {"probmetrics": from_probmetrics("vector")},
    "structured vector": {"probmetrics": from_probmetrics("svs")},
    "beta": {"betacal": betacal},  # netcal's needs 4 s for 5,000 x 10, eighty times as long
    "histogram": {"netcal": from_netcal("binning", "HistogramBinning", bins=15)},
    "isotonic": {
        "scikit-learn": scikit_isotonic,
        "netcal": from_netcal("binning", "IsotonicRegression"),
    },
    "Venn-Abers": {"venn-abers": venn_abers},
    "structured matrix": {"probmetrics": from_probmetrics("sms")},
    "Dirichlet": {"scikit-learn": scikit_matrix()},
}
