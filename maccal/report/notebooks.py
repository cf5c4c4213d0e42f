"""Figures that a notebook shows, once, without `%matplotlib`.

A notebook shows a figure of pyplot after its cell, and any figure that a cell's last line returns;
a figure that is both would be there twice. So a figure here shows itself when it is a cell's
result, and is then closed for pyplot. One that is assigned to a name is shown after the cell, as
figures of pyplot are. Outside of a notebook it is a plain figure that nothing keeps alive.
"""

import io
import sys
from importlib import import_module
from typing import Any

import matplotlib
from matplotlib.figure import Figure

DPI = 192  # two dots per pixel of the page: sharp on dense screens


class Shown(Figure):
    """A figure that shows itself as the result of a cell."""

    def _ipython_display_(self) -> None:
        if not in_notebook():
            raise NotImplementedError  # a terminal prints the repr, as of any other figure
        display = import_module("IPython.display")
        display.publish_display_data(
            {"image/png": self.png()}, {"image/png": {"width": self.pixels}}
        )
        if uses_pyplot():
            import matplotlib.pyplot as plt

            plt.close(self)  # shown now, and not once more after the cell

    def png(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=DPI)
        return buffer.getvalue()

    @property
    def pixels(self) -> int:
        """The width in a page, which has 96 pixels per inch."""
        return round(96 * self.get_size_inches()[0])


def new_figure(**settings: Any) -> Figure:
    """An empty figure; one of pyplot in a notebook that shows those after a cell."""
    if not uses_pyplot():
        return Shown(**settings)
    import matplotlib.pyplot as plt

    return plt.figure(FigureClass=Shown, **settings)


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this; IPython in a terminal has none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def uses_pyplot() -> bool:
    """Whether the figures of pyplot are shown below the cell; widgets and windows are not ours."""
    return in_notebook() and "inline" in matplotlib.get_backend()
