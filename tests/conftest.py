"""Strict settings for every test: one thread, the same hypothesis examples every time, warnings are errors (pyproject.toml)."""

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
matplotlib.use("agg")
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
    subprocess.run([sys.executable, shared / "data" / "unpack", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Models that tests build are the same every time."""
    torch.manual_seed(0)
