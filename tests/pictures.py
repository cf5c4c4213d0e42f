"""What is in a picture that matplotlib saved, whatever the format: its size, words and colours."""

import re
import zlib
from pathlib import Path
from typing import NamedTuple

from PIL import Image


class Picture(NamedTuple):
    inches: tuple[float, float]
    words: str | None  # of a PNG and a PDF, None: their letters are drawn
    colours: set[str]  # as #rrggbb


def saved(file: Path) -> Picture:
    return READERS[file.suffix](file)


def svg(file: Path) -> Picture:
    """Sizes are in points; a comment beside the drawn letters has the words."""
    text = file.read_text()
    width, height = re.search(r'<svg [^>]*width="([\d.]+)pt" height="([\d.]+)pt"', text).groups()
    words = " ".join(re.findall(r"<!-- (.*?) -->", text))
    colours = set(re.findall(r"#[0-9a-f]{6}\b", text))
    return Picture((float(width) / 72, float(height) / 72), words, colours)


def png(file: Path) -> Picture:
    """Saved with 100 dots per inch."""
    with Image.open(file) as image:
        counted = image.convert("RGB").getcolors(maxcolors=1 << 24)
        width, height = image.size
    colours = {"#{:02x}{:02x}{:02x}".format(*colour) for _, colour in counted}
    return Picture((width / 100, height / 100), None, colours)


def pdf(file: Path) -> Picture:
    """Sizes are in points; colours are three numbers before rg or RG in a compressed stream."""
    data = file.read_bytes()
    assert data.startswith(b"%PDF")
    width, height = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", data).groups()
    colours = set()
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL):
        try:
            drawn = zlib.decompress(stream)
        except zlib.error:
            continue
        for red, green, blue in re.findall(rb"([\d.]+) ([\d.]+) ([\d.]+) (?:rg|RG)\b", drawn):
            shares = (float(red), float(green), float(blue))
            colours.add("#" + "".join(f"{round(255 * share):02x}" for share in shares))
    return Picture((float(width) / 72, float(height) / 72), None, colours)


READERS = {".svg": svg, ".png": png, ".pdf": pdf}
