"""One line on the terminal while a network trains: where it is, how it goes, how fast it is.

Without a terminal, the same as plain lines now and then.
"""

import time
from types import TracebackType

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from maccal.progress import Log, bars
from maccal.training.steps import Training

EPOCH = "epoch {task.fields[epoch]} of {task.fields[epochs]}"
NUMBERS = "loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:.2%}"
SPEED = "{task.fields[rate]:.0f} images/s"


class Bar:
    """The line; nothing is shown unless `show`, and by the first process only."""

    def __init__(self, training: Training, show: bool) -> None:
        self.training = training
        shown = show and training.rank == 0
        self.log = Log(shown)
        self.progress = bars(
            TextColumn(f"{EPOCH}  {NUMBERS}"),
            BarColumn(),
            TextColumn(SPEED),
            TimeRemainingColumn(),
            shown=shown,
            transient=True,
        )
        self.task = self.progress.add_task(
            "",
            total=training.recipe.epochs * len(training.batches),
            completed=training.steps_done,
            epoch=training.epoch + 1,
            epochs=training.recipe.epochs,
            loss=0.0,
            accuracy=0.0,
            rate=0.0,
        )
        self.steps = training.steps_done
        self.time = time.monotonic()

    def __enter__(self) -> "Bar":
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def update(self, loss: float, accuracy: float) -> None:
        """Show these numbers, and the speed since the last update."""
        now = time.monotonic()
        done = self.training.steps_done
        images = (done - self.steps) * self.training.recipe.batch_size
        where = f"epoch {self.training.epoch + 1} of {self.training.recipe.epochs}"
        self.log.say(f"{where}, loss {loss:.4f}, accuracy {accuracy:.2%}")
        self.progress.update(
            self.task,
            completed=done,
            epoch=self.training.epoch + 1,
            loss=loss,
            accuracy=accuracy,
            rate=images / (now - self.time),
        )
        self.steps = done
        self.time = now
