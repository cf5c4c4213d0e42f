"""mkdocs hooks: links of docs/ that leave the folder lead to the repository; formulas become
MathML, which browsers draw without a script.

On the repository's own pages they are relative, and a test follows them. In the site a page outside
docs/ becomes an address of the repository, and a picture is copied into the site.
"""

import os
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

FORMULA = re.compile(r"^```math\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")
ROOT = Path(__file__).parents[1]


def outside(page: str, link: str) -> str | None:
    """The path in the repository of a link that leaves docs/; None if it stays there."""
    path = os.path.normpath(os.path.join("docs", os.path.dirname(page), link))  # noqa: PTH118, PTH120
    return None if Path(path).parts[0] == "docs" else Path(path).as_posix()


def on_files(files: Files, config: Any) -> Files:
    """Pictures outside docs/ that its pages show, as files of the site."""
    wanted = set()
    for file in files.documentation_pages():
        for picture, _, link in LINK.findall(file.content_string):
            path = outside(file.src_uri, link.split("#")[0])
            if picture and path:
                wanted.add(path)
    for path in sorted(wanted):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    def led(found: re.Match[str]) -> str:
        picture, text, link = found.groups()
        path = outside(page.file.src_uri, link)
        if picture:
            up = "../" * page.file.src_uri.count("/")
            return shown(text, link if path is None else f"{up}{path}")
        if path is None:
            return found.group()
        return f"[{text}]({config.extra['repository']}/blob/main/{path})"

    return FORMULA.sub(drawn, LINK.sub(led, markdown))


def shown(text: str, link: str) -> str:
    """A picture that a click opens by itself, in its own size."""
    return f"[![{text}]({link})]({link}){{.picture}}"


def drawn(formula: re.Match[str]) -> str:
    """Its MathML, on a line of its own that scrolls where it is too wide."""
    text = formula.group(1).strip().replace("{aligned}", "{align*}")  # the one it knows
    mathml = convert(text, display="block")
    return f'<div style="overflow-x: auto">{mathml}</div>'
