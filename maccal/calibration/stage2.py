"""The choices of stage II of MaC-Cal, each reading of the paper by name, and two equations.

    eta_t      = eta_init (eta_final / eta_init)^(t / T)                Eq. 13
    sparsity  += clip(Conf_t - target_t, -eta_t, eta_t)                 Eq. 12

Eq. 12 is read so that overconfident means sparser. The target is gamma Acc_t on the training rows,
and Acc_t on held-out ones. `Stage2()` is the reading that calibrates, `Stage2.paper()` the
equations as printed, which do not, and `Stage2.ablation(row)` a row of the paper's Table 5.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

BOTTLENECK = 512  # width of the hidden layer, where there is one; the paper gives none
FEWEST = 0.01  # the smallest share of the weights that a head keeps: none would be no head
# the smallest value of each number
LEAST: Mapping[str, int] = {
    "epochs": 1,
    "batch_size": 1,
    "lr": 0,
    "momentum": 0,
    "weight_decay": 0,
    "eta_init": 0,
    "eta_final": 0,
    "gamma": 0,
    "hidden": 1,
}


@dataclass(frozen=True)
class Stage2:
    """Every choice of stage II; the comments say what the paper does where ours differs."""

    epochs: int = 40
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["cosine", "constant"] = "cosine"  # the paper: constant
    # None is a linear head; the paper: a bottleneck, which costs accuracy with many classes
    hidden: int | None = None
    # subtract the mean of the features and divide by one common scale; the paper: raw features
    standardise: bool = True
    # when masks are drawn anew; Algorithm 1 says every batch, the text every epoch
    refresh: Literal["batch", "epoch"] = "batch"
    # Eq. 8: multiply in the forward pass, zero the weights in place, or multiply in the forward
    # pass and let gradients through to all weights
    masking: Literal["forward", "reset", "straight-through"] = "forward"
    # Eq. 11: dropped weights get no gradient; frozen: no momentum and no decay either
    restrict: Literal["none", "gradient", "frozen"] = "gradient"
    # the weights used at inference: keep x W, W, or those of the last mask
    inference: Literal["expected", "dense", "last"] = "expected"
    # what Eq. 12 moves; as printed it is the retention, which runs away
    adapt: Literal["sparsity", "retention", "none"] = "sparsity"
    # whose Conf and Acc Eq. 12 compares: those of the head as it would be used, on held-out or
    # (deployed) on training rows, or those of the masked training passes; auto is held-out where
    # there are such rows, else deployed
    statistics: Literal["auto", "held-out", "deployed", "masked"] = "auto"
    eta: Literal["decay", "static"] = "decay"  # Eq. 13, or eta_init throughout
    eta_init: float = 0.1
    eta_final: float = 0.001
    q0: float = 0.5  # keep in the first epoch
    # about the accuracy on unseen rows over that in training; used where no unseen rows are at hand
    gamma: float = 0.97

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check_choice(field.name, get_args(field.type))
        for name, least in LEAST.items():
            value = getattr(self, name)
            linear = name == "hidden" and value is None
            if not linear and not value >= least:
                raise ValueError(f"Stage2: {name} is {value}; it must be at least {least}")
        if not FEWEST <= self.q0 <= 1:
            allowed = f"the share of weights kept at first must lie in {FEWEST} .. 1"
            raise ValueError(f"Stage2: q0 is {self.q0}; {allowed}")

    def _check_choice(self, name: str, allowed: tuple[Any, ...]) -> None:
        """ValueError where a field with a list of words to choose from has another value."""
        if not allowed or not all(isinstance(word, str) for word in allowed):
            return
        value = getattr(self, name)
        if value not in allowed:
            raise ValueError(f"Stage2: {name} is {value!r}; choose one of {', '.join(allowed)}")

    @classmethod
    def paper(cls, **changes: Any) -> "Stage2":
        """The equations as printed, with Eq. 12 on the retention.

        Constant rate, raw features, a bottleneck, and dense weights at inference.
        """
        return replace(cls(**PAPER), **changes)

    @classmethod
    def ablation(cls, row: str, **changes: Any) -> "Stage2":
        """A row of Table 5, each of which adds to the one before it.

        vanilla, masked, restricted, restructured, static, decaying. The paper's vanilla row is the
        network as trained, without a stage II; here it is the same retraining without a mask. The
        last row is the paper's whole method; Stage2() differs from it in the linear head.
        """
        if row not in ABLATION:
            raise ValueError(f"Stage2.ablation: no row {row!r}; the rows are {', '.join(ABLATION)}")
        return replace(cls(**ABLATION[row]), **changes)

    def eta_at(self, epoch: int) -> float:
        """Eq. 13: the largest change of keep after epoch 1, 2, ..."""
        if self.eta == "static":
            return self.eta_init
        return self.eta_init * math.exp(
            math.log(self.eta_final / self.eta_init) * epoch / self.epochs
        )

    def next_keep(self, keep: float, gap: float, epoch: int) -> float:
        """Eq. 12 for the gap Conf - target, clamped so that some weights stay."""
        eta = self.eta_at(epoch)
        change = max(-eta, min(eta, gap))
        sign = {"sparsity": -1, "retention": 1, "none": 0}[self.adapt]
        return min(1.0, max(FEWEST, keep + sign * change))

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of step 0, 1, ... of so many; cosine falls from lr to zero."""
        if self.schedule == "constant":
            return self.lr
        return 0.5 * self.lr * (1 + math.cos(math.pi * step / steps))


PAPER: Mapping[str, Any] = {
    "hidden": BOTTLENECK,
    "schedule": "constant",
    "standardise": False,
    "refresh": "epoch",
    "inference": "dense",
    "adapt": "retention",
    "statistics": "masked",
}
ABLATION: Mapping[str, Mapping[str, Any]] = {
    "vanilla": {"hidden": None, "adapt": "none", "q0": 1.0},
    "masked": {"hidden": None, "adapt": "none", "masking": "straight-through", "restrict": "none"},
    "restricted": {"hidden": None, "adapt": "none"},
    "restructured": {"hidden": BOTTLENECK, "adapt": "none"},
    "static": {"hidden": BOTTLENECK, "eta": "static"},
    "decaying": {"hidden": BOTTLENECK},
}
