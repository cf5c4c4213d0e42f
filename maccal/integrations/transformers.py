"""A transformers Trainer that measures its confidence, and calibrates its model in the end.

    Trainer(..., compute_metrics=compute_metrics, callbacks=[CalibrationCallback()])

compute_metrics gives eval_accuracy, eval_ece and the like at every evaluation. The callback
calibrates the model in place at the end of `train()`, after the best checkpoint was loaded where
load_best_model_at_end asks for that, with the evaluation set as feedback. `trainer.save_model()`
afterwards writes the calibrated model: the keys of its state dict stay, and from_pretrained reads
it. Needs transformers: pip install 'maccal[hf]'
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import nn
from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy

from maccal.calibration import calibrate
from maccal.caution import warn
from maccal.metrics import summary

RUNTIME = "_runtime"  # every evaluation has this number, behind the prefix of its set
NOTHING = (
    "nothing was evaluated, so there is no loader to calibrate by; set eval_strategy, "
    "or pass CalibrationCallback(val=...)"
)
NO_LABEL = -100  # what transformers gives the rows, and the tokens, that have none
MEASURED = ("accuracy", "confidence", "ece", "nll", "brier")


def compute_metrics(prediction: Any) -> dict[str, float]:
    """The numbers of an EvalPrediction, whose predictions are logits.

    Each token is a row where the model classifies tokens. Rows with the label -100 are left out.

    >>> from types import SimpleNamespace
    >>> logits = np.log(np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]))
    >>> said = SimpleNamespace(predictions=logits, label_ids=np.array([0, 1, 1]))
    >>> round(compute_metrics(said)["ece"], 3)
    0.4
    """
    logits = prediction.predictions
    if isinstance(logits, tuple | list):  # hidden states and the like follow
        logits = logits[0]
    logits = np.asarray(logits)
    labels = np.asarray(prediction.label_ids)
    if logits.ndim == labels.ndim + 1 == 3:  # of tokens: each of them is a row
        logits = logits.reshape(-1, logits.shape[-1])
        labels = labels.reshape(-1)
    seen = labels != NO_LABEL
    if logits.ndim == 2 and labels.ndim == 1 and len(logits) == len(labels) and seen.any():
        logits = logits[seen]
        labels = labels[seen]
    found = summary(logits=logits, labels=labels)
    return {name: float(found[name]) for name in MEASURED}


class CalibrationCallback(TrainerCallback):
    """Calibrates the model, in place, when training ends.

    `train` and `val` are the loaders that calibrate is given, else the trainer's own. The choices,
    `calibrator`, `config`, `accuracy`, `head` and the like, go to `maccal.calibrate`.
    """

    def __init__(
        self,
        *,
        train: Iterable[Any] | None = None,
        val: Iterable[Any] | None = None,
        **choices: Any,
    ) -> None:
        self.train = train
        self.val = val
        self.choices = choices
        self.evaluated: set[str] = set()

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """What is wrong is said before the training, not after it."""
        self.evaluated = set()
        if self.needs_val() and IntervalStrategy(args.eval_strategy) == IntervalStrategy.NO:
            raise ValueError(NOTHING)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, *, metrics: Mapping[str, float], **others: Any
    ) -> None:
        """Which evaluation sets there are; they are told apart by the prefix of their numbers."""
        for name in metrics:
            if name.endswith(RUNTIME):
                self.evaluated.add(name.removesuffix(RUNTIME))
        if self.needs_val() and len(self.evaluated) > 1:
            names = ", ".join(sorted(self.evaluated))
            raise ValueError(
                f"several sets were evaluated ({names}); say which one to calibrate by: "
                "CalibrationCallback(val=...)"
            )

    def needs_val(self) -> bool:
        """Whether the trainer's own evaluation set is what to calibrate by."""
        return self.val is None and "accuracy" not in self.choices and "views" not in self.choices

    def on_train_end(
        self,
        args: Any,
        state: Any,
        control: Any,
        *,
        model: nn.Module,
        train_dataloader: Iterable[Any] | None = None,
        eval_dataloader: Iterable[Any] | None = None,
        **others: Any,
    ) -> None:
        train = self.train if self.train is not None else train_dataloader
        val = self.val
        if self.needs_val():
            val = eval_dataloader if self.evaluated else None
            if val is None:
                raise ValueError(NOTHING)
        assert train is not None
        try:
            with own_forward(model):
                calibrate(model, train, val=val, inplace=True, **self.choices)
        except (ValueError, RuntimeError) as error:  # the training was long: its model is kept
            warn(f"the model is as trained, not calibrated: {error}")


@contextmanager
def own_forward(model: nn.Module) -> Iterator[None]:
    """The model's own pass: with bf16=True and fp16=True one under autocast stands in its place."""
    own = vars(model).get("_original_forward")  # accelerate's name for it
    if own is None:
        yield
        return
    there = model.forward
    vars(model)["forward"] = own
    try:
        yield
    finally:
        vars(model)["forward"] = there
