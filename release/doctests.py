"""An extension of griffe, which reads the docstrings of the site: a doctest becomes a code block.

Markdown would take its `>>>` for a quotation of a quotation of a quotation.
"""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


def fenced(text: str) -> str:
    """
    >>> print(fenced("A sum.\\n\\n>>> 1 + 1\\n2\\n\\nAnd more.").replace("`", "'"))
    A sum.
    <BLANKLINE>
    '''pycon
    >>> 1 + 1
    2
    '''
    <BLANKLINE>
    And more.
    """
    return DOCTEST.sub(lambda found: f"```pycon\n{found.group()}\n```", text)


class Doctests(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
