"""Second derivatives of a multinomial logistic problem, to divide a slope by.

They only shape the steps of a search, so some rows will do, and float32 for large matrices:

    vector map                              all of them, 2K x 2K
    matrix map of at most FULL numbers      all of them
    matrix map of at most MANY classes      those inside the row of W of each class
    more classes                            the same, but for what few directions of x tell
"""

from collections.abc import Callable

import torch
from torch import Tensor

from maccal.calibration.posthoc.nearby import Kind, mapped, probabilities

FULL = 512
MANY = 200
NOTABLE = 0.01  # p (1 - p) of rows that are looked at one by one
MOST = 500
DIRECTIONS = 32

Solve = Callable[[Tensor], Tensor]


def curvature(kind: Kind, theta: Tensor, x: Tensor, penalty: Tensor) -> Solve:
    """What divides by the second derivatives at theta, of the mean over these K x rows."""
    if kind == "vector" or theta.numel() <= FULL:
        p, _ = probabilities(mapped(kind, theta, x))
        second = vector_curvature(p, x) if kind == "vector" else matrix_curvature(p, x)
        return whole(second / x.shape[1], penalty)
    p, _ = probabilities(mapped(kind, theta.float(), x.float()))
    return (
        by_class(p, x.float(), penalty)
        if len(theta) <= MANY
        else few_directions(p, x.float(), penalty)
    )


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
    features = with_one(x)
    weighted = p[:, None] * features
    flat = weighted.reshape(-1, rows)
    second = -flat @ flat.T
    size = classes + 1
    for c in range(classes):
        part = slice(c * size, (c + 1) * size)
        second[part, part] += weighted[c] @ features.T
    return second


def with_one(x: Tensor) -> Tensor:
    """The scores and a 1 for the bias."""
    return torch.cat([x, torch.ones_like(x[:1])])


def by_class(p: Tensor, x: Tensor, penalty: Tensor) -> Solve:
    """Divide by the second derivatives inside the row of each class."""
    features = with_one(x)
    weight = p * (1 - p)
    second = torch.empty(len(p), len(features), len(features), dtype=torch.float64)
    for c, own in enumerate(weight):
        second[c] = weighted_products(features, own)
    second.diagonal(dim1=1, dim2=2).add_(2 * penalty)
    factor = torch.linalg.cholesky(second)
    return lambda slope: torch.cholesky_solve(slope[:, :, None], factor).squeeze(2)


def weighted_products(features: Tensor, weight: Tensor) -> Tensor:
    """The mean of weight x features x features', from the rows whose weight is notable.

    They stand for the others too.
    """
    rows = torch.nonzero(weight > NOTABLE).squeeze(1)
    if len(rows) < len(features):
        rows = weight.topk(min(len(features), len(weight))).indices
    rows = rows[:: 1 + len(rows) // MOST]
    some = features[:, rows] * weight[rows].sqrt()
    told = float(weight[rows].sum(dtype=torch.float64))
    # a class that is out of the question in every row tells nothing
    share = float(weight.sum(dtype=torch.float64)) / told if told > 0 else 0.0
    return (some @ some.T).double() * (share / len(weight))


def few_directions(p: Tensor, x: Tensor, penalty: Tensor) -> Solve:
    """Divide by what the largest directions of x, the class's own score and the bias tell.

    For the row of W of each class P + Q C Q': P is diagonal, Q has those directions.
    """
    classes, rows = x.shape
    weight = p * (1 - p)
    _, axes = torch.linalg.eigh((x * weight.sum(0)) @ x.T)
    axes = axes[:, -DIRECTIONS:]
    along = axes.T @ x
    rest = x - axes @ along
    own = 2 * penalty
    own[:, :-1] += (weight @ rest.square().T) / rows
    shared = torch.cat([along, torch.ones_like(x[:1])])
    inner = []
    for c, some in enumerate(weight):
        told = torch.cat([shared, rest[c : c + 1]])
        inner.append((told * some) @ told.T / rows)
    own[:, :-1].diagonal().copy_(2 * penalty[:, :-1].diagonal())
    whole_axes = torch.zeros(classes + 1, DIRECTIONS + 1, dtype=own.dtype)
    whole_axes[:-1, :-1] = axes
    whole_axes[-1, -1] = 1
    return divide_by_both(own, whole_axes, torch.stack(inner).double())


def divide_by_both(own: Tensor, axes: Tensor, inner: Tensor) -> Solve:
    """(P + Q C Q')^-1 = P^-1 - P^-1 Q (I + C Q' P^-1 Q)^-1 C Q' P^-1 (Woodbury), class by class.

    Q of a class has the axes, and the axis of its own score.
    """
    classes = len(own)
    own_score = own[:, :-1].diagonal()
    size = axes.shape[1] + 1
    around = torch.empty(classes, size, size, dtype=own.dtype)
    around[:, :-1, :-1] = (axes.T[None] / own[:, None]) @ axes
    around[:, :-1, -1] = axes[:-1] / own_score[:, None]
    around[:, -1, :-1] = around[:, :-1, -1]
    around[:, -1, -1] = 1 / own_score
    middle = torch.linalg.solve(torch.eye(size, dtype=own.dtype) + inner @ around, inner)

    def solve(slope: Tensor) -> Tensor:
        first = slope / own
        along = torch.cat([first @ axes, first[:, :-1].diagonal()[:, None]], 1)
        back = (middle @ along[:, :, None]).squeeze(2)
        change = back[:, :-1] @ axes.T
        change[:, :-1].diagonal().add_(back[:, -1])
        return first - change / own

    return solve
