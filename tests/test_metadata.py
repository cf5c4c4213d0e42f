"""pyproject.toml promises what is there: extras that serve something, links that agree."""

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# of those who work on maccal: what they bring is used beside the package
DEVELOPERS = {"bench", "dev", "docs", "faults", "release"}
IMPORTED_AS = {"scikit-learn": "sklearn", "mlflow-skinny": "mlflow"}
SOURCE = "\n".join(path.read_text() for path in (ROOT / "maccal").rglob("*.py"))


def package(requirement):
    name = re.match(r"[\w-]+", requirement).group()
    return IMPORTED_AS.get(name, name.replace("-", "_"))


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - DEVELOPERS))
def test_an_extra_brings_what_the_package_imports(extra):
    for name in map(package, EXTRAS[extra]):
        assert re.search(rf"\b(import|from) ([\w.]+\.)?{name}\b", SOURCE), name


def test_extras_that_are_named_exist():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    text = SOURCE + "\n".join(page.read_text() for page in pages)
    named = set()
    for words in re.findall(r"maccal\[([\w,]+)\]", text):
        named |= set(words.split(","))
    assert named <= set(EXTRAS)
    assert "parquet" in named


def test_urls_are_those_of_the_citation():
    (home,) = re.findall(r"url\s*= \{(.*?)\}", (ROOT / "README.md").read_text())
    urls = PROJECT["urls"]
    assert urls["Homepage"] == urls["Source"] == home
    assert urls["Issues"] == f"{home}/issues"
    assert urls["Changelog"].startswith(f"{home}/blob/main/")
    assert {"Documentation"} <= set(urls)


def test_every_pin_is_exact_and_torch_comes_first():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins[0].startswith("torch==")
    assert all("==" in pin for pin in pins)
