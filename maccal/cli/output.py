"""What a command prints, and where: results on stdout, everything else on stderr.

    tell(...)     a result for people: tables and sentences; not with --json
    answer(...)   the result as JSON, with --json
    note(...)     what happened beside it, such as a file that was written; not with --quiet

Tables and paths are never wrapped: a path that breaks in two cannot be copied. Sentences are, on a
terminal. NO_COLOR in the environment means no styles at all.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from maccal.io import readable
from maccal.progress import be_quiet, console

WIDE = 10_000  # letters of a line that is not wrapped


@dataclass
class Wanted:
    """The flags that every verb has."""

    json: bool = False
    quiet: bool = False


wanted = Wanted()


def want(*, json: bool = False, quiet: bool = False) -> None:
    """What the command line asks for, until the next command."""
    wanted.json = json
    wanted.quiet = quiet
    be_quiet(quiet)


def results(*, wrapped: bool = False) -> Console:
    """Stdout; lines are wrapped only where sentences go to a terminal."""
    out = console(stderr=False)
    return out if wrapped and out.is_terminal else console(stderr=False, width=WIDE)


def tell(*things: Table | Text | str) -> None:
    """Print a result for people: a table, a sentence, or an empty line."""
    if wanted.json:
        return
    for thing in things:
        if isinstance(thing, Table):
            results().print(thing)
        else:
            text = Text(thing) if isinstance(thing, str) else thing
            results(wrapped=True).print(text)


def answer(values: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print the result as JSON, if it was asked for; infinity and NaN become null."""
    if wanted.json:
        print(json.dumps(plain(values), indent=1, allow_nan=False))


def plain(values: Any) -> Any:
    """The same in what JSON knows.

    >>> plain({"nll": float("inf"), "files": (1, 2)})
    {'nll': None, 'files': [1, 2]}
    """
    if isinstance(values, Mapping):
        return {str(key): plain(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [plain(value) for value in values]
    if isinstance(values, float):
        return values if math.isfinite(values) else None
    if values is None or isinstance(values, str | int):
        return values
    return readable(str(values))


def note(words: str) -> None:
    """Say on stderr what happened beside the result, in one line."""
    if not wanted.quiet:
        console().print(Text(words), soft_wrap=True)
