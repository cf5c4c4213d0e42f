"""The choices of stage II of MaC-Cal, each reading of the paper by name, and two equations.

    eta_t      = eta_init (eta_final / eta_init)^(t / T)                Eq. 13
    sparsity  += clip(Conf_t - target_t, -eta_t, eta_t)                 Eq. 12

Eq. 12 is read so that overconfident means sparser. The target is gamma Acc_t on the training rows,
and Acc_t on held-out ones. A head that starts from the trained classifier need not creep there: the
keep that meets the target is solved for (solving.py).

`Stage2()` is the reading that calibrates, `Stage2.paper()` the equations as printed, which do not,
and `Stage2.ablation(row, reading)` a row of the paper's Table 5 under either reading of its masks.
PRESETS has them all by name. Choices that are None depend on others; `settled` fills them in.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from maccal.limits import check_count, check_number, check_share

BOTTLENECK = 512  # width of the hidden layer, where there is one; the paper gives none
FEWEST = 0.01  # the smallest share of the weights that a head keeps: none would be no head
# rows that a head from the trained classifier is shown, over all epochs, where there are many
SHOWN = 250_000
# the smallest value of each number
LEAST: Mapping[str, int] = {
    "epochs": 1,
    "batch_size": 1,
    "lr": 0,
    "momentum": 0,
    "weight_decay": 0,
    "eta_init": 0,
    "eta_final": 0,
    "hidden": 1,
}
WHOLE = ("epochs", "batch_size", "hidden")


@dataclass(frozen=True)
class Stage2:
    """Every choice of MaC-Cal's stage II; comments say what the paper does where ours differs."""

    # the classifier as trained, or random weights, as in the paper; auto: as trained, where it is
    # known and the new head is linear too
    start: Literal["auto", "trained", "fresh"] = "auto"
    # unset: 40 for a fresh head; from the trained classifier 5, fewer for more than 50,000 rows
    epochs: int | None = None
    batch_size: int = 128  # rows per step
    lr: float | None = None  # unset: 0.1 for a fresh head, else 0.0003
    momentum: float = 0.9  # share of the last step that goes on in the next
    weight_decay: float = 5e-4  # on every weight of the head
    # of the learning rate; the paper: constant
    schedule: Literal["cosine", "constant"] = "cosine"
    # width of a bottleneck, as in the paper, which costs accuracy with many classes; unset is a
    # linear head
    hidden: int | None = None
    # divide the features by one common scale; the paper: raw features
    standardise: bool = True
    # subtract their mean too; unset: for a fresh head, where they are standardised
    centre: bool | None = None
    # when masks are drawn anew; Algorithm 1 says every batch, the text every epoch. unset: every
    # batch, but every epoch for "regrow", whose weights need the time
    refresh: Literal["batch", "epoch"] | None = None
    # Eq. 8: multiply in the forward pass; zero the weights in place at every step (reset), or only
    # when the mask is drawn, so that they grow again (regrow); or multiply in the forward pass and
    # let gradients through to all weights. none is the control: every weight times keep
    masking: Literal["forward", "reset", "regrow", "straight-through", "none"] = "forward"
    # Eq. 11: dropped weights get no gradient; frozen: no momentum and no decay either
    restrict: Literal["none", "gradient", "frozen"] = "gradient"
    # the weights used at inference: keep x W, W, or those of the last mask
    inference: Literal["expected", "dense", "last"] = "expected"
    # what Eq. 12 moves; as printed it is the retention, which runs away. solved: no steps, keep is
    # where confidence meets its target. unset: solved from the trained classifier, else sparsity
    adapt: Literal["solved", "sparsity", "retention", "none"] | None = None
    # whose Conf and Acc Eq. 12 compares: those of the head as it would be used, on held-out or
    # (deployed) on training rows, or those of the masked training passes; auto is held-out where
    # there are such rows, else deployed
    statistics: Literal["auto", "held-out", "deployed", "masked"] = "auto"
    eta: Literal["decay", "static"] = "decay"  # Eq. 13, or eta_init throughout
    eta_init: float = 0.1  # step of keep in the first epoch
    eta_final: float = 0.001  # step of keep in the last epoch
    q0: float = 0.5  # keep in the first epoch
    # about the accuracy on unseen rows over that in training; used where no unseen rows are at hand
    gamma: float = 0.97
    # of the frozen body, in runs: train makes the features anew in every step, of augmented images
    # and with BatchNorm in train mode, as the paper's time per epoch suggests
    batchnorm: Literal["eval", "train"] = "eval"

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check_choice(field.name, get_args(field.type))
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is None:
                continue
            check = check_count if name in WHOLE else check_number
            check(value, f"Stage2: {name}", least)
        check_share(self.gamma, "Stage2: gamma")
        check_number(self.q0, "Stage2: q0")
        if self.start == "trained" and self.hidden is not None:
            raise ValueError(
                "Stage2: the trained classifier is linear, so a head that starts from it has no "
                f"hidden layer; hidden is {self.hidden}: pass hidden=None or start='fresh'"
            )
        if self.adapt == "solved" and not self.solvable:
            raise ValueError(
                "Stage2: keep is solved for where it multiplies the weights at inference; "
                "adapt='solved' needs inference='expected', statistics other than 'masked', "
                "masking other than 'reset' and 'regrow', and no fresh start"
            )
        if not FEWEST <= self.q0 <= 1:
            allowed = f"the share of weights kept at first must lie in {FEWEST} .. 1"
            raise ValueError(f"Stage2: q0 is {self.q0}; {allowed}")

    def _check_choice(self, name: str, allowed: tuple[Any, ...]) -> None:
        """ValueError where a field with a list of words to choose from has another value."""
        words = list(allowed)
        value = getattr(self, name)
        if type(None) in words:
            if value is None:
                return
            words = list(get_args(words[0]))  # of Literal[...] | None
        if not words or not all(isinstance(word, str) for word in words):
            return
        if value not in words:
            raise ValueError(f"Stage2: {name} is {value!r}; choose one of {', '.join(words)}")

    @property
    def scales(self) -> bool:
        """Whether keep multiplies the weights at inference."""
        return self.inference == "expected" and not self.zeroes

    @property
    def zeroes(self) -> bool:
        """Whether masks zero the weights themselves, which are then used as they are."""
        return self.masking in ("reset", "regrow")

    @property
    def solvable(self) -> bool:
        """Whether keep can be solved for: it scales the logits of the head as it would be used."""
        return self.scales and self.start != "fresh" and self.statistics != "masked"

    def settled(self, trained: bool, rows: int = 0) -> "Stage2":
        """With nothing left open, given whether there is a trained classifier, and the rows.

        >>> Stage2().settled(trained=True).epochs, Stage2().settled(trained=False).epochs
        (5, 40)
        """
        start = self.start
        if start == "auto":
            start = "trained" if trained and self.hidden is None else "fresh"
        fresh = start == "fresh"
        epochs = 40 if fresh else max(1, min(5, SHOWN // max(1, rows)))
        adapt: Any = "solved" if not fresh and self.solvable else "sparsity"
        refresh: Any = "epoch" if self.masking == "regrow" else "batch"
        return replace(
            self,
            start=start,
            epochs=epochs if self.epochs is None else self.epochs,
            lr=(0.1 if fresh else 3e-4) if self.lr is None else self.lr,
            centre=(fresh and self.standardise) if self.centre is None else self.centre,
            adapt=adapt if self.adapt is None else self.adapt,
            refresh=refresh if self.refresh is None else self.refresh,
        )

    @classmethod
    def paper(cls, **changes: Any) -> "Stage2":
        """The equations as printed, with Eq. 12 on the retention.

        Constant rate, raw features, a bottleneck, and dense weights at inference.
        """
        return replace(cls(**PAPER), **changes).settled(trained=False)

    @classmethod
    def ablation(cls, row: str, reading: str = "forward", **changes: Any) -> "Stage2":
        """A row of Table 5, each of which adds to the one before it.

        vanilla, masked, restricted, restructured, static, decaying. The paper's vanilla row is the
        network as trained, without a stage II; here it is the same retraining without a mask. The
        last row is the paper's whole method, with Eq. 12 on the sparsity.

        The reading says what a mask does. forward: it multiplies the weights, all heads start
        afresh, and "masked" passes gradients straight through. regrow: it zeroes the weights when
        it is drawn, once per epoch; linear heads start from the trained classifier, for the five
        epochs of the paper's Fig. 1, and without the restriction the weights grow again at once.
        """
        if row not in ABLATION:
            raise ValueError(f"Stage2.ablation: no row {row!r}; the rows are {', '.join(ABLATION)}")
        if reading not in READINGS:
            known = ", ".join(READINGS)
            raise ValueError(f"Stage2.ablation: no reading {reading!r}; choose one of {known}")
        chosen = {"start": "fresh", **ABLATION[row]}
        if reading == "regrow":
            chosen |= {"masking": "regrow"}
            if chosen["hidden"] is None:
                chosen |= REGROWN
        return replace(cls(**chosen), **changes).settled(trained=False)

    def eta_at(self, epoch: int) -> float:
        """Eq. 13: the largest change of keep after epoch 1, 2, ..."""
        if self.eta == "static":
            return self.eta_init
        assert self.epochs is not None
        share = epoch / self.epochs
        return self.eta_init * math.exp(math.log(self.eta_final / self.eta_init) * share)

    def next_keep(self, keep: float, gap: float, epoch: int) -> float:
        """Eq. 12 for the gap Conf - target, clamped so that some weights stay."""
        eta = self.eta_at(epoch)
        change = max(-eta, min(eta, gap))
        assert self.adapt is not None
        sign = {"sparsity": -1, "retention": 1, "none": 0}[self.adapt]
        return min(1.0, max(FEWEST, keep + sign * change))

    def lr_at(self, step: int, steps: int) -> float:
        """The learning rate of step 0, 1, ... of so many; cosine falls from lr to zero."""
        assert self.lr is not None
        if self.schedule == "constant":
            return self.lr
        return 0.5 * self.lr * (1 + math.cos(math.pi * step / steps))


PAPER: Mapping[str, Any] = {
    "start": "fresh",
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
READINGS = ("forward", "regrow")
# of linear heads that regrow: the trained classifier, and Fig. 1's "5 epochs" at the paper's rate
REGROWN: Mapping[str, Any] = {"start": "trained", "epochs": 5, "lr": 0.1}


def presets() -> dict[str, Stage2]:
    """Every named reading: ours, the paper's, and the rows of Table 5 under both readings."""
    found = {"default": Stage2(), "paper": Stage2.paper()}
    for row in ABLATION:
        found[row] = Stage2.ablation(row)
    for row in ABLATION:
        found[f"{row}-regrow"] = Stage2.ablation(row, "regrow")
    return found


PRESETS: Mapping[str, Stage2] = presets()
