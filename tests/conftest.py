"""Strict settings for every test, and the fixtures that several rooms use.

One thread, the same hypothesis examples every time, warnings are errors (pyproject.toml).

Markers: `slow` (more than about a second of one core) and `distributed` (several processes as one)
stand at their tests. `browser` and `data` are given here, by the fixtures that a test uses.
`make quick` runs the tests that have none of the four.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib
import pytest
import torch
from hypothesis import settings

from maccal.io import locked
from maccal.training.precision import bf16_runs, only_announces_bf16

torch.set_num_threads(1)
if "ONEDNN_MAX_CPU_ISA" not in os.environ and only_announces_bf16():
    # a virtual machine that announces AMX and does not have it
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    bf16_runs.cache_clear()  # its answer was without this setting
matplotlib.use("agg")
# What the package remembers goes here and not to the user's own cache; set at once, so that
# programs that tests start inherit it.
os.environ["MACCAL_CACHE"] = tempfile.mkdtemp(prefix="maccal-tests-")
atexit.register(shutil.rmtree, os.environ["MACCAL_CACHE"], ignore_errors=True)
settings.register_profile("maccal", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("maccal")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real networks and data sets.

    $MACCAL_DATA, or ../shared beside the project.
    """
    for folder in (os.environ.get("MACCAL_DATA"), Path(__file__).parents[2] / "shared"):
        if folder and (Path(folder) / "data").is_dir():
            return Path(folder)
    pytest.skip("no shared data: set MACCAL_DATA to the folder that holds data/")


@pytest.fixture(scope="session")
def real(shared, tmp_path_factory):
    """The real sets, unpacked once for all workers: the first to ask does it, the others wait."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of this session, above the folders of its workers
    folder = folder / "sets"
    with locked(folder):
        if not (folder / "unpacked").exists():
            command = [sys.executable, shared / "data" / "unpack", folder]
            subprocess.run(command, check=True, capture_output=True)
            (folder / "unpacked").touch()
    return folder


CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium."""
    found = [path for path in map(shutil.which, CHROMIUM) if path is not None]
    if not found:
        pytest.skip(
            "no Chromium on this machine: install it (Debian: apt-get install chromium)"
            " to run the browser tests"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found[0], args=list(QUIET))
        yield browser
        browser.close()


# The torchvision wheel does not import without two operators that only its CUDA build declares.
@pytest.fixture(scope="session")
def vision():
    library = torch.library.Library("torchvision", "FRAGMENT")
    try:
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:  # declared already
        pass
    pytest.importorskip("torchvision")
    yield
    del library


# what a test needs, by the fixtures that it uses
MARKED_BY_FIXTURE = {"browser": "browser", "real": "data", "shared": "data"}


def pytest_collection_modifyitems(items) -> None:
    for item in items:
        for fixture in MARKED_BY_FIXTURE.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(MARKED_BY_FIXTURE[fixture])


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Models that tests build are the same every time."""
    torch.manual_seed(0)
