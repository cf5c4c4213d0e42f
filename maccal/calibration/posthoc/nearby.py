"""The value of a multinomial logistic problem and its slope, at one theta and near it.

    least over theta of   mean NLL of softmax(map(x)) + sum_j penalty_j (theta_j - centre_j)^2

    vector map   v * x + b      theta is 2 x K: v, b
    matrix map   W x + b        theta is K x (K + 1): W beside b

At one theta_0 everything is done in float64. Near it, for a matrix, only differences are, and in
float32. With the probabilities p_0 there, d = (theta - theta_0) x and s = sum_k p_0k (e^d_k - 1):

    p - p_0          =  p_0 (e^d - 1 - s) / (1 + s)
    NLL - NLL_0      =  mean of log(1 + s) - d of the label
    slope - slope_0  =  mean of (p - p_0) x'

What is rounded is a ten-millionth of how far theta has moved, not of the whole: a search that
starts near its goal ends as near to it as in float64, at two to three times the speed. Sums over
blocks of rows stay in float64. Scores lie as blocks of K x rows: sums over classes then run along
the rows, which is fast for few classes too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

BLOCK = 1 << 18  # numbers of a block: 2 MB of float64
LEAST_ROWS = 1024  # of a block: below that products of matrices are slow
FARTHEST = 40.0  # d beyond which float32 has lost probabilities that matter

Kind = Literal["vector", "matrix"]


@dataclass(frozen=True)
class Problem:
    """Blocks of scores (K x rows) with their labels, and what holds theta near its centre."""

    kind: Kind
    parts: list[tuple[Tensor, Tensor]]
    count: int
    centre: Tensor
    penalty: Tensor


def problem_of(kind: Kind, x: Tensor, labels: Tensor, centre: Tensor, penalty: Tensor) -> Problem:
    """Of N x K scores; `penalty` has the shape of theta."""
    rows = max(LEAST_ROWS, BLOCK // x.shape[1])
    parts = []
    for start in range(0, len(x), rows):
        some = slice(start, start + rows)
        parts.append((x[some].double().T.contiguous(), labels[some]))
    return Problem(kind, parts, len(x), centre, penalty)


def identity(kind: Kind, classes: int) -> Tensor:
    """The theta that changes nothing."""
    if kind == "vector":
        return torch.stack([torch.ones(classes), torch.zeros(classes)]).double()
    return torch.cat([torch.eye(classes), torch.zeros(classes, 1)], 1).double()


def penalties(kind: Kind, classes: int, rows: int, strength: float) -> Tensor:
    """What each squared number costs in structured scaling, in the shape of theta."""
    few = strength * classes / rows
    if kind == "vector":
        return torch.full((2, classes), few, dtype=torch.float64)
    penalty = torch.full((classes, classes + 1), few * (classes - 1), dtype=torch.float64)
    penalty[:, -1] = few
    penalty[:, :-1].fill_diagonal_(few)
    return penalty


def mapped(kind: Kind, theta: Tensor, x: Tensor) -> Tensor:
    """The map of a block of K x rows."""
    if kind == "vector":
        return torch.addcmul(theta[1, :, None], theta[0, :, None], x)
    return torch.addmm(theta[:, -1:], theta[:, :-1], x)


def probabilities(out: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the classes, in place, and the log of the sum that it was divided by."""
    top = out.amax(0)
    out.sub_(top).exp_()
    total = out.sum(0)
    return out.div_(total), total.log_().add_(top)


def value_and_slope(problem: Problem, theta: Tensor) -> tuple[float, Tensor]:
    """The value at theta, and its derivative."""
    value, slope, _ = exact(problem, theta, keep=False)
    return value, slope


def exact(problem: Problem, theta: Tensor, keep: bool) -> tuple[float, Tensor, list[Tensor]]:
    """The value, its derivative, and if asked for the probabilities in float32, block by block."""
    value = torch.zeros((), dtype=torch.float64)
    slope = torch.zeros_like(theta)
    kept = []
    for x, y in problem.parts:
        out = mapped(problem.kind, theta, x)
        own = out.gather(0, y[None]).sum()
        off, log_total = probabilities(out)
        if keep:
            kept.append(off.float())
        value += log_total.sum() - own
        off.scatter_add_(0, y[None], off.new_full((1, len(y)), -1.0))
        if problem.kind == "vector":
            slope += torch.stack([torch.linalg.vecdot(off, x), off.sum(1)])
        else:
            slope[:, :-1].addmm_(off, x.T)
            slope[:, -1] += off.sum(1)
    away = theta - problem.centre
    held = (problem.penalty * away.square()).sum()
    slope = slope / problem.count + 2 * problem.penalty * away
    return float(value / problem.count + held), slope, kept


@dataclass(frozen=True)
class Nearby:
    """All rows of a matrix problem as they are at theta_0, and looks at them from near it."""

    problem: Problem
    start: Tensor  # theta_0
    value: float
    slope: Tensor
    shares: list[Tensor]  # p_0 of each block, float32
    scores: list[Tensor]  # x of each block, float32

    def look(self, theta: Tensor) -> tuple[float, Tensor]:
        """The value at theta, and its derivative; infinity where theta is too far away."""
        moved = theta - self.start
        change = 0.0
        turn = torch.zeros_like(theta)
        for part_change, off, x in self._parts(moved.float()):
            change += part_change
            turn[:, :-1] += off @ x.T
            turn[:, -1] += off.sum(1)
        penalty, count = self.problem.penalty, self.problem.count
        away = self.start - self.problem.centre
        held = float((penalty * moved * (moved + 2 * away)).sum())
        slope = self.slope + turn / count + 2 * penalty * moved
        return self.value + change / count + held, slope

    def _parts(self, moved: Tensor) -> Iterator[tuple[float, Tensor, Tensor]]:
        """Of each block: by how much the NLL changes in all, p - p_0, and x."""
        for (_, y), p, x in zip(self.problem.parts, self.shares, self.scores, strict=True):
            d = torch.addmm(moved[:, -1:], moved[:, :-1], x)
            if not float(d.max()) < FARTHEST:
                yield math.inf, torch.zeros_like(d), x
                return
            own = d.gather(0, y[None]).sum(dtype=torch.float64)
            np.expm1(d.numpy(), out=d.numpy())  # torch's takes three times as long
            d *= p
            total = d.sum(0)
            change = float(total.log1p().sum(dtype=torch.float64) - own)
            d -= p * total
            d /= 1 + total
            yield change, d, x


def nearby(problem: Problem, start: Tensor, scores: list[Tensor]) -> Nearby:
    """One exact look at all rows; `scores` are the blocks of x in float32."""
    value, slope, shares = exact(problem, start, keep=True)
    return Nearby(problem, start, value, slope, shares, scores)
