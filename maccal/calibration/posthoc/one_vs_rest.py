"""One class against the others: what calibrators of a single probability share.

The probabilities of each class are mapped on their own and divided by their sum, as scikit-learn
does (Zadrozny and Elkan 2002). A row whose mapped values are all 0 becomes uniform.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from maccal.calibration.posthoc.inputs import Inputs, shares


def columns(numbers: Tensor, inputs: Inputs) -> np.ndarray:
    """The probabilities of each class in a row of their own: K x N, or 1 x N for two classes."""
    p = shares(numbers, inputs).T.contiguous()
    return (p[1:] if len(p) == 2 else p).numpy()


def targets(labels: Tensor, rows: int) -> Iterator[np.ndarray]:
    """Which rows have the class, in the order of `columns`."""
    codes = labels.numpy()
    classes = [1] if rows == 1 else range(rows)
    return (codes == c for c in classes)


def together(mapped: np.ndarray) -> Tensor:
    """N x K probabilities from the mapped columns."""
    if len(mapped) == 1:
        return torch.from_numpy(np.stack([1 - mapped[0], mapped[0]], 1))
    p = torch.from_numpy(mapped).T.contiguous()
    total = p.sum(1, keepdim=True)
    return torch.where(total > 0, p / total.clamp(min=1e-300), 1 / p.shape[1])
