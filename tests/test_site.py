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
        assert (ROOT / "docs" / picture).stat().st_size < 100_000
    links = set(re.findall(r"\]\((.*?)\)", (ROOT / "docs" / "plots.md").read_text()))
    for picture in (ROOT / "docs" / "plots").iterdir():
        assert f"plots/{picture.name}" in links
        assert picture.stat().st_size < 100_000


def test_every_name_of_the_api_is_explained_in_one_line():
    text = (ROOT / "docs" / "api.md").read_text()
    lines = dict(re.findall(r"^\| \[`(\w+)`\]\[maccal\.\1\] \| (.+) \|$", text, re.MULTILINE))
    assert set(lines) == set(re.findall(r"^::: maccal\.(\w+)$", text, re.MULTILINE))
    assert all(10 < len(line) < 120 for line in lines.values()), lines
    assert list(lines) == sorted(lines, key=str.lower)


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
    assert '<a class="picture" href="reliability.png">' in start
    peers = (tmp_path / "peers" / "index.html").read_text()
    assert "<details>" in peers
    assert '<div class="many-columns">' in peers
