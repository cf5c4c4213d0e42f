"""The pictures of docs/plots.md that no other script draws.

    python benchmarks/plot_pictures.py          docs/plots/keep.png and monitor.png; half a minute

Both come from examples that the tests run: the network of examples/calibrate.py and the monitor of
examples/monitor.py.
"""

import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import maccal as mc
from examples.calibrate import build
from maccal.features import find_head
from maccal.report.course import plot_course, prepare_course
from maccal.report.keep import plot_keep, prepare_keep

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "plots"


def keep() -> None:
    """Two second stages of one network: from its trained classifier, and from a new one."""
    model, train, val, _ = build()
    name = find_head(model, next(iter(train)))
    paths = []
    for start in ("trained", "fresh"):
        made = mc.calibrate(model, train, val=val, config=mc.Stage2(start=start))
        history: Any = made.get_submodule(name).history
        paths.append(prepare_keep(history, f'start="{start}"'))
    plot_keep(paths).savefig(PICTURES / "keep.png", dpi=100)


def monitor() -> None:
    """Two weeks, with dirt on the lens from the ninth day on."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(ROOT / "examples" / "monitor.py")
        sys.argv = [file, folder]
        runpy.run_path(file)
        course = prepare_course(mc.Monitor.open(Path(folder) / "state"))
    plot_course(course).savefig(PICTURES / "monitor.png", dpi=100)


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    keep()
    monitor()
