"""BalCAL (Ni et al. 2025): a linear head that grows too sure, mixed with one that cannot.

    dual(network, seed)    the network with a second head on its last feature map: an adaptor, and a
                           fixed simplex of unit vectors (an equiangular tight frame, ETF)
    balcal(delta)          what it minimises; after each epoch the heads are mixed anew

The features of the second head and the columns of its classifier M (d x K) have length 1. So its
logits lie in [-1, 1], and its confidence stays below 0.252 for 10 classes, 0.027 for 100.

    loss          lambda CE(linear, y) + (1 - lambda) CE(w etf, y)        with w from `class_scale`
    prediction    lambda linear + (1 - lambda) etf

lambda begins at 0.8. After each epoch it is set so that the mean confidence of the mixed training
logits, as the steps of the epoch saw them, is delta times their accuracy. Cost: the paper reports
1.07 to 1.15 times the time of plain training. The authors' adaptor, published for a WideResNet, has
37.7 million weights in a resnet50, whose own are 23.5, and 46 % of its multiplications
(docs/methods/balcal.md).
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.distributed import everywhere, from_first, summed
from maccal.models import Net
from maccal.models.convolution import Conv
from maccal.training.objective import Objective

START = 0.8  # lambda of the first epoch
LAST = (nn.BatchNorm2d, nn.ReLU, nn.AdaptiveAvgPool2d, nn.Flatten)  # what ends a body


def simplex(features: int, classes: int, generator: torch.Generator) -> Tensor:
    """One unit vector per class, as far apart as can be: features x classes, float32.

        M = sqrt(K / (K - 1)) U (I - 1 1' / K)

    Every inner product of two of them is -1 / (K - 1). U comes from the QR decomposition of a
    uniform random matrix. ValueError for fewer than two classes, or for more classes than features.

    >>> M = simplex(4, 3, torch.Generator().manual_seed(0))
    >>> [[round(float(v), 4) for v in row] for row in M.T @ M]
    [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    """
    if classes < 2:
        raise ValueError(f"classes is {classes}; a simplex needs at least two")
    if classes > features:
        raise ValueError(
            f"{classes} classes do not fit into {features} features; "
            f"take a model with at least {classes}"
        )
    drawn = torch.rand(
        features, classes, dtype=torch.float64, generator=generator, device=generator.device
    )
    u = torch.linalg.qr(drawn).Q
    centred = u - u.mean(1, keepdim=True)
    return ((classes / (classes - 1)) ** 0.5 * centred).float()


def class_scale(labels: Tensor, classes: int) -> Tensor:
    """What the ETF logits of a batch are multiplied with: more for the classes that are rare in it.

        w_k = sqrt(N / (number of classes present) / count_k)

    1 for a class that is not in the batch, and for all if they are equally frequent. Counted over
    the batch of all processes.

    >>> class_scale(torch.tensor([0, 0, 1, 2, 2, 2]), 4)
    tensor([1.0000, 1.4142, 0.8165, 1.0000])
    """
    count = summed(F.one_hot(labels, classes).sum(0))  # bincount would wait for the device
    present = count > 0
    return torch.where(present, (count.sum() / present.sum() / count.clamp(min=1)).sqrt(), 1.0)


def excess(logits: Tensor, labels: Tensor, delta: float) -> float:
    """Mean confidence minus delta times accuracy."""
    confidence = (logits.amax(1) - logits.logsumexp(1)).exp().double().mean()
    accuracy = (logits.argmax(1) == labels).double().mean()
    return float(confidence - delta * accuracy)


def balance(
    linear: Tensor, etf: Tensor, labels: Tensor, delta: float, tolerance: float = 1e-4
) -> float:
    """The lambda in [0, 1] that makes the mean confidence delta times the accuracy, by bisection.

    1 if the linear head alone is less sure than that, or if no point of the bisection comes nearer
    to it than the linear head alone.

    >>> linear, labels = torch.tensor([[4.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 1])
    >>> round(balance(linear, 0 * linear, labels, delta=0.9), 3)
    0.639
    >>> balance(linear, 0 * linear, labels, delta=1)
    1.0
    """
    alone = excess(linear, labels, delta)
    if alone < 0:
        return 1.0
    low = 0.0
    high = best = 1.0
    while high - low > tolerance:
        middle = (low + high) / 2
        gap = excess(middle * linear + (1 - middle) * etf, labels, delta)
        # as in the authors' code: the last point nearer than lambda = 1, not the nearest of all
        if abs(gap) < alone:
            best = middle
        if gap < 0:
            low = middle
        else:
            high = middle
    return best


class Adaptor(nn.Module):
    """What the ETF head adds to the feature map.

    BN-ReLU-3x3 to half the width, and BN-ReLU-3x3 back.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.new = nn.Sequential(
            nn.BatchNorm2d(width),
            nn.ReLU(),
            Conv(width, half, 3),
            nn.BatchNorm2d(half),
            nn.ReLU(),
            Conv(half, width, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.new(x)


def feature_map(network: Net) -> tuple[nn.Sequential, int, int]:
    """The network's body, where its last feature map is, and how many channels that has.

    Where: how many layers come before the final BatchNorm, ReLU, pool and flatten.
    """
    body = network.body
    assert isinstance(body, nn.Sequential)
    count = len(body)
    while isinstance(body[count - 1], LAST):
        count -= 1
    pools = [layer for layer in body if isinstance(layer, nn.AdaptiveAvgPool2d)]
    side = int(pools[-1].output_size)  # type: ignore[arg-type]
    return body, count, network.num_features // side**2


class Dual(nn.Module):
    """A Net with an ETF head beside its own. The logits are lambda linear + (1 - lambda) etf.

    `features`, `head` and `num_features` are those of the linear branch, as a Net has them. lambda
    is the buffer `share`.

    What the heads said in the steps of an epoch is kept for its end, one row per image: linear
    logits, ETF logits, label. It is in the state_dict as `_extra_state`, which is empty between
    epochs. Under torchrun each process has rows of its own, and a checkpoint holds those of the
    first. A training that is resumed within an epoch goes on with these in every process: the
    lambda of that one epoch then comes from a sample of its rows.
    """

    def __init__(self, network: Net, generator: torch.Generator) -> None:
        super().__init__()
        self.body, self.shared, width = feature_map(network)
        self.head = network.head
        self.num_features = network.num_features
        self.branch = nn.Sequential(
            Adaptor(width), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.share: Tensor
        self.simplex: Tensor
        self.register_buffer("share", torch.tensor(START))
        self.register_buffer("simplex", simplex(width, network.head.out_features, generator))
        self.seen: list[Tensor] = []

    def features(self, x: Tensor) -> Tensor:
        z: Tensor = self.body(x)
        return z

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the linear and of the ETF head, from one run of what they share."""
        shared = self.body[: self.shared](x)
        direction = F.normalize(self.branch(shared).float(), dim=1, eps=1e-12)
        linear = self.head(self.body[self.shared :](shared))
        return linear, direction @ self.simplex

    def mixed(self, linear: Tensor, etf: Tensor) -> Tensor:
        return self.share * linear + (1 - self.share) * etf

    def forward(self, x: Tensor) -> Tensor:
        return self.mixed(*self.both(x))

    @torch.no_grad()
    def remember(self, linear: Tensor, etf: Tensor, labels: Tensor) -> None:
        # float32 holds any label below 2^24
        self.seen.append(torch.cat([linear, etf, labels[:, None].to(linear)], 1))

    def get_extra_state(self) -> Tensor:
        if not self.seen:
            return torch.empty(0, 2 * self.simplex.shape[1] + 1)
        self.seen = [torch.cat(self.seen)]
        return self.seen[0]

    def set_extra_state(self, state: Tensor) -> None:
        self.seen = [state.to(self.simplex.device)] if len(state) else []


def dual(network: Net, seed: int) -> Dual:
    """The network itself, not a copy, with an ETF head beside its own.

    Adaptor and simplex are drawn with the seed. ValueError where `simplex` raises it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Dual(network, torch.Generator().manual_seed(seed))


def balcal_begin(network: nn.Module, epoch: int, epochs: int) -> None:
    if not isinstance(network, Dual):
        raise ValueError(
            f"BalCAL trains two heads and {type(network).__name__} has one; "
            "pass dual(network, seed)"
        )


def balcal_loss(network: Dual, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean loss, and the logits as eval mode would mix them.

    The network remembers what the heads said.
    """
    linear, etf = (logits.float() for logits in network.both(x))
    scaled = etf * class_scale(y, etf.shape[1])  # the same as scaling the columns of M
    network.remember(linear, scaled, y)
    loss = network.mixed(F.cross_entropy(linear, y), F.cross_entropy(scaled, y))
    return loss, network.mixed(linear, etf)


def balcal_end(network: nn.Module, epoch: int, epochs: int, *, delta: float) -> None:
    """Set lambda by what the heads said in this epoch, and forget it."""
    assert isinstance(network, Dual)
    rows = torch.cat(everywhere(network.get_extra_state().cpu())).to(network.simplex.device)
    classes = network.simplex.shape[1]
    linear, etf, labels = torch.split(rows, [classes, classes, 1], 1)
    network.share.fill_(from_first(balance(linear, etf, labels[:, 0], delta)))
    network.seen.clear()


def balcal(delta: float = 0.95) -> Objective:
    """BalCAL's objective, for a network that `dual` made.

    Confidence is to be delta times accuracy on the training images.
    """
    if not 0 < delta < float("inf"):
        raise ValueError(
            f"delta is {delta}; "
            "pass a number above 0, the confidence wanted for each part of accuracy"
        )
    return Objective(loss=balcal_loss, begin=balcal_begin, end=partial(balcal_end, delta=delta))
