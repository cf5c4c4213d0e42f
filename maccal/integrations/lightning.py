"""A Lightning callback: how calibrated every validation is, and a calibrated module after fit.

    Trainer(callbacks=[CalibrationCallback()]).fit(module, train_loader, val_loader)

logs val_ece, val_accuracy, val_confidence, val_nll and val_brier after each validation. At the end
of fit it calibrates the module in place, with the validation rows as feedback. Checkpoints that
were written before then hold the module as trained; `trainer.save_checkpoint` afterwards writes the
calibrated one.

Where `validation_step` returns a mapping with "logits", those are measured; else the module is run
once more on each validation batch. Of several validation loaders the first is measured, and which
one to calibrate by is to be said. Needs lightning: pip install 'maccal[lightning]'
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from maccal.calibration import calibrate
from maccal.caution import warn
from maccal.distributed import my_rank
from maccal.features.batches import as_batch, check_loader
from maccal.features.running import Runner, logits_of
from maccal.metrics import Stream

LOGGED = ("accuracy", "confidence", "ece", "nll", "brier")


class CalibrationCallback(Callback):
    """Measures every validation; calibrates the module, in place, when fit ends.

    `train` and `val` are the loaders that calibrate is given, else the trainer's own: a loader of
    the training rows without augmentation is the better one. `calibrator`, `config`, `accuracy`,
    `head` and the like go to `maccal.calibrate`. calibrate=False only measures.

    measured    one dict of numbers per validation
    """

    def __init__(
        self,
        *,
        calibrate: bool = True,
        train: Iterable[Any] | None = None,
        val: Iterable[Any] | None = None,
        prefix: str = "val_",
        bins: int = 15,
        **choices: Any,
    ) -> None:
        if not calibrate and (choices or train is not None or val is not None):
            raise ValueError("calibrate=False only measures; leave train, val and choices out")
        self.calibrate = calibrate
        self.train = train
        self.val = val
        self.prefix = prefix
        self.choices = choices
        self.bins = bins
        self.stream = Stream.empty(bins)
        self.measured: list[dict[str, float]] = []

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.stream = Stream.empty(self.bins)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if trainer.sanity_checking or dataloader_idx > 0:
            return
        given = as_batch(batch)
        if isinstance(outputs, Mapping) and "logits" in outputs:
            logits = logits_of(outputs)
        else:
            logits = Runner(pl_module, pl_module.device)(given)
        self.stream += Stream.of(logits=logits.detach().cpu(), labels=given.y, bins=self.bins)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        if my_rank()[1] > 1:
            self.stream = self.stream.all_reduce()
        found = self.stream.summary()
        self.measured.append({name: found[name] for name in LOGGED})
        for name in LOGGED:
            # every process has the sums of all, so there is nothing to average
            pl_module.log(f"{self.prefix}{name}", torch.tensor(found[name], dtype=torch.float32))

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # what is wrong is said before the training, not after it
        self.feedback_loader(trainer)
        self.train_loader(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.calibrate:
            return
        train = self.train_loader(trainer)
        val = self.feedback_loader(trainer)
        try:
            given = in_its_precision(train, trainer), in_its_precision(val, trainer)
            calibrate(pl_module, given[0], val=given[1], inplace=True, **self.choices)
        except (ValueError, RuntimeError) as error:  # the training was long: its model is kept
            warn(f"the model is as trained, not calibrated: {error}")

    def train_loader(self, trainer: Trainer) -> Any:
        """The rows whose features are calibrated."""
        if not self.calibrate or self.train is not None:
            return self.train
        found = trainer.train_dataloader
        if isinstance(found, list | tuple | Mapping):
            raise ValueError("the trainer has several training loaders; pass one as train=")
        return found

    def feedback_loader(self, trainer: Trainer) -> Any:
        """The rows to calibrate by; none where the choices say what the accuracy is."""
        if not self.calibrate or "accuracy" in self.choices or "views" in self.choices:
            return self.val
        if self.val is not None:
            return self.val
        found = trainer.val_dataloaders
        if isinstance(found, list | tuple | Mapping):
            raise ValueError("the trainer has several validation loaders; pass one as val=")
        return found


class Converted:
    """A loader whose batches have the type of numbers that the trainer gives its module."""

    def __init__(self, loader: Iterable[Any], trainer: Trainer) -> None:
        self.loader = loader
        self.trainer = trainer
        self.sampler = getattr(loader, "sampler", None)  # which may have shared out the rows

    def __iter__(self) -> Iterator[Any]:
        return map(self.trainer.precision_plugin.convert_input, iter(self.loader))


def in_its_precision(loader: Any, trainer: Trainer) -> Any:
    """The loader; with precision="bf16-true" and the like its inputs have that type."""
    if loader is None or not str(trainer.precision).endswith("-true"):
        return loader
    check_loader(loader, "the loader")
    return Converted(loader, trainer)
