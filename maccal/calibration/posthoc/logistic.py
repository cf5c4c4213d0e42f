"""Multinomial logistic regression on scores, to its exact optimum in float64.

The problem (nearby.py) is convex and smooth. L-BFGS around its second derivatives (curvature.py),
where looks at all rows are expensive:

    few numbers      a sample of rows gives the start and the second derivatives;
                     then 5 to 20 looks at all rows
    large matrices   one exact look at all rows, then 10 to 30 by differences in float32, at a
                     third of the cost (nearby.py); again, until they can be trusted

It ends where the largest slope on all rows is below 1e-9: the result is exact and does not depend
on the sample.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from maccal.calibration.posthoc.curvature import FULL, Solve, curvature
from maccal.calibration.posthoc.nearby import Kind as Kind
from maccal.calibration.posthoc.nearby import (
    Problem,
    nearby,
    value_and_slope,
)
from maccal.calibration.posthoc.nearby import identity as identity
from maccal.calibration.posthoc.nearby import penalties as penalties
from maccal.calibration.posthoc.nearby import problem_of as problem_of

SAMPLE = 4096  # rows at least of the sample
PER_CLASS = 24  # rows for each class, if that is more
SHARE = 16  # or one row in SHARE, if that is more
SHAPED = 1 << 23  # numbers that second derivatives are taken from
STEEPEST = 1e-9  # the largest slope at the optimum
ROUGH = 1e-5  # the same for the sample
STEPS = 300  # before the second derivatives are taken anew
ROUNDS = 4
MEMORY = 100  # steps that L-BFGS remembers
ROUNDING = 1e-8  # of the value, in float32: below this no step can be seen to go down
TRUSTED = 1e-6  # differences in float32 find a slope of this share of the one they start from
STILL_FALLS = f"the value still falls after {ROUNDS * STEPS} steps"

Past = deque[tuple[Tensor, Tensor]]  # steps, and how the slope changed

Look = Callable[[Tensor], tuple[float, Tensor]]  # theta to the value there, and its slope


class NoOptimum(ValueError):
    """No optimum was reached.

    As a rule the labels can be told apart and nothing holds the numbers, so that the value falls
    for ever.
    """


def optimum(problem: Problem, start: Tensor | None = None, enough: float = STEEPEST) -> Tensor:
    """The theta whose largest slope is `enough`; NoOptimum where the value falls for ever."""
    theta = problem.centre if start is None else start
    large = problem.kind == "matrix" and theta.numel() > FULL
    # of a large matrix a sample says little: it has few rows for each number
    return by_differences(problem, theta, enough) if large else by_sample(problem, theta, enough)


def by_sample(problem: Problem, theta: Tensor, enough: float) -> Tensor:
    """From the optimum of the sample, with its second derivatives."""
    some = sampled(problem)
    x, _ = some.parts[0]
    look = partial(value_and_slope, some)
    solve = curvature(some.kind, theta, x, some.penalty)
    theta, _ = descend(look, theta, look(theta), solve, max(ROUGH, enough))
    look = partial(value_and_slope, problem)
    for _ in range(ROUNDS):
        solve = curvature(some.kind, theta, x, some.penalty)
        theta, done = descend(look, theta, look(theta), solve, enough)
        if done:
            return theta
    raise NoOptimum(STILL_FALLS)


def by_differences(problem: Problem, theta: Tensor, enough: float) -> Tensor:
    """In rounds of one exact look and steps from there, as far as float32 can be trusted.

    Where that ends nowhere, in rounds of exact looks.
    """
    scores = [x.float() for x, _ in problem.parts]
    solve, past = shaped(problem, theta)
    for _ in range(ROUNDS):
        here = nearby(problem, theta, scores)
        steepest = float(here.slope.abs().max())
        if steepest <= enough:
            return theta
        least = max(enough / 2, TRUSTED * steepest)
        theta, done = descend(here.look, theta, (here.value, here.slope), solve, least, past)
        if done and least < enough:
            return theta
        if not done:
            break
    look = partial(value_and_slope, problem)
    for _ in range(ROUNDS):
        solve, past = shaped(problem, theta)
        theta, done = descend(look, theta, look(theta), solve, enough, past)
        if done:
            return theta
    raise NoOptimum(STILL_FALLS)


def shaped(problem: Problem, theta: Tensor) -> tuple[Solve, Past]:
    """What divides by the second derivatives of a large matrix at theta, and no steps yet."""
    rows = drawn(problem, 1 + problem.count * len(theta) // SHAPED)[0].float()
    held = problem.penalty + 0.5 / rows.shape[1]
    return curvature("matrix", theta, rows, held), Past(maxlen=MEMORY)


def sampled(problem: Problem) -> Problem:
    """Some rows, each number held a little: a class may have no row among them."""
    classes = len(problem.parts[0][0])
    step = max(1, min(problem.count // max(SAMPLE, PER_CLASS * classes), SHARE))
    x, y = drawn(problem, step)
    held = problem.penalty + (0.5 / len(y))
    return replace(problem, parts=[(x, y)], count=len(y), penalty=held)


def drawn(problem: Problem, step: int) -> tuple[Tensor, Tensor]:
    """One in so many rows, drawn: every so many might have some of the classes only."""
    x = torch.cat([x for x, _ in problem.parts], 1)
    y = torch.cat([y for _, y in problem.parts])
    if step == 1:
        return x, y
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    rows = order[: len(y) // step].sort().values
    return x[:, rows], y[rows]


def descend(
    look: Look,
    theta: Tensor,
    seen: tuple[float, Tensor],
    solve: Solve,
    enough: float,
    past: Past | None = None,
) -> tuple[Tensor, bool]:
    """L-BFGS from theta until no slope is above `enough`, and whether it got there.

    `seen` are value and slope at theta; `solve` divides by second derivatives; the steps are added
    to the past.
    """
    value, slope = seen
    past = Past(maxlen=MEMORY) if past is None else past
    for _ in range(STEPS):
        if float(slope.abs().max()) <= enough:
            return theta, True
        way = -quasi_newton(slope, past, solve)
        length, new_value, new_slope = stepped(look, theta, way, value, slope)
        if length == 0:
            return theta, False
        move, turn = length * way, new_slope - slope
        if float((move * turn).sum()) > 0:
            past.append((move, turn))
        theta, value, slope = theta + move, new_value, new_slope
    return theta, False


def stepped(
    look: Look, theta: Tensor, way: Tensor, value: float, slope: Tensor
) -> tuple[float, float, Tensor]:
    """How far to go this way: all of it, or half, or half of that; value and slope there.

    Nowhere, if no step can be seen to go down. A step whose gain is lost in rounding is judged by
    the slope at its end.
    """
    down = float((slope * way).sum())
    length = 1.0
    while length > 1e-12:
        new_value, new_slope = look(theta + length * way)
        lower = new_value <= value + 1e-4 * length * down
        near = new_value - value <= ROUNDING * abs(value)
        # the value is convex, so where the way hardly rises at its end it has not risen by much
        if lower or (near and float((new_slope * way).sum()) <= -0.5 * down):
            return length, new_value, new_slope
        length /= 2
    return 0.0, value, slope


def quasi_newton(slope: Tensor, past: Past, solve: Solve) -> Tensor:
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
