"""Tables of numbers for a notebook: as HTML that needs no style sheet, and as a pandas frame.

The colours are the reader's own, so that a dark notebook stays dark. pandas is imported when a
frame is asked for; it is not needed for anything else.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd

ENDS = {"low": "_low", "high": "_high", "null_low": "_null_low", "null_high": "_null_high"}
QUIET = "opacity:0.65;font-weight:normal"


class Line(NamedTuple):
    """A number as it is shown: its name, its label, what it means, and its texts."""

    name: str
    label: str
    meaning: str
    value: str
    interval: str
    null: str


def html_table(heading: str, lines: Sequence[Line], words: str = "") -> str:
    """The lines as a table with a heading, and a sentence below.

    Intervals and null bands have a column where there are any. A metric's meaning shows when the
    pointer rests on its label.
    """
    bands = {"95 % interval": [line.interval for line in lines]}
    bands["calibrated model"] = [line.null for line in lines]
    shown = {title: texts for title, texts in bands.items() if any(texts)}
    titles = ["", "value", *shown] if shown else []
    head = "".join(cell("th", title, QUIET) for title in titles)
    rows = []
    for number, line in enumerate(lines):
        label = f'<th style="text-align:left" title="{escape(line.meaning)}">'
        label += f"{escape(line.label)}</th>"
        texts = [texts[number] for texts in shown.values()]
        cells = [cell("td", line.value), *(cell("td", text, QUIET) for text in texts)]
        rows.append(f"<tr>{label}{''.join(cells)}</tr>")
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    caption = f'<caption style="text-align:left;{QUIET}">{escape(heading)}</caption>'
    below = f"<p>{escape(words)}</p>" if words else ""
    return f"<div><table>{caption}{body}</table>{below}</div>"


def cell(tag: str, text: str, style: str = "") -> str:
    return f'<{tag} style="text-align:right;padding:2px 8px;{style}">{escape(text)}</{tag}>'


def rows_table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    bold: int | None = None,
    notes: Sequence[str] = (),
) -> str:
    """Rows of texts below a head, one of them bold if asked for, and sentences below."""
    titles = "".join(cell("th", title, QUIET) for title in head)
    lines = []
    for number, (label, *texts) in enumerate(rows):
        weight = "font-weight:bold" if number == bold else "font-weight:normal"
        first = f'<th style="text-align:left;{weight}">{escape(label)}</th>'
        cells = "".join(cell("td", text, weight) for text in texts)
        lines.append(f"<tr>{first}{cells}</tr>")
    body = f"<thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody>"
    below = "".join(f"<p>{escape(words)}</p>" for words in notes)
    return f"<div><table>{body}</table>{below}</div>"


def needs_pandas() -> Any:
    """The package, which to_frame() alone needs."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("to_frame() needs pandas: pip install pandas") from error
    return pd


def frame_of(numbers: Mapping[str, Any], lines: Sequence[Line]) -> "pd.DataFrame":
    """One row per number, by its name: label, value, and the ends of interval and null band."""
    pd = needs_pandas()
    columns: dict[str, list[Any]] = {"label": whole_labels(lines)}
    columns["value"] = [numbers[line.name] for line in lines]
    for title, end in ENDS.items():
        found = [numbers.get(f"{line.name}{end}") for line in lines]
        if any(value is not None for value in found):
            columns[title] = [float("nan") if value is None else value for value in found]
    frame = pd.DataFrame(columns, index=pd.Index([line.name for line in lines], name="metric"))
    shown = set()
    for line in lines:
        shown |= {line.name, *(f"{line.name}{end}" for end in ENDS.values())}
    frame.attrs = {key: value for key, value in numbers.items() if key not in shown}
    return frame


def whole_labels(lines: Sequence[Line]) -> list[str]:
    """The labels, where a part of a number above says of which one: two numbers, two labels."""
    labels: list[str] = []
    whole = ""
    for line in lines:
        part = line.label.startswith("· ")
        whole = whole if part else line.label
        labels.append(f"{whole} {line.label}" if part else line.label)
    return labels
