"""What is said while work takes long, all of it on stderr.

On a terminal a bar; elsewhere, as in a log file, a plain line now and then and no control
characters; with `be_quiet` nothing at all. NO_COLOR means no styles: no colours, and no bold.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import Progress, ProgressColumn
from rich.progress import track as bar_of

Step = TypeVar("Step")
EVERY = 10.0  # seconds between two lines of a log

state = {"quiet": False}


def be_quiet(quiet: bool = True) -> None:
    """Say nothing of how work goes, from now on; or say it again."""
    state["quiet"] = quiet


def console(*, stderr: bool = True, **settings: Any) -> Console:
    """Where to print; without any style where the environment has NO_COLOR."""
    if os.environ.get("NO_COLOR"):
        settings["color_system"] = None
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, **settings)


def on_terminal() -> bool:
    """Whether a bar can be drawn and is wanted."""
    return not state["quiet"] and console().is_terminal


def bars(*columns: ProgressColumn, shown: bool = True, transient: bool = False) -> Progress:
    """Bars on the terminal; none are drawn where there is no terminal."""
    silent = not (shown and on_terminal())
    return Progress(*columns, console=console(), disable=silent, transient=transient)


def track(
    steps: Iterable[Step], words: str, *, total: int | None = None, disable: bool = False
) -> Iterator[Step]:
    """The steps, with a bar on a terminal, or a line every ten seconds elsewhere."""
    if disable or state["quiet"]:
        yield from steps
    elif on_terminal():
        yield from bar_of(steps, words, total=total, console=console(), transient=True)
    else:
        total = total if total is not None else getattr(steps, "__len__", lambda: None)()
        log = Log()
        for number, step in enumerate(steps, 1):
            yield step
            log.say(f"{words}: {number}" + ("" if total is None else f" of {total}"))


class Log:
    """Plain lines on stderr, not more often than every ten seconds."""

    def __init__(self, shown: bool = True) -> None:
        self.shown = shown and not state["quiet"] and not on_terminal()
        self.last = time.monotonic()

    def say(self, words: str) -> None:
        now = time.monotonic()
        if self.shown and now - self.last >= EVERY:
            print(f"maccal: {words}", file=sys.stderr, flush=True)
            self.last = now
