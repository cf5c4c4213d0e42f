"""The site: its made pages are what the rows make, every page is in it, and it builds strictly.

Building it takes the extra `docs`; without it that test is skipped.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import maccal

ROOT = Path(__file__).parents[1]


def test_made_pages_are_what_the_rows_make():
    command = [sys.executable, "benchmarks/site_pages.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_api_has_every_public_name():
    shown = set(re.findall(r"^::: maccal\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.M))
    assert shown == {name for name in maccal.__all__ if not name.isupper()}
    assert set(dir(maccal)) >= shown
    assert "MaCCalClassifier" in shown


def test_every_example_is_in_the_gallery():
    text = (ROOT / "docs" / "gallery.md").read_text()
    for example in (ROOT / "examples").glob("*.py"):
        assert example.name in text or example.stem == "__init__", example.name
    for picture in re.findall(r"\]\((gallery/.*?)\)", text):
        assert (ROOT / "docs" / picture).stat().st_size < 80_000


@pytest.mark.slow
def test_it_builds_strictly_and_asks_nobody(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: pip install 'maccal[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir"]
    done = subprocess.run(
        [*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    start = (tmp_path / "index.html").read_text()
    loaded = re.findall(r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="([^"]+)"', start)
    assert len(loaded) >= 3
    assert not [address for address in loaded if "://" in address]
    assert "<math" in (tmp_path / "methods" / "maccal" / "index.html").read_text()
    assert (tmp_path / "results" / "figures" / "leaderboard.png").exists()
