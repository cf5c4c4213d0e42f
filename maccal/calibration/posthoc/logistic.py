"""Multinomial logistic regression on scores, to its exact optimum in float64.

    least over theta of   mean NLL of softmax(map(x)) + sum_j penalty_j (theta_j - centre_j)^2

    vector map   v * x + b      theta is 2 x K: v, b
    matrix map   W x + b        theta is K x (K + 1): W beside b

The problem is convex and smooth. Passes over all rows are expensive, so a sample of rows, evenly
spread, does most of the work:

    1. the optimum of the sample                               near the goal
    2. the second derivatives of the sample there              what a step is divided by
    3. steps on all rows: L-BFGS, which corrects 2. as it goes,  5 to 30 of them
       until the largest slope is below 1e-9; 2. is done anew
       after STEPS of them

Only the third decides, so the result is exact and does not depend on the sample. Scores lie as
blocks of K x rows: sums over classes then run along the rows, which is fast for few classes too.

Second derivatives: all of them where that is a matrix of at most FULL x FULL; for a larger matrix
map those inside the row of W of each class; beyond MANY classes only each number's own.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

SAMPLE = 4096  # rows at least of the sample
PER_CLASS = {"vector": 24, "matrix": 200}  # rows for each class, if that is more
SHARE = 16  # or one row in SHARE, if that is more
BLOCK = 1 << 18  # numbers of a block: 2 MB of float64
STEEPEST = 1e-9  # the largest slope at the optimum
ROUGH = 1e-5  # the same for the sample
STEPS = 50  # before the second derivatives are taken anew
ROUNDS = 10
MEMORY = 30  # steps that L-BFGS remembers
FULL = 512
MANY = 200
ROUNDING = 1e-14  # of the value: below this no step can be seen to go down

Kind = Literal["vector", "matrix"]
Solve = Callable[[Tensor], Tensor]


class NoOptimum(ValueError):
    """No optimum was reached.

    As a rule the labels can be told apart and nothing holds the numbers, so that the value falls
    for ever.
    """


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
    rows = max(1, BLOCK // x.shape[1])
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
    value = torch.zeros((), dtype=torch.float64)
    slope = torch.zeros_like(theta)
    for x, y in problem.parts:
        out = mapped(problem.kind, theta, x)
        own = out.gather(0, y[None]).sum()
        off, log_total = probabilities(out)
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
    return float(value / problem.count + held), slope


def optimum(problem: Problem, start: Tensor | None = None) -> Tensor:
    """The exact theta; NoOptimum where the value falls for ever."""
    some = sampled(problem)
    theta = problem.centre if start is None else start
    theta, _ = descend(some, theta, curvature(some, theta), ROUGH, STEPS)
    for _ in range(ROUNDS):
        theta, done = descend(problem, theta, curvature(some, theta), STEEPEST, STEPS)
        if done:
            return theta
    raise NoOptimum(f"the value still falls after {ROUNDS * STEPS} steps")


def sampled(problem: Problem) -> Problem:
    """Rows evenly spread, each number held a little: a class may have no row among them."""
    classes = len(problem.parts[0][0])
    blocks = problem.kind == "vector" or classes <= MANY  # second derivatives that rows must fill
    wanted = max(SAMPLE, PER_CLASS[problem.kind] * classes if blocks else 0)
    step = max(1, min(problem.count // wanted, SHARE))
    x = torch.cat([x for x, _ in problem.parts], 1)[:, ::step].contiguous()
    y = torch.cat([y for _, y in problem.parts])[::step]
    held = problem.penalty + (0.5 / len(y))
    return replace(problem, parts=[(x, y)], count=len(y), penalty=held)


def descend(
    problem: Problem, theta: Tensor, solve: Solve, enough: float, steps: int
) -> tuple[Tensor, bool]:
    """L-BFGS from theta until no slope is above `enough`, and whether it got there.

    `solve` divides by second derivatives.
    """
    value, slope = value_and_slope(problem, theta)
    past: deque[tuple[Tensor, Tensor]] = deque(maxlen=MEMORY)
    for _ in range(steps):
        if float(slope.abs().max()) <= enough:
            return theta, True
        way = -quasi_newton(slope, past, solve)
        down = float((slope * way).sum())
        length = 1.0
        new_value, new_slope = value_and_slope(problem, theta + way)
        # within rounding every step is as good as the last
        while not new_value <= value + 1e-4 * length * down + ROUNDING * abs(value):
            length /= 2
            if length < 1e-12:
                raise NoOptimum("the value cannot be made smaller, and its slope is not 0")
            new_value, new_slope = value_and_slope(problem, theta + length * way)
        move, turn = length * way, new_slope - slope
        if float((move * turn).sum()) > 0:
            past.append((move, turn))
        theta, value, slope = theta + move, new_value, new_slope
    return theta, False


def quasi_newton(slope: Tensor, past: deque[tuple[Tensor, Tensor]], solve: Solve) -> Tensor:
    """The two loops of L-BFGS (Nocedal 1980) around the sample's second derivatives."""
    way = slope.clone()
    shares = []
    for move, turn in reversed(past):
        share = float((move * way).sum() / (move * turn).sum())
        way -= share * turn
        shares.append(share)
    way = solve(way)
    for (move, turn), share in zip(past, reversed(shares), strict=True):
        back = float((turn * way).sum() / (move * turn).sum())
        way += (share - back) * move
    return way


