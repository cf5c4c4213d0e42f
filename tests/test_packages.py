"""The wheel and the sdist: built, installed into an empty environment each, and used there.

An environment is empty but for the packages that maccal depends on, which it borrows from the
environment of the tests: torch is not downloaded again. About half a minute of one core.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PROJECT = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
BUILT = {".so", ".pyd"}  # made by the compiler, not by us
SOURCES = {".c", ".h"}  # in the sdist alone

pytestmark = pytest.mark.slow


def run(*command, cwd, **more):
    """What it prints; its standard error if it fails."""
    outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=outside | more,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of what a package is made from, without anything compiled."""
    folder = tmp_path_factory.mktemp("project")
    leave_out = shutil.ignore_patterns("__pycache__", *(f"*{suffix}" for suffix in BUILT))
    shutil.copytree(ROOT / "maccal", folder / "maccal", ignore=leave_out)
    for name in PROJECT:
        shutil.copy(ROOT / name, folder / name)
    return folder


def built(project, hook):
    """The file that setuptools makes: `hook` is build_wheel or build_sdist."""
    out = project / "dist"
    out.mkdir(exist_ok=True)
    script = f"from setuptools.build_meta import {hook}; {hook}({str(out)!r})"
    before = set(out.iterdir())
    run(sys.executable, "-c", script, cwd=project)
    (made,) = set(out.iterdir()) - before
    return made


@pytest.fixture(scope="module")
def sdist(project):
    return built(project, "build_sdist")


@pytest.fixture(scope="module")
def wheel(project):
    return built(project, "build_wheel")


def files_of(folder):
    """Files of the package as it lies in a folder."""
    return {path.relative_to(folder).as_posix() for path in (folder / "maccal").rglob("*.*")}


def of_suffix(names, suffixes):
    return {name for name in names if Path(name).suffix in suffixes}


def test_the_wheel_has_every_file_and_the_compiled_loops(project, wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("maccal/")}
    here = files_of(project)
    assert {"maccal/py.typed", "maccal/bench/paper.json"} <= inside
    assert any(name.startswith("maccal/report/templates/") for name in inside)
    assert inside - of_suffix(inside, BUILT) == here - of_suffix(here, SOURCES)
    (kernels,) = of_suffix(inside, BUILT)
    assert kernels.startswith("maccal/metrics/_kernels")


def test_the_sdist_has_every_file_and_the_sources_in_c(project, sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert files_of(project) | set(PROJECT) <= names


SMOKE = """
import maccal, maccal.metrics._kernels, maccal.cli.main
print(maccal.__file__)
"""


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_installed_in_an_empty_environment(request, kind, tmp_path):
    """It imports from there with its compiled loops, and the command writes a row and a page."""
    package = request.getfixturevalue(kind)
    home = tmp_path / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python*/site-packages")
    # a path in a .pth file is searched, but the .pth files in it, such as that of an editable
    # install of maccal, are not read
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir"]
    run(python, "-m", "pip", "install", "--quiet", *offline, package, cwd=tmp_path)
    found = Path(run(python, "-c", SMOKE, cwd=tmp_path).strip())
    assert found == site / "maccal" / "__init__.py"

    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    np.savez(tmp_path / "small.npz", probs=probs, labels=np.array([0, 1, 1]))
    program = home / "bin" / "maccal"
    run(program, "evaluate", "small.npz", "--out", "out", "--resamples", "20", cwd=tmp_path)
    row = json.loads((tmp_path / "out" / "small.row.json").read_text())
    assert row["numbers"]["accuracy"] == pytest.approx(2 / 3)
    page = (tmp_path / "out" / "small.report.html").read_text()
    assert page.startswith("<!doctype html>")


def test_a_file_that_the_wheel_lacks_is_noticed(project, wheel):
    """The first test can fail: a data file that nothing names in pyproject.toml is not packed."""
    (project / "maccal" / "forgotten.json").write_text("{}")
    try:
        with pytest.raises(AssertionError, match=r"maccal/forgotten\.json"):
            test_the_wheel_has_every_file_and_the_compiled_loops(project, wheel)
    finally:
        (project / "maccal" / "forgotten.json").unlink()
