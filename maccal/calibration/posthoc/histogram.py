"""HistogramCalibration: the share of hits in each bin of the probability of each class.

Zadrozny and Elkan 2001, "Obtaining calibrated probability estimates from decision trees and naive
Bayesian classifiers"; for several classes one against the others, as in Guo et al. 2017. A bin that
no row fell into keeps its middle. Cost: one look at the probabilities.
"""

from typing import Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from maccal.calibration.posthoc.inputs import (
    Inputs,
    back,
    fit_inputs,
    fitted,
    new_inputs,
    predicted,
)
from maccal.calibration.posthoc.one_vs_rest import columns, targets, together
from maccal.metrics.arguments import check_bins
from maccal.metrics.binning import assign, equal_width_edges, mass_edges
from maccal.metrics.given import Classes
from maccal.metrics.inputs import Array, Labels, Same


class HistogramCalibration(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The share of hits per bin and class, then divided by the sum.

    inputs   "logits", or "probs" for probabilities
    classes  names of the columns, where labels are names
    bins     how many
    equal    "width": as wide each; "mass": as many rows in each

    Fitted: edges_ and values_ (for each class), classes_, n_features_in_. Two classes have one
    histogram, that of the second. Bins are [lo, hi), the last closed.

    >>> import numpy as np
    >>> probs = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    >>> model = HistogramCalibration(inputs="probs", bins=2).fit(probs, np.array([0, 1, 1, 1]))
    >>> model.predict_proba(probs)[:, 1].tolist()
    [0.5, 0.5, 1.0, 1.0]
    """

    edges_: list[np.ndarray]
    values_: list[np.ndarray]

    def __init__(
        self,
        *,
        inputs: Inputs = "logits",
        classes: Classes | None = None,
        bins: int = 15,
        equal: Literal["mass", "width"] = "width",
    ) -> None:
        self.inputs = inputs
        self.classes = classes
        self.bins = bins
        self.equal = equal

    def fit(self, logits: Array, labels: Labels) -> "HistogramCalibration":
        """Count rows and hits in each bin of each class."""
        bins = check_bins(self.bins)
        if self.equal not in ("mass", "width"):
            raise ValueError(f'equal is {self.equal!r}; say equal="mass" or equal="width"')
        numbers, codes = fit_inputs(logits, labels, self.inputs, self.classes)
        probs = columns(numbers, self.inputs)
        self.edges_ = [self._edges(p, bins) for p in probs]
        pairs = zip(probs, self.edges_, targets(codes, len(probs)), strict=True)
        self.values_ = [bin_shares(p, edges, hit) for p, edges, hit in pairs]
        return fitted(self, numbers, logits)

    def _edges(self, p: np.ndarray, bins: int) -> np.ndarray:
        return mass_edges(np.sort(p), bins) if self.equal == "mass" else equal_width_edges(bins)

    def predict_proba(self, logits: Array) -> Same:
        """Calibrated probabilities, in float64."""
        probs = columns(new_inputs(self, logits), self.inputs)
        triples = zip(probs, self.edges_, self.values_, strict=True)
        mapped = [values[bin_of(p, edges)] for p, edges, values in triples]
        return back(together(np.stack(mapped)), logits)

    def predict(self, logits: Array) -> Same:
        """The most probable class after the map."""
        return predicted(self, self.predict_proba(logits).argmax(1))


def bin_of(p: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return assign(torch.from_numpy(p), edges, "maccal").numpy()


def bin_shares(p: np.ndarray, edges: np.ndarray, hit: np.ndarray) -> np.ndarray:
    """The share of hits in each bin; its middle where it is empty."""
    index = bin_of(p, edges)
    count = np.bincount(index, minlength=len(edges) - 1)
    hits = np.bincount(index, weights=hit, minlength=len(edges) - 1)
    middle = (edges[:-1] + edges[1:]) / 2
    return np.where(count > 0, hits / np.maximum(count, 1), middle)
