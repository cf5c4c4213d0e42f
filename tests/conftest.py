"""Strict settings for every test.

One thread, the same hypothesis examples every time, warnings are errors (pyproject.toml).
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
    """The folder with real networks and data sets: $MACCAL_DATA, or ../shared beside the project."""
    for folder in (os.environ.get("MACCAL_DATA"), Path(__file__).parents[2] / "shared"):
        if folder and (Path(folder) / "data").is_dir():
            return Path(folder)
    pytest.skip("no shared data: set MACCAL_DATA to the folder that holds data/")


@pytest.fixture(scope="session")
def real(shared, tmp_path_factory):
    """The real sets, unpacked."""
    folder = tmp_path_factory.mktemp("sets")
    subprocess.run(
        [sys.executable, shared / "data" / "unpack", folder], check=True, capture_output=True
    )
    return folder


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium."""
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if chromium is None:
        pytest.skip(
            "no Chromium on this machine: install it (Debian: apt-get install chromium) to run the browser tests"
        )
    from playwright.sync_api import sync_playwright

    quiet = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=quiet)
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Models that tests build are the same every time."""
    torch.manual_seed(0)
