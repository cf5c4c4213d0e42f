"""One error for everything that is wrong with a file, in one line that any console can show."""

import unicodedata
from pathlib import Path

# Unicode categories that are escaped: control characters, lone surrogates, line and paragraph ends
HIDDEN = ("Cc", "Cs", "Zl", "Zp")


class FileError(ValueError):
    r"""A file or folder that is not what it should be: which one, what is wrong, and what to do.

    The message is one line: line breaks in the problem, as torch writes them, become spaces.

    >>> str(FileError("a.pt", "not a checkpoint:\n\tno weights"))
    'a.pt: not a checkpoint: no weights'
    """

    def __init__(self, path: Path | str, problem: str) -> None:
        self.problem = " ".join(problem.split())
        super().__init__(readable(f"{path}: {self.problem}"))


def readable(text: str) -> str:
    r"""Text that every page and console can show.

    Control characters, and bytes of a file name that are not UTF-8, become escapes.

    >>> readable("naïve \x1b[31m"), readable("caf\udce9")
    ('naïve \\x1b[31m', 'caf\\udce9')
    """
    if text.isprintable():  # quick, and true of nearly all texts
        return text
    return "".join(shown(letter) for letter in text)


def shown(letter: str) -> str:
    if unicodedata.category(letter) not in HIDDEN:
        return letter
    return letter.encode("unicode_escape").decode()