def curvature(some: Problem, theta: Tensor) -> Solve:
    """What divides by the second derivatives of the sample at theta."""
    x, _ = some.parts[0]
    p, _ = probabilities(mapped(some.kind, theta, x))
    if some.kind == "vector":
        return whole(vector_curvature(p, x) / some.count, some.penalty)
    if theta.numel() <= FULL:
        return whole(matrix_curvature(p, x) / some.count, some.penalty)
    if len(theta) <= MANY:
        return by_class(p, x, some)
    return one_by_one(p, x, some)


def whole(second: Tensor, penalty: Tensor) -> Solve:
    """Divide by all second derivatives together."""
    second.diagonal().add_(2 * penalty.flatten())
    factor = torch.linalg.cholesky(second)
    return lambda slope: torch.cholesky_solve(slope.reshape(-1, 1), factor).view_as(slope)


def vector_curvature(p: Tensor, x: Tensor) -> Tensor:
    """2K x 2K sums of second derivatives: diag(p) - p p', beside x."""
    classes = len(x)
    both = torch.cat([p * x, p])
    second = -both @ both.T
    own = second.view(2, classes, 2, classes).diagonal(dim1=1, dim2=3)
    mixed = (p * x).sum(1)
    own[0, 0] += (p * x * x).sum(1)
    own[0, 1] += mixed
    own[1, 0] += mixed
    own[1, 1] += p.sum(1)
    return second


def matrix_curvature(p: Tensor, x: Tensor) -> Tensor:
    """K(K + 1) x K(K + 1) sums of second derivatives."""
    classes, rows = x.shape
    features = torch.cat([x, torch.ones(1, rows, dtype=torch.float64)])
    weighted = p[:, None] * features
    flat = weighted.reshape(-1, rows)
    second = -flat @ flat.T
    size = classes + 1
    for c in range(classes):
        part = slice(c * size, (c + 1) * size)
        second[part, part] += weighted[c] @ features.T
    return second


def by_class(p: Tensor, x: Tensor, some: Problem) -> Solve:
    """Divide by the second derivatives inside the row of each class."""
    features = torch.cat([x, torch.ones(1, x.shape[1], dtype=torch.float64)])
    second = torch.empty(len(p), len(features), len(features), dtype=torch.float64)
    for c, share in enumerate(p):
        weight = (share * (1 - share)).sqrt() * features
        second[c] = weight @ weight.T / some.count
    second.diagonal(dim1=1, dim2=2).add_(2 * some.penalty)
    factor = torch.linalg.cholesky(second)
    return lambda slope: torch.cholesky_solve(slope[:, :, None], factor).squeeze(2)


def one_by_one(p: Tensor, x: Tensor, some: Problem) -> Solve:
    """Divide each slope by its own second derivative."""
    weight = p * (1 - p)
    second = torch.cat([weight @ x.square().T, weight.sum(1, keepdim=True)], 1)
    second = second / some.count + 2 * some.penalty
    return lambda slope: slope / second
