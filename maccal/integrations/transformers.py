"""A transformers Trainer that measures its confidence, and calibrates its model in the end.

    Trainer(..., compute_metrics=compute_metrics, callbacks=[CalibrationCallback()])

compute_metrics gives eval_accuracy, eval_ece and the like at every evaluation. The callback
calibrates the model in place at the end of `train()`, after the best checkpoint was loaded where
load_best_model_at_end asks for that, with the evaluation set as feedback. `trainer.save_model()`
afterwards writes the calibrated model: the keys of its state dict stay, and from_pretrained reads
it. Needs transformers: pip install 'maccal[hf]'
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import nn
from transformers import TrainerCallback

from maccal.calibration import calibrate
from maccal.metrics import summary

MEASURED = ("accuracy", "confidence", "ece", "nll", "brier")


def compute_metrics(prediction: Any) -> dict[str, float]:
    """The numbers of an EvalPrediction, whose predictions are logits.

    >>> from types import SimpleNamespace
    >>> logits = np.log(np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]))
    >>> said = SimpleNamespace(predictions=logits, label_ids=np.array([0, 1, 1]))
    >>> round(compute_metrics(said)["ece"], 3)
    0.4
    """
    logits = prediction.predictions
    if isinstance(logits, tuple | list):  # hidden states and the like follow
        logits = logits[0]
    found = summary(logits=np.asarray(logits), labels=np.asarray(prediction.label_ids))
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
        known = "accuracy" in self.choices or "views" in self.choices
        val = eval_dataloader if self.val is None and not known else self.val
        if val is None and not known:
            raise ValueError(
                "nothing was evaluated, so there is no loader to calibrate by; set eval_strategy, "
                "or pass CalibrationCallback(val=...)"
            )
        assert train is not None
        calibrate(model, train, val=val, inplace=True, **self.choices)
