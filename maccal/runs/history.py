"""The history of a run while it is made: history.jsonl, and TensorBoard's files if asked for."""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from maccal.distributed import my_rank
from maccal.io import write_lines
from maccal.runs.folder import HISTORY
from maccal.training import History


def logger(folder: Path, tensorboard: bool) -> AbstractContextManager[Callable[[History], None]]:
    """Writes history.jsonl whole after each epoch, and the numbers to TensorBoard if asked to."""
    lines = partial(write_history, folder)
    return Board(folder, lines) if tensorboard and my_rank()[0] == 0 else nullcontext(lines)


def write_history(folder: Path, history: History) -> None:
    """One line per epoch; a number that JSON cannot say (infinity, NaN) becomes null."""
    records = [said_in_json(epoch) for epoch in history]
    write_lines(folder / "history.jsonl", HISTORY, records)


def said_in_json(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


class Board(AbstractContextManager[Callable[[History], None]]):
    """TensorBoard's files beside the history's."""

    def __init__(self, folder: Path, lines: Callable[[History], None]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            remedy = "pip install 'maccal[tensorboard]'"
            raise ValueError(f"--tensorboard needs the package: {remedy}") from error
        self.writer: Any = SummaryWriter(str(folder / "tensorboard"))
        self.lines = lines

    def __enter__(self) -> Callable[[History], None]:
        return self.log

    def __exit__(self, *_: object) -> None:
        self.writer.close()

    def log(self, history: History) -> None:
        self.lines(history)
        for name, value in history[-1].items():
            self.writer.add_scalar(name, value, int(history[-1]["epoch"]))
        self.writer.flush()
