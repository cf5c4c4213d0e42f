"""Results in, one self-contained HTML file out: no network, inline SVG, light and dark, every user
string escaped.

    maccal.report.evaluation     the page of one model, or of several on the same rows
    maccal.report.leaderboard    the page of the benchmark

Here is what both need. Pages are built by Jinja from the templates beside this file. Figures are
drawn in placeholder colours which are then replaced by the page's CSS variables, so that one
drawing serves both colour schemes. Only tags are changed: what a user calls a model is drawn as it
is.
"""

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import matplotlib
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from maccal.report.look import Theme, any_letters


def listing(words: Sequence[str]) -> str:
    """
    >>> listing(["a"]), listing(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"


TAG = re.compile("<[^<>]*>")
PLACEHOLDERS = Theme(
    **{field.name: f"#{number:06x}" for number, field in enumerate(fields(Theme), start=0x010203)}
)
VARIABLES = {colour: f"var(--{name})" for name, colour in asdict(PLACEHOLDERS).items()}
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["listing"] = listing


def svg(figure: Figure, dpi: float = 100) -> Markup:
    """The figure as inline SVG whose colours are CSS variables and whose text is text; the same
    bytes every time.

    `dpi` is of what is a picture within the drawing. Figure.savefig would draw all of it twice,
    once for the layout alone."""
    buffer = io.StringIO()
    before = figure.dpi
    figure.dpi = dpi
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with any_letters(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "maccal"}):
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(buffer, metadata=nothing)
    figure.dpi = before
    text = buffer.getvalue()
    return Markup(in_tags(text[text.index("<svg") :], lambda tag: coloured(tag, VARIABLES)))


def in_tags(text: str, change: Callable[[str], str]) -> str:
    """Change the tags of an SVG and leave its words alone: a model may be called #010203.

    >>> in_tags('<text fill="a">a</text>', lambda tag: tag.replace('"a"', '"b"'))
    '<text fill="b">a</text>'
    """
    return TAG.sub(lambda found: change(found[0]), text)


def coloured(tag: str, colours: Mapping[str, str]) -> str:
    for colour, variable in colours.items():
        tag = tag.replace(colour, variable)
    return tag


def in_json(values: Any, indent: int | None = None) -> Markup:
    """As JSON within a page, where no text can end the script that holds it."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(values, indent=indent, separators=separators, allow_nan=False)
    return Markup(text.replace("<", "\\u003c"))
