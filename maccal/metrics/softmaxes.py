"""NLL and Brier score of softmax(scale x scores), and their derivatives in the scale.

    score_rows    NLL and Brier of each row, in one pass over the N x K numbers
    slopes        their means and first three derivatives in x, where the scale is multiplied by
                  1 + x; one pass for both

Rows are worked on in float64 whatever the type of the scores. With fine=False the slopes come in
float32, for a first approximation in half the time. The loops are in _lanes.h; their twins here
serve other devices and installs without a compiler.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from maccal.metrics import inputs
from maccal.metrics.inputs import blocks

# The least scale x (score - largest of the row): its exp is nearly 0, and -infinity is raised to it
LOWEST = -708.0
Result = TypeVar("Result")


@dataclass(frozen=True)
class Rows:
    """Scores (logits, or log-probabilities) and labels, and the largest score of each row."""

    scores: Tensor
    labels: Tensor
    most: Tensor

    @classmethod
    def of(cls, scores: Tensor, labels: Tensor) -> "Rows":
        return cls(scores.contiguous(), labels.contiguous(), scores.amax(1))

    def part(self, rows: slice) -> "Rows":
        return Rows(self.scores[rows], self.labels[rows], self.most[rows])

    def addresses(self) -> tuple[int, int, int]:
        return self.scores.data_ptr(), self.most.data_ptr(), self.labels.data_ptr()

    @property
    def wide(self) -> bool:
        return self.scores.dtype == torch.float64


def each_block(work: Callable[[Rows], Result], rows: Rows) -> list[Result]:
    """What `work` makes of each block of rows, in order; the same blocks on any threads."""
    parts = [rows.part(part) for part in blocks(*rows.scores.shape)]
    threads = min(torch.get_num_threads(), len(parts))
    if threads == 1:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))


def compiled(rows: Rows) -> bool:
    return inputs.kernels is not None and rows.scores.device.type == "cpu"


def score_rows(rows: Rows, scale: float = 1.0) -> Tensor:
    """NLL and Brier of every row, 2 x N in float64."""
    score = score_compiled if compiled(rows) else score_torch
    return torch.cat(each_block(lambda part: score(part, scale), rows), 1)


def score_compiled(rows: Rows, scale: float) -> Tensor:
    assert inputs.kernels is not None
    out = torch.empty(2, len(rows.scores), dtype=torch.float64)
    inputs.kernels.scores(
        rows.wide,
        *rows.addresses(),
        *rows.scores.shape,
        scale,
        out[0].data_ptr(),
        out[1].data_ptr(),
    )
    return out


def score_torch(rows: Rows, scale: float) -> Tensor:
    d = scale * (rows.scores.double() - rows.most.double()[:, None])
    log_p = d.log_softmax(1)
    own = log_p.gather(1, rows.labels[:, None]).squeeze(1)
    return torch.stack([-own, 1 + log_p.exp().square().sum(1) - 2 * own.exp()])


def slopes(rows: Rows, nll_scale: float, brier_scale: float, fine: bool = True) -> np.ndarray:
    """The means of NLL and of Brier (rows), each at its scale, with three derivatives (columns).

    A row is zero if its scale is 0.
    """
    measure = slopes_compiled if compiled(rows) else slopes_torch
    parts = each_block(lambda part: measure(part, nll_scale, brier_scale, fine), rows)
    return np.sum(parts, axis=0) / len(rows.scores)


def slopes_compiled(
    rows: Rows, nll_scale: float, brier_scale: float, fine: bool = True
) -> np.ndarray:
    assert inputs.kernels is not None
    sums = np.empty((2, 4))
    inputs.kernels.slopes(
        fine,
        rows.wide,
        *rows.addresses(),
        *rows.scores.shape,
        nll_scale,
        brier_scale,
        sums.ctypes.data,
    )
    return sums


def slopes_torch(rows: Rows, nll_scale: float, brier_scale: float, fine: bool = True) -> np.ndarray:
    """Always in float64: the twin is not made for speed."""
    x = rows.scores.double() - rows.most.double()[:, None]
    sums = torch.zeros(2, 4, dtype=torch.float64, device=x.device)
    if nll_scale > 0:
        sums[0] = torch.stack(nll_slopes(nll_scale * x, rows.labels)).sum(1)
    if brier_scale > 0:
        sums[1] = torch.stack(brier_slopes(brier_scale * x, rows.labels)).sum(1)
    return sums.cpu().numpy()


def cumulants(d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Probabilities, d less its mean under them, and its second and third cumulant (columns)."""
    d = d.clamp(min=LOWEST)
    p = d.softmax(1)
    centred = d - (p * d).sum(1, keepdim=True)
    second = (p * centred**2).sum(1, keepdim=True)
    third = (p * centred**3).sum(1, keepdim=True)
    return p, centred, second, third


def nll_slopes(d: Tensor, labels: Tensor) -> list[Tensor]:
    """log sum exp(d) - d_y of every row, and its derivatives.

    The derivatives of log sum exp are the cumulants of d.
    """
    p, _, second, third = cumulants(d)
    own = d.gather(1, labels[:, None]).squeeze(1)
    mean = (p * d.clamp(min=LOWEST)).sum(1)
    return [d.logsumexp(1) - own, mean - own, second.squeeze(1), third.squeeze(1)]


def brier_slopes(d: Tensor, labels: Tensor) -> list[Tensor]:
    """sum (p - [label])^2 of every row, and its derivatives through those of p."""
    p, c, second, third = cumulants(d)
    one = p * c
    two = p * (c**2 - second)
    three = p * (c**3 - 3 * second * c - third)
    off = p.scatter_add(1, labels[:, None], torch.full_like(p[:, :1], -1.0))
    return [
        off.square().sum(1),
        2 * (off * one).sum(1),
        2 * (one**2 + off * two).sum(1),
        2 * (3 * one * two + off * three).sum(1),
    ]
