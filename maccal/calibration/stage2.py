"""The choices of stage II of MaC-Cal, each reading of the paper by name, and its two update
equations.

    eta_t      = eta_init (eta_final / eta_init)^(t / T)                       Eq. 13
    sparsity  += clip(Conf_t - target_t, -eta_t, eta_t)                        Eq. 12, read so that overconfident means sparser

where the target is gamma Acc_t on the training rows and Acc_t on held-out ones. `Stage2()` is the
reading that calibrates, `Stage2.paper()` the equations as printed, which do not, and
`Stage2.ablation(row)` a row of the paper's Table 5.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

BOTTLENECK = 512  # width of the hidden layer, where there is one; the paper gives none
FEWEST = 0.01  # the smallest share of the weights that a head keeps: none would be no head


@dataclass(frozen=True)
class Stage2:
    """Every choice of stage II; the comments give the paper's words where ours differ."""

    epochs: int = 40
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["cosine", "constant"] = "cosine"  # the paper: constant
    # a linear head; the paper: a bottleneck, which costs accuracy where classes are many
    hidden: int | None = None
    standardise: bool = True  # features less their mean, over one common scale; the paper: raw
    # when masks are drawn; Algorithm 1 says batch, the text epoch
    refresh: Literal["batch", "epoch"] = "batch"
    # multiply, zero in place, or let gradients pass the mask
    masking: Literal["forward", "reset", "straight-through"] = "forward"
    # Eq. 11; frozen spares dropped weights momentum and decay too
    restrict: Literal["none", "gradient", "frozen"] = "gradient"
    # keep x W, W, or the last mask's weights
    inference: Literal["expected", "dense", "last"] = "expected"
    # Eq. 12 moves this; as printed it is the retention, and runs away
    adapt: Literal["sparsity", "retention", "none"] = "sparsity"
    # whose Conf and Acc; see the end
    statistics: Literal["auto", "held-out", "deployed", "masked"] = "auto"
    eta: Literal["decay", "static"] = "decay"
    eta_init: float = 0.1
    eta_final: float = 0.001
    q0: float = 0.5
    # accuracy on unseen rows over accuracy in training, about; used where no unseen rows are at
    # hand
    gamma: float = 0.97

    # statistics: of the head as it would be used, on held-out rows or (deployed) on the training
    # rows; or of the masked training passes. auto: held-out where there are such rows, else
    # deployed.

    def __post_init__(self) -> None:
        for field in fields(self):
            allowed, value = get_args(field.type), getattr(self, field.name)
            if allowed and all(isinstance(a, str) for a in allowed) and value not in allowed:
                raise ValueError(
                    f"Stage2: {field.name} is {value!r}; choose one of {', '.join(allowed)}"
                )
        limits = {
            "epochs": 1,
            "batch_size": 1,
            "lr": 0,
            "momentum": 0,
            "weight_decay": 0,
            "eta_init": 0,
            "eta_final": 0,
            "gamma": 0,
        }
        for name, least in {**limits, **({"hidden": 1} if self.hidden is not None else {})}.items():
            if not getattr(self, name) >= least:
                raise ValueError(
                    f"Stage2: {name} is {getattr(self, name)}; it must be at least {least}"
                )
        if not FEWEST <= self.q0 <= 1:
            raise ValueError(
                f"Stage2: q0 is {self.q0}; the share of weights kept at first must lie in {FEWEST} .. 1"
            )

    @classmethod
    def paper(cls, **changes: Any) -> "Stage2":
        """The equations as printed: constant rate, raw features, dense weights at inference, Eq.

        12 on the retention.
        """
        return replace(cls(**PAPER), **changes)

    @classmethod
    def ablation(cls, row: str, **changes: Any) -> "Stage2":
        """A row of Table 5: vanilla, masked, restricted, restructured, static or decaying; each
        adds to the one before.

        The paper's vanilla row is the network as trained, without a stage II; here it is the same
        retraining without a mask. The last is the paper's whole method; Stage2() differs from it in
        the linear head."""
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
        change = max(-self.eta_at(epoch), min(self.eta_at(epoch), gap))
        sign = {"sparsity": -1, "retention": 1, "none": 0}[self.adapt]
        return min(1.0, max(FEWEST, keep + sign * change))

    def lr_at(self, step: int, steps: int) -> float:
        return (
            self.lr
            if self.schedule == "constant"
            else 0.5 * self.lr * (1 + math.cos(math.pi * step / steps))
        )


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
