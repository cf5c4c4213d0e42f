"""An extension of griffe, which reads the docstrings of the site: code blocks where layout counts.

A doctest becomes one, for Markdown would take its `>>>` for a quotation of a quotation of a
quotation; so does a list of parameters in columns, which Markdown would run together.
"""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)
# a paragraph whose first line has a word, a wide space, and more
COLUMNS = re.compile(r"(?:^|(?<=\n\n))(?!>>>)\S+(?: \S+)*  +\S.*?(?=\n\s*\n|\Z)", re.DOTALL)


def fenced(text: str) -> str:
    """The same text with its code blocks marked.

    >>> fenced("A sum.\\n\\n>>> 1 + 1\\n2\\n\\nMore.").replace("`", "'").split("\\n")[2:-2]
    ["'''pycon", '>>> 1 + 1', '2', "'''"]
    >>> fenced("A fit.\\n\\nbins   how many\\nequal  how").replace("`", "'").split("\\n")[2:]
    ["'''text", 'bins   how many', 'equal  how', "'''"]
    """
    text = COLUMNS.sub(lambda found: f"```text\n{found.group()}\n```", text)
    return DOCTEST.sub(lambda found: f"```pycon\n{found.group()}\n```", text)


class Doctests(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
